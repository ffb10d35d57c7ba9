"""Conversions between number formats (AMD CDNA4 ISA manual, VOP1 and VOP3 opcodes V_CVT_*)."""

from typing import Any

from asmlaunch.emulator.isa.floats import (
    BF8_FNUZ,
    BF8_OCP,
    F16_FORMAT,
    FP8_FNUZ,
    FP8_OCP,
    Format,
    bf16_bits,
    bf16_value,
    decode,
    encode,
    encode_stochastic,
    f16_bits,
)
from asmlaunch.emulator.isa.language import (
    F16,
    F32,
    F64,
    I16,
    I32,
    U8,
    U16,
    U32,
    U64,
    Fnuz,
    OpSel,
    Ovfl,
    concat,
    is_nan,
    round_down,
    select,
    truncate,
)
from asmlaunch.emulator.isa.table import compute, valu

# ---------------------------------------------------------------- integers


def _define_convert(name: str, source: Any, target: Any) -> None:
    def meaning(s0: source) -> target:
        return s0.to(target)

    compute("valu", f"v_cvt_{name}", meaning)


def _define_truncate(name: str, source: Any, target: Any) -> None:
    def meaning(s0: source) -> target:
        return truncate(s0, target)

    compute("valu", f"v_cvt_{name}", meaning)


_CONVERSIONS: tuple[tuple[str, Any, Any], ...] = (
    ("f32_i32", I32, F32), ("f32_u32", U32, F32), ("f64_i32", I32, F64), ("f64_u32", U32, F64),
    ("f16_u16", U16, F16), ("f16_i16", I16, F16),
    ("f32_f64", F64, F32), ("f64_f32", F32, F64), ("f16_f32", F32, F16), ("f32_f16", F16, F32),
)  # fmt: skip
for _name, _source, _target in _CONVERSIONS:
    _define_convert(_name, _source, _target)
_TRUNCATIONS: tuple[tuple[str, Any, Any], ...] = (
    ("u32_f32", F32, U32), ("i32_f32", F32, I32), ("u32_f64", F64, U32), ("i32_f64", F64, I32),
    ("u16_f16", F16, U16), ("i16_f16", F16, I16),
)  # fmt: skip
for _name, _source, _target in _TRUNCATIONS:
    _define_truncate(_name, _source, _target)


@valu
def v_cvt_rpi_i32_f32(s0: F32) -> I32:
    return truncate(round_down(s0 + 0.5), I32)


@valu
def v_cvt_flr_i32_f32(s0: F32) -> I32:
    return truncate(round_down(s0), I32)


@valu
def v_cvt_off_f32_i4(s0: U32) -> F32:
    # The table that the manual leaves out: 0, 1/16 .. 7/16, -8/16 .. -1/16 (LLVM: the number / 16).
    return ((s0 << 28).bits_as(I32) >> 28).to(F32) * 0.0625


def _define_byte(number: int) -> None:
    def meaning(s0: U32) -> F32:
        return ((s0 >> (8 * number)) & 0xFF).to(F32)

    compute("valu", f"v_cvt_f32_ubyte{number}", meaning)


for _number in range(4):
    _define_byte(_number)


def inserted(old: U32, value: U32, width: int, number: int) -> U32:
    """``value`` as the ``number``-th field of ``width`` bits of ``old``."""
    field = ((1 << width) - 1) << (width * number)
    return (old & ~U32.const(field)) | ((value << (width * number)) & field)


@valu
def v_cvt_pk_u8_f32(s0: F32, s1: U32, s2: U32) -> U32:
    place = (s1 & 3) * 8
    return (s2 & ~(U32.const(0xFF) << place)) | (truncate(s0, U8).to(U32) << place)


# ---------------------------------------------------------------- 16-bit floats


@valu(denormals="keep", note="NaN payloads and f32 denormals: the manual is silent; kept here")
def v_cvt_pk_bf16_f32(s0: F32, s1: F32) -> U32:
    return bf16_bits(s0) | (bf16_bits(s1) << 16)


@valu
def v_cvt_f32_bf16(s0: U16) -> F32:
    return bf16_value(s0.to(U32))


