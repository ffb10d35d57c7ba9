"""``asmlaunch report``: what came of the launch in a bundle, in the terminal, as JSON or as an HTML page."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.errors import DumpError
from asmlaunch.validate.bundle import Bundle
from asmlaunch.validate.compare import Comparison
from asmlaunch.validate.report import RIGHT, WRONG, ErrorMap, Report, reasons, report, why
from asmlaunch.validate.report_html import NAN, cell_class, html

WRONG_STATUS = 1

_COLOURS = {"e0": "green4", "e1": "dark_sea_green4", "e2": "gold3", "e3": "dark_orange", "e4": "red3", NAN[0]: "purple"}

#: Cells of an error map that a terminal shows in each direction.
_SHOWN = 64

ObjectOption = Annotated[
    Path | None,
    typer.Option("--object", help="The code object, for a bundle that holds only its hash.", metavar="FILE"),
]


def report_command(
    file: Annotated[Path, typer.Argument(help="A bundle (.asml).", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write an HTML page to this file.", metavar="FILE")
    ] = None,
    object_file: ObjectOption = None,
    diagnosing: Annotated[
        bool, typer.Option("--diagnose", help="Say why a result is wrong, which executes the kernel on the emulator.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report on the launch in a bundle: verdict, errors and where they are, arguments, layouts, fidelity.

    Nothing of the bundle is executed without --diagnose. The exit status is 1 when the result is wrong or there is
    none.
    """
    bundle = read_bundle(file, object_file)
    found = report(bundle, path=str(file))
    if diagnosing and found.verdict == WRONG:
        found = dataclasses.replace(found, diagnosis=why(bundle))
    if output is not None:
        write_html(found, output)
    if as_json:
        print_json(found.as_dict())
    elif output is None:
        show(found)
    raise typer.Exit(0 if found else WRONG_STATUS)


def read_bundle(file: Path, object_file: Path | None) -> Bundle:
    """The bundle of a file, with the object of another one.

    Raises:
        DumpError: either cannot be read, or they do not belong together.
    """
    bundle = Bundle.load(file)
    if object_file is None:
        return bundle
    try:
        return bundle.with_object(object_file.read_bytes())
    except OSError as error:
        raise DumpError(f"cannot read {object_file} ({error.strerror})") from error


def write_html(found: Report, output: Path) -> None:
    """Write the page.

    Raises:
        DumpError: the file cannot be written.
    """
    try:
        output.write_text(html(found), encoding="utf-8")
    except OSError as error:
        raise DumpError(f"cannot write {output} ({error.strerror})") from error
    errors.print(f"wrote {output}", highlight=False, soft_wrap=True)


def show(found: Report) -> None:
    """The report on the terminal."""
    style = {RIGHT: "bold green", WRONG: "bold red"}.get(found.verdict, "bold yellow")
    console.print(Text(found.verdict.upper(), style), Text(f" {found.sentence}"), soft_wrap=True, sep="")
    console.print(Text(found.command, "dim"), soft_wrap=True)
    if found.diagnosis:
        first, rows = reasons(found.diagnosis)
        console.print(Text(f"\n{first}", "bold"), soft_wrap=True)
        for what, text in rows:
            console.print(Text(f"  {what}: {text}"), soft_wrap=True)
    for output in found.outputs:
        console.print(f"\n[bold]output {output.name}[/]", highlight=False)
        console.print(Text(str(output.comparison)), soft_wrap=True)
        console.print(Text(f"bound: {output.comparison.bound}"), soft_wrap=True)
        if not output.comparison.passed and output.map is not None:
            _map(output.map)
        _steps(output.comparison)
    _tables(found)
    for finding in found.findings:
        console.print(Text(f"finding: {finding}"), soft_wrap=True)


def _map(found: ErrorMap) -> None:
    """The error map, a coloured block a cell; every other one where there are too many."""
    step = -(-max(found.errors.shape) // _SHOWN)
    console.print(f"error of {found.cell[0]}x{found.cell[1]} elements a block", highlight=False)
    for line in found.errors[::step, ::step]:
        console.print(Text.assemble(*(("  ", f"on {_COLOURS[cell_class(value)]}") for value in line)))


def _steps(c: Comparison) -> None:
    parts = [f"{count:,} {'exact' if not steps else f'to {steps:,}'}" for steps, count in c.ulps]
    console.print(Text(f"steps from the rounded reference: {', '.join(parts)}"), soft_wrap=True)


def _tables(found: Report) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), title="arguments", title_justify="left")
    for column in ("offset", "name", "value", "meaning"):
        table.add_column(column, justify="right" if column == "offset" else "left")
    for one in found.arguments:
        style = "yellow" if one.changed else "dim" if one.live is False else None
        meaning = one.meaning + (" (changed)" if one.changed else "")
        table.add_row(str(one.offset), Text(one.name), Text(one.value), Text(meaning), style=style)
    if found.arguments:
        console.print()
        console.print(table)
    table = Table(box=None, padding=(0, 2, 0, 0), title="what ran", title_justify="left", show_header=False)
    for what, text in found.facts:
        table.add_row(what, Text(text))
    for operand in found.operands:
        layout = f", {operand.layout}" if operand.layout else ""
        table.add_row(Text(operand.name), f"{operand.size:,} bytes{layout}{' (changed)' if operand.changed else ''}")
    if found.fidelity:
        table.add_row("exact", f"{found.fidelity.get('exact')} wave-instructions")
    console.print()
    console.print(table)


def save_bundle(bundle: Bundle, output: Path) -> None:
    """Write a bundle.

    Raises:
        DumpError: the file cannot be written.
    """
    try:
        bundle.save(output)
    except OSError as error:
        raise DumpError(f"cannot write {output} ({error.strerror})") from error
    errors.print(f"wrote {output}", highlight=False, soft_wrap=True)
