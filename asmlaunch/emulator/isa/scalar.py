"""Scalar arithmetic and logic: once a wave (AMD CDNA4 ISA manual, SOP1, SOP2, SOPC and SOPK opcodes)."""

from collections.abc import Callable

from asmlaunch.emulator.isa.language import I32, I64, U32, U64, Bool, Integer, Scc, Simm16, scc, select
from asmlaunch.emulator.isa.table import compute, salu


@salu
def s_mov_b32(s0: U32) -> U32:
    return s0


@salu
def s_mov_b64(s0: U64) -> U64:
    return s0


@salu
def s_movk_i32(s0: Simm16) -> I32:
    return s0.bits_as(I32)


@salu
def s_cselect_b32(s0: U32, s1: U32, condition: Scc) -> U32:
    return select(condition, s0, s1)


@salu
def s_add_u32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    wide = s0.to(U64) + s1.to(U64)
    return wide.to(U32), scc(wide >= 0x1_0000_0000)


@salu
def s_addc_u32(s0: U32, s1: U32, carry: Scc) -> tuple[U32, Scc]:
    wide = s0.to(U64) + s1.to(U64) + carry.to(U64)
    return wide.to(U32), scc(wide >= 0x1_0000_0000)


@salu
def s_sub_u32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return s0 - s1, scc(s1 > s0)


@salu
def s_subb_u32(s0: U32, s1: U32, borrow: Scc) -> tuple[U32, Scc]:
    return s0 - s1 - borrow.to(U32), scc(s1.to(U64) + borrow.to(U64) > s0.to(U64))


def _overflow(exact: I64) -> Scc:
    return scc(exact != exact.to(I32).to(I64))


@salu
def s_add_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    return s0 + s1, _overflow(s0.to(I64) + s1.to(I64))


@salu
def s_sub_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    return s0 - s1, _overflow(s0.to(I64) - s1.to(I64))


@salu
def s_addk_i32(d: I32, s0: Simm16) -> tuple[I32, Scc]:
    return d + s0.bits_as(I32), _overflow(d.to(I64) + s0.to(I64))


@salu
def s_mul_i32(s0: U32, s1: U32) -> U32:
    return s0 * s1


@salu
def s_mul_hi_u32(s0: U32, s1: U32) -> U32:
    return ((s0.to(U64) * s1.to(U64)) >> 32).to(U32)


@salu
def s_lshl_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    result = s0 << (s1 & 31)
    return result, scc(result != 0)


@salu
def s_lshr_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    result = s0 >> (s1 & 31)
    return result, scc(result != 0)


@salu
def s_and_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return s0 & s1, scc((s0 & s1) != 0)


@salu
def s_or_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return s0 | s1, scc((s0 | s1) != 0)


COMPARISONS: dict[str, Callable[[Integer, Integer], Bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def _define_comparison(name: str, kind: type[Integer], compare: Callable[[Integer, Integer], Bool]) -> None:
    def meaning(s0: kind, s1: kind) -> Scc:  # type: ignore[valid-type]
        return scc(compare(s0, s1))

    compute("salu", f"s_cmp_{name}_{'u' if kind is U32 else 'i'}32", meaning)


for _name, _compare in COMPARISONS.items():
    for _kind in (I32, U32):
        _define_comparison(_name, _kind, _compare)