@valu
def v_cvt_pk_f16_f32(s0: F32, s1: F32) -> U32:
    return f16_bits(s0.to(F16)) | (f16_bits(s1.to(F16)) << 16)


def _towards_zero(value: F32) -> U32:
    """The pattern of ``value`` as f16, rounded towards zero: a finite number never becomes infinite."""
    code = encode_stochastic(value, U32.const(0), F16_FORMAT)
    infinite = (value.bits_as(U32) & 0x7FFFFFFF) == 0x7F800000
    return select(infinite, (code & 0x8000) | 0x7C00, code)


@valu
def v_cvt_pkrtz_f16_f32(s0: F32, s1: F32) -> U32:
    return _towards_zero(s0) | (_towards_zero(s1) << 16)


_SR_NOTE = "the manual's random bits are read as: added below the last bit that is kept, then truncated"


@valu(exact=False, note=_SR_NOTE)
def v_cvt_sr_f16_f32(d: U32, s0: F32, s1: U32, op_sel: OpSel) -> U32:
    code = encode_stochastic(s0, s1 >> 19, F16_FORMAT)
    return inserted(d, code, 16, op_sel.attr >> 3)


@valu(exact=False, note=_SR_NOTE)
def v_cvt_sr_bf16_f32(d: U32, s0: F32, s1: U32, op_sel: OpSel) -> U32:
    bits = s0.bits_as(U32)
    special = (bits & 0x7F800000) == 0x7F800000
    rounded = (bits + (s1 >> 16)) >> 16
    code = select(special, select(is_nan(s0), (bits >> 16) | 0x40, bits >> 16), rounded)
    return inserted(d, code, 16, op_sel.attr >> 3)


# ---------------------------------------------------------------- 8-bit floats

FORMATS: dict[str, tuple[Format, Format]] = {"fp8": (FP8_FNUZ, FP8_OCP), "bf8": (BF8_FNUZ, BF8_OCP)}


def byte_value(code: U32, name: str, fnuz: Fnuz) -> F32:
    """The number of an 8-bit code in the format of the processor."""
    here, ocp = FORMATS[name]
    return select(fnuz, decode(code, here), decode(code, ocp))


def byte_code(value: F32, name: str, fnuz: Fnuz, saturate: Ovfl) -> U32:
    """The 8-bit code of a number, rounded to nearest even."""
    here, ocp = FORMATS[name]
    return select(fnuz, encode(value, here, saturate), encode(value, ocp, saturate))


def _define_8_bits(name: str) -> None:
    dropped = 23 - FORMATS[name][0].mantissa

    def to_one(s0: U32, fnuz: Fnuz) -> F32:
        return byte_value(s0, name, fnuz)

    def to_two(s0: U32, fnuz: Fnuz) -> U64:
        low, high = byte_value(s0, name, fnuz), byte_value(s0 >> 8, name, fnuz)
        return concat(low.bits_as(U32), high.bits_as(U32))

    def from_two(d: U32, s0: F32, s1: F32, op_sel: OpSel, fnuz: Fnuz, saturate: Ovfl) -> U32:
        pair = byte_code(s0, name, fnuz, saturate) | (byte_code(s1, name, fnuz, saturate) << 8)
        return inserted(d, pair, 16, op_sel.attr >> 3)

    def stochastic(d: U32, s0: F32, s1: U32, op_sel: OpSel, fnuz: Fnuz, saturate: Ovfl) -> U32:
        here, ocp = FORMATS[name]
        random = s1 >> (32 - dropped)
        code = select(fnuz, encode_stochastic(s0, random, here, saturate), encode_stochastic(s0, random, ocp, saturate))
        return inserted(d, code, 8, op_sel.attr >> 2)

    compute("valu", f"v_cvt_f32_{name}", to_one)
    compute("valu", f"v_cvt_pk_f32_{name}", to_two)
    compute("valu", f"v_cvt_pk_{name}_f32", from_two)
    compute("valu", f"v_cvt_sr_{name}_f32", stochastic, exact=False, note=_SR_NOTE)


for _name in FORMATS:
    _define_8_bits(_name)
