"""Number formats of up to eight bits, each described once by its fields; tables and conversions derive from that.

Sources: OCP Microscaling Formats (MX) v1.0 (E2M1, E2M3, E3M2, E4M3, E5M2, E8M0); the fnuz formats of AMD's CDNA3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

import numpy as np

from asmlaunch.errors import LayoutError

Specials = Literal["none", "ieee", "fn", "fnuz"]


@dataclass(frozen=True)
class Format:
    """A signed minifloat: ``(-1)^sign * 2^(exponent - bias) * 1.mantissa``, subnormal where the exponent field is 0.

    Attributes:
        specials: ``none``: every code is a number; ``ieee``: the highest exponent holds infinity and NaN; ``fn``: no
            infinity, NaN is the all-ones code of either sign; ``fnuz``: no infinity, no -0, NaN is the code of -0.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials

    @property
    def bits(self) -> int:
        """Bits of a code, sign included."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def sign_bit(self) -> int:
        """The code with only the sign set."""
        return 1 << (self.bits - 1)

    @cached_property
    def max_code(self) -> int:
        """The code of the largest finite number."""
        ones = self.sign_bit - 1
        return {"none": ones, "fnuz": ones, "fn": ones - 1, "ieee": ones - (1 << self.mantissa_bits)}[self.specials]

    @property
    def max(self) -> float:
        """The largest finite number."""
        return float(self.table[self.max_code])

    @property
    def max_power(self) -> int:
        """The exponent of the largest power of two not above ``max``."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @cached_property
    def table(self) -> np.ndarray:
        """float32 ``[2**bits]``: the exact value of every code."""
        code = np.arange(1 << self.bits)
        magnitude = code & (self.sign_bit - 1)
        exponent, mantissa = magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1)
        significand = mantissa + np.where(exponent > 0, 1 << self.mantissa_bits, 0)
        value = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - self.bias - self.mantissa_bits)
        value[magnitude > self.max_code] = np.nan
        if self.specials == "ieee":
            value[magnitude == self.max_code + 1] = np.inf
        value = np.copysign(value, np.where(code & self.sign_bit, -1.0, 1.0))
        if self.specials == "fnuz":
            value[self.sign_bit] = np.nan
        return value.astype(np.float32)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """float32 values of integer ``codes`` (any shape, one code an element).

        Raises:
            LayoutError: a code with more bits than the format has.
        """
        return _look_up(self.name, self.table, codes)

    def encode(self, values: np.ndarray, rounding: str = "NearestEven") -> np.ndarray:
        """uint8 codes for float ``values``, rounded as named (see :data:`ELEMENT_ROUNDINGS`), the sign of zero kept.

        Finite values beyond ``max`` become ``max``. NaN stays NaN and infinity stays infinity where the format has
        them; infinity becomes NaN where it only has NaN; without either both become ``max`` with the sign kept, as
        gfx950's conversions do (CDNA4 ISA, V_CVT_SCALEF32_PK_FP4_F32).

        Raises:
            LayoutError: values that are not floating-point numbers, or an unknown rounding.
        """
        x = as_float(values)
        magnitude = np.fmin(np.abs(x), self.max)
        # The binade a value is in, at least the lowest normal one: it fixes what one step of the mantissa is worth.
        exponent = np.where(magnitude == 0, 1 - self.bias, np.maximum(np.frexp(magnitude)[1] - 1, 1 - self.bias))
        steps = _round(np.ldexp(magnitude, self.mantissa_bits - exponent), rounding).astype(np.int32)
        # Codes count through the binades, so a carry out of the mantissa needs no care.
        codes = ((exponent + self.bias - 1) << self.mantissa_bits) + steps
        codes = np.where(np.isinf(x), self._infinity, np.where(np.isnan(x), self._nan, codes))
        sign = np.signbit(x)
        if self.specials == "fnuz":
            sign = sign & (codes != 0)
        return (codes | np.where(sign, self.sign_bit, 0)).astype(np.uint8)

    @property
    def _infinity(self) -> int:
        return {"ieee": self.max_code + 1, "none": self.max_code}.get(self.specials, self._nan)

    @property
    def _nan(self) -> int:
        ones = self.sign_bit - 1
        return {"ieee": ones, "fn": ones, "fnuz": self.sign_bit, "none": self.max_code}[self.specials]


