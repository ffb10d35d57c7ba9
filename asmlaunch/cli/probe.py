"""``asmlaunch probe``: black-box experiments on a kernel, in the emulator or on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from asmlaunch.cli.options import Device
from asmlaunch.cli.output import console, print_json
from asmlaunch.errors import ArgumentError, DumpError
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.module import Kernel, load

DIFFERENT_STATUS = 1

app = typer.Typer(
    no_args_is_help=True,
    help="""
    Find out by experiment what a kernel does: where it reads its operands, what each argument is for, on which sizes it
    is right, how it adds and rounds.

    The kernel is launched many times on small problems of its family. Where it faults or does not end, that is written
    down and the probe goes on.
    """,
)

_File = Annotated[
    Path, typer.Argument(metavar="KERNEL", help="Code object, or its name among the kernels found.", show_default=False)
]
_Name = Annotated[str | None, typer.Option(help="Which kernel, where the object holds several.")]
_Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("layout")
def layout(
    file: _File,
    operand: Annotated[str, typer.Option(help="Argument to probe, such as ScaleA.", show_default=False)],
    against: Annotated[
        str | None, typer.Option(help="Operand whose order of K counts: A by default, B for A itself.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the layout into this file, .svg or .png.", metavar="FILE")
    ] = None,
    name: _Name = None,
    device: Device = None,
    as_json: _Json = False,
) -> None:
    """Find the memory layout in which a kernel reads an operand.

    log2(n) launches find the place of n entries: in each, an entry holds one bit of its own address. The exit status
    is 1 when no pattern of axes makes the addresses, or a second size does not confirm it.
    """
    from asmlaunch.validate.probe import probe_layout

    found = probe_layout(_kernel(file, name, device), operand, against=against)
    if picture is not None:
        form = picture.suffix.lstrip(".")
        if form not in ("svg", "png"):
            raise ArgumentError("--picture", got=str(picture), need="a file that ends in .svg or .png")
        drawn = found.picture(form)
        picture.write_bytes(drawn.encode() if isinstance(drawn, str) else drawn)
    if as_json:
        print_json(found.as_dict())
    else:
        for what, text in found.lines():
            console.print(f"[bold]{what:10}[/] ", end="")
            console.print(text, markup=False, highlight=False, soft_wrap=True)
        if picture is None:
            print(found.picture(), end="")
    raise typer.Exit(0 if found else DIFFERENT_STATUS)


@app.command("args")
def args(
    file: _File,
    problem: Annotated[
        str | None, typer.Option(metavar="SIZES", help="As in 'm=33, k=512', on top of the first standard problem.")
    ] = None,
    padding: Annotated[bool, typer.Option(help="Show dead padding too.")] = False,
    name: _Name = None,
    device: Device = None,
    as_json: _Json = False,
) -> None:
    """Change every argument slot and every padding byte, and tell what that changes."""
    from asmlaunch.validate.probe import probe_args
    from asmlaunch.validate.problems import definition_of

    kernel = _kernel(file, name, device)
    definition = definition_of(kernel.info)
    case = None
    if problem is not None and definition is not None:
        case = definition.cases(definition.parameters(kernel.info))[0].changed(problem)
    found = probe_args(kernel, case=case)
    if as_json:
        print_json(found.as_dict())
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("offset", "slot", "type", "", "machine code", "effect", "for example"):
        table.add_column(column, justify="right" if column == "offset" else "left")
    for slot in found.slots:
        if slot.live or padding or slot.type != "padding":
            verdict = "[green]live[/]" if slot.live else "[yellow]dead[/]"
            example = next((c for c in slot.changes if c.outcome != "same"), slot.changes[0])
            shown = f"{example.to}: {example.outcome}"
            table.add_row(str(slot.offset), slot.name, slot.type, verdict, slot.loaded, slot.effect, shown)
    console.print(f"{found.kernel}, {found.case}\n", highlight=False, soft_wrap=True)
    console.print(table)
    dead = sum(slot.size for slot in found.slots if slot.type == "padding" and not slot.live)
    console.print(f"\n{found.launches} launches; dead: {', '.join(found.dead) or 'none'}, and {dead} bytes of padding")
    for note in found.notes:
        console.print(f"note: {note}", highlight=False)


@app.command("domain")
def domain(
    file: _File,
    size: Annotated[
        list[str] | None, typer.Option(help="Size to vary, such as n; can be repeated. Default: all of them.")
    ] = None,
    name: _Name = None,
    device: Device = None,
    as_json: _Json = False,
) -> None:
    """Find the steps of each size on which a kernel is right, the smallest right size, and what happens outside."""
    from asmlaunch.validate.probe import probe_domain

    found = probe_domain(_kernel(file, name, device), names=tuple(size) if size else None)
    if as_json:
        print_json(found.as_dict())
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("size", "right in steps of", "smallest", "outside"):
        table.add_column(column, justify="left" if column in ("size", "outside") else "right")
    for one in found.sizes:
        shown = ["none found" if value is None else str(value) for value in (one.step, one.smallest)]
        table.add_row(one.name, *shown, one.outside)
    console.print(f"{found.kernel}, from {found.base}\n", highlight=False, soft_wrap=True)
    console.print(table)
    over = f"; up to {found.overrun} elements beside the result are written" if found.overrun else ""
    console.print(f"\n{found.launches} launches{over}", highlight=False)


@app.command("numerics")
def numerics(
    file: _File,
    against: Annotated[
        Path | None, typer.Option(help="What --json printed on another device: show what differs.", metavar="FILE")
    ] = None,
    name: _Name = None,
    device: Device = None,
    as_json: _Json = False,
) -> None:
    """Find out how a kernel adds and rounds, and what it makes of subnormals, NaN and infinity.

    The exit status is 1 when --against finds a difference.
    """
    from asmlaunch.validate.probe import probe_numerics
    from asmlaunch.validate.probe.numerics import differences

    other = None if against is None else _read(against)
    found = probe_numerics(_kernel(file, name, device))
    differing = [] if other is None else differences(other, found.as_dict())
    if as_json:
        print_json(found.as_dict())
    else:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for column in ("experiment", "terms", "bits", "meaning"):
            table.add_column(column)
        for line in found.lines:
            table.add_row(line.name, line.terms, line.bits, line.meaning)
        console.print(f"{found.kernel} on {found.device}: terms are {found.operand}, {found.depth} of K each\n")
        console.print(table)
        groups = " | ".join(" ".join(map(str, group)) for group in found.groups)
        console.print(f"\nadded at once: {groups}{f'; {found.order}' if found.order else ''}", highlight=False)
        for what, there, here in differing:
            console.print(f"[red]differs[/] {what}: {there} there, {here} here", highlight=False)
        if other is not None and not differing:
            console.print("every line is the same as in the file")
    raise typer.Exit(DIFFERENT_STATUS if differing else 0)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise DumpError(f"cannot read {file} ({error})", need="what asmlaunch probe numerics --json prints") from error
    if not isinstance(found, dict):
        raise DumpError(f"{file}", got=type(found).__name__, need="what asmlaunch probe numerics --json prints")
    return found


def _kernel(file: Path, name: str | None, device: str | None) -> Kernel:
    """The kernel of that name of an object file, or its only one; a bare name is looked for among the kernels found."""
    if not file.exists() and len(file.parts) == 1:
        file = choose_object(find_objects("*.co"), str(file))
    module = load(file, device)
    return module[name] if name else module.kernel
