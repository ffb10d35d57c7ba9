"""``asmlaunch diff``: two argument segments, field by field, or two kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asmlaunch import abi
from asmlaunch.abi import Diff, Dump, expected_segment
from asmlaunch.capture import Capture
from asmlaunch.cli.hexdump import DumpOption, KernelOption, NameOption
from asmlaunch.cli.kernarg import FORMATS, kernel_of, parse_values, read_kernarg, schema_of, words
from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.codediff import CodeDiff, code_diff
from asmlaunch.errors import ArgumentError, CodeObjectError, DeviceError

_CONTAINERS = (b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")


def diff(
    a: Annotated[
        Path,
        typer.Argument(
            help=f"First argument segment ({FORMATS}), a code object, or a capture (--dump chooses the launch).",
            show_default=False,
        ),
    ],
    b: Annotated[
        Path | None, typer.Argument(help="Second segment or code object; left out with --set.", show_default=False)
    ] = None,
    kernel: KernelOption = None,
    name: NameOption = None,
    number: DumpOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Compare with what a launch with these arguments passes."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--with", metavar="FILE.json", help="Compare with argument values by name, in a JSON file."),
    ] = None,
    exact: Annotated[
        bool, typer.Option(help="Pointers have to be equal, not only null or not and aligned alike.")
    ] = False,
    strict: Annotated[bool, typer.Option(help="Fields that the kernel does not use count too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two argument segments by field name, or two kernels; the exit status is 1 when they differ.

    Without `--kernel` the fields have no names and the segments are compared in words of 4 bytes. Fields whose bytes
    are missing from one of the files (a dump with lines left out) are not judged. Pointers match when both are null or
    both are not and they are aligned alike; slots that the kernel does not use are shown and do not count.
    Two kernels are compared by arguments, resources, descriptor and instructions.
    """
    if b is not None and _is_object(a) and _is_object(b):
        before, after = kernel_of(a, name), kernel_of(b, name)
        changes = abi.diff_kernels(before, after)
        code = _code(before, after)
        if as_json:
            print_json({**changes.to_json(), "instructions": code.to_json() if code else None})
        else:
            console.print(changes if changes else str(changes))
            if code:
                console.print(code)
        raise typer.Exit(1 if changes else 0)
    schema = schema_of(kernel, name)
    if Capture.is_one(a):
        launch = Capture.load(a).launch(number or 1)
        schema, left = launch.schema, launch.dump
    else:
        left = read_kernarg(a, schema, number)
    if against is not None and b is None and not settings:
        right = read_kernarg(against, schema)
    elif settings:
        if schema is None or b is not None:
            raise ArgumentError(
                "--set", got="no --kernel" if schema is None else "a second file", need="one file and --kernel"
            )
        right = expected_segment(schema, parse_values(settings))
    elif b is None:
        raise ArgumentError("second segment", need="a file, or argument values with --set or --with")
    else:
        right = read_kernarg(b, schema)
    chosen = schema or words(max(len(left), len(right)))
    result = abi.diff(left, right, chosen, exact=exact, strict=strict)
    if as_json:
        print_json(result.to_json())
    else:
        _print(result, left, right)
    raise typer.Exit(1 if result else 0)


def _code(a: KernelInfo, b: KernelInfo) -> CodeDiff | None:
    """The machine code compared, or None where it is equal or (with a note on standard error) cannot be read."""
    if a.code == b.code:
        return None
    try:
        return code_diff(a, b)
    except (CodeObjectError, DeviceError) as error:
        errors.print(f"machine code not compared: {error}", markup=False, highlight=False)
        return None


def _is_object(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(24).startswith(_CONTAINERS)
    except OSError:
        return False


def _print(result: Diff, left: Dump, right: Dump) -> None:
    """The differences, and for each known line of a dump that is compared with values how its fields compare."""
    if result or result.tolerated:
        console.print(result)
    else:
        console.print(result.summary())
    if right.format == "expected":
        for start in range(0, len(left), 16):
            named = [e for e in result.fields if start <= e.field.offset < start + 16]
            if any(left.is_known(e.field.offset, e.field.end) for e in named):
                judged = "; ".join(f"{e.field.name} {e.status}" for e in named)
                console.print(f"{start:04d}   | {judged}", highlight=False, markup=False)
