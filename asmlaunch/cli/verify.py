"""``asmlaunch verify``: run kernels on made-up problems and compare every output element with float64."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.module import Kernel, load
from asmlaunch.validate import a4w4 as problems
from asmlaunch.validate.a4w4 import Case

app = typer.Typer(
    no_args_is_help=True,
    help="Run kernels on random problems and compare every output element with a float64 reference.",
)

DEFAULT_KERNEL = "BpreShuffle_256x256"


@app.callback()
def verify() -> None:
    """Keeps ``a4w4`` a subcommand: typer folds a group of one into its parent otherwise."""


@app.command("a4w4")
def a4w4(
    kernel: Annotated[
        str, typer.Option(help="Kernel file, or the end of its name; 'all' runs every one.")
    ] = DEFAULT_KERNEL,
    m: Annotated[int | None, typer.Option("-m", min=1, help="Rows of A and of the result.")] = None,
    n: Annotated[int | None, typer.Option("-n", min=1, help="Rows of B, columns of the result.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Columns of A and B: the length of each sum.")] = None,
    split_k: Annotated[
        int, typer.Option(min=0, help="Split each sum in about 2^this parts that run as workgroups of their own.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the random operands.")] = 0,
    kernels: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of .co files. Default: $ASMLAUNCH_KERNEL_PATH, else the amd-aiter wheel."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="emulator, hip or hip:N. Default: a GPU that can run it, else emulator.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of results as JSON.")] = False,
) -> None:
    """Verify MI350 matrix multiplications with 4-bit operands: D = A x B^T, A and B in MXFP4, D in bf16.

    Without sizes each kernel runs twice: one tile at K=512, and 2x2 tiles at K=256. The exit status is 1 when a
    result is outside its bound.
    """
    objects = find_objects("f4gemm_*.co", kernels)
    chosen = objects if kernel == "all" else [choose_object(objects, kernel)]
    jobs = [
        (loaded, case)
        for loaded in (load(path, device).kernel for path in chosen)
        for case in _cases(loaded, m, n, k, split_k, seed)
    ]
    rows = list(_run(jobs))
    if as_json:
        print_json(rows)
    else:
        _print_table(rows)
    raise typer.Exit(0 if all(row["passed"] for row in rows) else 1)


def _cases(kernel: Kernel, m: int | None, n: int | None, k: int | None, split_k: int, seed: int) -> list[Case]:
    """The problem of the sizes given; without any, one tile at K=512 and 2x2 tiles at K=256."""
    rows, columns = problems.tile(kernel.info)
    if (m, n, k) != (None, None, None) or split_k:
        return [Case(m or rows, n or columns, k or 512 << split_k, split_k, seed)]
    return [Case(rows, columns, 512, 0, seed), Case(2 * rows, 2 * columns, 256, 0, seed)]


def _run(jobs: list[tuple[Kernel, Case]]) -> Iterator[dict[str, Any]]:
    """One row of results a job, with a progress bar on standard error while it is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=len(jobs))
        for kernel, case in jobs:
            progress.update(task, description=_short(kernel.code_object.path))
            yield _verify(kernel, case)
            progress.advance(task)


def _verify(kernel: Kernel, case: Case) -> dict[str, Any]:
    """Build, launch, compare; seconds is the launch alone, preparation of the kernel included."""
    problem = problems.build(kernel.info, case)
    start = time.perf_counter()
    result = kernel.launch(problem.arguments)
    seconds = time.perf_counter() - start
    comparison = problem.compare()
    return {
        "kernel": kernel.name,
        "file": str(kernel.code_object.path),
        "device": result.device,
        **dataclasses.asdict(case),
        **comparison.as_dict(),
        "findings": [str(finding) for finding in result.findings],
        "seconds": seconds,
    }


def _short(path: Path | str | None) -> str:
    """What tells the kernels of the family apart: the end of the file name."""
    return Path(path or "kernel").stem.removeprefix("f4gemm_bf16_per1x32Fp4_")


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("kernel", "m x n x k", "equal", "max abs", "max rel", "seconds", ""):
        table.add_column(column, justify="left" if column in ("kernel", "") else "right", no_wrap=True)
    for row in rows:
        split = f"/{1 << row['split_k']}" if row["split_k"] else ""
        table.add_row(
            _short(row["file"]),
            f"{row['m']}x{row['n']}x{row['k']}{split}",
            f"{row['equal_fraction']:.3%}",
            f"{row['max_abs_error']:.1e}",
            f"{row['max_rel_error']:.1e}",
            f"{row['seconds']:.3f}",
            "[green]passed[/]" if row["passed"] else "[bold red]FAILED[/]",
        )
    console.print(f"a4w4 on {rows[0]['device']}, every element compared with float64\n", highlight=False)
    console.print(table)
    console.print()
    for row in rows:
        if not row["passed"]:
            console.print(
                f"[red]{row['kernel']}[/]: {row['beyond']} of {row['elements']} elements beyond the bound, worst at "
                f"{row['worst']}: {row['worst_result']:.6g} for {row['worst_reference']:.6g}",
                highlight=False,
            )
    passed = sum(row["passed"] for row in rows)
    elements = sum(row["elements"] for row in rows)
    console.print(f"{passed} of {len(rows)} runs passed, {elements:,} elements compared")
