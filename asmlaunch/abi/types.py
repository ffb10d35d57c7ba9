"""The types a kernarg field can have: one table from which packing, unpacking, checking and printing derive."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import construct


@dataclass(frozen=True)
class FieldType:
    """How values of a field become bytes.

    Attributes:
        name: the type's name in schemas.
        size: bytes; 0 for ``bytes``, whose size is the field's.
        code: ``struct`` format character.
        construct: the construct that describes it.
        kind: ``"int"``, ``"float"``, ``"raw"`` (integer or float bits) or ``"bytes"``.
        encode: turns a value into what ``code`` packs, where that is not the value itself.
        decode: the reverse.
    """

    name: str
    size: int
    code: str
    construct: construct.Construct
    kind: str
    encode: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest integer the type holds; raw types take both signed and unsigned values."""
        bits = 8 * self.size
        low = -(1 << bits - 1) if self.name.startswith("i") or self.kind == "raw" else 0
        high = (1 << bits - 1) - 1 if self.name.startswith("i") else (1 << bits) - 1
        return low, high


def bf16_bits(value: Any) -> int:
    """bfloat16 bits of a number, rounded to nearest even; a NaN stays a (quiet) NaN."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    if bits & 0x7FFFFFFF > 0x7F800000:
        return bits >> 16 | 0x40
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def bf16_value(bits: int) -> float:
    """The number that bfloat16 bits stand for."""
    value: float = struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return value


def _raw(size: int, float_code: str | None) -> Callable[[Any], int]:
    def encode(value: Any) -> int:
        if hasattr(value, "__index__"):
            return int(value.__index__()) % (1 << 8 * size)
        if float_code is None:
            raise TypeError("a float does not say which format it should have here")
        return int.from_bytes(struct.pack("<" + float_code, value), "little")

    return encode


_TABLE = (
    FieldType("pointer", 8, "Q", construct.Int64ul, "int"),
    FieldType("u8", 1, "B", construct.Int8ul, "int"),
    FieldType("i8", 1, "b", construct.Int8sl, "int"),
    FieldType("u16", 2, "H", construct.Int16ul, "int"),
    FieldType("i16", 2, "h", construct.Int16sl, "int"),
    FieldType("u32", 4, "I", construct.Int32ul, "int"),
    FieldType("i32", 4, "i", construct.Int32sl, "int"),
    FieldType("u64", 8, "Q", construct.Int64ul, "int"),
    FieldType("i64", 8, "q", construct.Int64sl, "int"),
    FieldType("f16", 2, "e", construct.Float16l, "float"),
    FieldType("bf16", 2, "H", construct.Int16ul, "float", bf16_bits, bf16_value),
    FieldType("f32", 4, "f", construct.Float32l, "float"),
    FieldType("f64", 8, "d", construct.Float64l, "float"),
    FieldType("raw8", 1, "B", construct.Int8ul, "raw", _raw(1, None)),
    FieldType("raw16", 2, "H", construct.Int16ul, "raw", _raw(2, None)),
    FieldType("raw32", 4, "I", construct.Int32ul, "raw", _raw(4, "f")),
    FieldType("raw64", 8, "Q", construct.Int64ul, "raw", _raw(8, "d")),
    FieldType("bytes", 0, "s", construct.Bytes, "bytes"),
)

#: Type name -> type. ``rawN`` is an N-bit value whose type the metadata does not state.
TYPES: dict[str, FieldType] = {entry.name: entry for entry in _TABLE}
