"""Probe every f4gemm kernel and the int8 ones: layouts, dead arguments, domain, as tables.

    python tests/corpus/probes.py [part of a kernel's name] [--json FILE]

Nothing of the families' declared domains, layouts or liveness is used. Prints Markdown: a row a kernel, kernels that
agree in everything but their name together.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asmlaunch
from asmlaunch.kernels import find_objects
from asmlaunch.validate.probe import probe_args, probe_domain, probe_layout

FAMILIES = {"f4gemm_*.co": ("ScaleA", "ScaleB", "B"), "I8gemm_*.co": ("B",)}


def probe(path: Path, operands: Sequence[str], everything: bool) -> dict[str, Any]:
    """All probes of one kernel, and how long the layouts took."""
    kernel = asmlaunch.load(path, device="emulator").kernel
    start = time.perf_counter()
    found = {operand: probe_layout(kernel, operand).as_dict() for operand in operands}
    row: dict[str, Any] = {"kernel": path.stem, "layouts": found, "layout_seconds": time.perf_counter() - start}
    if everything:
        row["args"] = probe_args(kernel).as_dict()
        row["domain"] = probe_domain(kernel).as_dict()
    return row


def layouts_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Name and pattern of each operand's layout."""
    return tuple(
        f"{name}: {(found['known'] or ['no named layout'])[0]}{'' if found['confirmed'] else ' (not confirmed)'}"
        for name, found in row["layouts"].items()
    )


def domain_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Steps, smallest sizes and what is written beside the result."""
    sizes = [f"{one['name']}: {one['step']} from {one['smallest']}" for one in row["domain"]["sizes"]]
    return (*sizes, "rows past M" if row["domain"]["overrun"] else "nothing")


def table(title: str, heads: Sequence[str], rows: Sequence[tuple[str, tuple[str, ...]]]) -> None:
    """Kernels with the same cells in one row."""
    together: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, cells in rows:
        together[cells].append(name)
    print(f"\n{title}\n\n| kernels | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for cells, names in sorted(together.items(), key=lambda entry: -len(entry[1])):
        shown = ", ".join(names) if len(names) <= 6 else f"the other {len(names)}"
        print(f"| {shown} | {' | '.join(cells)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for pattern, operands in FAMILIES.items():
        for path in find_objects(pattern):
            if arguments.part in path.stem:
                row = probe(path, operands, pattern.startswith("f4gemm"))
                rows.append(row)
                print(f"{path.stem}: {', '.join(layouts_of(row))}, {row['layout_seconds']:.1f} s", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    short = [(row["kernel"].removeprefix("f4gemm_bf16_per1x32Fp4_"), row) for row in rows]
    operands = max((layouts_of(row) for row in rows), key=len, default=())
    table("Layouts", [f"operand {i + 1}" for i in range(len(operands))], [
        (name, (*layouts_of(row), *[""] * (len(operands) - len(layouts_of(row))))) for name, row in short
    ])  # fmt: skip
    whole = [(name, row) for name, row in short if "args" in row]
    if whole:
        table("Arguments that change nothing", ["dead"], [(n, (", ".join(row["args"]["dead"]),)) for n, row in whole])
        heads = [*(one["name"] for one in whole[0][1]["domain"]["sizes"]), "written beside the result"]
        table("Sizes: right in steps of, from the smallest", heads, [(n, domain_of(row)) for n, row in whole])
    slow = max((row["layout_seconds"] for row in rows), default=0.0)
    print(f"\n{len(rows)} kernels; the layouts of one took at most {slow:.1f} s")
    return int(any(not found["confirmed"] for row in rows for found in row["layouts"].values()))


if __name__ == "__main__":
    sys.exit(main())
