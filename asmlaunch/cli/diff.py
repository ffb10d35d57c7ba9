"""``asmlaunch diff``: two argument segments, field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from asmlaunch import abi
from asmlaunch.abi.diff import show
from asmlaunch.cli.hexdump import KernelOption, NameOption
from asmlaunch.cli.kernarg import FORMATS, read_kernarg, schema_of, words
from asmlaunch.cli.output import console, print_json


def diff(
    a: Annotated[Path, typer.Argument(help=f"First argument segment: {FORMATS}.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Second argument segment.", show_default=False)],
    kernel: KernelOption = None,
    name: NameOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two argument segments by field name; the exit status is 1 when they differ.

    Without `--kernel` the fields have no names and the segments are compared in words of 4 bytes. Fields whose bytes
    are missing from one of the files (a dump with lines left out) are not judged.
    """
    schema = schema_of(kernel, name)
    left, right = read_kernarg(a, schema), read_kernarg(b, schema)
    result = abi.diff(left, right, schema or words(max(len(left), len(right))))
    if as_json:
        print_json(result.to_json())
    else:
        known = [entry for entry in result.fields if entry.same is not None]
        console.print(f"{len(known) - len(result.differences)} of {len(known)} known fields are equal")
        if result:
            table = Table()
            for column in ("offset", "name", str(a.name), str(b.name)):
                table.add_column(column)
            for entry in result.differences:
                field = entry.field
                table.add_row(str(field.offset), field.name, show(field, entry.a), show(field, entry.b))
            console.print(table)
    raise typer.Exit(1 if result else 0)
