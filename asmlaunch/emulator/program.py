"""A kernel's machine code as a graph of basic blocks.

A block ends where a wave may stop: at a branch, before a branch target, after a barrier and, with ``waits=True``, after
every ``s_waitcnt`` and load that goes to LDS, and between LDS reads and the write that follows them. Undefined
instructions are found here, when the kernel is prepared, and not when one is reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator import calls, mode
from asmlaunch.emulator.decode import Disassembler, Instruction, Register, parse
from asmlaunch.emulator.isa.table import Access, Branch, Control, find
from asmlaunch.emulator.mode import Mode
from asmlaunch.errors import CodeObjectError, UnsupportedInstructionError


@dataclass
class Block:
    """Consecutive instructions entered only at the first and left only at the last.

    Attributes:
        index: its place in ``Program.blocks``.
        instructions: at least one.
        fallthrough: index of the block that follows in memory, or None after an unconditional jump or the end.
        target: index of the block a branch at the end jumps to, or None.
        indirect: indices of the blocks that a jump through a register at the end may go to.
        mode: what is known on entry.
    """

    index: int
    instructions: list[Instruction]
    fallthrough: int | None = None
    target: int | None = None
    mode: Mode = field(default_factory=lambda: Mode(full_exec=False))
    indirect: tuple[int, ...] = ()

    @property
    def full_exec(self) -> bool:
        """Whether EXEC is known to be all ones on entry."""
        return self.mode.full_exec

    @property
    def address(self) -> int:
        """Address of its first instruction."""
        return self.instructions[0].address

    @property
    def successors(self) -> list[int]:
        """Indices of the blocks that may run next."""
        return [index for index in (self.target, self.fallthrough, *self.indirect) if index is not None]


@dataclass
class Program:
    """The blocks of one kernel, entry first.

    Attributes:
        numerics: the model of matrix arithmetic (``isa.numerics``).
    """

    kernel: KernelInfo
    blocks: list[Block]
    numerics: str = "exact"

    @cached_property
    def accesses(self) -> list[Instruction]:
        """The memory instructions, in order of address."""
        found = [one for one in self.instructions() if isinstance(find(one.mnemonic), Access)]
        return sorted(found, key=lambda one: one.address)

    @cached_property
    def vgprs(self) -> int:
        """VGPRs that the code can touch: one more than the highest number; all, where numbers are relative."""
        return max(1, self._used("v"))  # v0 holds the work-item at entry

    @cached_property
    def agprs(self) -> int:
        """AccVGPRs that the code can touch."""
        return self._used("a")

    def _used(self, file: str) -> int:
        highest = 0
        for instruction in self.instructions():
            if instruction.mnemonic.startswith("s_set_gpr_idx_"):
                return 256
            for operand in instruction.operands:
                if isinstance(operand, Register) and operand.file == file:
                    highest = max(highest, operand.index + operand.count)
        return highest

    def instructions(self) -> Iterator[Instruction]:
        """All reachable instructions, block by block."""
        for block in self.blocks:
            yield from block.instructions


def to_cache(program: Program) -> list[Any]:
    """The blocks in plain lists, for a cache."""
    return [
        [
            block.fallthrough, block.target, block.indirect,
            [[one.address, one.size, one.text] for one in block.instructions],
        ]
        for block in program.blocks
    ]  # fmt: skip


def from_cache(kernel: KernelInfo, data: list[Any], numerics: str) -> Program:
    """The program that ``to_cache`` was given, but for the modes, which only compiling needs."""
    blocks = [
        Block(
            index,
            [parse(text, address, size) for address, size, text in lines],
            fallthrough,
            target,
            indirect=tuple(indirect),
        )
        for index, (fallthrough, target, indirect, lines) in enumerate(data)
    ]
    return Program(kernel, blocks, numerics)


def build(
    kernel: KernelInfo, *, waits: bool, full_exec: bool, stops: Collection[int] = (), numerics: str = "exact"
) -> Program:
    """Decode the kernel from its entry and split it into blocks.

    Args:
        waits: let a wave stop after every ``s_waitcnt`` and load that goes to LDS too, and where it writes LDS after it
            has read it: kernels whose waves reuse LDS without a barrier, or load over each other's parts of it, are
            right only if the others are as far by then.
        full_exec: every wave starts with all 64 lanes on.
        stops: addresses before which a wave must be able to stop too.
        numerics: the model of matrix arithmetic.

    Raises:
        CodeObjectError: bytes that are no instruction, or a jump out of the kernel's code.
        UnsupportedInstructionError: instructions whose meaning is not defined.
    """
    reached = _reach(kernel)
    _require_defined(kernel, reached.values())
    starts = _block_starts(kernel, reached, waits) | (reached.keys() & set(stops))
    blocks = _blocks(reached, sorted(starts, key=lambda address: (address != kernel.code_address, address)))
    _propagate_modes(blocks, mode.at_entry(kernel, full_exec))
    return Program(kernel, blocks, numerics)


def _reach(kernel: KernelInfo) -> dict[int, Instruction]:
    """Instructions that control flow can reach from the entry, by address."""
    disassembler = Disassembler(kernel.target.processor)
    disassembler.expect(kernel.text, kernel.text_address)
    reached: dict[int, Instruction] = {}
    pending = [kernel.code_address]
    while pending:
        address = pending.pop()
        while address not in reached:
            offset = address - kernel.text_address
            if not 0 <= offset < len(kernel.text):
                raise CodeObjectError(
                    f"control flow of kernel {kernel.name}",
                    got=f"a jump to {address:#x}",
                    need=f"an address in {kernel.text_address:#x}..{kernel.text_address + len(kernel.text):#x}",
                    hint="the code object is damaged",
                )
            instruction = reached[address] = disassembler.one(kernel.text[offset : offset + 20], address)
            if isinstance(find(instruction.mnemonic), Branch):
                pending.append(instruction.branch_target)
            if _ends_flow(instruction):
                break
            address = instruction.end
        if not pending and any(map(calls.jumps, reached.values())):
            pending = [*(calls.indirect_targets(reached) - reached.keys())]
    return reached


def _ends_flow(instruction: Instruction) -> bool:
    """Whether the next instruction in memory is not reached from this one."""
    definition = find(instruction.mnemonic)
    if isinstance(definition, Branch):
        return definition.condition is None
    # Nothing after an undefined fork can be known to be code.
    return calls.action(instruction) in ("end", "jump", "call") or instruction.mnemonic == "s_cbranch_g_fork"


def _require_defined(kernel: KernelInfo, instructions: Iterable[Instruction]) -> None:
    missing = [one for one in sorted(instructions, key=lambda one: one.address) if find(one.mnemonic) is None]
    if missing:
        counts = Counter(one.mnemonic for one in missing)
        first = {one.mnemonic: one.address for one in reversed(missing)}
        listing = ", ".join(f"{name} at {first[name]:#x} ({count}x)" for name, count in counts.most_common())
        raise UnsupportedInstructionError(
            f"kernel {kernel.name} uses {len(counts)} instructions whose meaning is not defined: {listing}",
            hint="define them in asmlaunch/emulator/isa, or run the kernel on a GPU",
        )


def _stops_after(instruction: Instruction, waits: bool) -> bool:
    definition = find(instruction.mnemonic)
    if isinstance(definition, Branch):
        return True
    if isinstance(definition, Control):
        return definition.action in ("end", "barrier") or (waits and definition.action == "wait")
    return waits and isinstance(definition, Access) and (definition.to_lds or bool(instruction.modifiers.get("lds")))


def _block_starts(kernel: KernelInfo, reached: dict[int, Instruction], waits: bool) -> set[int]:
    starts = {kernel.code_address}
    for instruction in reached.values():
        if isinstance(find(instruction.mnemonic), Branch):
            starts.add(instruction.branch_target)
        if _stops_after(instruction, waits) and not _ends_flow(instruction):
            starts.add(instruction.end)
    if any(map(calls.jumps, reached.values())):
        starts |= calls.indirect_targets(reached)
    return starts | _writes_after_reads(reached, starts) if waits else starts


def _writes_after_reads(reached: dict[int, Instruction], starts: Collection[int]) -> set[int]:
    """Addresses of the first LDS write after LDS reads, with nothing between at which a wave may stop."""
    found = set()
    has_read = False
    for address, instruction in sorted(reached.items()):
        has_read = has_read and address not in starts
        definition = find(instruction.mnemonic)
        if isinstance(definition, Access) and definition.space == "lds":
            if definition.kind == "load":
                has_read = True
            elif has_read:
                found.add(address)
                has_read = False
    return found


def _blocks(reached: dict[int, Instruction], starts: list[int]) -> list[Block]:
    index_of = {address: index for index, address in enumerate(starts)}
    blocks = []
    for index, start in enumerate(starts):
        block = Block(index, [reached[start]])
        while not _ends_flow(last := block.instructions[-1]) and last.end not in index_of:
            block.instructions.append(reached[last.end])
        if not _ends_flow(last):
            block.fallthrough = index_of[last.end]
        if isinstance(find(last.mnemonic), Branch):
            block.target = index_of[last.branch_target]
        if calls.jumps(last):
            block.indirect = tuple(sorted(index_of[address] for address in calls.indirect_targets(reached)))
        blocks.append(block)
    return blocks


def _propagate_modes(blocks: list[Block], at_entry: Mode) -> None:
    """Forward data flow of what is known (``emulator.mode``)."""
    known: dict[int, Mode] = {0: at_entry}
    pending = [0]
    while pending:
        block = blocks[pending.pop()]
        block.mode = known[block.index]
        state = block.mode
        for instruction in block.instructions:
            state = mode.after(instruction, state)
        for successor in block.successors:
            before = known.get(successor)
            joined = state if before is None else mode.join(before, state, blocks[successor].address)
            if joined != before:
                known[successor] = joined
                pending.append(successor)
