"""Number formats smaller than 32 bits, as expressions: decode to f32, encode with one rounding.

Sources: AMD CDNA3 ISA manual section 7.2 (FNUZ), CDNA4 ISA manual section 7.3 (OCP), OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asmlaunch.emulator.isa.language import (
    F16,
    F32,
    F64,
    U16,
    U32,
    U64,
    Bool,
    Float,
    is_nan,
    magnitude,
    pattern,
    select,
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """A binary format: sign, ``exponent`` bits, ``mantissa`` bits.

    Attributes:
        bias: exponent bias.
        largest: code of the largest finite magnitude.
        overflow: code without sign of what lies above it where the conversion does not saturate, or None where it
            always does.
        nan: code without sign of a NaN, or None where the format has none.
        infinity: code of infinity, or None.
        unsigned_zero: the code of negative zero is the NaN (FNUZ).
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    largest: int
    overflow: int | None = None
    nan: int | None = None
    infinity: int | None = None
    unsigned_zero: bool = False

    @property
    def bits(self) -> int:
        """Width of a code."""
        return 1 + self.exponent + self.mantissa


FP8_OCP = Format("FP8 E4M3 (OCP)", 4, 3, 7, 0x7E, overflow=0x7F, nan=0x7F)
BF8_OCP = Format("BF8 E5M2 (OCP)", 5, 2, 15, 0x7B, overflow=0x7C, nan=0x7E, infinity=0x7C)
FP8_FNUZ = Format("FP8 E4M3 (FNUZ)", 4, 3, 8, 0x7F, overflow=0x80, nan=0x80, unsigned_zero=True)
BF8_FNUZ = Format("BF8 E5M2 (FNUZ)", 5, 2, 16, 0x7F, overflow=0x80, nan=0x80, unsigned_zero=True)
FP6 = Format("FP6 E2M3", 2, 3, 1, 0x1F)
BF6 = Format("BF6 E3M2", 3, 2, 3, 0x1F)
FP4 = Format("FP4 E2M1", 2, 1, 1, 0x7)
F16_FORMAT = Format("FP16", 5, 10, 15, 0x7BFF, nan=0x7E00)


def decode(code: U32, form: Format) -> F32:
    """The number that the lowest bits of ``code`` mean; higher bits are ignored."""
    low, sign_at = (1 << (form.bits - 1)) - 1, form.bits - 1
    size, sign = code & low, (code >> sign_at) & 1
    smallest = 2.0 ** (1 - form.bias - form.mantissa)
    normal = ((size << (23 - form.mantissa)) + ((127 - form.bias) << 23)).bits_as(F32)
    value = select(size < (1 << form.mantissa), size.to(F32) * smallest, normal)
    if form.infinity is not None:
        value = select(size == form.infinity, F32.const(float("inf")), value)
        value = select(size > form.infinity, F32.const(float("nan")), value)
    elif form.nan is not None and not form.unsigned_zero:
        value = select(size == form.nan, F32.const(float("nan")), value)
    signed = (value.bits_as(U32) | (sign << 31)).bits_as(F32)
    if form.unsigned_zero:
        return select((code & (low * 2 + 1)) == (1 << sign_at), F32.const(float("nan")), signed)
    return signed


def encode(value: F32 | F64, form: Format, saturate: Bool | None = None) -> U32:
    """The code of ``value``, rounded to nearest even.

    Args:
        saturate: whether what overflows becomes the largest finite number (MODE.FP16_OVFL); formats without infinity
            and NaN always saturate.
    """
    word: Any = U64 if isinstance(value, F64) else U32
    digits, bias = (52, 1023) if isinstance(value, F64) else (23, 127)
    size = pattern(magnitude(value))
    drop = digits - form.mantissa
    odd = (size >> drop) & 1
    normal = ((size + ((1 << (drop - 1)) - 1) + odd) >> drop) - ((bias - form.bias) << form.mantissa)
    # A number whose unit in the last place is the format's smallest denormal does the rounding of denormals.
    unit: Any = type(value).const(2.0 ** (1 - form.bias - form.mantissa + digits))
    plain: Any = magnitude(value)
    denormal = pattern(plain + unit) - pattern(unit)
    code = select(size < ((1 - form.bias + bias) << digits), denormal, normal)
    return _finish(value, code, size, word, digits, bias, form, saturate)


def encode_stochastic(value: F32 | F64, random: Any, form: Format, saturate: Bool | None = None) -> U32:
    """The code of ``value`` after random bits were added below the format's last bit, then truncated.

    Args:
        random: the bits, right-aligned, as many as the dropped mantissa has; the type is ``value``'s pattern.
    """
    word: Any = U64 if isinstance(value, F64) else U32
    digits, bias = (52, 1023) if isinstance(value, F64) else (23, 127)
    size = pattern(magnitude(value))
    drop = digits - form.mantissa
    normal = ((size + random) >> drop) - ((bias - form.bias) << form.mantissa)
    lowest = 1 - form.bias + bias
    exponent = size >> digits
    significand = (size & ((1 << digits) - 1)) | (1 << digits)
    shift = select(exponent < lowest, word.const(lowest) - exponent, word.const(0))
    shift = select(shift > digits + 1, word.const(digits + 1), shift)
    denormal = ((significand >> shift) + random) >> drop
    code = select(exponent < lowest, denormal, normal)
    return _finish(value, code, size, word, digits, bias, form, saturate)


def _finish(
    value: Any, code: Any, size: Any, word: Any, digits: int, bias: int, form: Format, saturate: Bool | None
) -> U32:
    """Overflow, NaN, infinity and the sign."""
    infinite = word.const((2 * bias + 1) << digits)
    above = (code > form.largest) | (size >= infinite)
    limited: Any = word.const(form.largest)
    if form.overflow is not None:
        code = select(above, select(saturate, limited, word.const(form.overflow)) if saturate is not None else
                      word.const(form.overflow), code)  # fmt: skip
    else:
        code = select(above, limited, code)
    if form.nan is not None:
        code = select(size > infinite, word.const(form.nan), code)
    sign = (pattern(value) >> (value.bits - 1)) << (form.bits - 1)
    if form.unsigned_zero:
        sign = select((code == 0) | (code == form.nan), word.const(0), sign)
    result: U32 = (code | sign).to(U32)
    return result


def bf16_bits(value: F32) -> U32:
    """The 16 bits of ``value`` as bfloat16, rounded to nearest even; a NaN stays one and becomes quiet."""
    bits = value.bits_as(U32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return select(is_nan(value), (bits >> 16) | 0x40, rounded)


def bf16_value(bits: U32) -> F32:
    """The number that the 16 low bits mean as bfloat16."""
    return (bits << 16).bits_as(F32)


def f16_bits(value: F16) -> U32:
    """The pattern, in the low half of a dword."""
    return value.bits_as(U16).to(U32)


def f16_value(bits: U32) -> F16:
    """The number that the 16 low bits mean."""
    return bits.to(U16).bits_as(F16)


def widened(value: Float) -> F64:
    """The same number in f64."""
    return value if isinstance(value, F64) else value.to(F64)


def e8m0_value(code: U32) -> F64:
    """2**(code - 127), NaN for 255 (OCP Microscaling Formats 1.0, E8M0)."""
    return select(code == 255, F64.const(float("nan")), ((code.to(U64) + 896) << 52).bits_as(F64))
