"""Vector integer arithmetic, logic and bit fields: once a lane, under EXEC (AMD CDNA4 ISA manual, VOP1, VOP2, VOP3)."""

from typing import Any

from asmlaunch.emulator.isa.language import (
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Integer,
    Mask,
    Modifier,
    OpSel,
    concat,
    count_leading_zeros,
    count_ones,
    count_trailing_zeros,
    lane,
    mask,
    reverse_bits,
    select,
)
from asmlaunch.emulator.isa.scalar import bit_field
from asmlaunch.emulator.isa.table import compute, valu

# ---------------------------------------------------------------- moves


@valu
def v_mov_b32(s0: U32) -> U32:
    return s0


@valu
def v_mov_b64(s0: U64) -> U64:
    return s0


@valu
def v_accvgpr_read_b32(s0: U32) -> U32:
    return s0


@valu
def v_accvgpr_write_b32(s0: U32) -> U32:
    return s0


@valu
def v_accvgpr_mov_b32(s0: U32) -> U32:
    return s0


@valu(exchanges=True)
def v_swap_b32(d: U32, s0: U32) -> tuple[U32, U32]:
    return s0, d


@valu
def v_cndmask_b32(s0: U32, s1: U32, condition: Mask) -> U32:
    return select(condition, s1, s0)


# ---------------------------------------------------------------- additions


@valu(saturates=True)
def v_add_u32(s0: U32, s1: U32) -> U32:
    return s0 + s1


@valu(saturates=True)
def v_sub_u32(s0: U32, s1: U32) -> U32:
    return s0 - s1


@valu(saturates=True)
def v_subrev_u32(s0: U32, s1: U32) -> U32:
    return s1 - s0


@valu(saturates=True)
def v_add_i32(s0: I32, s1: I32) -> I32:
    return s0 + s1


@valu(saturates=True)
def v_sub_i32(s0: I32, s1: I32) -> I32:
    return s0 - s1


def _with_carry(s0: U32, s1: U32, carry: Mask | None) -> tuple[U32, Mask]:
    wide = s0.to(U64) + s1.to(U64)
    if carry is not None:
        wide = wide + carry.to(U64)
    return wide.to(U32), mask(wide >= 0x1_0000_0000)


def _with_borrow(s0: U32, s1: U32, borrow: Mask | None) -> tuple[U32, Mask]:
    taken = s1.to(U64) if borrow is None else s1.to(U64) + borrow.to(U64)
    return s0 - taken.to(U32), mask(taken > s0.to(U64))


@valu
def v_add_co_u32(s0: U32, s1: U32) -> tuple[U32, Mask]:
    return _with_carry(s0, s1, None)


@valu
def v_addc_co_u32(s0: U32, s1: U32, carry: Mask) -> tuple[U32, Mask]:
    return _with_carry(s0, s1, carry)


@valu
def v_sub_co_u32(s0: U32, s1: U32) -> tuple[U32, Mask]:
    return _with_borrow(s0, s1, None)


@valu
def v_subb_co_u32(s0: U32, s1: U32, borrow: Mask) -> tuple[U32, Mask]:
    return _with_borrow(s0, s1, borrow)


@valu
def v_subrev_co_u32(s0: U32, s1: U32) -> tuple[U32, Mask]:
    return _with_borrow(s1, s0, None)


@valu
def v_subbrev_co_u32(s0: U32, s1: U32, borrow: Mask) -> tuple[U32, Mask]:
    return _with_borrow(s1, s0, borrow)


@valu
def v_add3_u32(s0: U32, s1: U32, s2: U32) -> U32:
    return s0 + s1 + s2


@valu
def v_lshl_add_u32(s0: U32, s1: U32, s2: U32) -> U32:
    return (s0 << (s1 & 31)) + s2


@valu
def v_lshl_add_u64(s0: U64, s1: U32, s2: U64) -> U64:
    return (s0 << (s1 & 7).to(U64)) + s2


@valu
def v_add_lshl_u32(s0: U32, s1: U32, s2: U32) -> U32:
    return (s0 + s1) << (s2 & 31)


@valu
def v_xad_u32(s0: U32, s1: U32, s2: U32) -> U32:
    return (s0 ^ s1) + s2


# ---------------------------------------------------------------- multiplications


@valu
def v_mul_lo_u32(s0: U32, s1: U32) -> U32:
    return s0 * s1


@valu
def v_mul_hi_u32(s0: U32, s1: U32) -> U32:
    return ((s0.to(U64) * s1.to(U64)) >> 32).to(U32)


