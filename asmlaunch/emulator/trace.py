"""What a run did: instructions traced as they execute, coverage, a profile, and a timeline of waves and barriers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.devices.base import Dim3
from asmlaunch.emulator.decode import Instruction, Register, parse_operand
from asmlaunch.emulator.flow import writes
from asmlaunch.errors import ArgumentError

if TYPE_CHECKING:
    from asmlaunch.emulator.program import Program


# ---------------------------------------------------------------- tracing


@dataclass(frozen=True)
class Event:
    """One instruction that a wave has executed.

    Attributes:
        workgroup, wave: who executed it.
        address, text: the instruction.
        registers: values after it, by name: u32, one a lane for VGPRs.
    """

    workgroup: Dim3
    wave: int
    address: int
    text: str
    registers: Mapping[str, NDArray[np.uint32]]

    def __str__(self) -> str:
        values = []
        for name, value in self.registers.items():
            same = value.ndim == 0 or bool((value == value[0]).all())
            shown = f"{int(value.flat[0]):#x}" if same else " ".join(f"{number:#x}" for number in value.tolist())
            values.append(f"{name} = {shown}")
        where = f"({', '.join(map(str, self.workgroup))}) wave {self.wave} {self.address:#x}"
        return f"{where}  {self.text}" + (f"  ; {', '.join(values)}" if values else "")


@dataclass(frozen=True)
class Trace:
    """What to trace, and where to.

    Attributes:
        to: called with each :class:`Event`, or the path of a text file, an event a line.
        instructions: addresses, or a regular expression that an instruction's text must match; None: all.
        waves: numbers of waves in their workgroup; None: all.
        workgroups: which; None: all.
        registers: names such as "v3", "s[4:5]" or "a0" to show; None: those that the instruction writes.
    """

    to: Callable[[Event], Any] | str | os.PathLike[str]
    instructions: Collection[int] | str | None = None
    waves: Collection[int] | None = None
    workgroups: Collection[Dim3] | None = None
    registers: Sequence[str] | None = None

    def wants(self, instruction: Instruction) -> bool:
        """Whether the instruction is traced."""
        if self.instructions is None:
            return True
        if isinstance(self.instructions, str):
            return re.search(self.instructions, instruction.text) is not None
        return instruction.address in self.instructions

    def follows(self, workgroup: Dim3, wave: int) -> bool:
        """Whether the wave is traced."""
        in_group = self.workgroups is None or workgroup in self.workgroups
        return in_group and (self.waves is None or wave in self.waves)

    def shown(self, instruction: Instruction) -> list[Register]:
        """The registers to show after the instruction."""
        if self.registers is not None:
            return [named_register(name) for name in self.registers]
        return [Register(place.file, place.number) for place in writes(instruction) if place.file in "sva"]

    @contextmanager
    def open(self) -> Iterator[Callable[[Event], Any]]:
        """What takes the events."""
        if callable(self.to):
            yield self.to
            return
        with open(self.to, "w") as file:
            yield _line_writer(file)


def _line_writer(file: IO[str]) -> Callable[[Event], Any]:
    return lambda event: file.write(f"{event}\n")


def named_register(name: str) -> Register:
    """A register by its assembler name.

    Raises:
        ArgumentError: a name that is no register's.
    """
    operand = parse_operand(name)
    if not isinstance(operand, Register):
        raise ArgumentError("register", got=repr(name), need='a name such as "v3", "s[4:5]", "a0", "vcc" or "exec"')
    return operand


# ---------------------------------------------------------------- profile and coverage


@dataclass(frozen=True)
class Row:
    """One instruction of a profile."""

    address: int
    text: str
    executed: int


class Profile:
    """Where the wave-instructions of a run went; it comes with every run and costs nothing until it is looked at.

    Args:
        counts: how often each block of ``program`` ran.
    """

    def __init__(self, program: Program, counts: NDArray[np.uint64]) -> None:
        self._program, self._counts = program, counts
        self.kernel = program.kernel.name

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The reachable instructions, in order of address."""
        rows = [
            Row(instruction.address, instruction.text, times)
            for block, times in zip(self._program.blocks, self._counts.tolist(), strict=True)
            for instruction in block.instructions
        ]
        return tuple(sorted(rows, key=lambda row: row.address))

    @property
    def total(self) -> int:
        """Wave-instructions executed."""
        return sum(row.executed for row in self.rows)

    @property
    def covered(self) -> tuple[Row, ...]:
        """Instructions that ran."""
        return tuple(row for row in self.rows if row.executed)

    @property
    def coverage(self) -> float:
        """Fraction of the reachable instructions that ran."""
        return len(self.covered) / len(self.rows) if self.rows else 0.0

    def by_mnemonic(self) -> list[tuple[str, int]]:
        """Executed wave-instructions by mnemonic, the most first."""
        sums: dict[str, int] = {}
        for row in self.covered:
            name = row.text.partition(" ")[0]
            sums[name] = sums.get(name, 0) + row.executed
        return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))

    def table(self, count: int = 20) -> str:
        """The mnemonics that ran most often, with their shares as bars."""
        total = max(self.total, 1)
        lines = [
            f"{self.kernel}: {self.total:,} wave-instructions, {len(self.covered)} of {len(self.rows)} instructions ran"
        ]
        for name, executed in self.by_mnemonic()[:count]:
            share = executed / total
            lines.append(f"{executed:>14,}  {share:6.1%}  {'█' * round(40 * share):<40}  {name}")
        return "\n".join(lines)

    def folded(self) -> str:
        """Lines "kernel;block;instruction count", as flame graph tools take them; blocks are runs of equal counts."""
        lines, block, before = [], 0, -1
        for row in self.rows:
            if row.executed != before:
                block, before = row.address, row.executed
            if row.executed:
                lines.append(f"{self.kernel};{block:#x};{row.address:#x} {row.text.replace(';', ',')} {row.executed}")
        return "\n".join(lines)


# ---------------------------------------------------------------- timeline


@dataclass
class Timeline:
    """Waves over time, as a Chrome trace (also read by Perfetto): one process a workgroup, one thread a wave.

    The clock counts wave-instructions of the run, in the order in which they were executed.
    """

    events: list[dict[str, Any]] = field(default_factory=list)

    def span(self, workgroup: int, wave: int, name: str, start: int, end: int) -> None:
        """A stretch in which a wave ran (between barriers) or waited."""
        self.events.append(
            {"name": name, "ph": "X", "pid": workgroup, "tid": wave, "ts": start, "dur": max(end - start, 1)}
        )

    def mark(self, workgroup: int, name: str, at: int) -> None:
        """Something that happened to a workgroup, such as a barrier that let its waves go on."""
        self.events.append({"name": name, "ph": "i", "s": "p", "pid": workgroup, "tid": 0, "ts": at})

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps({"traceEvents": self.events, "displayTimeUnit": "ns"})
