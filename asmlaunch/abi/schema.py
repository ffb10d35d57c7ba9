"""KernargSchema: which bytes of a kernel's argument segment mean what.

The description is a list of fields; a ``construct`` schema and a compiled packer follow from it.
"""

from __future__ import annotations

import dataclasses
import difflib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import construct

from asmlaunch.abi.packer import NOT_PLAIN, Pack, PackInto, compile_packers
from asmlaunch.abi.types import TYPES, FieldType
from asmlaunch.errors import ArgumentError, DumpError

Value = int | float | bytes

#: Larger segments are refused: no launcher passes that much, a damaged object may claim it.
MAX_SEGMENT = 1 << 20


@dataclass(frozen=True)
class FromShape:
    """A number read off an array: ``shape[axis] * factor + plus``, or the same of ``strides[axis]`` (bytes)."""

    array: str
    axis: int
    factor: Fraction = Fraction(1)
    plus: int = 0
    stride: bool = False


def extent(array: str, axis: int, factor: int | Fraction = 1, plus: int = 0) -> FromShape:
    """``array.shape[axis] * factor + plus``: a factor of 2 gives fp4 elements from packed bytes."""
    return FromShape(array, axis, Fraction(factor), plus)


def stride(array: str, axis: int, factor: int | Fraction = 1) -> FromShape:
    """``array.strides[axis] * factor``; strides are in bytes, so 1/2 gives 16-bit elements and 2 fp4 elements."""
    return FromShape(array, axis, Fraction(factor), stride=True)


@dataclass(frozen=True)
class Field:
    """One argument.

    Attributes:
        name: canonical name; ``aliases`` are accepted as well.
        offset: byte offset in the segment.
        type: a key of ``TYPES``.
        size: bytes; follows from the type unless that is ``bytes``.
        unit: what an integer counts (``"elements"``, ``"bytes"``, ``"rows"``), or "".
        role: what the field is for, such as ``"output"`` or ``"row stride of A"``; ``"padding"`` and ``"hidden"`` are
            fields that a caller does not have to give.
        live: True when the kernel's result depends on it, False when not, None when unknown.
        instead: for a field that is not live, the one that does what a caller may expect of it.
        default: the value when none is given; None means that the caller has to give one.
        derive: arrays the value can be read off when it is not given; they have to agree.
        contiguous: what the value is for arrays without padding between rows, from the problem's values by name.
        dtypes: names of the array dtypes a pointer accepts; empty means any.
        layout: shape and dtype in the problem's symbols, for people.
        tiling: name of the memory layout (``asmlaunch.layouts``) that a pointer's tensor has to be in, ``"plain"`` for
            elements in logical order; empty where none is declared.
        nbytes: bytes a pointer's buffer must have, computed from the problem's values by name.
        metadata_names: its names in objects' metadata, where they are not ``name`` (those are not accepted from
            callers: some objects' metadata names the wrong thing).
        address_space, access: of a pointer, as the metadata states them.
    """

    name: str
    offset: int
    type: str
    size: int = 0
    unit: str = ""
    role: str = ""
    live: bool | None = None
    instead: str = ""
    aliases: tuple[str, ...] = ()
    default: Value | None = None
    derive: tuple[FromShape, ...] = ()
    contiguous: Callable[[Any], int] | None = None
    dtypes: tuple[str, ...] = ()
    layout: str = ""
    tiling: str = ""
    nbytes: Callable[[Any], int] | None = None
    metadata_names: tuple[str, ...] = ()
    address_space: str | None = None
    access: str | None = None

    def __post_init__(self) -> None:
        if not self.size:
            object.__setattr__(self, "size", TYPES[self.type].size)

    @property
    def end(self) -> int:
        """The offset just past the field."""
        return self.offset + self.size

    @property
    def is_pointer(self) -> bool:
        return self.type == "pointer"

    @property
    def given_by_caller(self) -> bool:
        """False for padding and hidden arguments."""
        return self.role not in ("padding", "hidden")

    def to_json(self) -> dict[str, Any]:
        """What describes the field, as plain values for ``json.dumps``."""
        texts = ("name", "type", "unit", "role", "layout", "tiling", "address_space", "access")
        plain = (*texts, "offset", "size", "live")
        default = self.default.hex() if isinstance(self.default, bytes) else self.default
        return {**{key: getattr(self, key) for key in plain}, "aliases": list(self.aliases), "default": default}

    @property
    def where(self) -> str:
        """``"argument M (u32 at offset 224)"``, for messages."""
        return f"argument {self.name} ({self.type} at offset {self.offset})"


