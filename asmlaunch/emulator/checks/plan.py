"""What the checks of a kernel need while it is compiled, and afterwards to explain what they have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asmlaunch.emulator.checks.accesses import On
from asmlaunch.emulator.checks.waits import Suspects, suspects
from asmlaunch.emulator.decode import Instruction
from asmlaunch.emulator.program import Program


@dataclass(frozen=True)
class Plan:
    """The checks of one kernel.

    Attributes:
        checks: names of those that are on.
        instructions: in order of address; the shadow's records name them by their place here.
        numbers: the place of each address.
        suspects: registers that may be used too early.
    """

    checks: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    numbers: Mapping[int, int]
    suspects: Suspects

    @property
    def definedness(self) -> bool:
        """Whether definedness is followed."""
        return "uninitialised" in self.checks or "kernarg" in self.checks

    @property
    def memory(self) -> On:
        """What the observers of memory look at."""
        return On(self.definedness, "alignment" in self.checks, "waits" in self.checks, "races" in self.checks)


def make_plan(program: Program, checks: Sequence[str]) -> Plan:
    """The plan for a program."""
    ordered = tuple(sorted(program.instructions(), key=lambda one: one.address))
    numbers = {instruction.address: number for number, instruction in enumerate(ordered)}
    return Plan(tuple(checks), ordered, numbers, suspects(program) if "waits" in checks else Suspects())