@valu
def v_mul_hi_i32(s0: I32, s1: I32) -> I32:
    return ((s0.to(I64) * s1.to(I64)) >> 32).to(I32)


def _low_24(value: Any) -> Any:
    """The low 24 bits, extended by the type's sign."""
    return (value << 8) >> 8


@valu
def v_mul_i32_i24(s0: I32, s1: I32) -> I32:
    return _low_24(s0) * _low_24(s1)


@valu
def v_mul_u32_u24(s0: U32, s1: U32) -> U32:
    return _low_24(s0) * _low_24(s1)


@valu
def v_mul_hi_i32_i24(s0: I32, s1: I32) -> I32:
    return ((_low_24(s0).to(I64) * _low_24(s1).to(I64)) >> 32).to(I32)


@valu
def v_mul_hi_u32_u24(s0: U32, s1: U32) -> U32:
    return ((_low_24(s0).to(U64) * _low_24(s1).to(U64)) >> 32).to(U32)


@valu
def v_mad_i32_i24(s0: I32, s1: I32, s2: I32) -> I32:
    return _low_24(s0) * _low_24(s1) + s2


@valu
def v_mad_u32_u24(s0: U32, s1: U32, s2: U32) -> U32:
    return _low_24(s0) * _low_24(s1) + s2


@valu
def v_mad_u32_u16(s0: U16, s1: U16, s2: U32) -> U32:
    return s0.to(U32) * s1.to(U32) + s2


@valu
def v_mad_i32_i16(s0: I16, s1: I16, s2: I32) -> I32:
    return s0.to(I32) * s1.to(I32) + s2


@valu
def v_mad_u64_u32(s0: U32, s1: U32, s2: U64) -> tuple[U64, Mask]:
    total = s0.to(U64) * s1.to(U64) + s2
    return total, mask(total < s2)


@valu
def v_mad_i64_i32(s0: I32, s1: I32, s2: I64) -> tuple[I64, Mask]:
    product = s0.to(I64) * s1.to(I64)
    total = product + s2
    # Bit 64 of the sum of both, extended by their signs.
    carry = total.bits_as(U64) < s2.bits_as(U64)
    return total, mask(carry ^ (product < 0) ^ (s2 < 0))


# ---------------------------------------------------------------- shifts and logic


@valu
def v_lshlrev_b32(s0: U32, s1: U32) -> U32:
    return s1 << (s0 & 31)


@valu
def v_lshrrev_b32(s0: U32, s1: U32) -> U32:
    return s1 >> (s0 & 31)


@valu
def v_ashrrev_i32(s0: I32, s1: I32) -> I32:
    return s1 >> (s0 & 31)


@valu
def v_lshlrev_b64(s0: U32, s1: U64) -> U64:
    return s1 << (s0 & 63).to(U64)


@valu
def v_lshrrev_b64(s0: U32, s1: U64) -> U64:
    return s1 >> (s0 & 63).to(U64)


@valu
def v_ashrrev_i64(s0: U32, s1: I64) -> I64:
    return s1 >> (s0 & 63).to(I64)


@valu
def v_not_b32(s0: U32) -> U32:
    return ~s0


@valu
def v_and_b32(s0: U32, s1: U32) -> U32:
    return s0 & s1


@valu
def v_or_b32(s0: U32, s1: U32) -> U32:
    return s0 | s1


@valu
def v_xor_b32(s0: U32, s1: U32) -> U32:
    return s0 ^ s1


@valu
def v_xnor_b32(s0: U32, s1: U32) -> U32:
    return ~(s0 ^ s1)


@valu
def v_and_or_b32(s0: U32, s1: U32, s2: U32) -> U32:
    return (s0 & s1) | s2


@valu
def v_or3_b32(s0: U32, s1: U32, s2: U32) -> U32:
    return s0 | s1 | s2


@valu
def v_lshl_or_b32(s0: U32, s1: U32, s2: U32) -> U32:
    return (s0 << (s1 & 31)) | s2


def _any_function(table: int, s0: Any, s1: Any, s2: Any) -> Any:
    """The bitwise function whose value for bits (a, b, c) is bit 4a + 2b + c of ``table``."""
    result = type(s0).const(0)
    for number in range(8):
        if table >> number & 1:
            terms = [value if number >> place & 1 else ~value for value, place in ((s0, 2), (s1, 1), (s2, 0))]
            result = result | (terms[0] & terms[1] & terms[2])
    return result


@valu
def v_bitop3_b32(s0: U32, s1: U32, s2: U32, bitop3: Modifier) -> U32:
    return _any_function(bitop3.attr, s0, s1, s2)


