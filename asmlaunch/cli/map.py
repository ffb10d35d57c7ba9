"""``asmlaunch map``: a picture of an argument segment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asmlaunch import abi
from asmlaunch.cli.hexdump import NameOption
from asmlaunch.cli.kernarg import FORMATS, read_kernarg, schema_of
from asmlaunch.cli.output import console
from asmlaunch.errors import ArgumentError


def kernarg_map(
    kernel: Annotated[Path, typer.Argument(metavar="FILE.co", help="Code object of the kernel, or its name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, .svg or .html.")],
    segment: Annotated[Path | None, typer.Option("--args", help=f"Segment whose values are shown: {FORMATS}.")] = None,
    other: Annotated[Path | None, typer.Option("--against", help="Second segment, to show what differs.")] = None,
    name: NameOption = None,
) -> None:
    """Draw a kernel's argument segment, offset by offset: each field, its value, used or not, different or not."""
    schema = schema_of(kernel, name)
    assert schema is not None  # there is a file
    picture = abi.kernarg_map(
        schema,
        None if segment is None else read_kernarg(segment, schema),
        None if other is None else read_kernarg(other, schema),
    )
    writers = {".svg": picture.svg, ".html": picture.html}
    if output.suffix not in writers:
        raise ArgumentError("--output", got=str(output), need="a file that ends in .svg or .html")
    output.write_text(writers[output.suffix]())
    console.print(f"wrote {output}", highlight=False)
