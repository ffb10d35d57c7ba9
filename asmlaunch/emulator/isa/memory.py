"""Memory instructions and how they address (AMD CDNA4 ISA manual, "Scalar Memory", "Vector Memory" and "Data Share").

Every access is declared once, with ``Access``; the address rules below hold for all accesses of their space.
"""

from collections.abc import Callable, Sequence
from typing import Any

from asmlaunch.emulator.isa.atomics import ATOMICS, PACKED
from asmlaunch.emulator.isa.language import I8, I16, U8, U16, U32, U64, Bool, Value, concat, lane, select, shuffle
from asmlaunch.emulator.isa.table import Access, register

# ---------------------------------------------------------------- addresses


def scalar_address(base: U64, offset: U64) -> U64:
    """Byte address of s_load: the two lowest bits are ignored."""
    return (base + offset) & ~3


def buffer_base(word0: U32, word1: U32) -> U64:
    """Base address of a buffer resource: its 48 lowest bits."""
    return concat(word0, word1 & 0xFFFF)


def buffer_stride(word1: U32) -> U32:
    """Bytes a record: bits 61:48 of a buffer resource."""
    return (word1 >> 16) & 0x3FFF


def scalar_buffer_size(word1: U32, word2: U32) -> U64:
    """Bytes that a scalar buffer access may reach: NUM_RECORDS, times the stride where there is one."""
    stride = buffer_stride(word1).to(U64)
    return select(stride == 0, U64.const(1), stride) * word2.to(U64)


def buffer_unsupported(word1: U32, word3: U32) -> Bool:
    """Whether a resource swizzles addresses (bit 63) or adds the lane number (bit 119): not emulated yet."""
    return ((word1 >> 31) | ((word3 >> 23) & 1)) != 0


def buffer_address(base: U64, soffset: U32, offset: U32, stride: U32, index: U32) -> U64:
    """Byte address of a lane: ``offset`` is VGPR offset + instruction offset, wrapped at 32 bits."""
    return base + soffset.to(U64) + offset.to(U64) + stride.to(U64) * index.to(U64)


def buffer_in_range(num_records: U32, soffset: U32, offset: U32, index: U32, structured: Bool, piece_end: U64) -> Bool:
    """Whether a piece of an access that ends ``piece_end`` bytes after its start lies inside the buffer.

    Structured (index enabled and stride not 0): the record must exist. Raw: the last byte of the piece must, SOFFSET
    counted. The manual's text counts neither SOFFSET nor the piece's size; rocjitsu's rule does, from measurements
    on gfx950 (rocm-systems PR 10928), and is used here.
    """
    raw = offset.to(U64) + soffset.to(U64) + piece_end <= num_records.to(U64)
    return (structured & (index < num_records)) | (~structured & raw)


#: Where LDS and scratch appear in the flat address space: two apertures of 4 GiB that hold no host memory. Where they
#: lie is the driver's choice on hardware.
SHARED_BASE, PRIVATE_BASE = 0x0001_0000_0000_0000, 0x0002_0000_0000_0000


def lds_address(address: U32, offset: U32) -> U32:
    """Byte address in LDS of a DS instruction."""
    return address + offset


def buffer_to_lds_address(m0: U32, offset: U32, lane: U32, size: int) -> U32:
    """Byte address in LDS that a buffer load with ``lds`` writes: M0 + instruction offset + lane * size."""
    return m0 + offset + lane * size


def global_address(base: U64, offset: U64) -> U64:
    """Byte address of a lane: SGPR base + VGPR offset, or a VGPR pair, plus the signed instruction offset."""
    return base + offset


def scratch_address(base: U32, offset: U32) -> U32:
    """Byte of a lane's scratch memory: SGPR + VGPR (either may be left out) + the signed instruction offset."""
    return base + offset


def global_to_lds_address(m0: U32, offset: U32, lane_number: U32, size: U32) -> U32:
    """Byte address in LDS that a global load to LDS writes: M0[17:2] dwords + instruction offset + lane * size."""
    return (m0 & 0x3FFFC) + offset + lane_number * size


# ---------------------------------------------------------------- transposed reads


