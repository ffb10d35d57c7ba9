"""Launches with a mistake in them, executed on the emulator: what float64 cannot predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from asmlaunch.abi import bind, hidden_values
from asmlaunch.abi.arguments import Buffer, resolve
from asmlaunch.errors import AsmlaunchError, LaunchError
from asmlaunch.module import load

if TYPE_CHECKING:
    from asmlaunch.devices.base import Dim3, LaunchResult
    from asmlaunch.module import Kernel
    from asmlaunch.validate.problems.base import Output, Problem

_MOST_INSTRUCTIONS = 30_000_000  # wave-instructions of the right launch: some seconds, for each hypothesis


@dataclass(frozen=True)
class Launch:
    """One launch.

    Attributes:
        values: the arguments by canonical name, pointers as addresses.
        buffers: the arrays behind the pointers.
        grid: workgroups; None for what the launch rule makes of ``values``.
        change: what happens to the packed argument bytes.
        options: the emulator's.
    """

    values: Mapping[str, Any]
    buffers: Mapping[str, Buffer]
    grid: Dim3 | None = None
    change: Callable[[bytes], bytes] | None = None
    options: Mapping[str, Any] | None = None

    def with_values(self, **values: Any) -> Launch:
        """With some arguments replaced."""
        return replace(self, values={**self.values, **values})

    def with_array(self, name: str, array: np.ndarray) -> Launch:
        """With another array behind a pointer."""
        address, buffer = resolve(name, array)
        assert buffer is not None
        return replace(self, values={**self.values, name: address}, buffers={**self.buffers, name: buffer})


@dataclass(frozen=True)
class Relaunch:
    """A hypothesis that is executed: as ``hypothesis.Hypothesis``, but that ``change`` is one of the launch."""

    kind: str
    subject: str
    text: str
    fix: str
    cost: int
    change: Callable[[Launch], Launch]


class Emulator:
    """A kernel on the emulator, launched over and over from the same memory.

    Args:
        kernel: on any device.
        problem: what it is to compute, one launch; its arrays are written.

    Attributes:
        right: the launch as it should be; its ``results`` by output, its ``grid``, and the ``instructions`` it takes.
        spilled: whether the last run wrote next to the results.

    Raises:
        LaunchError: several launches that run together, or a launch too long to be repeated for every hypothesis.
        AsmlaunchError: what the emulator cannot run.
    """

    def __init__(self, kernel: Kernel, problem: Problem) -> None:
        if len(problem.launches) != 1:
            raise LaunchError("launches", got=len(problem.launches), need="one, for hypotheses on the emulator")
        on_gpu = kernel.device.name != "emulator"
        self.kernel = load(kernel.code_object.data, device="emulator")[kernel.name] if on_gpu else kernel
        self.problem = problem
        values, buffers = bind(self.kernel.schema, problem.launches[0])
        self.right = Launch(values, buffers, options=dict(problem.options))
        self._arrays = [buffer.owner for buffer in buffers.values() if isinstance(buffer.owner, np.ndarray)]
        self._start = [array.copy() for array in self._arrays]
        self._budget = _MOST_INSTRUCTIONS
        self.spilled = False
        result = self._launch(self.right)
        self.results = self._copies()
        # A wave of a mistaken launch that runs longer than all of the right one together is not going to end.
        self.instructions = result.instructions or 0
        self._budget = max(10_000, self.instructions)
        self.grid = self._grid(self.right)

    def run(self, launch: Launch) -> list[np.ndarray] | None:
        """The results by output, of the same memory as before; None where the launch fails."""
        start = [output.around.whole.copy() if output.around else None for output in self._reset()]
        try:
            self._launch(launch)
        except (AsmlaunchError, ZeroDivisionError, OverflowError):
            return None
        self.spilled = any(
            output.around is not None and before is not None and output.around.spilled(before) > 0
            for output, before in zip(self.problem.outputs, start, strict=True)
        )
        return self._copies()

    def step(self, launch: Launch, **options: Any) -> None:
        """Run a launch with breakpoints or a trace; the outputs hold what comes of it.

        Raises:
            AsmlaunchError: the launch fails.
        """
        self._launch(launch, **options)

    def findings(self, checks: str) -> tuple[str, ...]:
        """What the checks say of the right launch."""
        return tuple(map(str, self._launch(self.right, checks=checks).findings))

    def grid_of(self, launch: Launch) -> Dim3 | None:
        """What the launch rule makes of the arguments; None where it cannot."""
        try:
            return self._grid(launch)
        except (AsmlaunchError, ZeroDivisionError):
            return None

    def _reset(self) -> tuple[Output, ...]:
        """All memory as it was before the first launch."""
        for array, start in zip(self._arrays, self._start, strict=True):
            array[...] = start
        return self.problem.outputs

    def _copies(self) -> list[np.ndarray]:
        return [output.result.copy() for output in self.problem.outputs]

    def _grid(self, launch: Launch) -> Dim3:
        assert self.kernel.family is not None
        return self.kernel.family.launch(self.kernel.info, launch.values, launch.buffers).grid

    def _launch(self, launch: Launch, **options: Any) -> LaunchResult:
        kernel = self.kernel
        assert kernel.family is not None
        self._reset()
        rule = kernel.family.launch(kernel.info, self.right.values, self.right.buffers)
        grid = launch.grid or self._grid(launch)
        for name in rule.zero:
            owner = self.right.buffers[name].owner
            assert isinstance(owner, np.ndarray)
            owner[...] = 0
        hidden = hidden_values(kernel.schema, grid, rule.block, rule.dynamic_lds)
        kernarg = kernel.schema.pack({**launch.values, **hidden})
        if launch.change is not None:
            kernarg = launch.change(kernarg)
        given = {"max_instructions": self._budget, "checks": "bounds", **(launch.options or {}), **options}
        return kernel.device.launch(
            kernel.info, kernel.code_object, kernarg, grid=grid, block=rule.block, dynamic_lds=rule.dynamic_lds,
            buffers=tuple(launch.buffers.values()), **given,
        )  # fmt: skip
