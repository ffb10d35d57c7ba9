"""``asmlaunch verify``: run kernels on made-up problems and compare every output element with float64."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from asmlaunch.cli.diagnose import show, with_bar
from asmlaunch.cli.options import Device, Folder, Seed
from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.kernels import choose_object, find_objects, matching
from asmlaunch.module import Kernel, load
from asmlaunch.validate.a4w4 import k_per_split
from asmlaunch.validate.diagnose import Diagnosis
from asmlaunch.validate.problems import DEFINITIONS, Case, Definition, f4gemm

app = typer.Typer(
    no_args_is_help=True,
    help="Run kernels on random problems and compare every output element with a float64 reference.",
)

DEFAULT_KERNEL = "BpreShuffle_256x256"

_Job = tuple[Definition, Kernel, Case]

_AsJson = Annotated[bool, typer.Option("--json", help="Print a list of results as JSON.")]
_Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Report on the first run that fails (or the first) as an HTML page."),
]
_Keep = Annotated[
    Path | None, typer.Option("--bundle", metavar="FILE", help="Keep that run as a bundle (.asml), to replay it.")
]


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
    reference: Annotated[
        str,
        typer.Option(
            help="float64; triton: Triton's kernels, on a GPU or else interpreted; both: all three compared, and which "
            "of them departs."
        ),
    ] = "float64",
    kernels: Folder = None,
    device: Device = None,
    html: _Html = None,
    keep: _Keep = None,
    as_json: _AsJson = False,
) -> None:
    """Verify MI350 matrix multiplications with 4-bit operands: D = A x B^T, A and B in MXFP4, D in bf16.

    Without sizes each kernel runs twice: one tile at K=512, and 2x2 tiles at K=256. The exit status is 1 when a
    result is outside its bound.
    """
    definition = f4gemm.DEFINITION
    objects = find_objects(definition.files, kernels)
    chosen = objects if kernel == "all" else [choose_object(objects, kernel)]
    jobs = []
    for one in (load(path, device).kernel for path in chosen):
        parameters = definition.parameters(one.info)
        rows, columns = parameters["tile_m"], parameters["tile_n"]
        if (m, n, k) != (None, None, None) or split_k:
            cases = [f4gemm.Sizes(m or rows, n or columns, k or 512 << split_k, split_k, seed=seed)]
        else:
            cases = [
                f4gemm.Sizes(rows, columns, 512, seed=seed),
                f4gemm.Sizes(2 * rows, 2 * columns, 256, seed=seed),
            ]
        jobs += [(definition, one, case) for case in cases]
    _verify("a4w4", "m x n x k", _product, jobs, as_json, options={"reference": reference}, files=(html, keep))


def _product(case: Any) -> str:
    """The sizes, and of split K the parts: steps of 256 may leave fewer than 2^split_k."""
    parts = f"/{-(-case.k // k_per_split(case))}" if case.split_k else ""
    return f"{case.m}x{case.n}x{case.k}{parts}"


def _of_family(definition: Definition) -> Callable[..., None]:
    """The command that verifies kernels of one family."""

    def family(
        kernel: Annotated[
            str | None,
            typer.Option(help="Part of the path of kernel files; 'all' runs every one. Default: the first by name."),
        ] = None,
        problem: Annotated[
            list[str] | None,
            typer.Option(
                metavar="SIZES",
                help="As in 'm=33, k=512', on top of the first standard problem; can be repeated. "
                "Default: all standard problems.",
            ),
        ] = None,
        seed: Seed = 0,
        check: Annotated[bool, typer.Option(help="Refuse problems outside the kernel's domain.")] = True,
        checks: Annotated[
            str | None, typer.Option(help="The emulator's checks: all, or names such as races,waits.")
        ] = None,
        schedule: Annotated[
            str | None,
            typer.Option(
                help="How the emulator's waves take turns: barrier, lockstep, reverse or random(SEED). Several, with "
                "commas between them, are compared."
            ),
        ] = None,
        numerics: Annotated[
            str | None, typer.Option(help="How the emulator's matrix instructions round: exact or cdna3.")
        ] = None,
        resident: Annotated[
            int | None, typer.Option(min=1, help="Workgroups alive at once in the emulator; others wait.")
        ] = None,
        kernels: Folder = None,
        device: Device = None,
        html: _Html = None,
        keep: _Keep = None,
        reasons: Annotated[bool, typer.Option("--diagnose", help="Say why a result is wrong.")] = False,
        as_json: _AsJson = False,
    ) -> None:
        jobs = []
        for path in matching(definition.objects(kernels), kernel):
            one = load(path, device).kernel
            cases = definition.cases(definition.parameters(one.info))
            if problem:
                cases = [cases[0].changed(text) for text in problem]
            jobs += [(definition, one, dataclasses.replace(case, seed=seed or case.seed)) for case in cases]
        given = {"checks": checks, "schedule": schedule, "numerics": numerics, "resident": resident}
        options = {name: value for name, value in given.items() if value is not None}
        files = html, keep
        _verify(definition.name, "problem", lambda case: case.short(), jobs, as_json, check, options, files, reasons)

    about = inspect.getdoc(definition.case) or ""
    # Markdown wants its lists marked.
    sizes = re.sub(r"\n    (?=\w[\w, ]*: )", "\n* ", about.replace("Attributes:", "Sizes:\n"))
    family.__doc__ = f"Verify {definition.family.title}.\n\n{sizes}"
    return family


for _definition in DEFINITIONS.values():
    app.command(_definition.name)(_of_family(_definition))


def _verify(
    title: str,
    sizes: str,
    label: Callable[[Any], str],
    jobs: Sequence[_Job],
    as_json: bool,
    check: bool = True,
    options: Mapping[str, Any] | None = None,
    files: tuple[Path | None, Path | None] = (None, None),
    reasons: bool = False,
) -> None:
    """Run the jobs, print a table or JSON; ``label`` writes a case in the column ``sizes``.

    ``files`` are those for a page and a bundle of the first job that fails, or of the first; ``reasons`` diagnoses
    those whose results are wrong. The exit status is 1 when a result is outside its bound.
    """
    rows = []
    for (definition, kernel, case), row in zip(jobs, _run(jobs, check, options or {}), strict=True):
        rows.append({"label": label(case), "short": _short(definition, kernel), **row})
    diagnosed = [_diagnose(job, row, options or {}) if reasons else None for job, row in zip(jobs, rows, strict=True)]
    for row, diagnosis in zip(rows, diagnosed, strict=True):
        if diagnosis is not None:
            row["diagnosis"] = diagnosis.as_dict()
    if as_json:
        print_json([{name: row[name] for name in row if name not in ("label", "short")} for row in rows])
    else:
        with_findings = "checks" in (options or {})
        _print_table(title, sizes, rows, with_findings, (options or {}).get("reference", "float64"))
        for row, diagnosis in zip(rows, diagnosed, strict=True):
            if diagnosis is not None:
                console.print(f"\n[bold]{row['short']}[/], {row['label']}:", highlight=False)
                show(diagnosis)
    if any(files):
        number = next((number for number, row in enumerate(rows) if not row["passed"]), 0)
        _report(jobs[number], options, files, diagnosed[number])
    raise typer.Exit(0 if all(row["passed"] for row in rows) else 1)


def _diagnose(job: _Job, row: Mapping[str, Any], options: Mapping[str, Any]) -> Diagnosis | None:
    """Why the result is wrong; None where it is right."""
    definition, kernel, case = job
    wrong = [name for name, output in row["outputs"].items() if not output["passed"]]
    if not wrong:
        return None
    return with_bar(definition, kernel, case, output=wrong[0], **{k: v for k, v in options.items() if k != "reference"})


def _report(
    job: _Job,
    options: Mapping[str, Any] | None,
    files: tuple[Path | None, Path | None],
    diagnosis: Diagnosis | None,
) -> None:
    """Run a job once more, keeping all of it, and write what is wanted of that."""
    from asmlaunch.cli.report import save_bundle, write_html
    from asmlaunch.validate.report import examine, report

    _, kernel, case = job
    html, keep = files
    bundle, found = examine(kernel, case, **{k: v for k, v in (options or {}).items() if k != "reference"})
    if keep is not None:
        save_bundle(bundle, keep)
        found = report(bundle, path=str(keep))
    if html is not None:
        reason = None if diagnosis is None else diagnosis.as_dict()
        write_html(dataclasses.replace(found, diagnosis=reason), html)


def _run(jobs: Sequence[_Job], check: bool, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row of results a job, with a progress bar on standard error while it is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=len(jobs))
        for definition, kernel, case in jobs:
            progress.update(task, description=_short(definition, kernel))
            usual = {"checks": "all"} if kernel.device.name == "emulator" else {}
            outcome = definition.run(kernel, case, check=check, **{**usual, **options})
            yield {"kernel": kernel.name, "file": str(kernel.code_object.path), **outcome.as_dict()}
            progress.advance(task)


def _short(definition: Definition, kernel: Kernel) -> str:
    """What tells the kernels of a family apart: the file name without what all of the family's begin with."""
    stem = Path(kernel.code_object.path or "kernel").stem
    return stem.removeprefix("f4gemm_bf16_per1x32Fp4_") if definition is f4gemm.DEFINITION else stem


