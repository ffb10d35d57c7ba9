"""What a run of the emulator is worth: which instructions were exact, and what approximate values reached.

The counts come from how often each block ran, so they cost nothing an instruction. What an approximate value reaches
is found afterwards, by data flow over the kernel's registers: it holds for every run through the blocks that ran, so
what it does not list did not happen, and what it lists happens on some path through them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.devices.base import Finding
from asmlaunch.emulator.calls import jumps
from asmlaunch.emulator.decode import Instruction
from asmlaunch.emulator.flow import Place, memory_operands, reads, writes
from asmlaunch.emulator.isa.numerics import described
from asmlaunch.emulator.isa.table import Access, Branch, Compute, Control, Definition, Mfma, find

if TYPE_CHECKING:
    from asmlaunch.emulator.program import Block, Program

CLASSES = ("scalar", "vector", "matrix", "memory", "branch", "control")


@dataclass(frozen=True)
class Approximation:
    """Instructions of one mnemonic that are not bit for bit what the manual states, or that it does not define.

    Attributes:
        mnemonic: the instruction.
        executed: wave-instructions.
        how: what the emulator does instead.
    """

    mnemonic: str
    executed: int
    how: str


@dataclass(frozen=True)
class Reach:
    """Where approximate values may go: instruction texts with their addresses.

    Empty is a proof that they do not, within a wave; with ``through_memory`` another wave may load what one has stored.

    Attributes:
        addresses: memory instructions whose address depends on one.
        branches: branches, and writes of EXEC, that depend on one.
        synchronisation: barriers that a wave reaches or not because of one.
        through_memory: whether one was stored. Every later load of the same wave counts as approximate then.
    """

    addresses: tuple[str, ...] = ()
    branches: tuple[str, ...] = ()
    synchronisation: tuple[str, ...] = ()
    through_memory: bool = False


@dataclass(frozen=True)
class Fidelity:
    """The report on one run.

    Attributes:
        instructions: wave-instructions executed, by class (see ``CLASSES``).
        exact: wave-instructions that are bit for bit what the manual states.
        approximate: the others.
        numerics: the model of matrix arithmetic that was chosen (``isa.numerics``).
        models: the arithmetic of the matrix instructions that ran, in words.
        reach: where approximate values may go; matrix results count as exact under their model.
        checks: names of the checks that were on.
        findings: how many findings of each kind there were.
    """

    instructions: Mapping[str, int]
    exact: int
    approximate: tuple[Approximation, ...]
    numerics: str
    models: tuple[str, ...]
    reach: Reach
    checks: tuple[str, ...]
    findings: Mapping[str, int]

    @property
    def total(self) -> int:
        """Wave-instructions executed."""
        return sum(self.instructions.values())

    def to_json(self) -> dict[str, Any]:
        """The report as plain lists and dictionaries."""
        return {
            "instructions": dict(self.instructions),
            "exact": self.exact,
            "approximate": [vars(one) for one in self.approximate],
            "numerics": self.numerics,
            "mfma_models": list(self.models),
            "approximate_values_reach": {
                "addresses": list(self.reach.addresses),
                "branches": list(self.reach.branches),
                "synchronisation": list(self.reach.synchronisation),
                "through_memory": self.reach.through_memory,
            },
            "checks": list(self.checks),
            "findings": dict(self.findings),
        }

    def __str__(self) -> str:
        classes = ", ".join(f"{count:,} {name}" for name, count in self.instructions.items() if count)
        lines = [f"{self.total:,} wave-instructions ({classes}), {self.exact:,} exact"]
        lines += [f"approximate: {one.executed:,} {one.mnemonic}: {one.how}" for one in self.approximate]
        lines += [f"matrix arithmetic ({self.numerics}): {model}" for model in self.models]
        if self.approximate:
            for name in ("addresses", "branches", "synchronisation"):
                places = getattr(self.reach, name)
                shown = "; ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
                lines.append(f"approximate values in {name}: {shown or 'none'}")
        found = ", ".join(f"{count} {kind}" for kind, count in self.findings.items()) or "nothing"
        lines.append(f"checks: {', '.join(self.checks) or 'off'}; found {found}")
        return "\n".join(lines)


def report(
    program: Program, counts: NDArray[np.uint64], checks: Sequence[str], findings: Iterable[Finding]
) -> Fidelity:
    """The fidelity report of a run.

    Args:
        counts: how often each block of ``program`` ran.
        checks: names of the checks that were on.
    """
    names, mix = _mix(_Identity(program))
    executed = zip(names, (counts.astype(np.int64) @ mix).tolist(), strict=True)
    classes = dict.fromkeys(CLASSES, 0)
    approximate, models = [], set()
    for (mnemonic, definition), number in executed:
        if not number:
            continue
        classes[class_of(definition)] += number
        if isinstance(definition, Mfma):
            models.add(described(definition, program.numerics, program.kernel.target.processor))
        elif not _is_exact(definition):
            approximate.append(Approximation(mnemonic, number, definition.note))  # type: ignore[union-attr]
    inexact = sum(one.executed for one in approximate)
    matrix = classes["matrix"]
    ran = tuple(np.flatnonzero(counts).tolist())
    sources = frozenset(one.mnemonic for one in approximate)
    return Fidelity(
        classes,
        sum(classes.values()) - inexact - matrix,
        tuple(approximate),
        program.numerics,
        tuple(sorted(models)),
        _cached_reach(_Identity(program), ran, sources) if sources else Reach(),
        tuple(checks),
        dict(Counter(finding.kind for finding in findings)),
    )


def class_of(definition: Definition) -> str:
    """The class an instruction is counted in."""
    if isinstance(definition, Compute):
        return "scalar" if definition.unit == "salu" else "vector"
    return {Access: "memory", Mfma: "matrix", Branch: "branch", Control: "control"}[type(definition)]


def _is_exact(definition: Definition) -> bool:
    return getattr(definition, "exact", True)


class _Identity:
    """A program as a cache key: it is compared by identity and kept alive."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.program is self.program

    def __hash__(self) -> int:
        return id(self.program)


