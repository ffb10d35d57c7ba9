"""Packing compiled once a schema: the common call is one ``struct`` operation on a dict's values."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from asmlaunch.abi.types import TYPES
from asmlaunch.errors import ArgumentError

if TYPE_CHECKING:
    from asmlaunch.abi.schema import Field

Pack = Callable[[Mapping[str, Any]], bytes]
PackInto = Callable[[Any, int, Mapping[str, Any]], None]

#: What struct and itemgetter raise for values that the careful path takes (aliases, defaults, None) or explains.
NOT_PLAIN = (KeyError, TypeError, OverflowError, struct.error)


def compile_packers(fields: Sequence[Field], size: int, careful: Pack) -> tuple[Pack, PackInto, Pack | None]:
    """``pack(values)`` and ``pack_into(buffer, offset, values)`` for a segment of ``size`` bytes, and the plain packer.

    Both try one struct call with every field by its canonical name, and fall back on ``careful``. The plain packer is
    that struct call alone, for ``careful`` to use once names and defaults are settled; it raises what struct raises.
    Fields that overlap or that need converting have none: they are always packed by ``careful``.
    """
    layout = layout_of(fields, size)

    def slow_into(buffer: Any, offset: int, values: Mapping[str, Any]) -> None:
        data, view = careful(values), memoryview(buffer)
        if len(view) - offset < size:
            raise ArgumentError("kernarg buffer", got=f"{len(view) - offset} bytes", need=f"{size} bytes")
        view[offset : offset + size] = data

    if layout is None:
        return careful, slow_into, None
    names = [field.name for field in fields]
    count = len(names)
    take = itemgetter(*names) if count > 1 else lambda values: (values[names[0]],)
    struct_pack, struct_pack_into = layout.pack, layout.pack_into

    def plain(values: Mapping[str, Any]) -> bytes:
        return struct_pack(*take(values))

    def pack(values: Mapping[str, Any]) -> bytes:
        if len(values) == count:
            try:
                return struct_pack(*take(values))
            except NOT_PLAIN:
                pass
        return careful(values)

    def pack_into(buffer: Any, offset: int, values: Mapping[str, Any]) -> None:
        if len(values) == count:
            try:
                return struct_pack_into(buffer, offset, *take(values))
            except NOT_PLAIN:
                pass
        return slow_into(buffer, offset, values)

    return pack, pack_into, plain


def layout_of(fields: Sequence[Field], size: int) -> struct.Struct | None:
    """The segment as one struct, or None where fields overlap or need converting or checking (struct cuts bytes)."""
    parts, position = ["<"], 0
    for field in fields:
        kind = TYPES[field.type]
        if field.offset < position or kind.encode is not None or kind.kind == "bytes":
            return None
        parts.append(f"{field.offset - position}x{kind.code}")
        position = field.end
    parts.append(f"{size - position}x")
    return struct.Struct("".join(parts)) if fields else None
