"""Two kernarg segments compared field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asmlaunch.abi.hexdump import Dump
from asmlaunch.abi.schema import Field, KernargSchema, Value, decode


@dataclass(frozen=True)
class FieldDiff:
    """One field in both segments; a value is None where its bytes are not known, ``same`` then too."""

    field: Field
    a: Value | None
    b: Value | None
    same: bool | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "name": self.field.name,
            "offset": self.field.offset,
            "size": self.field.size,
            "type": self.field.type,
            "a": _plain(self.a),
            "b": _plain(self.b),
            "same": self.same,
        }


@dataclass(frozen=True)
class Diff:
    """All fields compared; true when they differ anywhere, like a list of differences would be."""

    fields: tuple[FieldDiff, ...]
    sizes: tuple[int, int]

    @property
    def differences(self) -> tuple[FieldDiff, ...]:
        return tuple(field for field in self.fields if field.same is False)

    def __bool__(self) -> bool:
        return bool(self.differences)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {"differs": bool(self), "sizes": list(self.sizes), "fields": [entry.to_json() for entry in self.fields]}

    def __str__(self) -> str:
        known = [entry for entry in self.fields if entry.same is not None]
        lines = [f"{len(known) - len(self.differences)} of {len(known)} known fields are equal"]
        for entry in self.differences:
            a, b = show(entry.field, entry.a), show(entry.field, entry.b)
            lines.append(f"{entry.field.offset:4d}  {entry.field.name:20s} {a} != {b}")
        return "\n".join(lines)


def diff(a: bytes | Dump, b: bytes | Dump, schema: KernargSchema) -> Diff:
    """Compare two segments field by field; a field whose bytes are not all known on both sides is not judged."""
    left, right = (side if isinstance(side, Dump) else Dump(bytes(side), ((0, len(side)),)) for side in (a, b))
    fields = []
    for field in schema.fields:
        if field.role == "padding":
            continue
        a_bits, b_bits = _bits(left, field), _bits(right, field)
        # Bits are compared, not values: a NaN equals itself here, and 0.0 differs from -0.0.
        same = None if a_bits is None or b_bits is None else a_bits == b_bits
        fields.append(FieldDiff(field, _value(field, a_bits), _value(field, b_bits), same))
    return Diff(tuple(fields), (len(left), len(right)))


def _bits(side: Dump, field: Field) -> bytes | None:
    return side.data[field.offset : field.end] if side.is_known(field.offset, field.end) else None


def _value(field: Field, bits: bytes | None) -> Value | None:
    return None if bits is None else decode(field, bits)


def show(field: Field, value: Value | None) -> str:
    """A value for people: pointers in hex, unknown as ``?``."""
    if value is None:
        return "?"
    return f"{value:#x}" if field.is_pointer and isinstance(value, int) else str(_plain(value))


def _plain(value: Value | None) -> Any:
    return value.hex() if isinstance(value, bytes) else value
