"""A picture of an argument segment: offset by offset, each field with its value, live or not, different or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from asmlaunch.abi.diff import DEAD, DIFFERS, EQUIVALENT, Diff, FieldDiff, diff, show
from asmlaunch.abi.hexdump import Dump
from asmlaunch.abi.schema import Field, KernargSchema

_CELL, _ROW, _LEFT, _TOP, _BYTES = 44, 30, 60, 30, 16

#: What a field is -> its colour and what the legend says.
COLOURS = {
    "live": ("#cfe8cf", "used"),
    "unknown": ("#dde6f0", "not known whether used"),
    "unused": ("#e8e8e8", "no effect"),
    "padding": ("#fafafa", "padding"),
    "hidden": ("#e6dff0", "filled in by the launcher"),
    DIFFERS: ("#f2b8b5", "differs"),
    EQUIVALENT: ("#fde9b8", "pointer to another place"),
    DEAD: ("#f5d9c8", "differs without effect"),
}


@dataclass(frozen=True)
class KernargMap:
    """A segment to draw; ``svg()`` is a picture, ``html()`` a page with the picture and a table of the fields."""

    schema: KernargSchema
    compared: Diff | None
    states: Mapping[str, str]

    def svg(self) -> str:
        """The picture, 16 bytes a row, as an SVG document."""
        rows = -(-self.schema.size // _BYTES)
        width, height = _LEFT + _BYTES * _CELL + 10, _TOP + rows * _ROW + 40
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="monospace" font-size="11">'
        ]
        parts += [_text(_LEFT + i * _CELL + _CELL // 2, _TOP - 10, f"{i:X}", anchor="middle") for i in range(_BYTES)]
        parts += [_text(4, _TOP + row * _ROW + 19, f"{row * _BYTES:#06x}") for row in range(rows)]
        for field in self.schema.fields:
            parts += self._boxes(field)
        parts += self._legend(_TOP + rows * _ROW + 14)
        return "\n".join([*parts, "</svg>"])

    def html(self) -> str:
        """A page of its own, with no other file."""
        rows = "\n".join(
            f'<tr style="background:{COLOURS[self._kind(field)][0]}"><td>{field.offset:#x}</td><td>{field.size}</td>'
            f"<td>{escape(field.name)}</td><td>{field.type}</td><td>{escape(self._value(field))}</td>"
            f"<td>{escape(' '.join(part for part in (field.role, field.unit) if part))}</td></tr>"
            for field in self.schema.fields
        )
        return (
            f'<!doctype html>\n<meta charset="utf-8">\n<title>{escape(self.schema.name)}</title>\n'
            "<style>body{font-family:sans-serif}table{border-collapse:collapse;font-family:monospace}"
            "td,th{border:1px solid #999;padding:2px 8px;text-align:left}</style>\n"
            f"<h1>{escape(self.schema.name)}</h1>\n<p>{self.schema.size} bytes</p>\n{self.svg()}\n"
            "<table><tr><th>offset</th><th>size</th><th>name</th><th>type</th><th>value</th><th>meaning</th></tr>\n"
            f"{rows}\n</table>\n"
        )

    def _kind(self, field: Field) -> str:
        if field.role in ("padding", "hidden"):
            return field.role
        entry = self._entry(field)
        if entry is not None and entry.status in (DIFFERS, EQUIVALENT, DEAD):
            return entry.status
        state = self.states.get(field.name)
        live = {"used": True, "loaded, unused": False, "never loaded": False}.get(state or "", field.live)
        return {True: "live", False: "unused", None: "unknown"}[live]

    def _entry(self, field: Field) -> FieldDiff | None:
        entries = () if self.compared is None else self.compared.fields
        return next((entry for entry in entries if entry.field is field), None)

    def _value(self, field: Field) -> str:
        entry = self._entry(field)
        if entry is None or (entry.a is None and entry.b is None):
            return ""
        a, b = show(field, entry.a), show(field, entry.b)
        return a if entry.same or entry.b is None else f"{a} / {b}"

    def _boxes(self, field: Field) -> list[str]:
        """One rectangle for each row that the field touches, the text in the first."""
        parts, start = [], field.offset
        title = f"{field.name}: {field.type} at {field.offset}, {field.size} bytes {self._value(field)}".strip()
        while start < field.end:
            row, column = divmod(start, _BYTES)
            count = min(field.end - start, _BYTES - column)
            x, y = _LEFT + column * _CELL, _TOP + row * _ROW
            parts.append(
                f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{count * _CELL}" height="{_ROW - 2}" '
                f'fill="{COLOURS[self._kind(field)][0]}" stroke="#777"/>'
            )
            if start == field.offset and field.role != "padding":
                room = count * _CELL // 7
                parts.append(_text(x + 3, y + 12, field.name[:room]) + _text(x + 3, y + 24, self._value(field)[:room]))
            parts.append("</g>")
            start += count
        return parts

    def _legend(self, y: int) -> list[str]:
        kinds = dict.fromkeys(self._kind(field) for field in self.schema.fields)
        parts, x = [], _LEFT
        for kind in kinds:
            colour, text = COLOURS[kind]
            parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}" stroke="#777"/>')
            parts.append(_text(x + 16, y + 10, text))
            x += 30 + 7 * len(text)
        return parts


def kernarg_map(
    schema: KernargSchema,
    a: bytes | Dump | None = None,
    b: bytes | Dump | None = None,
    states: Mapping[str, str] | None = None,
) -> KernargMap:
    """The map of a schema, with the values of one segment or the comparison of two.

    ``states`` says what the machine code does with each argument (``Audit.states``); without it the schema's own
    declaration is shown.
    """
    compared = None if a is None else diff(a, a if b is None else b, schema)
    return KernargMap(schema, compared, states or {})


def _text(x: int, y: int, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