@dataclass(frozen=True)
class Symbol:
    """A number of the problem that is no kernel argument but that a launch rule needs, such as a batch size.

    Attributes:
        name, aliases, role: as of a Field.
        derive: arrays it can be read off when it is not given.
        default: the value when neither gives one; None means that it may stay unknown.
    """

    name: str
    role: str
    derive: tuple[FromShape, ...] = ()
    default: int | None = None
    aliases: tuple[str, ...] = ()


class KernargSchema:
    """The fields of a kernel's argument segment and its size in bytes.

    Attributes:
        fields: in order of offset.
        symbols: numbers accepted beside the fields, for launch rules; they take no bytes.
        pack: ``pack(values) -> bytes`` turns named numbers (a pointer is an address, None is null) into the segment;
            bytes that no field covers are zero. ArgumentError for a missing or unknown name, a value of the wrong kind
            or out of range: nothing is ever wrapped.
        pack_into: ``pack_into(buffer, offset, values)``, the same into a writable buffer.
    """

    pack: Pack
    pack_into: PackInto

    def __init__(
        self, fields: Iterable[Field], size: int, name: str = "kernarg", symbols: Iterable[Symbol] = ()
    ) -> None:
        if size > MAX_SEGMENT:
            raise ArgumentError(f"kernarg segment of {name}", got=f"{size} bytes", need=f"at most {MAX_SEGMENT}")
        self.fields = tuple(sorted(fields, key=lambda field: (field.offset, field.name)))
        self.size = size
        self.name = name
        self.symbols = tuple(symbols)
        self._symbols = {known: symbol for symbol in self.symbols for known in (symbol.name, *symbol.aliases)}
        self._by_name: dict[str, Field] = {}
        for field in self.fields:
            for known in (field.name, *field.aliases):
                if known in self._by_name or known in self._symbols:
                    raise ArgumentError(f"schema {name}", got=f"two fields named {known}", need="distinct names")
                self._by_name[known] = field
            if field.end > size:
                raise ArgumentError(f"schema {name}: {field.where}", got=f"end {field.end}", need=f"at most {size}")
        self._packed = tuple(field for field in self.fields if field.role != "padding")
        self._not_packed = frozenset(field.name for field in self.fields if field.role == "padding")
        self._defaults = {
            field.name: 0 if field.default is None else field.default
            for field in self._packed
            if field.default is not None or not field.given_by_caller
        }
        self.pack, self.pack_into, self._pack_plain = compile_packers(self._packed, size, self._pack_carefully)

    @cached_property
    def construct(self) -> construct.Struct:
        """The same layout as a ``construct`` schema, field by field at its offset."""
        members = [field.name / construct.Pointer(field.offset, _construct(field)) for field in self._packed]
        return construct.Struct(*members)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments a caller gives, in order of offset."""
        return tuple(field.name for field in self.fields if field.given_by_caller)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Field:
        """The field of that name or alias; ArgumentError (with the names there are) when there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            folded = {known.lower(): known for known in (*self._by_name, *self._symbols)}
            close = difflib.get_close_matches(name.lower(), folded, n=1)
            hint = f"did you mean {folded[close[0]]}?" if close else None
            raise ArgumentError(
                f"argument of {self.name}", got=repr(name), need=f"one of {', '.join(self.names)}", hint=hint
            ) from None

    def canonical(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same values under canonical names; ArgumentError for an unknown name or an argument given twice."""
        found: dict[str, Any] = {}
        for name, value in values.items():
            if name in self._symbols:
                found[self._symbols[name].name] = value
                continue
            field = self[name]
            if field.name in found:
                raise ArgumentError(
                    f"{field.where} of {self.name}", got=f"two values, the second as {name!r}", need="one"
                )
            found[field.name] = value
        return found

    def _pack_carefully(self, values: Mapping[str, Any]) -> bytes:
        given = self.canonical(values)
        if self._pack_plain is not None and not any(name in self._not_packed for name in given):
            try:
                return self._pack_plain({**self._defaults, **given})
            except NOT_PLAIN:
                pass  # field by field, to say which one it is
        data = bytearray(self.size)
        for index, field in enumerate(self.fields):
            value = given.get(field.name, 0 if not field.given_by_caller else field.default)
            if value is None and not (field.is_pointer and field.name in given):
                raise ArgumentError(
                    f"argument {index} of {self.name} is missing: {field.name}",
                    need=f"a {field.type} for offset {field.offset}, {field.size} bytes",
                )
            if field.role != "padding" or value != 0:
                data[field.offset : field.end] = encode(field, value)
        return bytes(data)

    def unpack(self, data: bytes) -> dict[str, Value]:
        """Named values of a segment's bytes, padding left out; the bytes after the last field are ignored.

        Raises:
            DumpError: ``data`` ends before a field that is not known to be dead.
        """
        found: dict[str, Value] = {}
        for index, field in enumerate(self._packed):
            if field.end <= len(data):
                found[field.name] = decode(field, data[field.offset : field.end])
            elif field.live is not False:
                raise DumpError(
                    f"kernarg of {self.name} is {self.size - len(data)} bytes short",
                    got=f"{len(data)} bytes",
                    need=f"{self.size} bytes",
                    hint=f"the first argument not covered is {index}, {field.where}",
                )
        return found

    def to_json(self) -> dict[str, Any]:
        """The fields and the size, as plain values for ``json.dumps``."""
        return {"size": self.size, "fields": [field.to_json() for field in self.fields]}

    def with_fields(self, changes: Mapping[str, Mapping[str, Any]], name: str | None = None) -> KernargSchema:
        """A copy in which the named fields have some attributes replaced."""
        fields = [dataclasses.replace(field, **changes.get(field.name, {})) for field in self.fields]
        return KernargSchema(fields, self.size, name or self.name, self.symbols)

    def __repr__(self) -> str:
        return f"KernargSchema({self.name!r}, {self.size} bytes: {', '.join(self.names)})"


def _construct(field: Field) -> construct.Construct:
    return construct.Bytes(field.size) if field.type == "bytes" else TYPES[field.type].construct


def encode(field: Field, value: Any) -> bytes:
    """The bytes of one value; ArgumentError when it does not fit the field's type."""
    kind: FieldType = TYPES[field.type]
    if field.is_pointer and value is None:
        value = 0
    if kind.kind == "bytes":
        if value == 0:
            return bytes(field.size)
        if not isinstance(value, (bytes, bytearray, memoryview)) or len(value) != field.size:
            raise ArgumentError(field.where, got=_shown(value), need=f"{field.size} bytes")
        return bytes(value)
    if kind.kind == "int" and not hasattr(value, "__index__"):
        hint = (
            "metadata of hand-written kernels may call a float i32; give its bits" if isinstance(value, float) else None
        )
        raise ArgumentError(field.where, got=_shown(value), need="an integer", hint=hint)
    if kind.kind == "int" or (kind.kind == "raw" and hasattr(value, "__index__")):
        low, high = kind.range
        if not low <= value.__index__() <= high:
            raise ArgumentError(field.where, got=int(value), need=f"an integer from {low} to {high}")
    try:
        return struct.pack("<" + kind.code, kind.encode(value) if kind.encode else value)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise ArgumentError(
            f"{field.where} ({error})", got=_shown(value), need=f"a number that fits {field.type}"
        ) from error


def decode(field: Field, data: bytes) -> Value:
    """The value that a field's bytes stand for."""
    kind = TYPES[field.type]
    if kind.kind == "bytes":
        return bytes(data)
    value: Value = struct.unpack("<" + kind.code, data)[0]
    return kind.decode(value) if kind.decode else value


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"
