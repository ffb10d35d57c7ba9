"""Two kernels compared: argument layout first, then resources, descriptor and code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asmlaunch.abi.reflect import schema_from_metadata
from asmlaunch.abi.schema import Field
from asmlaunch.codeobject import KernelInfo

if TYPE_CHECKING:
    from rich.table import Table

#: What of the metadata limits a launch or changes its cost.
_RESOURCES = (
    "kernarg_size",
    "kernarg_align",
    "lds_size",
    "scratch_size",
    "vgpr_count",
    "agpr_count",
    "sgpr_count",
    "max_workgroup_size",
    "required_workgroup_size",
    "wavefront_size",
)


@dataclass(frozen=True)
class Change:
    """One difference: ``part`` is ``"argument"``, ``"target"``, ``"resource"``, ``"descriptor"`` or ``"code"``."""

    part: str
    name: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.part} {self.name}: {self.a} -> {self.b}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return dict(vars(self))


@dataclass(frozen=True)
class KernelDiff:
    """All changes from one kernel to another, in order of what breaks a caller; true when there are any."""

    a: str
    b: str
    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def layout_changed(self) -> bool:
        """Whether a caller's argument struct has to change."""
        return any(change.part == "argument" for change in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        changes = [change.to_json() for change in self.changes]
        return {"a": self.a, "b": self.b, "layout_changed": self.layout_changed, "changes": changes}

    def __str__(self) -> str:
        head = f"{self.a} -> {self.b}: " + (
            "argument layout changed" if self.layout_changed else "same argument layout"
        )
        return "\n".join([head, *(f"  {change}" for change in self.changes)])

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=f"{self.a} -> {self.b}", title_justify="left")
        for column in ("part", "name", "a", "b"):
            table.add_column(column)
        for change in self.changes:
            style = "red" if change.part == "argument" else None
            table.add_row(change.part, change.name, change.a, change.b, style=style)
        return table


def diff_kernels(a: KernelInfo, b: KernelInfo) -> KernelDiff:
    """Compare two kernels by their metadata, descriptors and code bytes."""
    changes = [*_arguments(a, b)]
    if a.target != b.target:
        changes.append(Change("target", "id", str(a.target), str(b.target)))
    for name in _RESOURCES:
        changes += _changed("resource", name, getattr(a, name), getattr(b, name))
    fields_a, fields_b = a.descriptor.fields, b.descriptor.fields
    for name in dict.fromkeys((*fields_a, *fields_b)):
        # Where the code lies relative to the descriptor says nothing of the kernel.
        if name != "kernel_code_entry_byte_offset":
            changes += _changed("descriptor", name, fields_a.get(name, "-"), fields_b.get(name, "-"))
    if a.code != b.code:
        changes.append(Change("code", "bytes", *_code_sizes(a.code, b.code)))
    return KernelDiff(a.name, b.name, tuple(changes))


def _changed(part: str, name: str, a: Any, b: Any) -> list[Change]:
    return [] if a == b else [Change(part, name, str(a), str(b))]


def _arguments(a: KernelInfo, b: KernelInfo) -> list[Change]:
    before, after = ({f.name: f for f in schema_from_metadata(k).fields if f.role != "padding"} for k in (a, b))
    names = sorted(dict.fromkeys((*before, *after)), key=lambda name: (after.get(name) or before[name]).offset)
    changes = []
    for name in names:
        shown = tuple(_place(fields.get(name)) for fields in (before, after))
        if shown[0] != shown[1]:
            changes.append(Change("argument", name, *shown))
    return changes


def _place(field: Field | None) -> str:
    if field is None:
        return "absent"
    return f"{field.type} at {field.offset}" + (f", {field.size} bytes" if field.type == "bytes" else "")


def _code_sizes(a: bytes, b: bytes) -> tuple[str, str]:
    common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"{len(a)} bytes", f"{len(b)} bytes, first difference at {common}"