@valu(half="keep")
def v_bitop3_b16(s0: U16, s1: U16, s2: U16, bitop3: Modifier) -> U16:
    return _any_function(bitop3.attr, s0, s1, s2)


# ---------------------------------------------------------------- bit fields and bytes


@valu
def v_bfm_b32(s0: U32, s1: U32) -> U32:
    return ((U32.const(1) << (s0 & 31)) - 1) << (s1 & 31)


@valu
def v_bfe_u32(s0: U32, s1: U32, s2: U32) -> U32:
    return bit_field(s0, s1 & 31, s2 & 31)


@valu
def v_bfe_i32(s0: I32, s1: U32, s2: U32) -> I32:
    return bit_field(s0, s1 & 31, s2 & 31)


@valu
def v_bfi_b32(s0: U32, s1: U32, s2: U32) -> U32:
    return (s0 & s1) | (~s0 & s2)


@valu
def v_alignbit_b32(s0: U32, s1: U32, s2: U32) -> U32:
    return (concat(s1, s0) >> (s2 & 31).to(U64)).to(U32)


@valu
def v_alignbyte_b32(s0: U32, s1: U32, s2: U32) -> U32:
    return (concat(s1, s0) >> ((s2 & 3) * 8).to(U64)).to(U32)


def _permuted_byte(data: U64, selector: U32) -> U32:
    """Byte ``selector`` of ``data``; 8..11 give the sign of byte 1, 3, 5 or 7, 12 gives 0, above it 0xff."""
    byte = (data >> ((selector & 7) * 8).to(U64)).to(U32) & 0xFF
    sign = (data >> ((selector & 3) * 16 + 15).to(U64)).to(U32) & 1
    special = select(selector >= 13, U32.const(0xFF), select(selector == 12, U32.const(0), sign * 0xFF))
    return select(selector < 8, byte, special)


@valu
def v_perm_b32(s0: U32, s1: U32, s2: U32) -> U32:
    data, result = concat(s1, s0), U32.const(0)
    for number in range(4):
        result = result | (_permuted_byte(data, (s2 >> (8 * number)) & 0xFF) << (8 * number))
    return result


@valu
def v_pack_b32_f16(s0: U16, s1: U16) -> U32:
    return s0.to(U32) | (s1.to(U32) << 16)


@valu
def v_bfrev_b32(s0: U32) -> U32:
    return reverse_bits(s0)


@valu
def v_bcnt_u32_b32(s0: U32, s1: U32) -> U32:
    return count_ones(s0) + s1


def _or_minus_one(count: U32) -> U32:
    return select(count == 32, U32.const(0xFFFFFFFF), count)


@valu
def v_ffbh_u32(s0: U32) -> U32:
    return _or_minus_one(count_leading_zeros(s0))


@valu
def v_ffbl_b32(s0: U32) -> U32:
    return _or_minus_one(count_trailing_zeros(s0))


@valu
def v_ffbh_i32(s0: I32) -> U32:
    return _or_minus_one(count_leading_zeros((s0 ^ (s0 >> 31)).bits_as(U32)))


@valu
def v_mbcnt_lo_u32_b32(s0: U32, s1: U32) -> U32:
    below = select(lane() < 32, (U32.const(1) << (lane() & 31)) - 1, U32.const(0xFFFFFFFF))
    return count_ones(s0 & below) + s1


@valu
def v_mbcnt_hi_u32_b32(s0: U32, s1: U32) -> U32:
    below = select(lane() < 32, U32.const(0), (U32.const(1) << (lane() & 31)) - 1)
    return count_ones(s0 & below) + s1


@valu
def v_prng_b32(s0: U32) -> U32:
    return next_random(s0)


def next_random(seed: U32) -> U32:
    """The next state of the pseudo-random numbers."""
    return (seed << 1) ^ select((seed >> 31) != 0, U32.const(197), U32.const(0))


def _bytes(value: U32) -> list[U32]:
    return [(value >> (8 * number)) & 0xFF for number in range(4)]


@valu
def v_lerp_u8(s0: U32, s1: U32, s2: U32) -> U32:
    result = U32.const(0)
    for number, (a, b, c) in enumerate(zip(_bytes(s0), _bytes(s1), _bytes(s2), strict=True)):
        result = result | (((a + b + (c & 1)) >> 1) << (8 * number))
    return result


def _difference(a: U32, b: U32) -> U32:
    return select(a > b, a - b, b - a)


