"""``asmlaunch hexdump``: the bytes of an argument segment, and what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from asmlaunch import abi
from asmlaunch.abi.diff import diff, show
from asmlaunch.cli.kernarg import FORMATS, read_kernarg, schema_of
from asmlaunch.cli.output import console

KernelOption = Annotated[
    Path | None,
    typer.Option("--kernel", metavar="FILE.co", help="Code object of the kernel the segment is for: names its fields."),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Which kernel of the code object, where it holds several.")
]


def hexdump(
    file: Annotated[
        Path,
        typer.Argument(help=f"File with an argument segment, or - for standard input: {FORMATS}.", show_default=False),
    ],
    kernel: KernelOption = None,
    name: NameOption = None,
) -> None:
    """Print an argument segment as a table of bytes and, given its kernel, field by field.

    The argument segment is the block of bytes that a launch hands to a kernel: pointers, sizes, strides.
    """
    schema = schema_of(kernel, name)
    dump = read_kernarg(file, schema)
    console.print(abi.hexdump(dump.data), highlight=False, markup=False)
    if schema is None:
        return
    table = Table(title=f"\n{schema.name}", title_justify="left")
    for column in ("offset", "size", "type", "name", "value", "meaning"):
        table.add_column(column, justify="right" if column in ("offset", "size", "value") else "left")
    for entry in diff(dump, dump, schema).fields:
        field = entry.field
        note = ", ".join(
            part for part in (field.role, field.unit, "" if field.live is not False else "no effect") if part
        )
        table.add_row(str(field.offset), str(field.size), field.type, field.name, show(field, entry.a), note)
    console.print(table)
