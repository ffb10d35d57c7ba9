"""``asmlaunch capture``, ``show`` and ``replay``: what a program launches, and the same launches run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from asmlaunch.abi.diff import show as show_value
from asmlaunch.abi.families.base import plain_name
from asmlaunch.capture import Capture, CapturedLaunch, Replay, record
from asmlaunch.capture import replay as run_again
from asmlaunch.cli.output import console, errors, print_json
from asmlaunch.cli.report import ObjectOption, read_bundle, save_bundle
from asmlaunch.errors import AsmlaunchError
from asmlaunch.validate.bundle import Bundle, of_capture
from asmlaunch.validate.bundle import replay as replay_bundle

FileArgument = Annotated[Path, typer.Argument(help="A file that `asmlaunch capture` wrote.", show_default=False)]
LaunchOption = Annotated[int | None, typer.Option("--launch", min=1, help="Only this launch, by its number.")]


def capture(
    command: Annotated[list[str], typer.Argument(help="The program and its arguments, after --.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")] = Path("run.json"),
    memory: Annotated[
        bool, typer.Option(help="Also copy the memory that arguments point to, before and after each launch.")
    ] = False,
    memory_limit: Annotated[int, typer.Option(min=0, help="Bytes to copy of one allocation at most.")] = 64 << 20,
    limit: Annotated[int, typer.Option(min=4096, help="Bytes that one process records at most.")] = 256 << 20,
) -> None:
    """Run a program and record what it launches on an AMD GPU: code objects, kernels, grids, argument bytes.

    Example: `asmlaunch capture -o run.json -- python3 test.py`. The program runs as it would alone, and its exit status
    is passed on; the processes it starts are recorded too.
    """
    captured, status = record(command, limit=limit, memory=memory_limit if memory else None)
    captured.save(output)
    lost = f", {captured.dropped} records over the limit lost" if captured.dropped else ""
    errors.print(f"{len(captured.launches)} launches in {output}{lost}", highlight=False)
    raise typer.Exit(status)


def show(
    file: FileArgument,
    launch: LaunchOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the launches as JSON.")] = False,
) -> None:
    """List the launches of a capture, or show the arguments of one."""
    captured = Capture.load(file)
    chosen = captured.launches if launch is None else (captured.launch(launch),)
    if as_json:
        print_json([_summary(number, entry) for number, entry in _numbered(captured) if entry in chosen])
    elif launch is None:
        _print_launches(captured)
    else:
        _print_arguments(chosen[0])


def bundle(
    file: FileArgument,
    launch: Annotated[int, typer.Option("--launch", min=1, help="Number of the launch.")] = 1,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")] = Path("run.asml"),
) -> None:
    """Put one captured launch into a bundle (.asml), to replay it and report on it elsewhere.

    The capture needs `--memory`.
    """
    save_bundle(of_capture(Capture.load(file).launch(launch)), output)


def replay(
    file: FileArgument,
    launch: LaunchOption = None,
    device: Annotated[str, typer.Option(help="Where to run it.")] = "emulator",
    object_file: ObjectOption = None,
) -> None:
    """Run captured launches, or the launch of a bundle (.asml), again and compare what they leave, byte by byte.

    The exit status is 1 when a byte differs. A capture needs `--memory`. What a stranger's bundle holds is machine
    code: leave it to the emulator.
    """
    if Bundle.is_one(file):
        read = read_bundle(file, object_file)
        result = replay_bundle(read, device)
        _print_replay(plain_name(read.kernel), result)
        raise typer.Exit(0 if result.equal else 1)
    captured = Capture.load(file)
    numbers = range(1, len(captured.launches) + 1) if launch is None else [launch]
    failed = False
    for number in numbers:
        entry = captured.launch(number)
        try:
            result = run_again(entry, device)
        except AsmlaunchError as error:
            failed = True
            errors.print(
                f"launch {number} of {plain_name(entry.kernel)}: {type(error).__name__}: {error}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
            continue
        failed |= not result.equal
        _print_replay(f"launch {number} of {plain_name(entry.kernel)}", result)
    raise typer.Exit(1 if failed else 0)


def _print_replay(what: str, result: Replay) -> None:
    verdict = "[green]equal[/]" if result.equal else f"[red]{result.different} bytes differ[/]"
    where = "" if result.first is None else f", the first at {result.first[0]:#x} + {result.first[1]}"
    compared = f"{result.compared} bytes compared, {result.written} of them written"
    console.print(f"{what} on {result.device}: {verdict}{where} ({compared})", highlight=False, soft_wrap=True)


def _numbered(captured: Capture) -> list[tuple[int, CapturedLaunch]]:
    return list(enumerate(captured.launches, 1))


def _summary(number: int, launch: CapturedLaunch) -> dict[str, object]:
    return {
        "launch": number,
        "process": launch.process,
        "kernel": launch.kernel,
        "entry": launch.entry,
        "grid": launch.grid,
        "block": launch.block,
        "dynamic_lds": launch.dynamic_lds,
        "device": launch.device,
        "stream": launch.stream,
        "result": launch.result,
        "kernarg": None if launch.kernarg is None else launch.kernarg.hex(),
        "memory": [{"address": m.address, "size": m.size} for m in launch.memory],
    }


def _print_launches(captured: Capture) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("#", "kernel", "grid", "block", "lds", "device", "bytes", "by"):
        table.add_column(column, overflow="fold")
    for number, launch in _numbered(captured):
        size = "?" if launch.kernarg is None else str(len(launch.kernarg))
        shape = (str(launch.grid), str(launch.block), str(launch.dynamic_lds))
        result = launch.entry + (f" (error {launch.result})" if launch.result else "")
        table.add_row(str(number), plain_name(launch.kernel) or "?", *shape, str(launch.device), size, result)
    console.print(table)
    if captured.dropped:
        console.print(f"{captured.dropped} records over the limit were lost")


def _print_arguments(launch: CapturedLaunch) -> None:
    console.print(
        f"{plain_name(launch.kernel)}  grid {launch.grid}  block {launch.block}  by {launch.entry}", highlight=False
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("offset", "name", "value", "meaning"):
        table.add_column(column)
    schema = launch.schema
    for name, value in schema.unpack(launch.kernarg or b"").items():
        field = schema[name]
        table.add_row(str(field.offset), name, show_value(field, value), field.role)
    console.print(table)
    for memory in launch.memory:
        console.print(f"memory at {memory.address:#x}: {memory.size} bytes", highlight=False)
