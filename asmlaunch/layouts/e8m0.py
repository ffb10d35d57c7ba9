"""E8M0: the block scale of the MX formats, one byte that stands for ``2**(byte - 127)``; byte 255 is NaN.

The byte of a block comes from its largest magnitude by one of several rules in use; each is named here and none is a
silent default of another's. Source: OCP Microscaling Formats v1.0, section 5.4 (E8M0) and 6.3 (conversion).
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.formats import E2M1, Format, as_float
from asmlaunch.layouts.fp4 import as_bytes

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
    if rounding not in ROUNDINGS:
        raise LayoutError("scale rounding mode", got=repr(rounding), need=f"one of {', '.join(ROUNDINGS)}")
    amax = as_float(amax)
    if np.any(amax < 0):
        raise LayoutError("largest magnitudes of blocks", got=float(amax[amax < 0].flat[0]), need=">= 0")
    finite = np.isfinite(amax)
    fraction, exponent = np.frexp(np.where(finite, amax, 0))
    significand, power = 2 * fraction, exponent - 1  # in [1, 2), or 0
    round_up = {
        "RoundDown": significand >= 2,
        "RoundUp": significand > element.max / 2.0**element.max_power,
        # Half a step of the element's mantissa below the next power of two.
        "Even": significand >= 2 - 2.0 ** -(element.mantissa_bits + 1),
        "EvenRaw": significand >= 2 - 2.0 ** -(element.mantissa_bits + 1),
        "Ceil": significand > 1,
    }[rounding]
    power = power + round_up
    byte = np.clip(power - element.max_power + BIAS, 0, NAN - 1)
    byte = np.where(amax == 0, 0, byte)
    if rounding in ("Even", "EvenRaw"):
        byte = np.where(power > BIAS, NAN if rounding == "EvenRaw" else NAN - 1, byte)
    return np.where(finite, byte, NAN).astype(np.uint8)


def decode_e8m0(scales: np.ndarray) -> np.ndarray:
    """float32 values of scale bytes; byte 0 is the subnormal 2^-127 and byte 255 is NaN.

    Raises:
        LayoutError: elements that are not single bytes.
    """
    return _TABLE[as_bytes(scales, "E8M0 scales")]


_TABLE = np.append(np.ldexp(np.float64(1), np.arange(NAN) - BIAS), np.nan).astype(np.float32)
