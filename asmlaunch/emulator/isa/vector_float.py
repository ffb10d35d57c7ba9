"""Vector floating point: once a lane, under EXEC (AMD CDNA4 ISA manual, VOP1, VOP2, VOP3 and VOP3P opcodes).

NaN payloads are the host's: an operation on a NaN gives a quiet NaN, with the payload of one of its operands.
"""

from typing import Any

from asmlaunch.emulator.isa.language import (
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    U16,
    U32,
    Float,
    Ieee,
    Mask,
    Vcc,
    divide,
    fma,
    is_nan,
    is_negative,
    magnitude,
    mask,
    negate,
    pattern,
    round_down,
    round_to_even,
    round_to_zero,
    round_up,
    select,
)
from asmlaunch.emulator.isa.table import compute, valu

_DIGITS = {16: 10, 32: 23, 64: 52}


# ---------------------------------------------------------------- sums and products


def _define_two(name: str, kind: type[Float], operation: Any, **properties: Any) -> None:
    def meaning(s0: kind, s1: kind) -> kind:  # type: ignore[valid-type]
        return operation(s0, s1)

    compute("valu", f"v_{name}", meaning, **properties)


def _define_three(name: str, kind: type[Float], operation: Any, **properties: Any) -> None:
    def meaning(s0: kind, s1: kind, s2: kind) -> kind:  # type: ignore[valid-type]
        return operation(s0, s1, s2)

    compute("valu", f"v_{name}", meaning, **properties)


def _define_accumulating(name: str, kind: type[Float], operation: Any, **properties: Any) -> None:
    def meaning(d: kind, s0: kind, s1: kind) -> kind:  # type: ignore[valid-type]
        return operation(s0, s1, d)

    compute("valu", f"v_{name}", meaning, **properties)


