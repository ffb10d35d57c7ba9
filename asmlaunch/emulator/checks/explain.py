"""What the shadow has found -> sentences: the instruction, who ran it, which lanes, which array, who else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asmlaunch.abi.arguments import Buffer
from asmlaunch.codeobject import KernelInfo
from asmlaunch.devices.base import Dim3, Finding
from asmlaunch.emulator.checks.plan import Plan
from asmlaunch.emulator.checks.state import MANY, Kind
from asmlaunch.emulator.decode import Instruction
from asmlaunch.emulator.isa.table import Access, find
from asmlaunch.emulator.report import locate, named_lanes
from asmlaunch.emulator.state import LANES

#: The check that each kind belongs to.
CHECK_OF = {
    Kind.UNDEFINED_ADDRESS: "uninitialised", Kind.UNDEFINED_STORE: "uninitialised",
    Kind.UNDEFINED_BRANCH: "uninitialised", Kind.KERNARG: "kernarg", Kind.MISALIGNED: "alignment",
    Kind.EARLY_REGISTER: "waits", Kind.EARLY_LDS: "waits", Kind.RACE_WAVES: "races", Kind.RACE_GROUPS: "races",
    Kind.UNDEFINED_UPDATE: "uninitialised", Kind.BARRIER: "barriers", Kind.NAN: "numerics", Kind.DENORMAL: "numerics",
}  # fmt: skip

_WARNINGS = {Kind.KERNARG, Kind.MISALIGNED, Kind.NAN, Kind.DENORMAL}


def explain_found(
    plan: Plan, kernel: KernelInfo, found: Sequence[NDArray[np.void]], buffers: Sequence[Buffer], grid: Dim3
) -> list[Finding]:
    """Findings in order of address.

    Args:
        found: one array a worker: a row for each instruction and kind.
    """
    findings = []
    for row in np.flatnonzero(np.sum([worker["count"] for worker in found], axis=0)):
        there = [worker[row] for worker in found if worker[row]["count"]]
        number, kind = divmod(int(row), len(Kind))
        if CHECK_OF[Kind(kind)] in plan.checks:
            explained = _Explained(plan, kernel, plan.instructions[number], Kind(kind), there, buffers, grid)
            if explained.concerns_caller:
                findings.append(explained.finding())
    return findings


class _Explained:
    def __init__(
        self, plan: Plan, kernel: KernelInfo, instruction: Instruction, kind: Kind, there: Sequence[np.void],
        buffers: Sequence[Buffer], grid: Dim3,
    ) -> None:  # fmt: skip
        self._plan, self._kernel, self._instruction, self._kind = plan, kernel, instruction, kind
        self._buffers, self._grid = buffers, grid
        self._first = there[0]
        self._count = sum(int(record["count"]) for record in there)
        self._address = int(self._first["address"])
        x, y, z = (int(self._first[f"group_{axis}"]) for axis in "xyz")
        self._group: Dim3 = (x, y, z)
        mask = int(self._first["lanes"])
        self._lanes = tuple(lane for lane in range(LANES) if mask >> lane & 1)
        self._in_lds = isinstance(find(instruction.mnemonic), Access) and self._touches_lds()

    def _touches_lds(self) -> bool:
        definition = find(self._instruction.mnemonic)
        assert isinstance(definition, Access)
        if definition.space == "lds":
            return True
        # Loads to LDS are watched at both ends; LDS addresses are small.
        direct = "lds" in self._instruction.modifiers or definition.to_lds
        return direct and self._address < 1 << 20

    @property
    def concerns_caller(self) -> bool:
        """False for a scalar load of unset memory that is no argument: where it goes is followed instead."""
        return self._kind is not Kind.KERNARG or self._argument() == "kernarg"

    def _argument(self) -> str:
        if self._in_lds or not self._address:
            return ""
        for buffer in self._buffers:
            if buffer.address <= self._address < buffer.address + buffer.nbytes:
                return buffer.name
        return ""

    def finding(self) -> Finding:
        """The sentence and its parts."""
        kernel, instruction = self._kernel, self._instruction
        who = f"workgroup {self._group} wave {self._first['wave']}"
        if self._lanes:
            who += f" {named_lanes(self._lanes)}"
        times = f" ({self._count:,}x)" if self._count > 1 else ""
        message = f"kernel {kernel.name} at {instruction.address:#x} `{instruction.text}`, {who}: {self._what()}{times}"
        severity = "warning" if self._kind in _WARNINGS else "error"
        return Finding(
            CHECK_OF[self._kind], message, severity, kernel.name, instruction.address, instruction.text,
            self._group, int(self._first["wave"]), self._lanes, self._argument(), self._count,
        )  # fmt: skip

    def _place(self) -> str:
        if self._in_lds:
            return f"LDS byte {self._address:,}"
        return locate(self._address, self._buffers)[1].removeprefix("at ")

    def _what(self) -> str:
        kind = self._kind
        if kind is Kind.UNDEFINED_ADDRESS:
            return "the address is made of values that nobody has written"
        if kind is Kind.UNDEFINED_STORE:
            return f"stores a value that nobody has written: {self._place()}"
        if kind is Kind.UNDEFINED_UPDATE:
            return f"adds to a value that nobody has written: {self._place()}"
        if kind is Kind.UNDEFINED_BRANCH:
            return "control flow depends on a value that nobody has written"
        if kind is Kind.KERNARG:
            offset = self._address - self._buffers[-1].address
            where = f"{offset:#x}..{offset + 3:#x}{self._field(offset)}"
            return f"reads argument bytes {where}, which the caller has not set"
        if kind is Kind.MISALIGNED:
            return f"the address is not aligned: {self._address:#x}, {self._place()}"
        if kind is Kind.EARLY_REGISTER:
            return f"{self._register()} is used before an s_waitcnt makes sure that its load has arrived"
        if kind is Kind.BARRIER:
            passed, others = int(self._first["value"]), int(self._first["other_at"])
            return f"ends after {passed} barriers, another wave of its workgroup after {others}"
        if kind is Kind.NAN:
            return "a NaN comes out of operands without one"
        if kind is Kind.DENORMAL:
            return "a denormal comes out of operands without one"
        return self._shared()

    def _field(self, offset: int) -> str:
        for argument in self._kernel.arguments:
            if argument.offset <= offset < argument.offset + argument.size:
                return f" ({argument.name})"
        return ""

    def _register(self) -> str:
        value = int(self._first["value"])
        file = "svax"[value >> 16]
        return {"x": "state"}.get(file, f"{file}{value & 0xFFFF}")

    def _other(self) -> str:
        other = self._plan.instructions[int(self._first["other_at"])]
        agent = int(self._first["other_agent"])
        where = f"{other.address:#x} `{other.text}`"
        return f"{where} of {self._agent(agent)}" if agent not in (0, MANY) else f"{where} of several workgroups"

    def _agent(self, agent: int) -> str:
        number, wave = divmod(agent - 1, 16)
        if self._kind is Kind.RACE_GROUPS:
            return f"workgroup {self._group_of(number)}"
        return f"wave {wave}"

    def _group_of(self, number: int) -> Dim3:
        x, y, _ = self._grid
        return number % x, number // x % y, number // (x * y)

    def _shared(self) -> str:
        if self._kind is Kind.EARLY_LDS:
            return f"reads {self._place()} before {self._other()} is sure to have arrived"
        verb = "reads" if self._is_load() else "writes"
        return f"{verb} {self._place()}, as {self._other()} does, with nothing to order the two{self._edge()}"

    def _is_load(self) -> bool:
        definition = find(self._instruction.mnemonic)
        assert isinstance(definition, Access)
        return definition.kind == "load" and not (self._in_lds and definition.space != "lds")

    def _edge(self) -> str:
        """Two stores to a row of an array, by workgroups at the two ends of the grid: the first has gone past the end
        of the row before.
        """
        buffer = next((one for one in self._buffers if one.name == self._argument()), None)
        if buffer is None or len(buffer.shape) != 2 or self._is_load():
            return ""
        row, rest = divmod(self._address - buffer.address, buffer.strides[0])
        if row == 0:
            return ""
        column = rest // max(1, buffer.strides[1])
        other = self._group_of((int(self._first["other_agent"]) - 1) // 16)
        last = self._grid[0] - 1
        if self._kind is Kind.RACE_GROUPS and {self._group[0], other[0]} != {0, last}:
            return ""
        return (
            f": N-edge overlap, the last tile of a row is stored past the row's {buffer.shape[1]} columns and into the "
            f"next row (column {column})"
        )
