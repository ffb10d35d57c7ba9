"""A kernel's reachable code as blocks of effects.

Unlike ``emulator.program`` this needs no definition of any instruction: where control goes is read off the branches
alone, so every object that decodes can be analysed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.emulator.liveness.effects import Effect, effect
from asmlaunch.errors import CodeObjectError


@dataclass
class Block:
    """Effects that are entered only at the first and left only at the last, each with its address."""

    steps: list[tuple[int, Effect]]
    successors: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Graph:
    """Blocks by index; ``entries`` has one index for each entry address asked for."""

    blocks: list[Block]
    entries: tuple[int, ...]


class _Code:
    """Instructions by address: the function decoded in one sweep, anything else one at a time."""

    def __init__(self, kernel: KernelInfo) -> None:
        self._kernel = kernel
        self._disassembler = Disassembler(kernel.target.processor)
        try:
            swept = self._disassembler.text(kernel.code, kernel.code_address)
        except CodeObjectError:
            swept = []  # data between the instructions
        self._swept = {address: (size, text) for address, size, text in swept}
        self._disassembler.expect(kernel.text, kernel.text_address)

    def at(self, address: int) -> tuple[int, str]:
        """Size and text of the instruction at ``address``."""
        if address in self._swept:
            return self._swept[address]
        kernel = self._kernel
        offset = address - kernel.text_address
        if not 0 <= offset < len(kernel.text):
            raise CodeObjectError(
                f"control flow of kernel {kernel.name}",
                got=f"a jump to {address:#x}",
                need=f"an address in {kernel.text_address:#x}..{kernel.text_address + len(kernel.text):#x}",
                hint="the code object is damaged",
            )
        one = self._disassembler.one(kernel.text[offset : offset + 20], address)
        return one.size, one.text


def build(kernel: KernelInfo, entries: tuple[int, ...]) -> Graph:
    """The blocks that control flow can reach from the entry addresses.

    Raises:
        CodeObjectError: reachable bytes that are no instruction, or a jump out of the code.
        DeviceError: the disassembler is not installed.
    """
    code = _Code(kernel)
    reached: dict[int, tuple[int, Effect]] = {}
    starts = set(entries)
    pending = list(entries)
    while pending:
        address = pending.pop()
        while address not in reached:
            size, text = code.at(address)
            does = effect(text)
            reached[address] = size, does
            if does.jump is not None:
                target = address + size + 4 * does.jump
                starts.add(target)
                pending.append(target)
                starts.add(address + size)
            if does.ends:
                break
            address += size
    return _blocks(reached, starts, entries)


def _blocks(reached: dict[int, tuple[int, Effect]], starts: set[int], entries: tuple[int, ...]) -> Graph:
    ordered = sorted(starts & reached.keys())
    index = {address: number for number, address in enumerate(ordered)}
    blocks = []
    for start in ordered:
        steps, address, successors = [], start, []
        while True:
            size, does = reached[address]
            steps.append((address, does))
            address += size
            if does.jump is not None:
                successors.append(index[address + 4 * does.jump])
            if does.ends:
                break
            if address in index:
                successors.append(index[address])
                break
        blocks.append(Block(steps, successors))
    return Graph(blocks, tuple(index[address] for address in entries))