def _byte_differences(s0: U32, s1: U32) -> U32:
    total = U32.const(0)
    for a, b in zip(_bytes(s0), _bytes(s1), strict=True):
        total = total + _difference(a, b)
    return total


@valu
def v_sad_u8(s0: U32, s1: U32, s2: U32) -> U32:
    return _byte_differences(s0, s1) + s2


@valu
def v_sad_hi_u8(s0: U32, s1: U32, s2: U32) -> U32:
    return (_byte_differences(s0, s1) << 16) + s2


@valu
def v_sad_u16(s0: U32, s1: U32, s2: U32) -> U32:
    return _difference(s0 & 0xFFFF, s1 & 0xFFFF) + _difference(s0 >> 16, s1 >> 16) + s2


@valu
def v_sad_u32(s0: U32, s1: U32, s2: U32) -> U32:
    return _difference(s0, s1) + s2


def _limited(value: Any, low: int, high: int) -> Any:
    kind = type(value)
    return select(value < low, kind.const(low), select(value > high, kind.const(high), value))


@valu
def v_sat_pk_u8_i16(s0: U32) -> U16:
    low, high = s0.to(I16).to(I32), (s0 >> 16).to(I16).to(I32)
    return (_limited(low, 0, 255).bits_as(U32) | (_limited(high, 0, 255).bits_as(U32) << 8)).to(U16)


def _shifted_pair(s0: I32, s1: I32, s2: U32, low: int, high: int) -> U16:
    count = (s2 & 31).bits_as(I32)
    first, second = (_limited(value >> count, low, high).bits_as(U32) & 0xFF for value in (s0, s1))
    return (first | (second << 8)).to(U16)


@valu(half="keep")
def v_ashr_pk_i8_i32(s0: I32, s1: I32, s2: U32) -> U16:
    return _shifted_pair(s0, s1, s2, -128, 127)


@valu(half="keep")
def v_ashr_pk_u8_i32(s0: I32, s1: I32, s2: U32) -> U16:
    return _shifted_pair(s0, s1, s2, 0, 255)


@valu
def v_cvt_pk_u16_u32(s0: U32, s1: U32) -> U32:
    low, high = (select(value > 0xFFFF, U32.const(0xFFFF), value) for value in (s0, s1))
    return low | (high << 16)


@valu
def v_cvt_pk_i16_i32(s0: I32, s1: I32) -> U32:
    low, high = (_limited(value, -32768, 32767).bits_as(U32) for value in (s0, s1))
    return (low & 0xFFFF) | (high << 16)


# ---------------------------------------------------------------- minimum, maximum, median


def smaller(a: Any, b: Any) -> Any:
    """The smaller integer."""
    return select(a < b, a, b)


def larger(a: Any, b: Any) -> Any:
    """The larger integer."""
    return select(a >= b, a, b)


def _middle(a: Any, b: Any, c: Any) -> Any:
    return larger(smaller(a, b), smaller(larger(a, b), c))


def _define_order(kind: type[Integer]) -> None:
    suffix = f"{'i' if kind.signed else 'u'}{kind.bits}"
    half = "keep" if kind.bits == 16 else ""

    def minimum(s0: kind, s1: kind) -> kind:  # type: ignore[valid-type]
        return smaller(s0, s1)

    def maximum(s0: kind, s1: kind) -> kind:  # type: ignore[valid-type]
        return larger(s0, s1)

    def minimum3(s0: kind, s1: kind, s2: kind) -> kind:  # type: ignore[valid-type]
        return smaller(smaller(s0, s1), s2)

    def maximum3(s0: kind, s1: kind, s2: kind) -> kind:  # type: ignore[valid-type]
        return larger(larger(s0, s1), s2)

    def median3(s0: kind, s1: kind, s2: kind) -> kind:  # type: ignore[valid-type]
        return _middle(s0, s1, s2)

    compute("valu", f"v_min_{suffix}", minimum)
    compute("valu", f"v_max_{suffix}", maximum)
    compute("valu", f"v_min3_{suffix}", minimum3, half=half)
    compute("valu", f"v_max3_{suffix}", maximum3, half=half)
    compute("valu", f"v_med3_{suffix}", median3, half=half)


for _kind in (I32, U32, I16, U16):
    _define_order(_kind)

# ---------------------------------------------------------------- 16 bits


@valu(saturates=True)
def v_add_u16(s0: U16, s1: U16) -> U16:
    return s0 + s1


@valu(saturates=True)
def v_sub_u16(s0: U16, s1: U16) -> U16:
    return s0 - s1


@valu(saturates=True)
def v_subrev_u16(s0: U16, s1: U16) -> U16:
    return s1 - s0