def _print_table(title: str, sizes: str, rows: list[dict[str, Any]], with_findings: bool, reference: str) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("kernel", sizes, "equal", "max abs", "max rel", "seconds", ""):
        left = column in ("kernel", "problem", "")
        table.add_column(column, justify="left" if left else "right", no_wrap=column != "problem")
    for row in rows:
        table.add_row(
            row["short"],
            row["label"],
            f"{row['equal_fraction']:.3%}",
            f"{row['max_abs_error']:.1e}",
            f"{row['max_rel_error']:.1e}",
            f"{row['seconds']:.3f}",
            "[green]passed[/]" if row["passed"] else "[bold red]FAILED[/]",
        )
    compared = "float64 and Triton" if reference == "both" else reference
    console.print(f"{title} on {rows[0]['device']}, every element compared with {compared}\n", highlight=False)
    console.print(table)
    console.print()
    for row in rows:
        for text in _reasons(row) + (row["findings"] if with_findings else []):
            console.print(f"[red]{row['short']}[/]: ", end="")
            console.print(text, highlight=False, markup=False)
    if reference == "both":
        departs = Counter(one["departs"] for row in rows for one in row["references"].values())
        console.print("departs: " + ", ".join(f"{name} {count}" for name, count in sorted(departs.items())))
    passed = sum(row["passed"] for row in rows)
    elements = sum(output["elements"] for row in rows for output in row["outputs"].values())
    console.print(f"{passed} of {len(rows)} runs passed, {elements:,} elements compared")
    findings = Counter(text.split(":", 1)[0] for row in rows for text in row["findings"])
    if findings and not with_findings:
        kinds = ", ".join(f"{count} {kind}" for kind, count in findings.most_common())
        console.print(f"findings of the emulator's checks, which --json lists: {kinds}", highlight=False)


def _reasons(row: Mapping[str, Any]) -> list[str]:
    """Why a run failed, one line an output."""
    found = []
    for name, output in row["outputs"].items():
        if not output["passed"]:
            found.append(
                f"{name}: {output['beyond']} of {output['elements']} elements beyond the bound, worst at "
                f"{output['worst']}: {output['worst_result']:.6g} for {output['worst_reference']:.6g}; "
                f"{output['equal_fraction']:.3%} equal"
            )
        if row.get("references"):
            three = row["references"][name]
            if three["departs"] != "none":
                equal = f"Triton equals float64 in {three['triton']['equal_fraction']:.3%}"
                found.append(
                    f"{name}: departs: {three['departs']}; {equal}, the kernel Triton in "
                    f"{three['between']['equal_fraction']:.3%}"
                )
        if row["spilled"][name]:
            found.append(f"{name}: {row['spilled'][name]} elements outside of it were written")
    return found
