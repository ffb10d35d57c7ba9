"""``asmlaunch sweep``: every kernel of some families on its problems, over all cores, resumable."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from asmlaunch.cli.options import Folder
from asmlaunch.cli.output import console, errors
from asmlaunch.errors import KernelNotFoundError
from asmlaunch.kernels import find_objects, search_path
from asmlaunch.validate.corpus import render, summary
from asmlaunch.validate.problems import get
from asmlaunch.validate.sweep import Record, Results, connect, make_plan, run


def sweep(
    families: Annotated[list[str], typer.Argument(metavar="FAMILY...|all", help="Families of kernels, or all.")],
    results: Annotated[
        Path, typer.Option(metavar="FILE", help="Where results are kept; what is in it is not run again.")
    ] = Path("asmlaunch-sweep.jsonl"),
    merge: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Take over another sweep's results."),
    ] = None,
    every_problem: Annotated[
        bool, typer.Option("--every-problem", help="All standard problems of each kernel, not only the first.")
    ] = False,
    checks: Annotated[
        str, typer.Option(help="The emulator's checks: bounds costs no time; all, or names such as races,waits.")
    ] = "bounds",
    numerics: Annotated[
        str, typer.Option(help="How the emulator's matrix instructions round: exact or cdna3.")
    ] = "exact",
    jobs: Annotated[int | None, typer.Option(min=1, help="Kernels in flight. Default: one a core.")] = None,
    executor: Annotated[
        str | None, typer.Option(metavar="URL", help="dask://host:port runs on that cluster's workers.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report in Markdown.")] = None,
    kernels: Folder = None,
) -> None:
    """Execute and verify every kernel of some families, each on one small problem.

    Results are kept as they come: a sweep that was stopped, and started again, runs what is missing. Kernels of
    the same machine code run once. The exit status is 1 when a result is outside its bound or a kernel did not run.
    """
    wanted = [] if "all" in families else [get(name).name for name in families]
    patterns = [get(name).files for name in wanted] or ["*.co"]
    files = sorted({path for pattern in patterns for path in find_objects(pattern, kernels)})
    roots = search_path(kernels)
    root = roots[0] if len(roots) == 1 else None
    plan = make_plan(files, root=root, families=wanted, every_problem=every_problem, checks=checks, numerics=numerics)
    if not plan.members:
        raise KernelNotFoundError("kernels", got="none", need=f"some of {', '.join(families)}")
    kept = Results(results, merge or ())
    known = sum(key in kept for key in plan.tasks)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    counts: Counter[str] = Counter()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task("", total=len(plan.tasks), completed=known)

        def on_record(record: Record) -> None:
            counts[record["status"]] += 1
            progress.update(bar, advance=1, description=Path(record["file"]).stem)

        run(plan, kept, executor=connect(executor) if executor else None, jobs=jobs, on_record=on_record)
    if report:
        report.write_text(render(plan, kept.records))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("family", "objects", "tasks", "verified", "failed", "not run"):
        table.add_column(column, justify="left" if column == "family" else "right")
    rows = summary(plan, kept.records)
    for row in rows:
        table.add_row(
            row.family, str(row.objects), str(len(row.records)), str(row.verified), str(row.failed), str(row.not_run)
        )
    console.print(table)
    console.print(f"\n{sum(counts.values())} run now, {known} known before; results in {results}", highlight=False)
    raise typer.Exit(1 if any(row.failed or row.not_run for row in rows) else 0)