@valu(saturates=True, half="keep")
def v_add_i16(s0: I16, s1: I16) -> I16:
    return s0 + s1


@valu(saturates=True, half="keep")
def v_sub_i16(s0: I16, s1: I16) -> I16:
    return s0 - s1


@valu
def v_mul_lo_u16(s0: U16, s1: U16) -> U16:
    return s0 * s1


@valu(saturates=True, half="keep")
def v_mad_u16(s0: U16, s1: U16, s2: U16) -> U16:
    return s0 * s1 + s2


@valu(saturates=True, half="keep")
def v_mad_i16(s0: I16, s1: I16, s2: I16) -> I16:
    return s0 * s1 + s2


@valu
def v_lshlrev_b16(s0: U16, s1: U16) -> U16:
    return s1 << (s0 & 15)


@valu
def v_lshrrev_b16(s0: U16, s1: U16) -> U16:
    return s1 >> (s0 & 15)


@valu
def v_ashrrev_i16(s0: I16, s1: I16) -> I16:
    return s1 >> (s0 & 15)


# ---------------------------------------------------------------- dot products of integers


def _parts(value: U32, part: type[Integer], bits: int) -> list[Any]:
    """The fields of a dword as 32-bit numbers."""
    wide: Any = I32 if part.signed else U32
    return [((value << (32 - bits * (number + 1))).bits_as(wide)) >> (32 - bits) for number in range(32 // bits)]


def _dot(s0: U32, s1: U32, start: Any, part: type[Integer], bits: int) -> Any:
    for a, b in zip(_parts(s0, part, bits), _parts(s1, part, bits), strict=True):
        start = start + a * b
    return start


def _define_dot(name: str, part: type[Integer], bits: int) -> None:
    kind: Any = I32 if part.signed else U32

    def meaning(s0: U32, s1: U32, s2: kind) -> kind:
        return _dot(s0, s1, s2, part, bits)

    compute("valu", name, meaning)


def _define_accumulating_dot(name: str, bits: int) -> None:
    def meaning(d: I32, s0: U32, s1: U32) -> I32:
        return _dot(s0, s1, d, I32, bits)

    compute("valu", name, meaning)


for _name, _part, _bits in (
    ("v_dot2_i32_i16", I16, 16), ("v_dot2_u32_u16", U16, 16), ("v_dot4_i32_i8", I8, 8), ("v_dot4_u32_u8", U8, 8),
    ("v_dot8_i32_i4", I8, 4), ("v_dot8_u32_u4", U8, 4),
):  # fmt: skip
    _define_dot(_name, _part, _bits)
for _name, _bits in (("v_dot2c_i32_i16", 16), ("v_dot4c_i32_i8", 8), ("v_dot8c_i32_i4", 4)):
    _define_accumulating_dot(_name, _bits)

# ---------------------------------------------------------------- packed 16 bits


def _define_packed(name: str, kind: type[Integer], operation: Any, count: int = 2) -> None:
    def two(s0: kind, s1: kind) -> kind:  # type: ignore[valid-type]
        return operation(s0, s1)

    def three(s0: kind, s1: kind, s2: kind) -> kind:  # type: ignore[valid-type]
        return operation(s0, s1, s2)

    compute(
        "valu",
        f"v_pk_{name}",
        two if count == 2 else three,
        packed=True,
        saturates=name.startswith(("add", "sub", "mad")),
    )


for _kind in (I16, U16):
    _suffix = "i16" if _kind.signed else "u16"
    _define_packed(f"add_{_suffix}", _kind, lambda a, b: a + b)
    _define_packed(f"sub_{_suffix}", _kind, lambda a, b: a - b)
    _define_packed(f"min_{_suffix}", _kind, smaller)
    _define_packed(f"max_{_suffix}", _kind, larger)
    _define_packed(f"mad_{_suffix}", _kind, lambda a, b, c: a * b + c, 3)
_define_packed("mul_lo_u16", U16, lambda a, b: a * b)
_define_packed("lshlrev_b16", U16, lambda a, b: b << (a & 15))
_define_packed("lshrrev_b16", U16, lambda a, b: b >> (a & 15))
_define_packed("ashrrev_i16", I16, lambda a, b: b >> (a & 15))


@valu
def v_pk_mov_b32(s0: U64, s1: U64, op_sel: OpSel) -> U64:
    low = (s0 >> (32 * (op_sel.attr & 1))).to(U32)
    high = (s1 >> (32 * (op_sel.attr >> 1 & 1))).to(U32)
    return concat(low, high)
