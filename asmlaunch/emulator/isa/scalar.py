"""Scalar arithmetic and logic: once a wave (AMD CDNA4 ISA manual, SOP1, SOP2, SOPC and SOPK opcodes)."""

from collections.abc import Callable
from typing import Any

from asmlaunch.emulator.isa.compare import ORDER, Compare
from asmlaunch.emulator.isa.language import (
    I8,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    Clock,
    Exec,
    Integer,
    Scc,
    Simm16,
    count_leading_zeros,
    count_ones,
    count_trailing_zeros,
    reverse_bits,
    scc,
    select,
)
from asmlaunch.emulator.isa.table import compute, salu

# ---------------------------------------------------------------- moves


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
def s_cmov_b32(d: U32, s0: U32, condition: Scc) -> U32:
    return select(condition, s0, d)


@salu
def s_cmov_b64(d: U64, s0: U64, condition: Scc) -> U64:
    return select(condition, s0, d)


@salu
def s_cmovk_i32(d: I32, s0: Simm16, condition: Scc) -> I32:
    return select(condition, s0.bits_as(I32), d)


@salu
def s_cselect_b32(s0: U32, s1: U32, condition: Scc) -> U32:
    return select(condition, s0, s1)


@salu
def s_cselect_b64(s0: U64, s1: U64, condition: Scc) -> U64:
    return select(condition, s0, s1)


# ---------------------------------------------------------------- additions and multiplications


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
def s_mulk_i32(d: I32, s0: Simm16) -> I32:
    return d * s0.bits_as(I32)


@salu
def s_mul_i32(s0: U32, s1: U32) -> U32:
    return s0 * s1


@salu
def s_mul_hi_u32(s0: U32, s1: U32) -> U32:
    return ((s0.to(U64) * s1.to(U64)) >> 32).to(U32)


@salu
def s_mul_hi_i32(s0: I32, s1: I32) -> I32:
    return ((s0.to(I64) * s1.to(I64)) >> 32).to(I32)


def _define_shift_add(count: int) -> None:
    def meaning(s0: U32, s1: U32) -> tuple[U32, Scc]:
        wide = (s0.to(U64) << count) + s1.to(U64)
        return wide.to(U32), scc(wide >= 0x1_0000_0000)

    compute("salu", f"s_lshl{count}_add_u32", meaning)


for _count in (1, 2, 3, 4):
    _define_shift_add(_count)


@salu
def s_abs_i32(s0: I32) -> tuple[I32, Scc]:
    result = select(s0 < 0, 0 - s0, s0)
    return result, scc(result != 0)


@salu
def s_absdiff_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    difference = s0 - s1
    result = select(difference < 0, 0 - difference, difference)
    return result, scc(result != 0)


@salu
def s_min_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    return select(s0 < s1, s0, s1), scc(s0 < s1)


@salu
def s_min_u32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return select(s0 < s1, s0, s1), scc(s0 < s1)


@salu
def s_max_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    return select(s0 >= s1, s0, s1), scc(s0 >= s1)


@salu
def s_max_u32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    return select(s0 >= s1, s0, s1), scc(s0 >= s1)


# ---------------------------------------------------------------- logic

LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
}


def _define_logic(name: str, kind: type[Integer], operation: Callable[[Any, Any], Any]) -> None:
    def meaning(s0: kind, s1: kind) -> tuple[kind, Scc]:  # type: ignore[valid-type]
        result = operation(s0, s1)
        return result, scc(result != 0)

    compute("salu", f"s_{name}_b{kind.bits}", meaning)


def _define_saveexec(name: str, operation: Callable[[Any, Any], Any]) -> None:
    """D = EXEC, EXEC = S0 op EXEC."""

    def meaning(s0: U64, exec: Exec) -> tuple[U64, Exec, Scc]:
        new = operation(s0, exec.bits_as(U64))
        return exec.bits_as(U64), new.bits_as(Exec), scc(new != 0)

    compute("salu", f"s_{name}_saveexec_b64", meaning)


def _define_writeexec(name: str, operation: Callable[[Any, Any], Any]) -> None:
    """EXEC = S0 op EXEC, D = EXEC."""

    def meaning(s0: U64, exec: Exec) -> tuple[U64, Exec, Scc]:
        new = operation(s0, exec.bits_as(U64))
        return new, new.bits_as(Exec), scc(new != 0)

    compute("salu", f"s_{name}_wrexec_b64", meaning)


_WORDS: tuple[type[Integer], ...] = (U32, U64)
_FIELDS: tuple[type[Integer], ...] = (U32, I32, U64, I64)

for _name, _operation in LOGIC.items():
    for _kind in _WORDS:
        _define_logic(_name, _kind, _operation)
    _define_saveexec(_name, _operation)
_define_saveexec("andn1", lambda a, b: ~a & b)
_define_saveexec("orn1", lambda a, b: ~a | b)
_define_writeexec("andn1", lambda a, b: ~a & b)
_define_writeexec("andn2", lambda a, b: a & ~b)


