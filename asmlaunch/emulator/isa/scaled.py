"""Conversions with a scale, V_CVT_SCALEF32_* (AMD CDNA4 ISA manual, VOP3 opcodes; gfx950).

The scale is 2**(e - 127), e the exponent field of an f32. Down: x / scale, rounded once. Up: x * scale, rounded once.
"""

from typing import Any

from asmlaunch.emulator.isa.conversions import inserted
from asmlaunch.emulator.isa.floats import (
    BF8_OCP,
    FP4,
    FP8_OCP,
    Format,
    bf16_bits,
    bf16_value,
    decode,
    encode,
    encode_stochastic,
    f16_bits,
    f16_value,
)
from asmlaunch.emulator.isa.language import F16, F32, F64, U32, U64, OpSel, Ovfl, concat, rounded_to_odd, select
from asmlaunch.emulator.isa.table import compute
from asmlaunch.emulator.isa.vector import next_random

_NOTE = "NaN, infinity and a scale of NaN follow AMD's host model of these conversions; the manual is silent"
_NARROW: dict[str, Format] = {"fp8": FP8_OCP, "bf8": BF8_OCP, "fp4": FP4}


def _scale(value: U32, inverse: bool) -> F64:
    """The scale, or 1 / scale, in f64; NaN for an exponent of 255."""
    exponent = ((value >> 23) & 0xFF).to(U64)
    biased = 1150 - exponent if inverse else exponent + 896
    return select(exponent == 255, F64.const(float("nan")), (biased << 52).bits_as(F64))


def _bf16(value: F64) -> U32:
    """Rounded to bfloat16 once."""
    return bf16_bits(rounded_to_odd(value))


#: The 16-bit pattern of an f64, and the number in the low half of a dword, by the 16-bit format.
_TO_WIDE: dict[str, Any] = {"f16": lambda value: f16_bits(value.to(F16)), "bf16": _bf16}
_FROM_WIDE: dict[str, Any] = {
    "f16": lambda bits: f16_value(bits).to(F64),
    "bf16": lambda bits: bf16_value(bits).to(F64),
}


def _up(code: U32, form: Format, scale: U32) -> F64:
    return decode(code, form).to(F64) * _scale(scale, inverse=False)


def _down(value: F64, form: Format, scale: U32, saturate: Ovfl) -> U32:
    return encode(value * _scale(scale, inverse=True), form, saturate)


def _source(dword: U32, width: int, op_sel: OpSel) -> U32:
    """The byte, or for pairs of bytes the half, that OP_SEL chooses."""
    return dword >> (8 * (op_sel.attr & 3) if width == 8 else 16 * (op_sel.attr & 1))


def _destination(d: U32, value: U32, width: int, op_sel: OpSel) -> U32:
    return inserted(d, value, width, op_sel.attr >> 2 & 3 if width == 8 else op_sel.attr >> 3)


def _define(name: str, meaning: Any, exact: bool = True) -> None:
    compute("valu", f"v_cvt_scalef32_{name}", meaning, note=_NOTE, exact=exact, denormals="mode")


def _define_up(narrow: str) -> None:
    form = _NARROW[narrow]
    width = 2 * form.bits

    def both(s0: U32, s1: U32, op_sel: OpSel) -> list[F64]:
        chosen = _source(s0, width, op_sel)
        return [_up(chosen >> (number * form.bits), form, s1) for number in range(2)]

    def to_f32(s0: U32, s1: U32, op_sel: OpSel) -> U64:
        low, high = (value.to(F32).bits_as(U32) for value in both(s0, s1, op_sel))
        return concat(low, high)

    _define(f"pk_f32_{narrow}", to_f32)
    for wide in ("f16", "bf16"):
        _define(f"pk_{wide}_{narrow}", _up_to_16(wide, both))
    if form.bits == 8:

        def one_f32(s0: U32, s1: U32, op_sel: OpSel) -> F32:
            return _up(_source(s0, 8, op_sel), form, s1).to(F32)

        def one_f16(d: U32, s0: U32, s1: U32, op_sel: OpSel) -> U32:
            value = f16_bits(_up(_source(s0, 8, op_sel), form, s1).to(F16))
            return inserted(d, value, 16, op_sel.attr >> 3)

        _define(f"f32_{narrow}", one_f32)
        _define(f"f16_{narrow}", one_f16)