@dataclass(frozen=True)
class Integer:
    """A signed integer in two's complement, with the interface of :class:`Format`."""

    name: str
    bits: int

    @property
    def max(self) -> float:
        """The largest number; the smallest is one further from zero."""
        return float(2 ** (self.bits - 1) - 1)

    @cached_property
    def table(self) -> np.ndarray:
        """float32 ``[2**bits]``: the value of every code."""
        code = np.arange(1 << self.bits)
        return np.where(code > self.max, code - (1 << self.bits), code).astype(np.float32)

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """float32 values of integer ``codes``; see :meth:`Format.decode`."""
        return _look_up(self.name, self.table, codes)

    def encode(self, values: np.ndarray, rounding: str = "NearestEven") -> np.ndarray:
        """uint8 codes of float ``values``, rounded as named and clamped to the range; NaN becomes 0.

        Raises:
            LayoutError: values that are not floating-point numbers, or an unknown rounding.
        """
        x = np.nan_to_num(as_float(values), nan=0.0, posinf=self.max, neginf=-self.max - 1)
        whole = np.copysign(_round(np.minimum(np.abs(x), self.max + 1), rounding), x)
        return (np.clip(whole, -self.max - 1, self.max).astype(np.int32) & ((1 << self.bits) - 1)).astype(np.uint8)


ELEMENT_ROUNDINGS = MappingProxyType(
    {
        "NearestEven": "to nearest, ties to the even code: IEEE, OCP, the hardware conversions",
        "NearestAway": "to nearest, ties away from zero: AITER's software FP4 on gfx942, tritonBLAS's quantiser",
        "TowardZero": "truncation: what torch's cast to an integer type does",
    }
)
"""The roundings of elements and who uses them."""


def _round(steps: np.ndarray, rounding: str) -> np.ndarray:
    """Numbers >= 0 rounded to whole ones."""
    if rounding not in ELEMENT_ROUNDINGS:
        raise LayoutError("element rounding", got=repr(rounding), need=f"one of {', '.join(ELEMENT_ROUNDINGS)}")
    if rounding == "NearestEven":
        return np.rint(steps)
    below = np.floor(steps)
    return below + (steps - below >= 0.5) if rounding == "NearestAway" else below


def _look_up(name: str, table: np.ndarray, codes: np.ndarray) -> np.ndarray:
    codes = np.asarray(codes)
    if codes.dtype.kind not in "iu":
        raise LayoutError(f"{name} codes", got=f"dtype {codes.dtype}", need="integers")
    top = len(table) - 1
    if codes.dtype == np.int8 and top == 255:
        codes = codes.view(np.uint8)
    if codes.size and (codes.min() < 0 or codes.max() > top):
        raise LayoutError(f"{name} codes", got=f"{codes.min()}..{codes.max()}", need=f"0..{top}")
    return table[codes]


def as_float(values: np.ndarray) -> np.ndarray:
    """``values`` as float64 where they are float64 and as float32 otherwise (float16 and bfloat16 fit exactly).

    Raises:
        LayoutError: values that are not floating-point numbers.
    """
    x = np.asarray(values)
    if x.dtype.kind == "f":
        return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)
    if x.dtype.name == "bfloat16":
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    raise LayoutError("values to encode", got=f"dtype {x.dtype}", need="float64, float32, float16 or bfloat16")


E2M1 = Format("e2m1", 2, 1, 1, "none")
E2M3 = Format("e2m3", 2, 3, 1, "none")
E3M2 = Format("e3m2", 3, 2, 3, "none")
E4M3FN = Format("e4m3fn", 4, 3, 7, "fn")
E4M3FNUZ = Format("e4m3fnuz", 4, 3, 8, "fnuz")
E5M2 = Format("e5m2", 5, 2, 15, "ieee")
E5M2FNUZ = Format("e5m2fnuz", 5, 2, 16, "fnuz")

INT4 = Integer("int4", 4)
INT8 = Integer("int8", 8)

FORMATS: Mapping[str, Format | Integer] = MappingProxyType(
    {f.name: f for f in (E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, INT4, INT8)}
)
"""Every element format, by name."""