def transposed(dwords: Sequence[U32], bits: int) -> list[U32]:
    """What ds_read_*_tr_* makes of the dwords that each lane has read.

    In every group of 16 lanes with E elements of ``bits`` bits a lane: element n of lane l is element l % E of lane
    n * (16 / E) + l / E. So the group's lanes hold the rows of an E x 16 tile, and each gets one column. (rocRoller's
    tests on gfx950 expect this for all widths; the manual's drawing shows it for 16 bits.)
    """
    count = 32 * len(dwords) // bits
    member = lane() & 15
    position = (member & (count - 1)) * bits  # of the bits that this lane gets, in the other lanes' registers
    group = lane() & 48
    result = [U32.const(0) for _ in dwords]
    for number in range(count):
        source = group + (number * (16 // count)) + (member >> (count.bit_length() - 1))
        element = _field(dwords, source, position, bits)
        first = number * bits
        result[first // 32] = result[first // 32] | (element << (first % 32))
        if first % 32 + bits > 32:
            result[first // 32 + 1] = result[first // 32 + 1] | (element >> (32 - first % 32))
    return result


def _field(dwords: Sequence[U32], source: U32, position: U32, bits: int) -> U32:
    """``bits`` bits at bit ``position`` of lane ``source``'s dwords."""
    shuffled = [shuffle(dword, source) for dword in dwords]
    low, high = shuffled[0], U32.const(0)
    for number, dword in enumerate(shuffled):
        here = (position >> 5) == number
        low = select(here, dword, low)
        if number + 1 < len(shuffled):
            high = select(here, shuffled[number + 1], high)
    return (concat(low, high) >> (position & 31).to(U64)).to(U32) & ((1 << bits) - 1)


# ---------------------------------------------------------------- the instructions

_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}
_PARTS: dict[str, type[Value]] = {"u8": U8, "i8": I8, "u16": U16, "i16": I16}
_SHARED_SPACES = ("buffer", "global", "flat")  # those that have atomics
_VECTOR_SPACES = (*_SHARED_SPACES, "scratch")


def _declare(mnemonic: str, space: str, kind: str, element: type[Value], count: int = 1, **more: Any) -> None:
    register(Access(mnemonic, space, kind, element, count, **more))


for _name, _count in _DWORDS.items():
    if _name != "dwordx3":
        _declare(f"s_load_{_name}", "scalar", "load", U32, _count)
        _declare(f"s_buffer_load_{_name}", "scalar_buffer", "load", U32, _count)
        if _count <= 4:
            _declare(f"s_store_{_name}", "scalar", "store", U32, _count)
            _declare(f"s_buffer_store_{_name}", "scalar_buffer", "store", U32, _count)

for _space in _VECTOR_SPACES:
    for _name, _count in _DWORDS.items():
        if _count <= 4:
            _declare(f"{_space}_load_{_name}", _space, "load", U32, _count)
            _declare(f"{_space}_store_{_name}", _space, "store", U32, _count)
    for _name, _part in (("ubyte", "u8"), ("sbyte", "i8"), ("ushort", "u16"), ("sshort", "i16")):
        _declare(f"{_space}_load_{_name}", _space, "load", _PARTS[_part])
    for _name, _part in (("byte", "u8"), ("short", "u16")):
        _declare(f"{_space}_store_{_name}", _space, "store", _PARTS[_part])
        _declare(f"{_space}_store_{_name}_d16_hi", _space, "store", _PARTS[_part], half="high")
    for _name, _part in (("ubyte", "u8"), ("sbyte", "i8"), ("short", "i16")):
        _declare(f"{_space}_load_{_name}_d16", _space, "load", _PARTS[_part], half="low")
        _declare(f"{_space}_load_{_name}_d16_hi", _space, "load", _PARTS[_part], half="high")

for _name, _part in (("ubyte", "u8"), ("sbyte", "i8"), ("ushort", "u16"), ("sshort", "i16")):
    _declare(f"global_load_lds_{_name}", "global", "load", _PARTS[_part], to_lds=True)
for _name, _count in (("dword", 1), ("dwordx3", 3), ("dwordx4", 4)):
    _declare(f"global_load_lds_{_name}", "global", "load", U32, _count, to_lds=True)

for _bits in (32, 64, 96, 128):
    _declare(f"ds_read_b{_bits}", "lds", "load", U32, _bits // 32)
    _declare(f"ds_write_b{_bits}", "lds", "store", U32, _bits // 32)

for _part, _element in _PARTS.items():
    _declare(f"ds_read_{_part}", "lds", "load", _element)
    if _part != "i16":
        _declare(f"ds_read_{_part}_d16", "lds", "load", _element, half="low")
        _declare(f"ds_read_{_part}_d16_hi", "lds", "load", _element, half="high")
for _name, _part in (("b8", "u8"), ("b16", "u16")):
    _declare(f"ds_write_{_name}", "lds", "store", _PARTS[_part])
    _declare(f"ds_write_{_name}_d16_hi", "lds", "store", _PARTS[_part], half="high")

for _bits in (32, 64):
    for _name, _unit in (("", _bits // 8), ("st64", 64 * _bits // 8)):
        _declare(f"ds_read2{_name}_b{_bits}", "lds", "load", U32, _bits // 16, pair=_unit)
        _declare(f"ds_write2{_name}_b{_bits}", "lds", "store", U32, _bits // 16, pair=_unit)

for _name, _bits in (("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b64_tr_b4", 4), ("b96_tr_b6", 6)):
    _declare(f"ds_read_{_name}", "lds", "load", U32, 3 if _bits == 6 else 2, tile=_bits)


def _declare_atomic(mnemonic: str, space: str, element: type[Value], update: Callable[..., Any]) -> None:
    _declare(mnemonic, space, "atomic", element, update=update)


for _operation in (*ATOMICS, *PACKED):
    for _name, _element, _update in _operation.vector:
        for _space in _SHARED_SPACES:
            _declare_atomic(f"{_space}_atomic_{_name}", _space, _element, _update)
    for _name, _element, _update in _operation.scalar:
        _declare_atomic(f"s_atomic_{_name}", "scalar", _element, _update)
        _declare_atomic(f"s_buffer_atomic_{_name}", "scalar_buffer", _element, _update)
    for _name, _element, _update in _operation.lds:
        _stem, _, _type = _name.rpartition("_")
        if _operation.plain_lds:
            _declare(f"ds_{_name}", "lds", "atomic", _element, update=_update)
        _declare(f"ds_{_stem}_rtn_{_type}", "lds", "atomic", _element, update=_update, returns=True)