def _up_to_16(wide: str, both: Any) -> Any:
    def meaning(s0: U32, s1: U32, op_sel: OpSel) -> U32:
        low, high = (_TO_WIDE[wide](value) for value in both(s0, s1, op_sel))
        return low | (high << 16)

    return meaning


def _define_down(narrow: str) -> None:
    form = _NARROW[narrow]
    width = 2 * form.bits

    def pair(values: list[F64], scale: U32, saturate: Ovfl) -> U32:
        low, high = (_down(value, form, scale, saturate) for value in values)
        return low | (high << form.bits)

    def from_f32(d: U32, s0: F32, s1: F32, s2: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        return _destination(d, pair([s0.to(F64), s1.to(F64)], s2, saturate), width, op_sel)

    _define(f"pk_{narrow}_f32", from_f32)
    for wide in ("f16", "bf16"):
        _define(f"pk_{narrow}_{wide}", _down_from_16(wide, pair, width))


def _down_from_16(wide: str, pair: Any, width: int) -> Any:
    def meaning(d: U32, s0: U32, s1: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        values = [_FROM_WIDE[wide](s0), _FROM_WIDE[wide](s0 >> 16)]
        return _destination(d, pair(values, s1, saturate), width, op_sel)

    return meaning


#: Mantissa digits of the sources: the random bits are the seed's highest, as many as are dropped.
_SOURCE_DIGITS = {"f32": 23, "f16": 10, "bf16": 7}


def _random(seed: U32, wide: str, form: Format) -> U64:
    """The seed's random bits, placed below the last digit that stays, in an f64's mantissa."""
    count = _SOURCE_DIGITS[wide] - form.mantissa
    return (seed >> (32 - count)).to(U64) << (52 - form.mantissa - count)


def _define_stochastic(narrow: str, wide: str) -> None:
    form = _NARROW[narrow]

    def code(value: F64, seed: U32, scale: U32, saturate: Ovfl) -> U32:
        scaled = value * _scale(scale, inverse=True)
        return encode_stochastic(scaled, _random(seed, wide, form), form, saturate)

    def one_f32(d: U32, s0: F32, s1: U32, s2: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        return _destination(d, code(s0.to(F64), s1, s2, saturate), 8, op_sel)

    def one_16(d: U32, s0: U32, s1: U32, s2: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        return _destination(d, code(_FROM_WIDE[wide](s0), s1, s2, saturate), 8, op_sel)

    def two(values: list[F64], d: U32, s1: U32, s2: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        low, high = code(values[0], s1, s2, saturate), code(values[1], next_random(s1), s2, saturate)
        return _destination(d, low | (high << 4), 8, op_sel)

    def two_f32(d: U32, s0: U64, s1: U32, s2: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        values = [(s0 >> (32 * number)).to(U32).bits_as(F32).to(F64) for number in range(2)]
        return two(values, d, s1, s2, op_sel, saturate)

    def two_16(d: U32, s0: U32, s1: U32, s2: U32, op_sel: OpSel, saturate: Ovfl) -> U32:
        return two([_FROM_WIDE[wide](s0), _FROM_WIDE[wide](s0 >> 16)], d, s1, s2, op_sel, saturate)

    if form is FP4:
        _define(f"sr_pk_fp4_{wide}", two_f32 if wide == "f32" else two_16, exact=False)
    else:
        _define(f"sr_{narrow}_{wide}", one_f32 if wide == "f32" else one_16, exact=False)


for _narrow in _NARROW:
    _define_up(_narrow)
    _define_down(_narrow)
    for _wide in _SOURCE_DIGITS:
        _define_stochastic(_narrow, _wide)
