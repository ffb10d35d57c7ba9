"""``asmlaunch hexdump``: the bytes of an argument segment, and what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from asmlaunch import abi
from asmlaunch.abi.diff import diff, show
from asmlaunch.abi.hexdump import WRITERS
from asmlaunch.cli.kernarg import FORMATS, read_kernarg, schema_of
from asmlaunch.cli.output import console

KernelOption = Annotated[
    Path | None,
    typer.Option(
        "--kernel",
        metavar="FILE.co",
        help="Code object of the kernel the segment is for (or its name): names its fields.",
    ),
]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Which kernel of the code object, where it holds several.")
]

DumpOption = Annotated[
    int | None, typer.Option("--dump", min=1, help="Which dump of the file, counted from 1, where it holds several.")
]


def hexdump(
    file: Annotated[
        Path,
        typer.Argument(help=f"File with an argument segment, or - for standard input: {FORMATS}.", show_default=False),
    ],
    kernel: KernelOption = None,
    name: NameOption = None,
    number: DumpOption = None,
    form: Annotated[str, typer.Option("--format", help=f"How to print the bytes: {', '.join(WRITERS)}.")] = "aiter",
) -> None:
    """Print an argument segment as a table of bytes and, given its kernel, field by field.

    The argument segment is the block of bytes that a launch hands to a kernel: pointers, sizes, strides.
    """
    schema = schema_of(kernel, name)
    dump = read_kernarg(file, schema, number)
    console.print(abi.hexdump(dump.data, form), highlight=False, markup=False, soft_wrap=True)
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
