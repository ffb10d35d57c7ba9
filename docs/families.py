"""Writes docs/families.md: one table a family, from the declarations and the wheel's objects.

Run: python docs/families.py
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from asmlaunch import codeobject
from asmlaunch.abi.agreement import disagreements
from asmlaunch.abi.families import FAMILIES, Family
from asmlaunch.abi.schema import Field
from asmlaunch.codeobject import KernelInfo
from asmlaunch.kernels import aiter_folder

HEAD = """# Kernel families

Made by `docs/families.py` from the declarations in `asmlaunch/abi/families/` and the objects of the amd-aiter wheel;
do not edit. "Effect" says whether a kernel's result depends on the argument: *yes*, *no*, or *some* where it depends on
the kernel. Arguments that are not given take the default.
"""


def by_family(folder: Path) -> dict[str, list[KernelInfo]]:
    """Every kernel below ``folder``, by the name of its family."""
    found: dict[str, list[KernelInfo]] = defaultdict(list)
    for path in sorted(folder.rglob("*.co")):
        for kernel in codeobject.read(path).kernels.values():
            for family in FAMILIES:
                if family.matches(kernel):
                    found[family.name].append(kernel)
    return found


def render(folder: Path) -> str:
    """The page's text."""
    kernels = by_family(folder)
    rows = [
        "| family | objects | segment, bytes | arguments | without effect in some kernel |",
        "|---|---|---|---|---|",
    ]
    for family in FAMILIES:
        members = kernels.get(family.name, [])
        sizes = ", ".join(str(size) for size in sorted({kernel.kernarg_size for kernel in members})) or "-"
        effects = _effects(family, members)
        dead = sum(effect != "yes" for effect in effects.values())
        rows.append(f"| [{family.name}](#{family.name}) | {len(members)} | {sizes} | {len(effects)} | {dead} |")
    return "\n".join([HEAD, *rows, "", *(_section(family, kernels.get(family.name, [])) for family in FAMILIES)])


def _section(family: Family, members: list[KernelInfo]) -> str:
    targets = Counter(kernel.target.processor for kernel in members)
    sizes = Counter(kernel.kernarg_size for kernel in members)
    lines = [f"## {family.name}", "", f"{family.title[0].upper()}{family.title[1:]}.", ""]
    if members:
        counted = ", ".join(f"{count} for {target}" for target, count in sorted(targets.items()))
        lines.append(
            f"Objects: {counted}. Segment: {', '.join(f'{n} of {s} bytes' for s, n in sorted(sizes.items()))}."
        )
    else:
        lines.append("No object of the wheel; declared for other versions.")
    effects = _effects(family, members)
    lines += ["", "| offset | argument | type | meaning | effect | default |", "|---|---|---|---|---|---|"]
    lines += [_row(field, effects[field.name]) for field in family.fields]
    if family.symbols:
        lines += ["", "Beside the arguments, launches take: "]
        lines[-1] += "; ".join(f"`{symbol.name}` ({symbol.role})" for symbol in family.symbols) + "."
    needs = dict.fromkeys(f"`{rule.what}`: {rule.need}" for rule in family.requires)
    if needs:
        lines += ["", "Right where:", "", *(f"* {need}" for need in needs)]
    reasons: Counter[str] = Counter()
    for kernel in members:
        reasons.update(f"`{d.field}`: {d.reason}" for d in disagreements(family.schema(kernel), kernel, family))
    if reasons:
        lines += ["", "Differs from the metadata:", "", *(f"* {r} ({n} objects)" for r, n in sorted(reasons.items()))]
    return "\n".join([*lines, ""])


def _effects(family: Family, members: list[KernelInfo]) -> dict[str, str]:
    live: dict[str, set[bool | None]] = {field.name: set() for field in family.fields}
    for kernel in members:
        for field in family.schema(kernel).fields:
            live[field.name].add(field.live)
    for field in family.fields:
        live[field.name] = live[field.name] or {field.live}
    return {
        name: {True: "yes", False: "no"}[states.pop()] if len(states) == 1 else "some" for name, states in live.items()
    }


def _row(field: Field, effect: str) -> str:
    also = "".join(f", `{alias}`" for alias in field.aliases)
    meaning = "; ".join(part for part in (field.role, field.layout) if part)
    unit = f" ({field.unit})" if field.unit else ""
    default = (
        ""
        if field.default is None
        else f"{field.default:g}"
        if isinstance(field.default, float)
        else str(field.default)
    )
    return f"| {field.offset:#05x} | `{field.name}`{also} | {field.type} | {meaning}{unit} | {effect} | {default} |"


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(render(aiter_folder()))
