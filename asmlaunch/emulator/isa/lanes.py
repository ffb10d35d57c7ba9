"""Moves between lanes (AMD CDNA4 ISA manual, VOP1, VOP3 and DS opcodes)."""

from asmlaunch.emulator.isa.language import (
    U32,
    Active,
    Exec,
    Modifier,
    Sgpr,
    count_trailing_zeros,
    lane,
    read_lane,
    select,
    shuffle,
)
from asmlaunch.emulator.isa.table import valu


@valu
def v_readfirstlane_b32(s0: U32, exec: Exec) -> Sgpr:
    # With EXEC = 0 the lowest bit is "bit 64", and lane 0 is read.
    return read_lane(s0, count_trailing_zeros(exec).to(U32) & 63).bits_as(Sgpr)


@valu
def v_readlane_b32(s0: U32, s1: U32) -> Sgpr:
    return read_lane(s0, s1 & 63).bits_as(Sgpr)


@valu(all_lanes=True)
def v_writelane_b32(d: U32, s0: U32, s1: U32) -> U32:
    return select(lane() == (s1 & 63), s0, d)


@valu(exchanges=True)
def v_permlane16_swap_b32(d: U32, s0: U32) -> tuple[U32, U32]:
    odd_row = (lane() & 16) != 0
    return select(odd_row, shuffle(s0, lane() ^ 16), d), select(odd_row, s0, shuffle(d, lane() ^ 16))


@valu(exchanges=True)
def v_permlane32_swap_b32(d: U32, s0: U32) -> tuple[U32, U32]:
    upper = (lane() & 32) != 0
    return select(upper, shuffle(s0, lane() ^ 32), d), select(upper, s0, shuffle(d, lane() ^ 32))


def _where_active(value: U32, active: Active) -> U32:
    """Lanes that are off deliver 0."""
    return select(active, value, U32.const(0))


@valu
def ds_bpermute_b32(s0: U32, s1: U32, active: Active, offset: Modifier) -> U32:
    source = ((s0 + offset.bits_as(U32)) >> 2) & 63
    return shuffle(_where_active(s1, active), source)


@valu
def ds_permute_b32(s0: U32, s1: U32, active: Active, offset: Modifier) -> U32:
    target = ((s0 + offset.bits_as(U32)) >> 2) & 63
    result = U32.const(0)
    for number in range(64):  # in order: the highest lane that sends to a lane wins
        chosen = (lane() == read_lane(target, U32.const(number))) & (read_lane(active.to(U32), U32.const(number)) != 0)
        result = select(chosen, read_lane(s1, U32.const(number)), result)
    return result


@valu
def ds_swizzle_b32(s0: U32, active: Active, offset: Modifier) -> U32:
    return shuffle(_where_active(s0, active), _swizzle_source(offset.attr))


def _swizzle_source(offset: int) -> U32:
    """The lane each lane reads from (manual, DS_SWIZZLE_B32): FFT, rotate, quad permutation or bit masks."""
    within = lane() & 31
    if offset >= 0xE000:
        reverse = U32.const(0)
        for bit in range(5):
            reverse = reverse | (((within >> bit) & 1) << (4 - bit))
        kept = offset & 31
        source = (reverse >> kept.bit_count()) | (within & kept)
    elif offset >= 0xC000:
        kept, count = offset & 31, offset >> 5 & 31
        turned = within + (32 - count if offset >> 10 & 1 else count)
        source = (within & kept) | (turned & (31 & ~kept))
    elif offset & 0x8000:
        quad = (within & 3) * 2
        source = (within & 28) | ((U32.const(offset & 0xFF) >> quad) & 3)
    else:
        source = ((within & (offset & 31)) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)
    return (lane() & 32) | source
