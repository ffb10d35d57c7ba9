"""``asmlaunch disasm``: the machine code of a code object's kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from asmlaunch import codeobject
from asmlaunch.codeobject import KernelInfo


def disasm(
    file: Annotated[
        Path,
        typer.Argument(
            help="The code object (.co, .hsaco), or a bundle or fat binary that holds it.", show_default=False
        ),
    ],
    kernel: Annotated[str | None, typer.Option("--kernel", help="Only this kernel.")] = None,
    target: Annotated[
        str | None, typer.Option("--target", help="Which entry of a bundle or fat binary, e.g. gfx950.")
    ] = None,
    cfg: Annotated[
        bool, typer.Option("--cfg", help="The basic blocks that control flow reaches, and where each may go.")
    ] = False,
) -> None:
    """Disassemble kernels: address and instruction, one a line."""
    code_object = codeobject.read(file, target)
    chosen = code_object.kernels.values() if kernel is None else [code_object.kernels[kernel]]
    for one in chosen:
        typer.echo(f"{one.name}  {one.target}, {len(one.code):,} bytes at {one.code_address:#x}")
        for line in blocks(one) if cfg else listing(one):
            typer.echo(line)


def listing(kernel: KernelInfo) -> Iterator[str]:
    """One line an instruction of the kernel's function; of a branch, with its target.

    Raises:
        CodeObjectError: bytes that are no instruction.
    """
    from asmlaunch.emulator.decode import Disassembler, parse

    for address, size, text in Disassembler(kernel.target.processor).text(kernel.code, kernel.code_address):
        instruction = parse(text, address, size)
        jump = instruction.mnemonic == "s_branch" or instruction.mnemonic.startswith("s_cbranch")
        yield f"{address:#8x}: {text}" + (f"  -> {instruction.branch_target:#x}" if jump else "")


def blocks(kernel: KernelInfo) -> Iterator[str]:
    """The kernel's basic blocks as the emulator sees them.

    Raises:
        CodeObjectError: bytes that are no instruction, or a jump out of the kernel's code.
        UnsupportedInstructionError: instructions whose meaning is not defined.
    """
    from asmlaunch.emulator.program import build

    parsed = build(kernel, waits=False, full_exec=True)
    for block in sorted(parsed.blocks, key=lambda block: block.address):
        ways = [
            f"{how} {parsed.blocks[index].address:#x}"
            for how, index in (("jumps to", block.target), ("goes on to", block.fallthrough))
            if index is not None
        ]
        yield f"\nblock {block.address:#x}: {' or '.join(ways) or 'ends'}"
        for instruction in block.instructions:
            yield f"{instruction.address:#8x}: {instruction.text}"
