"""Running a kernel step by step: breakpoints, traced instructions and a timeline.

The same native code as always, with blocks that end where something is wanted of the run; the loop over waves and
blocks is in Python here, so this is for looking, not for speed.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.devices.base import Dim3
from asmlaunch.emulator.decode import EXEC, Instruction
from asmlaunch.emulator.program import Program
from asmlaunch.emulator.schedule import turn
from asmlaunch.emulator.state import LANES, VGPRS, WAVE, Status
from asmlaunch.emulator.trace import Event, Timeline, Trace, named_register
from asmlaunch.errors import ArgumentError

if TYPE_CHECKING:
    from asmlaunch.emulator.machine import Job, Worker

Callback = Callable[["WaveState"], Any]


class WaveState:
    """A wave that stands still, before the instruction at ``address``. Its registers are views: writing changes them.

    Attributes:
        workgroup, wave: which wave.
        address, text: the instruction that comes next.
    """

    def __init__(self, wave: np.void, lds: NDArray[np.uint8], instruction: Instruction) -> None:
        self._wave = wave
        self.lds = lds
        x, y, z = (int(number) for number in wave["group_id"])
        self.workgroup: Dim3 = (x, y, z)
        self.wave = int(wave["id"])
        self.address, self.text = instruction.address, instruction.text

    @property
    def v(self) -> NDArray[np.uint32]:
        """VGPRs, ``[256, 64]`` u32."""
        registers: NDArray[np.uint32] = self._wave["vgpr"][: VGPRS // 2]
        return registers

    @property
    def a(self) -> NDArray[np.uint32]:
        """AccVGPRs, ``[256, 64]`` u32."""
        registers: NDArray[np.uint32] = self._wave["vgpr"][VGPRS // 2 :]
        return registers

    @property
    def s(self) -> NDArray[np.uint32]:
        """SGPRs, ``[128]`` u32."""
        registers: NDArray[np.uint32] = self._wave["sgpr"]
        return registers

    @property
    def exec(self) -> int:
        """The EXEC mask."""
        return int(self.s[EXEC]) | int(self.s[EXEC + 1]) << 32

    @property
    def scc(self) -> int:
        """The scalar condition code."""
        return int(self._wave["scc"])

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which of the 64 lanes are on."""
        return (np.array(self.exec, np.uint64) >> np.arange(LANES, dtype=np.uint64) & np.uint64(1)).astype(np.bool_)

    def __getitem__(self, name: str) -> NDArray[np.uint32]:
        """Registers by their assembler name: ``state["v[2:3]"]`` is ``[2, 64]``, ``state["s4"]`` is ``[1]``."""
        register = named_register(name)
        file = {"s": self.s, "v": self.v, "a": self.a}[register.file]
        return file[register.index : register.index + register.count]


@dataclass
class Stepper:
    """What is wanted of a run.

    Attributes:
        trace: instructions to trace.
        breakpoints: what to call before an instruction: by its address, or by a regular expression for its text.
        timeline: path of a Chrome trace to write.
        executed: wave-instructions of the last run.
    """

    trace: Trace | None = None
    breakpoints: Mapping[int | str, Callback] = field(default_factory=dict)
    timeline: str | None = None
    executed: int = 0

    def callbacks(self, program: Program) -> dict[int, list[Callback]]:
        """The callbacks by address.

        Raises:
            ArgumentError: a breakpoint that no instruction of the kernel meets.
        """
        found: dict[int, list[Callback]] = {}
        for where, callback in self.breakpoints.items():
            there = [one for one in program.instructions() if _meets(one, where)]
            if not there:
                shown = f"{where:#x}" if isinstance(where, int) else repr(where)
                raise ArgumentError(
                    f"breakpoint of kernel {program.kernel.name}", got=shown,
                    need="the address of an instruction, or a pattern that the text of one meets",
                )  # fmt: skip
            for instruction in there:
                found.setdefault(instruction.address, []).append(callback)
        return found

    def stops(self, program: Program) -> frozenset[int]:
        """Addresses at which a wave must be able to stop: before breakpoints, before and after traced instructions."""
        stops = set(self.callbacks(program))
        if self.trace is not None:
            for instruction in program.instructions():
                if self.trace.wants(instruction):
                    stops |= {instruction.address, instruction.end}
        return frozenset(stops)

    def run(self, worker: Worker, job: Job) -> Status:
        """Run all workgroups, one after the other, on the caller's thread."""
        with ExitStack() as stack:
            sink = stack.enter_context(self.trace.open()) if self.trace else None
            run = _Run(self, worker, job, sink)
            status = run.all_groups()
        self.executed = run.clock
        if self.timeline is not None:
            Path(self.timeline).write_text(run.timeline.to_json())
        return status


