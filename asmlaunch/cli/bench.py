"""``asmlaunch bench``: run a kernel's problem several times; time, rate and norm error as one line."""

from __future__ import annotations

import csv
import dataclasses
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from asmlaunch.cli.options import Device, Seed
from asmlaunch.cli.output import console, print_json
from asmlaunch.errors import KernelNotFoundError
from asmlaunch.module import Kernel, load
from asmlaunch.validate.problems import Case, Definition, definition_of


def bench(
    file: Annotated[Path, typer.Argument(help="A code object.")],
    kernel: Annotated[str | None, typer.Option(help="Which kernel, where there are several.")] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES", help="As in 'm=128, n=64, k=256', on top of the standard problem; can be repeated."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Timed launches; the time is their median.")] = 5,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the result with float64.")] = False,
    seed: Seed = 0,
    numerics: Annotated[
        str | None, typer.Option(help="How the emulator's matrix instructions round: exact or cdna3.")
    ] = None,
    device: Device = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write the rows to this file too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of rows as JSON.")] = False,
) -> None:
    """Time a kernel of a family with declared problems.

    A row holds the median time of a launch in microseconds, the rate in GFLOP/s where the problem is a matrix product,
    and, with --verify, the norm error: the Frobenius norm of the difference from float64 over that of the result. The
    exit status is 1 when a result is outside its bound.
    """
    module = load(file, device)
    one = module[kernel] if kernel else module.kernel
    definition = _definition(one)
    standard = definition.cases(definition.parameters(one.info))[0]
    cases = [standard.changed(text) for text in problem] if problem else [standard]
    options = {"numerics": numerics} if numerics else {}
    seeded = [dataclasses.replace(case, seed=seed or case.seed) for case in cases]
    rows = [_row(definition, one, case, repeat, verify, options) for case in seeded]
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            console.print(", ".join(f"{name}={value}" for name, value in row.items()), highlight=False, soft_wrap=True)
    if csv_file:
        with csv_file.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    raise typer.Exit(0 if all(row.get("passed", True) for row in rows) else 1)


def _definition(kernel: Kernel) -> Definition:
    definition = definition_of(kernel.info)
    if definition is None:
        raise KernelNotFoundError(
            f"kernel {kernel.name}", got="no declared problems", need="a kernel of a family that has them",
            hint="asmlaunch verify --help lists the families",
        )  # fmt: skip
    return definition


def _row(
    definition: Definition, kernel: Kernel, case: Case, repeat: int, verify: bool, wanted: dict[str, Any]
) -> dict[str, Any]:
    """One line of results. The first launch compiles, and is not timed; later ones see its result as their input."""
    ready = definition.problem(kernel.info, case)
    options = {**ready.options_on(kernel), **wanted}
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        for arguments in ready.launches:
            kernel.launch(arguments, **options)
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[1:])
    row: dict[str, Any] = {"kernel": kernel.name, "device": kernel.device.name}
    row |= {name: getattr(case, name) for name in case.names()}
    row["us"] = round(seconds * 1e6, 1)
    operations = _operations(case)
    if operations:
        row["gflops"] = round(operations / seconds / 1e9, 3)
    if verify:
        outcome = definition.run(kernel, case, **wanted)
        row["norm_error"] = float(f"{outcome.comparisons[outcome.worst].norm_error:.3g}")
        row["passed"] = outcome.passed
    return row


def _operations(case: Case) -> int | None:
    """Multiplications and additions of a matrix product; None for other problems."""
    sizes = [getattr(case, name, None) for name in "mnk"]
    if not all(isinstance(size, int) for size in sizes):
        return None
    m, n, k = sizes
    return 2 * m * n * k  # type: ignore[operator]
