"""The emulator as a device: every machine has it, and it runs the kernel's real machine code."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from asmlaunch.devices.base import Dim3, LaunchResult, host_memory
from asmlaunch.errors import LaunchError, TargetError

if TYPE_CHECKING:
    from asmlaunch.abi.arguments import Buffer
    from asmlaunch.codeobject import CodeObject, KernelInfo
    from asmlaunch.emulator.debug import Stepper
    from asmlaunch.emulator.prepare import CompiledKernel

#: Processors whose instructions are defined, and their LDS bytes a workgroup (CDNA3 and CDNA4 ISA manuals).
PROCESSORS = {"gfx942": 65536, "gfx950": 163840}

_STEPPING = ("trace", "breakpoints", "timeline")
_OPTIONS = ("schedule", "numerics", "max_instructions", "threads", "resident", "checks", "outputs", "unset", *_STEPPING)


class EmulatorDevice:
    """Runs kernels on the CPU.

    Options of :meth:`launch`:
        schedule: "barrier" (each wave runs to its next barrier), "lockstep" (waves advance together), "reverse" (as
            "barrier", the last workgroup and wave first) or "random(SEED)". Several, in a sequence or with commas
            between them, run one after the other from the same memory; what differs is a finding.
        numerics: "exact" (the default) or "cdna3": how matrix instructions round (``asmlaunch.emulator.isa.numerics``).
        max_instructions: wave-instructions a wave may execute before the run is called endless.
        threads: cores to use; by default all, or one for kernels with memory atomics, so that results do not vary.
        resident: workgroups alive at once on a core, by default 1; kernels that wait for other workgroups need more.
        checks: "bounds" (the default), "all", "off" or names from ``asmlaunch.emulator.checks.CHECKS``.
        outputs: names of buffers that hold nothing before the launch, for the check "uninitialised".
        unset: ranges of kernarg bytes, (start, end), that the caller has not set, for the check "kernarg".
        trace: an ``asmlaunch.emulator.trace.Trace``, or where to send one of all instructions (a callable or a path).
        breakpoints: address, or regular expression for an instruction's text -> what to call with an
            ``asmlaunch.emulator.debug.WaveState`` before it.
        timeline: path of a Chrome trace of waves and barriers to write.
    """

    name = "emulator"
    staged = staticmethod(host_memory)

    def __init__(self) -> None:
        self._prepared: dict[tuple[object, ...], CompiledKernel] = {}
        self._lock = threading.Lock()

    def supports(self, code_object: CodeObject) -> bool:
        """Whether the object's processor is emulated."""
        return code_object.target.processor in PROCESSORS

    def describe(self) -> str:
        """The processors it runs."""
        return ", ".join(PROCESSORS)

    def open(self, code_object: CodeObject) -> None:
        """Nothing to get ready or to keep: a kernel is compiled at its first launch."""

    def prepare(
        self,
        kernel: KernelInfo,
        *,
        waits: bool = False,
        full_exec: bool = True,
        checks: Sequence[str] = (),
        stops: frozenset[int] = frozenset(),
        numerics: str = "exact",
    ) -> CompiledKernel:
        """Decode and compile a kernel; a second call with the same machine code is free.

        Args:
            waits: let waves stop at every ``s_waitcnt``.
            full_exec: every wave starts with all 64 lanes on.
            checks: names of the checks to compile in.
            stops: addresses before which a wave must be able to stop.
            numerics: how matrix instructions round.

        Raises:
            TargetError: a processor that is not emulated.
            UnsupportedInstructionError: instructions that are not defined.
        """
        from asmlaunch.emulator.checks import COMPILED
        from asmlaunch.emulator.prepare import compile_kernel, identity

        if kernel.target.processor not in PROCESSORS:
            raise TargetError(
                f"target of kernel {kernel.name}", got=kernel.target, need=f"one of {self.describe()} for the emulator"
            )
        compiled_in = tuple(name for name in checks if name in COMPILED)
        key = identity(kernel, waits, full_exec, compiled_in, stops, numerics)
        with self._lock:
            if key not in self._prepared:
                self._prepared[key] = compile_kernel(
                    kernel, waits=waits, full_exec=full_exec, checks=compiled_in, stops=stops, numerics=numerics
                )
            return self._prepared[key]

    def launch(
        self,
        kernel: KernelInfo,
        code_object: CodeObject,
        kernarg: bytes,
        *,
        grid: Dim3,
        block: Dim3,
        dynamic_lds: int = 0,
        buffers: Sequence[Buffer] = (),
        **options: Any,
    ) -> LaunchResult:
        """Run the grid and wait for its end (see :class:`asmlaunch.devices.base.Device`).

        Raises:
            EmulationError: what the emulator cannot run, or what the kernel did wrong; its subclasses say which.
            LaunchError: limits exceeded, or an option there is not.
        """
        from asmlaunch.emulator import fidelity, machine
        from asmlaunch.emulator.checks import select
        from asmlaunch.emulator.checks.allocation import beyond
        from asmlaunch.emulator.checks.schedule import compared
        from asmlaunch.emulator.isa.numerics import NUMERICS
        from asmlaunch.emulator.schedule import chosen, schedule_of
        from asmlaunch.emulator.trace import Profile

        start = time.perf_counter()
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise LaunchError("launch option", got=", ".join(unknown), need=f"one of {', '.join(_OPTIONS)}")
        schedules = chosen(options.pop("schedule", "barrier"))
        if len(schedules) > 1:
            again = partial(
                self.launch, kernel, code_object, kernarg, grid=grid, block=block, dynamic_lds=dynamic_lds,
                buffers=buffers, **options,
            )  # fmt: skip
            return compared(kernel.name, schedules, buffers, lambda name: again(schedule=name))
        schedule = schedule_of(schedules[0])
        numerics = options.pop("numerics", "exact")
        if numerics not in NUMERICS:
            raise LaunchError("numerics", got=repr(numerics), need=f"one of {', '.join(NUMERICS)}")
        checks = select(options.pop("checks", "bounds"))
        full_exec = block[0] * block[1] * block[2] % kernel.wavefront_size == 0
        stepper = _stepper({name: options.pop(name) for name in _STEPPING if name in options})
        prepare = partial(
            self.prepare, kernel, waits=schedule.waits, full_exec=full_exec, checks=checks, numerics=numerics
        )
        compiled = prepare()
        if stepper is not None:
            compiled = prepare(stops=stepper.stops(compiled.program))
        machine.check_launch(kernel, grid, block, dynamic_lds, PROCESSORS[kernel.target.processor])
        done = machine.run(
            compiled,
            kernarg,
            grid=grid,
            block=block,
            dynamic_lds=dynamic_lds,
            buffers=buffers,
            schedule=schedule,
            stepper=stepper,
            noticed=beyond(compiled.program) if "registers" in checks else (),
            **options,
        )
        seconds = time.perf_counter() - start
        report = fidelity.report(compiled.program, done.counts, checks, done.findings)
        profile = Profile(compiled.program, done.counts)
        return LaunchResult(seconds, self.name, done.findings, done.instructions, report, profile)


def _stepper(wanted: dict[str, Any]) -> Stepper | None:
    """What a launch wants of a run step by step, None if nothing."""
    from asmlaunch.emulator.debug import Stepper
    from asmlaunch.emulator.trace import Trace

    if not any(wanted.values()):
        return None
    trace = wanted.get("trace")
    if trace is not None and not isinstance(trace, Trace):
        trace = Trace(trace)
    return Stepper(trace, wanted.get("breakpoints") or {}, wanted.get("timeline"))
