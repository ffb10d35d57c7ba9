"""Vector arithmetic, logic and lane moves: once a lane, under EXEC (AMD CDNA4 ISA manual, VOP1, VOP2, VOP3, VOPC
opcodes).
"""

from collections.abc import Callable

from asmlaunch.emulator.isa.floats import bf16_bits
from asmlaunch.emulator.isa.language import (
    F32,
    I32,
    U32,
    U64,
    Bool,
    Exec,
    Integer,
    Mask,
    Sgpr,
    count_trailing_zeros,
    lane,
    mask,
    read_lane,
    reciprocal,
    select,
    shuffle,
    truncate,
)
from asmlaunch.emulator.isa.table import compute, valu


@valu
def v_mov_b32(s0: U32) -> U32:
    return s0


@valu
def v_accvgpr_read_b32(s0: U32) -> U32:
    return s0


@valu
def v_accvgpr_write_b32(s0: U32) -> U32:
    return s0


@valu
def v_add_u32(s0: U32, s1: U32) -> U32:
    return s0 + s1


@valu
def v_sub_u32(s0: U32, s1: U32) -> U32:
    return s0 - s1


@valu
def v_subrev_u32(s0: U32, s1: U32) -> U32:
    return s1 - s0


@valu
def v_add_i32(s0: I32, s1: I32) -> I32:
    return s0 + s1


@valu
def v_mul_lo_u32(s0: U32, s1: U32) -> U32:
    return s0 * s1


@valu
def v_mul_hi_u32(s0: U32, s1: U32) -> U32:
    return ((s0.to(U64) * s1.to(U64)) >> 32).to(U32)


def _low_24_signed(value: I32) -> I32:
    return (value << 8) >> 8


@valu
def v_mul_i32_i24(s0: I32, s1: I32) -> I32:
    return _low_24_signed(s0) * _low_24_signed(s1)


@valu
def v_lshlrev_b32(s0: U32, s1: U32) -> U32:
    return s1 << (s0 & 31)


@valu
def v_lshrrev_b32(s0: U32, s1: U32) -> U32:
    return s1 >> (s0 & 31)


@valu
def v_and_b32(s0: U32, s1: U32) -> U32:
    return s0 & s1


@valu
def v_or_b32(s0: U32, s1: U32) -> U32:
    return s0 | s1


@valu
def v_cndmask_b32(s0: U32, s1: U32, condition: Mask) -> U32:
    return select(condition, s1, s0)


@valu
def v_mul_f32(s0: F32, s1: F32) -> F32:
    return s0 * s1


@valu(exact=False, note="the manual allows 1 ulp; here 1/x is correctly rounded")
def v_rcp_iflag_f32(s0: F32) -> F32:
    return reciprocal(s0)


@valu
def v_cvt_f32_u32(s0: U32) -> F32:
    return s0.to(F32)


@valu
def v_cvt_u32_f32(s0: F32) -> U32:
    return truncate(s0, U32)


@valu(denormals="keep", note="NaN payloads and f32 denormals: the manual is silent; kept here")
def v_cvt_pk_bf16_f32(s0: F32, s1: F32) -> U32:
    return bf16_bits(s0) | (bf16_bits(s1) << 16)


COMPARISONS: dict[str, Callable[[Integer, Integer], Bool]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
}


def _define_comparison(name: str, kind: type[Integer], compare: Callable[[Integer, Integer], Bool]) -> None:
    def meaning(s0: kind, s1: kind) -> Mask:  # type: ignore[valid-type]
        return mask(compare(s0, s1))

    compute("valu", f"v_cmp_{name}_{'u' if kind is U32 else 'i'}32", meaning)


for _name, _compare in COMPARISONS.items():
    for _kind in (I32, U32):
        _define_comparison(_name, _kind, _compare)


@valu
def v_readfirstlane_b32(s0: U32, exec: Exec) -> Sgpr:
    # With EXEC = 0 the lowest bit is "bit 64", and lane 0 is read.
    return read_lane(s0, count_trailing_zeros(exec).to(U32) & 63).bits_as(Sgpr)


@valu(exchanges=True)
def v_permlane16_swap_b32(d: U32, s0: U32) -> tuple[U32, U32]:
    odd_row = (lane() & 16) != 0
    return select(odd_row, shuffle(s0, lane() ^ 16), d), select(odd_row, s0, shuffle(d, lane() ^ 16))
