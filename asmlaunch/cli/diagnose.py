"""``asmlaunch diagnose``: why a result is wrong, by what would have given it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from asmlaunch.cli.options import Device, Folder, Seed
from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.errors import DumpError
from asmlaunch.kernels import matching
from asmlaunch.module import Kernel, load
from asmlaunch.validate.diagnose import PAIRS, Diagnosis, diagnose
from asmlaunch.validate.minimise import minimise
from asmlaunch.validate.problems import Case, Definition, get

_STYLES = {"right": "green", "high": "bold", "medium": "yellow", "low": "yellow", "none": "red"}


def diagnose_command(
    family: Annotated[str, typer.Argument(help="Family of the kernel, as `asmlaunch verify --help` lists them.")],
    kernel: Annotated[
        str | None, typer.Option(help="Part of the path of a kernel file; of several the first. Default: the first.")
    ] = None,
    problem: Annotated[
        str, typer.Option(metavar="SIZES", help="As in 'm=33, k=512', on top of the first standard problem.")
    ] = "",
    seed: Seed = 0,
    result: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The wrong result (.npy; bfloat16 as uint16). Default: the kernel is run for one."
        ),
    ] = None,
    before: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What its memory held before the launch (.npy).")
    ] = None,
    output: Annotated[str | None, typer.Option(help="Name of the output. Default: the first that is wrong.")] = None,
    pairs: Annotated[int, typer.Option(min=0, help="Pairs of mistakes to try when no single one explains it.")] = PAIRS,
    emulate: Annotated[bool, typer.Option(help="Execute mistaken launches on the emulator.")] = True,
    smallest: Annotated[
        bool, typer.Option("--minimise", help="Look for the smallest problem that fails in the same way first.")
    ] = False,
    kernels: Folder = None,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the diagnosis as JSON.")] = False,
) -> None:
    """Say why a result of a declared problem is wrong: the mistake that gives it, and the line that would be right.

    The reference is computed again under every plausible mistake (layouts, formats, factors, swapped operands, lost
    parts of sums), and launches with mistaken arguments, padding or schedules are executed on the emulator. The exit
    status is 1 when the result is wrong.
    """
    definition = get(family)
    loaded = load(matching(definition.objects(kernels), kernel)[0], device).kernel
    case = definition.cases(definition.parameters(loaded.info))[0].changed(problem).changed(f"seed={seed}")
    if smallest:
        found = minimise(definition, loaded, case)
        console.print(str(found), highlight=False, markup=False)
        case = found.case
    given = {"result": _array(result), "before": _array(before), "output": output, "pairs": pairs, "emulate": emulate}
    diagnosis = with_bar(definition, loaded, case, **given)
    if as_json:
        print_json({"problem": str(case), **diagnosis.as_dict()})
    else:
        show(diagnosis)
    raise typer.Exit(0 if diagnosis.confidence == "right" else 1)


def with_bar(definition: Definition, kernel: Kernel, case: Case, **options: Any) -> Diagnosis:
    """``validate.diagnose`` with a count of hypotheses on standard error while that is a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.completed} hypotheses"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("", total=None)
        return diagnose(definition, kernel, case, advance=lambda: progress.advance(task), **options)


def show(diagnosis: Diagnosis) -> None:
    """The answer in the terminal."""
    first, *rest = diagnosis.lines()
    console.print(first, style=_STYLES[diagnosis.confidence], highlight=False, markup=False)
    for line in rest:
        console.print(line, highlight=False, markup=False)


def _array(path: Path | None) -> np.ndarray | None:
    """The array of a file.

    Raises:
        DumpError: no file, or none of numpy's; pickled objects are refused.
    """
    if path is None:
        return None
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DumpError(f"result in {path}", got=str(error), need="an array as numpy.save writes it") from error
    if not isinstance(array, np.ndarray):
        raise DumpError(f"result in {path}", got="several arrays", need="one, as numpy.save writes it")
    return array
