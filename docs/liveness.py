"""Writes docs/liveness.md: what the machine code of the wheel's objects does with each argument, one table a family.

Prints where that differs from what the family declares (`Field.live`), and how long the analysis takes.

Run: python docs/liveness.py
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from asmlaunch import codeobject
from asmlaunch.abi import Field, schema_from_metadata
from asmlaunch.abi.families import FAMILIES, family_of
from asmlaunch.emulator.liveness import FieldLiveness, Liveness, Status, Use, liveness
from asmlaunch.kernels import aiter_folder

HEAD = """# What the machine code does with each argument

Made by `docs/liveness.py` from the objects of the amd-aiter wheel, by data flow over their machine code
(`asmlaunch/emulator/liveness`); do not edit. *Used*: the value may reach a store, an address, LDS or a branch (EXEC
included). *Loaded, unused*: it is loaded and cannot. Numbers count objects. `asmlaunch audit FILE` says it of one.
"""


@dataclass
class Slot:
    """One argument over all objects of a family: how many objects treat it how, and one example each."""

    field: Field
    statuses: Counter[Status] = field(default_factory=Counter)
    uses: Counter[Use] = field(default_factory=Counter)
    declared: dict[tuple[bool, Status], list[str]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Family:
    """A family's objects: slots by offset and name, and what holds of whole objects."""

    objects: int = 0
    slots: dict[tuple[int, str], Slot] = field(default_factory=dict)
    incomplete: list[str] = field(default_factory=list)
    highest: Counter[int] = field(default_factory=Counter)
    beyond: list[str] = field(default_factory=list)


def collect(folder: Path) -> tuple[dict[str, Family], list[float]]:
    """All kernels below ``folder`` by family, and the seconds each analysis took."""
    found: dict[str, Family] = defaultdict(Family)
    seconds = []
    for path in sorted(folder.rglob("*.co")):
        for kernel in codeobject.read(path).kernels.values():
            start = time.perf_counter()
            live = liveness(kernel)
            seconds.append(time.perf_counter() - start)
            family = family_of(kernel)
            schema = family.schema(kernel) if family else schema_from_metadata(kernel)
            into = found[family.name if family else "no family"]
            _add(into, live, live.of(schema).values(), str(path.relative_to(folder)))
            if live.highest_byte is not None and live.highest_byte >= kernel.kernarg_size:
                into.beyond.append(str(path.relative_to(folder)))
    return found, seconds


def _add(family: Family, live: Liveness, entries: Iterable[FieldLiveness], name: str) -> None:
    family.objects += 1
    if not live.complete:
        family.incomplete.append(name)
    family.highest[live.highest_byte or 0] += 1
    for entry in entries:
        slot = family.slots.setdefault((entry.field.offset, entry.field.name), Slot(entry.field))
        slot.statuses[entry.status] += 1
        slot.uses.update(entry.uses)
        if entry.field.live is not None and entry.field.live != (entry.status is Status.USED):
            slot.declared[entry.field.live, entry.status].append(name)


def differences(families: dict[str, Family]) -> list[str]:
    """One line for each way in which objects differ from the declaration."""
    lines = []
    for name, family in families.items():
        for (offset, _), slot in sorted(family.slots.items()):
            for (declared, status), objects in slot.declared.items():
                said = "has an effect" if declared else "has none"
                lines.append(
                    f"{name} `{slot.field.name}` at {offset:#x}: declared that it {said}; {status.value} in "
                    f"{len(objects)} of {family.objects} objects, such as {objects[0]}"
                )
    return lines


def render(families: dict[str, Family]) -> str:
    """The page's text."""
    order = [family.name for family in FAMILIES if family.name in families]
    order += sorted(families.keys() - set(order))
    total = sum(family.objects for family in families.values())
    complete = total - sum(len(family.incomplete) for family in families.values())
    lines = [
        HEAD,
        f"{total} kernels; in {complete} of them every load from the argument segment is at a known offset, and in "
        f"{total - sum(len(family.beyond) for family in families.values())} none is past the segment.",
        "",
    ]
    for name in order:
        lines += _section(name, families[name])
    different = differences(families)
    if different:
        lines += ["## Where the declarations say otherwise", "", *(f"* {line}" for line in different), ""]
    return "\n".join(lines)


def _section(name: str, family: Family) -> list[str]:
    highest = ", ".join(f"{byte} ({count})" for byte, count in sorted(family.highest.items()))
    lines = [
        f"## {name}",
        "",
        f"{family.objects} objects. Last byte loaded: {highest}.",
        "",
        "| offset | argument | used | loaded, unused | never loaded | used as |",
        "|---|---|---|---|---|---|",
    ]
    for (offset, _), slot in sorted(family.slots.items()):
        counts = (slot.statuses[status] or "" for status in (Status.USED, Status.UNUSED, Status.NEVER))
        used = slot.statuses[Status.USED]
        kinds = ", ".join(
            use.value if slot.uses[use] == used else f"{use.value} ({slot.uses[use]})" for use in Use if slot.uses[use]
        )
        lines.append(f"| {offset:#05x} | `{slot.field.name}` | {' | '.join(map(str, counts))} | {kinds} |")
    return [*lines, ""]


if __name__ == "__main__":
    collected, taken = collect(aiter_folder())
    Path(__file__).with_suffix(".md").write_text(render(collected))
    for difference in differences(collected):
        print(difference.replace("`", ""))
    print(f"{len(taken)} kernels, {sum(taken):.0f} s: median {median(taken):.3f} s, most {max(taken):.2f} s")