def _meets(instruction: Instruction, where: int | str) -> bool:
    if isinstance(where, int):
        return instruction.address == where
    return re.search(where, instruction.text) is not None


class _Run:
    def __init__(self, stepper: Stepper, worker: Worker, job: Job, sink: Callable[[Event], Any] | None) -> None:
        self._trace, self._sink, self._worker, self._job = stepper.trace, sink, worker, job
        self._program = job.compiled.program
        self._callbacks = stepper.callbacks(self._program)
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        self._functions = [kind(int(address)) for address in job.compiled.table]
        self.timeline = Timeline()
        self.clock = 0
        self._random = job.schedule.random
        self._spans: dict[int, int] = {}  # wave -> when it began to run or to wait

    def all_groups(self) -> Status:
        x, y, z = self._job.grid
        for number in self._job.schedule.numbers(x * y * z):
            status = self._group(number, (number % x, number // x % y, number // (x * y)))
            if status is not Status.ENDED:
                return status
        return Status.ENDED

    def _group(self, number: int, position: Dim3) -> Status:
        waves, group = self._worker.enter(position)
        self._spans = dict.fromkeys(range(len(waves)), self.clock)
        quantum = self._job.schedule.quantum
        ready = True
        while ready:
            ready = False
            for index in range(len(waves)):
                if waves[index]["status"] != Status.READY:
                    continue
                ready = True
                length = quantum
                if self._random:
                    self._random, missed, length = turn(self._random)
                    if missed:
                        continue
                status = self._turn(number, waves, index, length)
                if status >= Status.FAULT:
                    return status
                if status in (Status.BARRIER, Status.ENDED):
                    self._span(number, waves[index], "run")
                    if status is Status.BARRIER:
                        group["waiting"] += 1
                    else:
                        group["alive"] -= 1
                    self._release(number, waves, group)
        return Status.ENDED

    def _release(self, number: int, waves: NDArray[np.void], group: NDArray[np.void]) -> None:
        """When every wave that is alive waits, all go on."""
        if group["waiting"][0] != group["alive"][0] or not group["waiting"][0]:
            return
        group["waiting"] = 0
        self.timeline.mark(number, "barrier", self.clock)
        for index in np.flatnonzero(waves["status"] == Status.BARRIER).tolist():
            waves[index]["status"] = Status.READY
            self._span(number, waves[index], "wait")

    def _span(self, number: int, wave: np.void, name: str) -> None:
        identity = int(wave["id"])
        start, self._spans[identity] = self._spans[identity], self.clock
        if self.clock > start:
            self.timeline.span(number, identity, name, start, self.clock)

    def _turn(self, number: int, waves: NDArray[np.void], index: int, quantum: int) -> Status:
        """Run one wave for at most ``quantum`` blocks or until its status changes."""
        wave = waves[index]
        address = waves.ctypes.data + index * WAVE.itemsize
        for _ in range(quantum):
            block = self._program.blocks[int(wave["block"])]
            first = block.instructions[0]
            for callback in self._callbacks.get(first.address, ()):
                callback(self._state(wave, first))
            wave["block"] = self._functions[block.index](address)
            self.clock += len(block.instructions)
            if self._sink and self._trace and len(block.instructions) == 1 and self._trace.wants(first):
                self._event(wave, first)
            if wave["status"] == Status.READY and wave["budget"] < 0:
                wave["status"] = Status.BUDGET
            if wave["status"] != Status.READY:
                break
        return Status(int(wave["status"]))

    def _state(self, wave: np.void, instruction: Instruction) -> WaveState:
        return WaveState(wave, self._worker.lds, instruction)

    def _event(self, wave: np.void, instruction: Instruction) -> None:
        assert self._trace is not None
        assert self._sink is not None
        state = self._state(wave, instruction)
        if not self._trace.follows(state.workgroup, state.wave):
            return
        registers = {}
        for register in self._trace.shown(instruction):
            for number, value in enumerate(state[str(register)]):
                registers[f"{register.file}{register.index + number}"] = np.array(value)
        self._sink(Event(state.workgroup, state.wave, instruction.address, instruction.text, registers))
