"""``asmlaunch audit``: what a kernel's machine code does with its arguments, and what is wrong with a segment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from asmlaunch import abi
from asmlaunch.abi.families import family_of
from asmlaunch.abi.schema import KernargSchema, decode
from asmlaunch.cli.hexdump import NameOption
from asmlaunch.cli.kernarg import FORMATS, kernel_of, read_kernarg
from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.liveness import Liveness, liveness
from asmlaunch.errors import CodeObjectError, DeviceError, TargetError


def audit(
    file: Annotated[Path, typer.Argument(help="The code object, a .co or .hsaco file.", show_default=False)],
    name: NameOption = None,
    arguments: Annotated[
        Path | None,
        typer.Option("--args", metavar="FILE", help=f"Argument segment of a launch to check: {FORMATS}."),
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=0, help="Bytes that the launcher passes. Default: those of the segment given.")
    ] = None,
    code: Annotated[bool, typer.Option("--code/--no-code", help="Look at the machine code.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say which arguments a kernel's machine code loads and uses, and what is wrong with them.

    For each argument: never loaded, loaded but unused, or used, and whether its value reaches a store, an address or a
    branch. With `--args` the values of a launch are checked too: null pointers that the kernel uses, values in slots
    without effect, a segment too short for what the code loads. The exit status is 1 when an error is found.
    """
    kernel = kernel_of(file, name)
    family = family_of(kernel)
    schema = family.schema(kernel) if family else abi.schema_from_metadata(kernel)
    live = _liveness(kernel) if code else None
    values: dict[str, Any] | None = None
    if arguments is not None:
        dump = read_kernarg(arguments, schema)
        known = [field for field in schema.fields if dump.is_known(field.offset, field.end)]
        values = {field.name: decode(field, dump.data[field.offset : field.end]) for field in known}
        size = len(dump) if size is None else size
    result = abi.audit(kernel, values=values, size=size, loaded=live.live_bytes() if live else None)
    if as_json:
        print_json({**result.to_json(), "machine_code": live.to_json(schema) if live else None})
    else:
        if live is not None:
            _print_liveness(live, schema)
        console.print(result if result.findings else "nothing wrong was found")
    raise typer.Exit(0 if result.ok else 1)


def _liveness(kernel: KernelInfo) -> Liveness | None:
    """The analysis, or None (and a note on standard error) where it cannot be made."""
    try:
        return liveness(kernel)
    except (CodeObjectError, DeviceError, TargetError) as error:
        errors.print(f"machine code not analysed: {error}", markup=False, highlight=False)
        return None


def _print_liveness(live: Liveness, schema: KernargSchema) -> None:
    table: Table = live.table(schema)
    console.print(table)
    if live.highest_byte is not None:
        console.print(f"last byte loaded: {live.highest_byte}, of a segment of {live.segment} bytes", highlight=False)
    for load in live.unknown:
        console.print(f"loads from an unknown offset: {load.address:#x} {load.text}", markup=False, highlight=False)
    for jump in live.unresolved:
        console.print(f"jumps to an unknown address: {jump}", markup=False, highlight=False)