@salu
def s_not_b32(s0: U32) -> tuple[U32, Scc]:
    return ~s0, scc(~s0 != 0)


@salu
def s_not_b64(s0: U64) -> tuple[U64, Scc]:
    return ~s0, scc(~s0 != 0)


# ---------------------------------------------------------------- shifts and bit fields


@salu
def s_lshl_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    result = s0 << (s1 & 31)
    return result, scc(result != 0)


@salu
def s_lshl_b64(s0: U64, s1: U32) -> tuple[U64, Scc]:
    result = s0 << (s1 & 63).to(U64)
    return result, scc(result != 0)


@salu
def s_lshr_b32(s0: U32, s1: U32) -> tuple[U32, Scc]:
    result = s0 >> (s1 & 31)
    return result, scc(result != 0)


@salu
def s_lshr_b64(s0: U64, s1: U32) -> tuple[U64, Scc]:
    result = s0 >> (s1 & 63).to(U64)
    return result, scc(result != 0)


@salu
def s_ashr_i32(s0: I32, s1: I32) -> tuple[I32, Scc]:
    result = s0 >> (s1 & 31)
    return result, scc(result != 0)


@salu
def s_ashr_i64(s0: I64, s1: U32) -> tuple[I64, Scc]:
    result = s0 >> (s1 & 63).to(I64)
    return result, scc(result != 0)


@salu
def s_bfm_b32(s0: U32, s1: U32) -> U32:
    return ((U32.const(1) << (s0 & 31)) - 1) << (s1 & 31)


@salu
def s_bfm_b64(s0: U32, s1: U32) -> U64:
    return ((U64.const(1) << (s0 & 63).to(U64)) - 1) << (s1 & 63).to(U64)


def bit_field(value: Any, first: Any, width: Any) -> Any:
    """``width`` bits of ``value`` from bit ``first`` up; a signed type extends their highest one.

    The sum of both may exceed the type: copies of the sign follow its highest bit. A width of 0 gives 0.
    """
    kind = type(value)
    unsigned = U32 if kind.bits == 32 else U64
    shifted = (value >> first.bits_as(kind)).bits_as(unsigned)
    spare = select(width >= kind.bits, unsigned.const(0), kind.bits - width)
    # Shifted to the top and back again, which extends by the type's sign.
    field = (shifted << (spare & (kind.bits - 1))).bits_as(kind) >> (spare & (kind.bits - 1)).bits_as(kind)
    return select(width == 0, kind.const(0), field)


def _define_bit_field(kind: type[Integer]) -> None:
    name = f"s_bfe_{'i' if kind.signed else 'u'}{kind.bits}"
    unsigned: Any = U32 if kind.bits == 32 else U64

    def meaning(s0: kind, s1: U32) -> tuple[kind, Scc]:  # type: ignore[valid-type]
        first, width = (s1 & (kind.bits - 1)).to(unsigned), ((s1 >> 16) & 0x7F).to(unsigned)
        result = bit_field(s0, first, width)
        return result, scc(result != 0)

    compute("salu", name, meaning)


for _kind in _FIELDS:
    _define_bit_field(_kind)


@salu
def s_bitset0_b32(d: U32, s0: U32) -> U32:
    return d & ~(U32.const(1) << (s0 & 31))


@salu
def s_bitset1_b32(d: U32, s0: U32) -> U32:
    return d | (U32.const(1) << (s0 & 31))


@salu
def s_bitset0_b64(d: U64, s0: U32) -> U64:
    return d & ~(U64.const(1) << (s0 & 63).to(U64))


@salu
def s_bitset1_b64(d: U64, s0: U32) -> U64:
    return d | (U64.const(1) << (s0 & 63).to(U64))


def _define_bit_test(bits: int, value: int) -> None:
    kind: Any = U32 if bits == 32 else U64

    def meaning(s0: kind, s1: U32) -> Scc:
        return scc(((s0 >> (s1 & (bits - 1)).to(kind)) & 1) == value)

    compute("salu", f"s_bitcmp{value}_b{bits}", meaning)


for _bits in (32, 64):
    for _value in (0, 1):
        _define_bit_test(_bits, _value)


@salu
def s_sext_i32_i8(s0: U32) -> I32:
    return s0.to(I8).to(I32)


@salu
def s_sext_i32_i16(s0: U32) -> I32:
    return s0.to(I16).to(I32)


def _pack(low: U32, high: U32) -> U32:
    return (low & 0xFFFF) | (high << 16)


@salu
def s_pack_ll_b32_b16(s0: U32, s1: U32) -> U32:
    return _pack(s0, s1)


@salu
def s_pack_lh_b32_b16(s0: U32, s1: U32) -> U32:
    return _pack(s0, s1 >> 16)


@salu
def s_pack_hh_b32_b16(s0: U32, s1: U32) -> U32:
    return _pack(s0 >> 16, s1 >> 16)


# ---------------------------------------------------------------- counting and searching bits


