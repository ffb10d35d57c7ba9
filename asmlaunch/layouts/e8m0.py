"""E8M0: the block scale of the MX formats, one byte that stands for ``2**(byte - 127)``; byte 255 is NaN.

The byte of a block comes from its largest magnitude by one of several rules in use; each is named here and none is a
silent default of another's. Source: OCP Microscaling Formats v1.0, section 5.4 (E8M0) and 6.3 (conversion).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts._tensors import accepts_torch, byte_view
from asmlaunch.layouts.formats import E2M1, Format, as_float

BIAS = 127
NAN = 255

ROUNDINGS = MappingProxyType(
    {
        "RoundDown": "floor_pow2(amax) / max_power; OCP's own rule, torchao FLOOR",
        "RoundUp": "ceil_pow2(amax / max); torchao RCEIL, NVIDIA, AITER's torch and HIP quantisers",
        "Even": "RoundDown of amax rounded to the element's mantissa; torchao EVEN, Quark; finite gives <= 254",
        "EvenRaw": "Even on f32 bits, where a carry out of the top binade is infinity: 255; AITER's Triton quantiser",
        "Ceil": "ceil_pow2(amax) / max_power; torchao CEIL",
    }
)
"""The scale rounding modes and who uses them.

``max`` is the element format's largest value, ``max_power`` the largest power of two not above it."""


@accepts_torch
def encode_e8m0(amax: np.ndarray, rounding: str = "RoundUp", element: Format = E2M1) -> np.ndarray:
    """The scale byte (uint8) of blocks whose largest magnitudes are ``amax``.

    Args:
        amax: floats, >= 0; any shape.
        rounding: a name of :data:`ROUNDINGS`.
        element: the format that the block's elements get.

    Scales below 2^-127 become byte 0 (so does a block of zeros), infinity and NaN become 255.

    Raises:
        LayoutError: an unknown mode, or negative values.
    """
    _check_rounding(rounding)
    amax = as_float(amax)
    if np.any(amax < 0):
        raise LayoutError("largest magnitudes of blocks", got=float(amax[amax < 0].flat[0]), need=">= 0")
    finite = np.isfinite(amax)
    fraction, exponent = np.frexp(np.where(finite, amax, 0))
    significand, power = 2 * fraction, exponent - 1  # in [1, 2), or 0
    limit, inclusive = _carry_limit(rounding, element)
    power = power + ((significand >= limit) if inclusive else (significand > limit))
    byte = np.where(power > BIAS, _top(rounding, element), power - element.max_power + BIAS)
    byte = np.where(amax == 0, 0, np.clip(byte, 0, NAN))
    return np.where(finite, byte, NAN).astype(np.uint8)


def _carry_limit(rounding: str, element: Format) -> tuple[float, bool]:
    """The significand of ``amax`` from which on (inclusive, or only above it) its power of two is rounded up."""
    return {
        "RoundDown": (2.0, True),
        "RoundUp": (element.max / 2.0**element.max_power, False),
        # Half a step of the element's mantissa below the next power of two.
        "Even": (2 - 2.0 ** -(element.mantissa_bits + 1), True),
        "EvenRaw": (2 - 2.0 ** -(element.mantissa_bits + 1), True),
        "Ceil": (1.0, False),
    }[rounding]


def _top(rounding: str, element: Format) -> int:
    """The byte of a finite ``amax`` whose power of two is rounded up to 2^128."""
    return {"Even": NAN - 1, "EvenRaw": NAN}.get(rounding, BIAS + 128 - element.max_power)


class F32Rule(NamedTuple):
    """A rounding mode for code that works on the bits of an f32.

    Attributes:
        carry: the exponent field of ``bits(amax) + carry``, less ``element.max_power`` and clamped to 0..254, is the
            scale byte.
        top: the byte where that field is 255 for a finite ``amax``.
        saturates: whether a scaled magnitude can be so large that the nearest step is above ``element.max``.
    """

    carry: int
    top: int
    saturates: bool


def f32_rule(rounding: str, element: Format = E2M1) -> F32Rule:
    """The rule of :func:`encode_e8m0` on the bits of an f32.

    Raises:
        LayoutError: an unknown mode.
    """
    _check_rounding(rounding)
    limit, inclusive = _carry_limit(rounding, element)
    mantissa = round((limit - 1) * 2**23)
    beyond = element.max / 2.0**element.max_power + 2.0 ** -(element.mantissa_bits + 1)
    return F32Rule(2**23 - mantissa - (not inclusive), _top(rounding, element), limit > beyond)


def _check_rounding(rounding: str) -> None:
    if rounding not in ROUNDINGS:
        raise LayoutError("scale rounding mode", got=repr(rounding), need=f"one of {', '.join(ROUNDINGS)}")


@accepts_torch
def decode_e8m0(scales: np.ndarray) -> np.ndarray:
    """float32 values of scale bytes; byte 0 is the subnormal 2^-127 and byte 255 is NaN.

    Raises:
        LayoutError: elements that are not single bytes.
    """
    return _TABLE[byte_view(scales, "E8M0 scales")]


_TABLE = np.append(np.ldexp(np.float64(1), np.arange(NAN) - BIAS), np.nan).astype(np.float32)