def _mad(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


for _kind in (F16, F32, F64):
    _define_two(f"add_f{_kind.bits}", _kind, lambda a, b: a + b)
    _define_two(f"mul_f{_kind.bits}", _kind, lambda a, b: a * b)
for _kind in (F16, F32):
    _define_two(f"sub_f{_kind.bits}", _kind, lambda a, b: a - b)
    _define_two(f"subrev_f{_kind.bits}", _kind, lambda a, b: b - a)

_define_three("fma_f16", F16, fma, half="keep")
_define_three("fma_f32", F32, fma)
_define_three("fma_f64", F64, fma)
_define_three("fmaak_f32", F32, fma)
_define_three("fmamk_f32", F32, fma)
_define_three("mad_f16", F16, _mad, half="keep")
_define_three("mad_legacy_f16", F16, _mad)
_define_three("fma_legacy_f16", F16, fma)
_define_accumulating("fmac_f32", F32, fma)
_define_accumulating("fmac_f64", F64, fma)
_define_accumulating("mac_f16", F16, _mad)


@valu
def v_mul_legacy_f32(s0: F32, s1: F32) -> F32:
    return select((s0 == 0.0) | (s1 == 0.0), F32.const(0.0), s0 * s1)


@valu(mixed=True)
def v_fma_mix_f32(s0: F32, s1: F32, s2: F32) -> F32:
    return fma(s0, s1, s2)


@valu(mixed=True, half="low")
def v_fma_mixlo_f16(s0: F32, s1: F32, s2: F32) -> F16:
    return fma(s0, s1, s2).to(F16)


@valu(mixed=True, half="high")
def v_fma_mixhi_f16(s0: F32, s1: F32, s2: F32) -> F16:
    return fma(s0, s1, s2).to(F16)


_define_two("pk_add_f16", F16, lambda a, b: a + b, packed=True)
_define_two("pk_mul_f16", F16, lambda a, b: a * b, packed=True)
_define_three("pk_fma_f16", F16, fma, packed=True)
_define_accumulating("pk_fmac_f16", F16, fma, packed=True)
_define_two("pk_add_f32", F32, lambda a, b: a + b, packed=True)
_define_two("pk_mul_f32", F32, lambda a, b: a * b, packed=True)
_define_three("pk_fma_f32", F32, fma, packed=True)


def _halves(dword: U32) -> list[F32]:
    return [(dword >> (16 * number)).to(U16).bits_as(F16).to(F32) for number in range(2)]


def _bf16_halves(dword: U32) -> list[F32]:
    return [(dword << 16).bits_as(F32), (dword & 0xFFFF0000).bits_as(F32)]


_DOT_NOTE = "the manual does not say where the sum is rounded; here after each of the two additions, low element first"


def _dot(start: F32, a: list[F32], b: list[F32]) -> F32:
    for x, y in zip(a, b, strict=True):
        start = start + x * y
    return start


@valu(exact=False, note=_DOT_NOTE)
def v_dot2_f32_f16(s0: U32, s1: U32, s2: F32) -> F32:
    return _dot(s2, _halves(s0), _halves(s1))


@valu(exact=False, note=_DOT_NOTE.replace("low element first", "S2 last"))
def v_dot2_f32_bf16(s0: U32, s1: U32, s2: F32) -> F32:
    return _dot(F32.const(-0.0), _bf16_halves(s0), _bf16_halves(s1)) + s2


@valu(exact=False, note=_DOT_NOTE)
def v_dot2c_f32_f16(d: F32, s0: U32, s1: U32) -> F32:
    return _dot(d, _halves(s0), _halves(s1))


@valu(exact=False, note=_DOT_NOTE)
def v_dot2c_f32_bf16(d: F32, s0: U32, s1: U32) -> F32:
    return _dot(d, _bf16_halves(s0), _bf16_halves(s1))


# ---------------------------------------------------------------- minimum, maximum, median


def _quieted(value: Any) -> Any:
    """The same NaN, quiet."""
    return (pattern(value) | (1 << (_DIGITS[value.bits] - 1))).bits_as(type(value))


def _is_signalling(value: Any) -> Any:
    return is_nan(value) & (((pattern(value) >> (_DIGITS[value.bits] - 1)) & 1) == 0)


def _number_or_nan(a: Any, b: Any, ieee: Ieee, chosen: Any) -> Any:
    """The number of a number and a NaN; with MODE.IEEE a signalling NaN wins and becomes quiet."""
    result = select(is_nan(a), b, select(is_nan(b), a, chosen))
    quiet = select(_is_signalling(a), _quieted(a), _quieted(b))
    return select(ieee & (_is_signalling(a) | _is_signalling(b)), quiet, result)


def minimum(a: Any, b: Any, ieee: Ieee) -> Any:
    """The smaller number; -0 is smaller than +0."""
    equal = select(is_negative(a), a, b)
    return _number_or_nan(a, b, ieee, select(a == b, equal, select(a < b, a, b)))


def maximum(a: Any, b: Any, ieee: Ieee) -> Any:
    """The larger number; +0 is larger than -0."""
    equal = select(is_negative(a), b, a)
    return _number_or_nan(a, b, ieee, select(a == b, equal, select(a > b, a, b)))


def median(a: Any, b: Any, c: Any, ieee: Ieee) -> Any:
    """The middle one; with a NaN among them, the smallest."""
    largest = maximum(maximum(a, b, ieee), c, ieee)
    middle = select(largest == a, maximum(b, c, ieee), select(largest == b, maximum(a, c, ieee), maximum(a, b, ieee)))
    return select(is_nan(a) | is_nan(b) | is_nan(c), minimum(minimum(a, b, ieee), c, ieee), middle)


def _define_order(kind: type[Float]) -> None:
    suffix = f"f{kind.bits}"

    def smallest(s0: kind, s1: kind, ieee: Ieee) -> kind:  # type: ignore[valid-type]
        return minimum(s0, s1, ieee)

    def largest(s0: kind, s1: kind, ieee: Ieee) -> kind:  # type: ignore[valid-type]
        return maximum(s0, s1, ieee)

    compute("valu", f"v_min_{suffix}", smallest)
    compute("valu", f"v_max_{suffix}", largest)
    if kind is F16:
        compute("valu", "v_pk_min_f16", smallest, packed=True)
        compute("valu", "v_pk_max_f16", largest, packed=True)
    if kind is F64:
        return
    half = "keep" if kind is F16 else ""

    def smallest3(s0: kind, s1: kind, s2: kind, ieee: Ieee) -> kind:  # type: ignore[valid-type]
        return minimum(minimum(s0, s1, ieee), s2, ieee)

    def largest3(s0: kind, s1: kind, s2: kind, ieee: Ieee) -> kind:  # type: ignore[valid-type]
        return maximum(maximum(s0, s1, ieee), s2, ieee)

    def middle3(s0: kind, s1: kind, s2: kind, ieee: Ieee) -> kind:  # type: ignore[valid-type]
        return median(s0, s1, s2, ieee)

    compute("valu", f"v_min3_{suffix}", smallest3, half=half)
    compute("valu", f"v_max3_{suffix}", largest3, half=half)
    compute("valu", f"v_med3_{suffix}", middle3, half=half)


for _kind in (F16, F32, F64):
    _define_order(_kind)


def _with_nan(a: Any, b: Any, chosen: Any) -> Any:
    """IEEE 754-2019 minimum and maximum: a NaN wins."""
    return select(is_nan(a), _quieted(a), select(is_nan(b), _quieted(b), chosen))


def _minimum_2019(a: Any, b: Any) -> Any:
    return _with_nan(a, b, select(a == b, select(is_negative(a), a, b), select(a < b, a, b)))


def _maximum_2019(a: Any, b: Any) -> Any:
    return _with_nan(a, b, select(a == b, select(is_negative(a), b, a), select(a > b, a, b)))


for _name, _operation in (("minimum3", _minimum_2019), ("maximum3", _maximum_2019)):
    for _prefix, _kind, _packed in (("", F32, False), ("pk_", F16, True)):
        _define_three(
            f"{_prefix}{_name}_f{_kind.bits}",
            _kind,
            lambda a, b, c, operation=_operation: operation(operation(a, b), c),
            packed=_packed,
        )

# ---------------------------------------------------------------- rounding and parts


def _define_one(name: str, kind: type[Float], operation: Any, **properties: Any) -> None:
    def meaning(s0: kind) -> kind:  # type: ignore[valid-type]
        return operation(s0)

    compute("valu", f"v_{name}_f{kind.bits}", meaning, **properties)


def _fraction(value: Any) -> Any:
    return value - round_down(value)


for _kind in (F16, F32, F64):
    _define_one("trunc", _kind, round_to_zero)
    _define_one("ceil", _kind, round_up)
    _define_one("floor", _kind, round_down)
    _define_one("rndne", _kind, round_to_even)
    _define_one("fract", _kind, _fraction)


def _normalised(value: Any) -> tuple[Any, Any]:
    """A finite number as f64 and its exponent e, so that it is m * 2**e with m in [0.5, 1); 0 for zero."""
    wide = value if isinstance(value, F64) else value.to(F64)
    tiny = pattern(magnitude(wide)) < (1 << 52)
    scaled = select(tiny, wide * 2.0**54, wide)
    exponent = ((pattern(scaled) >> 52) & 0x7FF).to(U32).bits_as(I32) - 1022
    return scaled, select(wide == 0.0, I32.const(0), exponent - select(tiny, I32.const(54), I32.const(0)))


def _mantissa(scaled: Any) -> Any:
    """The same digits in [0.5, 1)."""
    bits = (pattern(scaled) & 0x800FFFFFFFFFFFFF) | (1022 << 52)
    return select(scaled == 0.0, scaled, bits.bits_as(F64))


def _is_finite(value: Any) -> Any:
    return magnitude(value) < float("inf")


def frexp_exponent(value: Any) -> Any:
    """The exponent of a mantissa in [0.5, 1); 0 for infinities and NaNs."""
    return select(_is_finite(value), _normalised(value)[1], I32.const(0))


def frexp_mantissa(value: Any) -> Any:
    """The mantissa in [0.5, 1) with the sign; infinities and NaNs as they are."""
    mantissa = _mantissa(_normalised(value)[0])
    narrow = mantissa if isinstance(value, F64) else mantissa.to(type(value))
    return select(_is_finite(value), narrow, value)


def _power_of_two(exponent: Any) -> Any:
    """2**exponent for -1074..1023 as f64."""
    biased = (exponent + 1023).to(I64)
    normal = (biased << 52).bits_as(F64)
    shift = select(biased > 0, I64.const(51), biased + 51)
    denormal = (I64.const(1) << (shift & 63)).bits_as(F64)
    return select(biased > 0, normal, denormal)


def _limited(value: Any, low: int, high: int) -> Any:
    return select(value < low, I32.const(low), select(value > high, I32.const(high), value))


def scaled_by(value: Any, exponent: Any) -> Any:
    """``value * 2**exponent`` with one rounding."""
    kind = type(value)
    if not isinstance(value, F64):
        return (value.to(F64) * _power_of_two(_limited(exponent, -400, 400))).to(kind)
    scaled, own = _normalised(value)
    total = _limited(exponent, -5000, 5000) + own
    upper = _limited(total, -1021, 1025)
    half = upper >> 1
    exact = _mantissa(scaled) * _power_of_two(half) * _power_of_two(upper - half)
    result = exact * _power_of_two(_limited(total + 1021, -1074, 0))
    return select(_is_finite(value) & (value != 0.0), result, value)


@valu
def v_ldexp_f16(s0: F16, s1: I16) -> F16:
    return scaled_by(s0, s1.to(I32))


@valu
def v_ldexp_f32(s0: F32, s1: I32) -> F32:
    return scaled_by(s0, s1)


@valu
def v_ldexp_f64(s0: F64, s1: I32) -> F64:
    return scaled_by(s0, s1)


@valu
def v_frexp_exp_i32_f32(s0: F32) -> I32:
    return frexp_exponent(s0)


@valu
def v_frexp_exp_i32_f64(s0: F64) -> I32:
    return frexp_exponent(s0)


@valu
def v_frexp_exp_i16_f16(s0: F16) -> I16:
    return frexp_exponent(s0).to(I16)


for _kind in (F16, F32, F64):
    _define_one("frexp_mant", _kind, frexp_mantissa)

# ---------------------------------------------------------------- division


def _exponent(value: Any) -> Any:
    """The exponent field."""
    digits = _DIGITS[value.bits]
    return ((pattern(value) >> digits) & ((1 << (value.bits - 1 - digits)) - 1)).to(U32).bits_as(I32)


def _is_denormal(value: Any) -> Any:
    return (_exponent(value) == 0) & (value != 0.0)


def _div_scale(s0: Any, s1: Any, s2: Any, step: int, far: int, tiny: int) -> tuple[Any, Any]:
    """S0 scaled so that S2 / S1 neither overflows nor loses digits, and whether v_div_fmas must scale back.

    S0 is one of the other two, S1 the denominator and S2 the numerator.
    """
    kind = type(s0)
    up, down = scaled_by(s0, I32.const(step)), scaled_by(s0, I32.const(-step))
    inverse_tiny = _is_denormal(divide(F64.const(1.0), s1 if kind is F64 else s1.to(F64)))
    quotient_tiny = _is_denormal(divide(s2, s1))
    zero = (s2 == 0.0) | (s1 == 0.0)
    near_largest = (_exponent(s2) - _exponent(s1)) >= far
    both = inverse_tiny & quotient_tiny
    denominator = select(s0 == s1, up, s0)
    numerator = select(s0 == s2, up, s0)
    last = select(_exponent(s2) <= tiny, up, s0)
    result = select(
        near_largest,
        denominator,
        select(
            _is_denormal(s1),
            up,
            select(both, denominator, select(inverse_tiny, down, select(quotient_tiny, numerator, last))),
        ),
    )
    flag = near_largest | (~_is_denormal(s1) & (both | (~inverse_tiny & quotient_tiny)))
    return select(zero, kind.const(float("nan")), result), mask(~zero & flag)


@valu(denormals="keep")
def v_div_scale_f32(s0: F32, s1: F32, s2: F32) -> tuple[F32, Mask]:
    return _div_scale(s0, s1, s2, 64, 96, 23)


@valu(denormals="keep")
def v_div_scale_f64(s0: F64, s1: F64, s2: F64) -> tuple[F64, Mask]:
    return _div_scale(s0, s1, s2, 128, 768, 53)


@valu
def v_div_fmas_f32(s0: F32, s1: F32, s2: F32, vcc: Vcc) -> F32:
    result = fma(s0, s1, s2)
    return select(vcc, result * 2.0**32, result)


@valu
def v_div_fmas_f64(s0: F64, s1: F64, s2: F64, vcc: Vcc) -> F64:
    result = fma(s0, s1, s2)
    return select(vcc, result * 2.0**64, result)


def _div_fixup(quotient: Any, denominator: Any, numerator: Any, below: int | None) -> Any:
    """The quotient, or what the special cases of a division give."""
    kind = type(quotient)
    negative = is_negative(denominator) ^ is_negative(numerator)

    def signed(value: Any) -> Any:
        return select(negative, negate(value), value)

    infinity, zero = kind.const(float("inf")), kind.const(0.0)
    size_d, size_n = magnitude(denominator), magnitude(numerator)
    result = signed(magnitude(quotient))
    if below is not None:
        result = select((_exponent(numerator) - _exponent(denominator)) < below, signed(zero), result)
    result = select((size_d == infinity) | (numerator == 0.0), signed(zero), result)
    result = select((denominator == 0.0) | (size_n == infinity), signed(infinity), result)
    invalid = ((denominator == 0.0) & (numerator == 0.0)) | ((size_d == infinity) & (size_n == infinity))
    indefinite = negate(_quieted(infinity))
    result = select(invalid, indefinite, result)
    result = select(is_nan(denominator), _quieted(denominator), result)
    return select(is_nan(numerator), _quieted(numerator), result)


@valu(note="where the quotient underflows the manual gives a constant that it does not name; 0 here")
def v_div_fixup_f32(s0: F32, s1: F32, s2: F32) -> F32:
    return _div_fixup(s0, s1, s2, -150)


@valu(note="where the quotient underflows the manual gives a constant that it does not name; 0 here")
def v_div_fixup_f64(s0: F64, s1: F64, s2: F64) -> F64:
    return _div_fixup(s0, s1, s2, -1075)


@valu(half="keep")
def v_div_fixup_f16(s0: F16, s1: F16, s2: F16) -> F16:
    return _div_fixup(s0, s1, s2, None)


@valu
def v_div_fixup_legacy_f16(s0: F16, s1: F16, s2: F16) -> F16:
    return _div_fixup(s0, s1, s2, None)