@lru_cache(maxsize=64)
def _mix(key: _Identity) -> tuple[list[tuple[str, Definition]], NDArray[np.int64]]:
    """A program's mnemonics with their definitions, and how many of each a block holds, ``[blocks, mnemonics]``."""
    program = key.program
    mnemonics = sorted({instruction.mnemonic for instruction in program.instructions()})
    column = {mnemonic: number for number, mnemonic in enumerate(mnemonics)}
    mix = np.zeros((len(program.blocks), len(mnemonics)), np.int64)
    for block in program.blocks:
        for instruction in block.instructions:
            mix[block.index, column[instruction.mnemonic]] += 1
    return [(mnemonic, _defined(mnemonic)) for mnemonic in mnemonics], mix


def _defined(mnemonic: str) -> Definition:
    definition = find(mnemonic)
    assert definition is not None, mnemonic
    return definition


@lru_cache(maxsize=64)
def _cached_reach(key: _Identity, ran: tuple[int, ...], sources: frozenset[str]) -> Reach:
    return reach(key.program, ran, sources)


def reach(program: Program, ran: Sequence[int], sources: frozenset[str]) -> Reach:
    """Where values made by ``sources`` may go in the blocks ``ran``.

    Registers are followed one by one. Memory is one place: a store of an approximate value makes every later load of
    the wave approximate. A register written under a partial EXEC keeps what it had.
    """
    blocks = {index: program.blocks[index] for index in ran}
    entry: dict[int, frozenset[Place]] = {index: frozenset() for index in ran}
    pending = list(ran)
    through_memory = False
    found: dict[str, dict[str, None]] = {"addresses": {}, "branches": {}}
    decided: set[int] = set()  # blocks whose branch depends on an approximate value
    while pending:
        index = pending.pop()
        tainted = set(entry[index])
        for instruction in blocks[index].instructions:
            definition = find(instruction.mnemonic)
            assert definition is not None
            dirty = bool(tainted.intersection(reads(instruction)))
            where = f"{instruction.address:#x} `{instruction.text}`"
            if (isinstance(definition, Branch) or jumps(instruction)) and dirty:
                found["branches"][where] = None
                decided.add(index)
            if isinstance(definition, Access):
                operands = memory_operands(instruction, definition)
                if tainted.intersection(operands.address):
                    found["addresses"][where] = None
                if definition.kind != "load" and tainted.intersection(operands.data):
                    through_memory = True
                    tainted.add(_MEMORY)
                dirty |= _MEMORY in tainted
            dirty |= instruction.mnemonic in sources
            for place in writes(instruction):
                if dirty:
                    tainted.add(place)
                    if place.file == "exec":
                        found["branches"][where] = None
                elif place.file in ("s", "scc", "exec"):
                    tainted.discard(place)
        for successor in blocks[index].successors:
            if successor in blocks and not tainted <= entry[successor]:
                entry[successor] |= tainted
                pending.append(successor)
    barriers = _controlled_barriers(program, blocks, decided)
    return Reach(tuple(found["addresses"]), tuple(found["branches"]), barriers, through_memory)


_MEMORY = Place("memory", 0)


def _controlled_barriers(program: Program, blocks: Mapping[int, Block], decided: set[int]) -> tuple[str, ...]:
    """Barriers that one way out of a decided branch reaches before the ways meet, and the other does not."""
    barriers = {
        index: f"{block.instructions[-1].address:#x} `{block.instructions[-1].text}`"
        for index, block in blocks.items()
        if _is_barrier(block.instructions[-1])
    }
    found: dict[str, None] = {}
    for index in decided:
        ways = [_reachable(blocks, successor) for successor in blocks[index].successors if successor in blocks]
        if len(ways) == 2:
            for place in sorted((ways[0] ^ ways[1]) & barriers.keys()):
                found[barriers[place]] = None
    return tuple(found)


def _is_barrier(instruction: Instruction) -> bool:
    definition = find(instruction.mnemonic)
    return isinstance(definition, Control) and definition.action == "barrier"


def _reachable(blocks: Mapping[int, Block], start: int) -> set[int]:
    seen: set[int] = set()
    pending = [start]
    while pending:
        index = pending.pop()
        if index not in seen and index in blocks:
            seen.add(index)
            pending += blocks[index].successors
    return seen
