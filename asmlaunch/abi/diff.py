"""Two kernarg segments compared field by field."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asmlaunch.abi.hexdump import Dump
from asmlaunch.abi.schema import Field, KernargSchema, Value, decode

if TYPE_CHECKING:
    from rich.table import Table

#: Two addresses that are multiples of this count as equally aligned.
FULL_ALIGNMENT = 256

#: What a field's comparison can come to.
SAME, DIFFERS, EQUIVALENT, DEAD, UNKNOWN = "same", "differs", "equivalent", "dead", "unknown"


@dataclass(frozen=True)
class FieldDiff:
    """One field in both segments.

    Attributes:
        field: the field.
        a, b: its values; None where the bytes are not known.
        same: whether the bits are equal; None where they are not known on both sides.
        status: ``"same"``, ``"differs"``, ``"equivalent"`` (pointers to different places, both null or both not, with
            the same alignment), ``"dead"`` (differs, but the kernel does not use the field) or ``"unknown"``.
    """

    field: Field
    a: Value | None
    b: Value | None
    same: bool | None
    status: str

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
            "status": self.status,
        }


@dataclass(frozen=True)
class Diff:
    """All fields compared; true when they differ, like a list of differences would be.

    Attributes:
        fields: every field but padding.
        sizes: bytes of both segments.
        shift: one line that says so when one segment is the other with bytes missing from some field on, else "".
        failing: the statuses that count as a difference.
    """

    fields: tuple[FieldDiff, ...]
    sizes: tuple[int, int]
    shift: str = ""
    failing: frozenset[str] = frozenset({DIFFERS})

    @property
    def differences(self) -> tuple[FieldDiff, ...]:
        """The fields that count as different."""
        return tuple(entry for entry in self.fields if entry.status in self.failing)

    @property
    def tolerated(self) -> tuple[FieldDiff, ...]:
        """The fields whose bits differ in a way that does not count."""
        return tuple(e for e in self.fields if e.status in (EQUIVALENT, DEAD) and e.status not in self.failing)

    def __bool__(self) -> bool:
        return bool(self.differences)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "differs": bool(self),
            "sizes": list(self.sizes),
            "shift": self.shift,
            "fields": [entry.to_json() for entry in self.fields],
        }

    def summary(self) -> str:
        """One line: how many of the known fields are equal."""
        counts = Counter(entry.status for entry in self.fields)
        known = len(self.fields) - counts[UNKNOWN]
        extra = "".join(
            f", {counts[status]} {text}"
            for status, text in (
                (EQUIVALENT, "pointers to other places"),
                (DEAD, "different where the kernel does not look"),
            )
            if counts[status]
        )
        return f"{counts[SAME]} of {known} known fields are equal{extra}"

    def __str__(self) -> str:
        lines = [self.summary(), *([self.shift] if self.shift else [])]
        for entry in (*self.differences, *self.tolerated):
            note = "" if entry.status == DIFFERS else f"  ({entry.status})"
            a, b = show(entry.field, entry.a), show(entry.field, entry.b)
            lines.append(f"{entry.field.offset:4d}  {entry.field.name:20s} {a} != {b}{note}")
        return "\n".join(lines)

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title="\n".join([self.summary(), *([self.shift] if self.shift else [])]), title_justify="left")
        for column in ("offset", "name", "a", "b", ""):
            table.add_column(column, justify="right" if column == "offset" else "left")
        for entry in (*self.differences, *self.tolerated):
            style = "red" if entry.status in self.failing else "yellow"
            cells = (str(entry.field.offset), entry.field.name, show(entry.field, entry.a), show(entry.field, entry.b))
            table.add_row(*cells, entry.status, style=style)
        return table


def diff(a: bytes | Dump, b: bytes | Dump, schema: KernargSchema, *, exact: bool = False, strict: bool = False) -> Diff:
    """Compare two segments field by field; a field whose bytes are not all known on both sides is not judged.

    Args:
        exact: pointers count as different unless they are equal; without it, both null or both not with the same
            alignment is enough, as addresses change from run to run.
        strict: fields that the kernel does not use count too.
    """
    left, right = (side if isinstance(side, Dump) else Dump(bytes(side), ((0, len(side)),)) for side in (a, b))
    fields = []
    for field in schema.fields:
        if field.role == "padding":
            continue
        a_bits, b_bits = _bits(left, field), _bits(right, field)
        # Bits are compared, not values: a NaN equals itself here, and 0.0 differs from -0.0.
        same = None if a_bits is None or b_bits is None else a_bits == b_bits
        values = (_value(field, a_bits), _value(field, b_bits))
        fields.append(FieldDiff(field, *values, same, _status(field, same, *values)))
    failing = frozenset({DIFFERS} | ({EQUIVALENT} if exact else set()) | ({DEAD} if strict else set()))
    shift = _shift(left, right, schema) if any(entry.status == DIFFERS for entry in fields) else ""
    return Diff(tuple(fields), (len(left), len(right)), shift, failing)


def _status(field: Field, same: bool | None, a: Value | None, b: Value | None) -> str:
    if same is None:
        return UNKNOWN
    if same:
        return SAME
    if field.live is False:
        return DEAD
    if field.is_pointer and isinstance(a, int) and isinstance(b, int) and _alignment(a) == _alignment(b):
        return EQUIVALENT
    return DIFFERS


def _alignment(address: int) -> int:
    """The power of two an address is a multiple of, up to ``FULL_ALIGNMENT``; 0 for null."""
    return min(address & -address, FULL_ALIGNMENT)


def _shift(a: Dump, b: Dump, schema: KernargSchema) -> str:
    """The line that explains a shift, when every byte after some field is the same a few bytes earlier or later.

    Both segments have to be known as a whole: a shift cannot be told from lines that are missing.
    """
    if any(side.known != ((0, len(side)),) for side in (a, b)):
        return ""
    for short, long, name in ((a, b, "a"), (b, a, "b")):
        found = _missing_bytes(short.data, long.data, schema)
        if found:
            field, count = found
            return (
                f"{field.name} is {count} bytes short in {name}: every field after it is {count} bytes early there "
                f"({field.name} at {field.offset} takes {field.size} bytes)"
            )
    return ""


def _missing_bytes(short: bytes, long: bytes, schema: KernargSchema) -> tuple[Field, int] | None:
    """The first field from which ``short`` lags ``long`` by a few bytes, if that explains all that follows."""
    for field in schema.fields:
        if field.role == "padding":
            continue
        if short[: field.offset] != long[: field.offset]:
            return None
        for count in range(1, field.size + 1):
            early, right = short[field.end - count :], long[field.end :]
            common = min(len(early), len(right))
            # What follows has to hold something: zeros agree with zeros at any shift.
            if common and early[:common] == right[:common] and any(right) and short[field.end :] != right[: len(short)]:
                return field, count
    return None


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
