"""Named arguments of any kind -> canonical names with numbers, the buffers behind them, and what shapes imply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asmlaunch.abi.arguments import Buffer, resolve
from asmlaunch.abi.schema import Field, FromShape, KernargSchema, Symbol
from asmlaunch.errors import ArgumentError, LayoutError


def bind(schema: KernargSchema, args: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Buffer]]:
    """What ``schema.pack`` needs, from what a caller gives.

    Names and aliases become canonical, arrays become addresses (and buffers, by canonical name), and an integer that
    was left out is read off the arrays' shapes where the schema says how, else takes the schema's default.

    Raises:
        ArgumentError: an unknown name, an unusable value, an argument missing, or arrays that disagree on one.
    """
    values: dict[str, Any] = {}
    buffers: dict[str, Buffer] = {}
    for name, value in schema.canonical(args).items():
        number, buffer = resolve(name, value)
        if buffer is not None and not (name in schema and schema[name].is_pointer):
            # A scalar in an array of one element, such as a 0-d tensor.
            if hasattr(value, "item") and buffer.shape in ((), (1,)):
                number, buffer = value.item(), None
            else:
                raise ArgumentError(f"argument {name}", got=f"an array of shape {buffer.shape}", need="a number")
        values[name] = number
        if buffer is not None:
            buffers[name] = buffer
    callers = [field for field in schema.fields if field.given_by_caller]
    wanting: list[Field | Symbol] = [*callers, *schema.symbols]
    for wanted in wanting:
        if wanted.name not in values:
            derived = _derive(schema, wanted, buffers)
            found = wanted.default if derived is None else derived
            if found is not None:
                values[wanted.name] = found
    missing = [field for field in callers if field.name not in values]
    if missing:
        raise _missing(schema, missing)
    return values, buffers


def check_tiling(field: Field, args: Mapping[str, Any], strict: bool = False) -> None:
    """Refuse a tensor that carries another memory layout than the one its field declares.

    Args:
        field: a pointer with a ``tiling``.
        args: what a caller gives, by name or alias.
        strict: refuse memory that carries no layout too, where the field declares one other than ``"plain"``.

    Raises:
        LayoutError: another layout, named beside the one needed; with ``strict``, none.
    """
    value = next((args[name] for name in (field.name, *field.aliases) if name in args), None)
    layout = getattr(getattr(value, "tag", None), "layout", None)
    if value is None or (layout is None and not (strict and field.tiling != "plain")):
        return
    from asmlaunch.layouts import require

    if field.tiling != "plain":
        require(value, field.tiling, field.where)
    elif layout is not None:
        raise LayoutError(
            field.where,
            got=f"layout {layout.label}",
            need="elements in logical order",
            hint=".logical() gives them",
        )


def _derive(schema: KernargSchema, wanted: Field | Symbol, buffers: Mapping[str, Buffer]) -> int | None:
    found: dict[int, FromShape] = {}
    for source in wanted.derive:
        buffer = buffers.get(schema[source.array].name)
        extents = () if buffer is None else buffer.strides if source.stride else buffer.shape
        if source.axis < len(extents):
            value = extents[source.axis] * source.factor + source.plus
            if value.denominator == 1:
                found[int(value)] = source
    if len(found) > 1:
        readings = ", ".join(f"{value} by {source.array}" for value, source in found.items())
        raise ArgumentError(
            f"{wanted.name} cannot be read off the arrays", got=readings, need="agreement", hint=f"pass {wanted.name}"
        )
    return next(iter(found), None)


def _missing(schema: KernargSchema, fields: list[Field]) -> ArgumentError:
    first = fields[0]
    index = schema.fields.index(first)
    others = f"; also missing: {', '.join(field.name for field in fields[1:])}" if fields[1:] else ""
    hint = None
    if first.derive:
        hint = f"or pass {' and '.join(dict.fromkeys(s.array for s in first.derive))} as arrays, from which it is read"
    return ArgumentError(
        f"argument {index} of {schema.name} is missing: {first.name}",
        need=f"a {first.type} for offset {first.offset}, {first.size} bytes{others}",
        hint=hint,
    )