def _or_minus_one(count: Any, width: int) -> I32:
    """A count of zeros, or -1 where the whole word is zeros."""
    return select(count == width, I32.const(-1), count.to(U32).bits_as(I32))


def _sign_run(value: Any) -> I32:
    """Bits that equal the sign bit, from the top, the sign bit among them; -1 if all do."""
    kind: Any = U32 if value.bits == 32 else U64
    changed = value.bits_as(kind) ^ (value >> (value.bits - 1)).bits_as(kind)
    return _or_minus_one(count_leading_zeros(changed), value.bits)


def _define_counts(bits: int) -> None:
    kind: Any = U32 if bits == 32 else U64
    signed: Any = I32 if bits == 32 else I64

    def count0(s0: kind) -> tuple[I32, Scc]:
        result = count_ones(~s0).to(U32)
        return result.bits_as(I32), scc(result != 0)

    def count1(s0: kind) -> tuple[I32, Scc]:
        result = count_ones(s0).to(U32)
        return result.bits_as(I32), scc(result != 0)

    def first0(s0: kind) -> I32:
        return _or_minus_one(count_trailing_zeros(~s0), bits)

    def first1(s0: kind) -> I32:
        return _or_minus_one(count_trailing_zeros(s0), bits)

    def last1(s0: kind) -> I32:
        return _or_minus_one(count_leading_zeros(s0), bits)

    def sign_run(s0: signed) -> I32:
        return _sign_run(s0)

    def reverse(s0: kind) -> kind:
        return reverse_bits(s0)

    for name, meaning in (
        (f"s_bcnt0_i32_b{bits}", count0), (f"s_bcnt1_i32_b{bits}", count1),
        (f"s_ff0_i32_b{bits}", first0), (f"s_ff1_i32_b{bits}", first1), (f"s_flbit_i32_b{bits}", last1),
        ("s_flbit_i32" if bits == 32 else "s_flbit_i32_i64", sign_run), (f"s_brev_b{bits}", reverse),
    ):  # fmt: skip
        compute("salu", name, meaning)


def _define_quads(bits: int) -> None:
    kind: Any = U32 if bits == 32 else U64
    lowest = sum(1 << position for position in range(0, bits, 4))

    def any_of_four(value: Any) -> Any:
        return (value | (value >> 1) | (value >> 2) | (value >> 3)) & lowest

    def whole(s0: kind) -> tuple[kind, Scc]:
        result = any_of_four(s0) * 15
        return result, scc(result != 0)

    def mask(s0: kind) -> tuple[kind, Scc]:
        quads, result = any_of_four(s0), kind.const(0)
        for number in range(bits // 4):
            result = result | (((quads >> (4 * number)) & 1) << number)
        return result, scc(result != 0)

    compute("salu", f"s_wqm_b{bits}", whole)
    compute("salu", f"s_quadmask_b{bits}", mask)


for _bits in (32, 64):
    _define_counts(_bits)
    _define_quads(_bits)


@salu
def s_bitreplicate_b64_b32(s0: U32) -> U64:
    spread = s0.to(U64)
    for distance, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F), (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):  # fmt: skip
        spread = (spread | (spread << distance)) & mask
    return spread * 3


# ---------------------------------------------------------------- comparisons

COMPARISONS: dict[str, Compare] = {**ORDER, "lg": lambda a, b: a != b}


def _define_comparison(name: str, kind: type[Integer], compare: Compare) -> None:
    def meaning(s0: kind, s1: kind) -> Scc:  # type: ignore[valid-type]
        return scc(compare(s0, s1))

    suffix = f"{'i' if kind.signed else 'u'}{kind.bits}"
    compute("salu", f"s_cmp_{name}_{suffix}", meaning)
    if kind.bits == 32:
        _define_immediate_comparison(f"s_cmpk_{name}_{suffix}", kind, compare)


def _define_immediate_comparison(mnemonic: str, kind: type[Integer], compare: Compare) -> None:
    """The immediate is extended by its sign for signed comparisons, and by zeros for others."""

    def meaning(s0: kind, s1: Simm16) -> Scc:  # type: ignore[valid-type]
        extended = s1.to(I16).to(I32) if kind.signed else s1.to(U16).to(U32)
        return scc(compare(s0, extended))

    compute("salu", mnemonic, meaning)


for _name, _compare in COMPARISONS.items():
    for _kind in _FIELDS[:2]:
        _define_comparison(_name, _kind, _compare)
for _name in ("eq", "lg"):
    _define_comparison(_name, U64, COMPARISONS[_name])


@salu
def s_getreg_b32(s0: U32) -> U32:
    return s0


# ---------------------------------------------------------------- time


@salu(exact=False, note="a count of the wave's instructions, not of clock cycles")
def s_memtime(clock: Clock) -> U64:
    return clock.bits_as(U64)


@salu(exact=False, note="a count of the wave's instructions, not of a constant-frequency clock")
def s_memrealtime(clock: Clock) -> U64:
    return clock.bits_as(U64)
