"""Memory instructions and how they address (AMD CDNA4 ISA manual, "Scalar Memory", "Vector Memory" and "Data Share").

Every access is declared once, with ``Access``; the address rules below hold for all accesses of their space.
"""

from asmlaunch.emulator.isa.language import F32, U32, U64, Bool, Integer, concat
from asmlaunch.emulator.isa.table import Access, register
from asmlaunch.emulator.isa.vector import bf16_bits

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


def lds_address(address: U32, offset: U32) -> U32:
    """Byte address in LDS of a DS instruction."""
    return address + offset


def buffer_to_lds_address(m0: U32, offset: U32, lane: U32, size: int) -> U32:
    """Byte address in LDS that a buffer load with ``lds`` writes: M0 + instruction offset + lane * size."""
    return m0 + offset + lane * size


# ---------------------------------------------------------------- atomics


def bf16_value(bits: U32) -> F32:
    """The number that the 16 low bits mean as bfloat16."""
    return (bits << 16).bits_as(F32)


def pk_add_bf16(old: U32, data: U32) -> U32:
    """Two independent bfloat16 additions, each rounded to nearest even; denormals are kept."""
    low = bf16_bits(bf16_value(old) + bf16_value(data))
    high = bf16_bits(bf16_value(old >> 16) + bf16_value(data >> 16))
    return low | (high << 16)


# ---------------------------------------------------------------- the instructions

_DWORDS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16}


def _declare(mnemonic: str, space: str, kind: str, element: type[Integer], count: int) -> None:
    register(Access(mnemonic, space, kind, element, count))


for _name, _count in _DWORDS.items():
    if _name != "dwordx3":
        _declare(f"s_load_{_name}", "scalar", "load", U32, _count)
    if _count <= 4:
        _declare(f"buffer_load_{_name}", "buffer", "load", U32, _count)
        _declare(f"buffer_store_{_name}", "buffer", "store", U32, _count)

for _bits in (32, 64, 96, 128):
    _declare(f"ds_read_b{_bits}", "lds", "load", U32, _bits // 32)
    _declare(f"ds_write_b{_bits}", "lds", "store", U32, _bits // 32)

register(Access("buffer_atomic_pk_add_bf16", "buffer", "atomic", U32, update=pk_add_bf16))
