"""A declared schema compared with the object's own metadata, argument by argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from asmlaunch.abi.families.base import Family, plain_name
from asmlaunch.abi.reflect import schema_from_metadata
from asmlaunch.abi.schema import Field, KernargSchema
from asmlaunch.codeobject import KernelInfo


@dataclass(frozen=True)
class Disagreement:
    """One argument on which declaration and metadata differ; ``reason`` says why when it has been looked into."""

    field: str
    offset: int
    declared: str
    metadata: str
    reason: str = ""

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return f"{self.field} at {self.offset}: declared {self.declared}, metadata {self.metadata}{why}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return dict(vars(self))


def disagreements(schema: KernargSchema, kernel: KernelInfo, family: Family | None = None) -> tuple[Disagreement, ...]:
    """Where ``schema`` and the kernel's metadata differ: missing and extra arguments, size, kind, name."""
    described = {f.offset: f for f in schema_from_metadata(kernel).fields if f.given_by_caller}
    found = [_compare(field, described.pop(field.offset, None)) for field in schema.fields if field.given_by_caller]
    found += [Disagreement(f.name, f.offset, "nothing", _shown(f)) for f in described.values()]
    if family is None:
        return tuple(entry for entry in found if entry is not None)
    return tuple(_explained(entry, family, kernel) for entry in found if entry is not None)


def _compare(declared: Field, described: Field | None) -> Disagreement | None:
    if described is None:
        return Disagreement(declared.name, declared.offset, _shown(declared), "nothing")
    name = described.name.split("@")[0]
    same_name = name in (declared.metadata_names or (declared.name,))
    if same_name and (declared.size, declared.is_pointer) == (described.size, described.is_pointer):
        return None
    return Disagreement(declared.name, declared.offset, _shown(declared), f"{name}, {_shown(described)}")


def _shown(field: Field) -> str:
    return f"{'pointer' if field.is_pointer else 'number'} of {field.size} bytes"


def _explained(entry: Disagreement, family: Family, kernel: KernelInfo) -> Disagreement:
    name = plain_name(kernel.name)
    reason = next((k.reason for k in family.known if k.field == entry.field and re.search(k.pattern, name)), "")
    return Disagreement(entry.field, entry.offset, entry.declared, entry.metadata, reason)


def unexplained(entries: Iterable[Disagreement]) -> tuple[Disagreement, ...]:
    """Those without a reason."""
    return tuple(entry for entry in entries if not entry.reason)
