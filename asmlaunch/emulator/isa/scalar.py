"""Scalar arithmetic and logic: once a wave (AMD CDNA4 ISA manual, SOP1, SOP2, SOPC and SOPK opcodes)."""

from collections.abc import Callable

from asmlaunch.emulator.isa.language import I32, I64, U32, U64, Integer, Scc, Simm16, Value, select
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
def s_cselect_b32(s0: U32, s1: U32, scc: Scc) -> U32:
    return select(scc, s0, s1)


@salu
def s_add_u32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    wide = s0.to(U64) + s1.to(U64)
    return wide.to(U32), wide >= 0x1_0000_0000


@salu
def s_addc_u32(s0: U32, s1: U32, scc: Scc) -> tuple[U32, Scc]:
    wide = s0.to(U64) + s1.to(U64) + scc.to(U64)
    return wide.to(U32), wide >= 0x1_0000_0000


@salu
def s_sub_u32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return s0 - s1, s1 > s0


@salu
def s_subb_u32(s0: U32, s1: U32, scc: Scc) -> tuple[U32, Scc]:
    return s0 - s1 - scc.to(U32), s1.to(U64) + scc.to(U64) > s0.to(U64)


def _overflows(exact: I64) -> Value:
    return exact != exact.to(I32).to(I64)


@salu
def s_add_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    return s0 + s1, _overflows(s0.to(I64) + s1.to(I64))


@salu
def s_sub_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    return s0 - s1, _overflows(s0.to(I64) - s1.to(I64))


@salu
def s_addk_i32(d: I32, s0: Simm16) -> tuple[I32, Scc]:
    return d + s0.bits_as(I32), _overflows(d.to(I64) + s0.to(I64))


@salu
def s_mul_i32(s0: U32, s1: U32) -> U32:
    return s0 * s1


@salu
def s_mul_hi_u32(s0: U32, s1: U32) -> U32:
    return ((s0.to(U64) * s1.to(U64)) >> 32).to(U32)


@salu
def s_lshl_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    result = s0 << (s1 & 31)
    return result, result != 0


@salu
def s_lshr_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    result = s0 >> (s1 & 31)
    return result, result != 0


@salu
def s_and_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return s0 & s1, (s0 & s1) != 0


@salu
def s_or_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return s0 | s1, (s0 | s1) != 0


COMPARISONS: dict[str, Callable[[Integer, Integer], Value]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def _define_comparison(name: str, kind: type[Integer], compare: Callable[[Integer, Integer], Value]) -> None:
    def meaning(s0: kind, s1: kind) -> Scc:  # type: ignore[valid-type]
        return compare(s0, s1)  # type: ignore[return-value]

    compute("salu", f"s_cmp_{name}_{'u' if kind is U32 else 'i'}32", meaning)


for _name, _compare in COMPARISONS.items():
    for _kind in (I32, U32):
        _define_comparison(_name, _kind, _compare)
