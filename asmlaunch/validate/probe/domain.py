"""The sizes on which a kernel is right: the step of each, the smallest, and what happens outside.

One size is varied at a time, from a problem on which the kernel is right. Nothing of the family's declared domain is
used: every answer is a launch whose result was compared with float64.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.errors import ArgumentError, AsmlaunchError
from asmlaunch.module import Kernel
from asmlaunch.validate.probe.contraction import CONTRACTIONS
from asmlaunch.validate.probe.rig import Observation, Rig, declared
from asmlaunch.validate.problems import Case

#: Steps that are tried, the smallest first.
STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 224, 256, 384, 512, 640, 768, 896, 1024)

#: Multiples of a step, beyond the problem's own size, that all have to be right.
_MULTIPLES = (1, 3, 5)

#: Sizes below which a smallest one is looked for, as multiples of the step.
_SMALLEST = 8

RIGHT = "right"


@dataclass(frozen=True)
class Trial:
    """A size and what the kernel did: ``"right"``, or what was wrong."""

    value: int
    outcome: str
    outside: int = 0

    @property
    def right(self) -> bool:
        """Whether the result was right."""
        return self.outcome == RIGHT


@dataclass(frozen=True)
class SizeProbe:
    """What was found for one size.

    Attributes:
        name: the size, a field of the problem's case.
        step: its multiples are right; None where no step of those tried is.
        smallest: the smallest right multiple of the step.
        trials: every size tried.
    """

    name: str
    step: int | None
    smallest: int | None
    trials: tuple[Trial, ...]

    @property
    def wrong(self) -> tuple[Trial, ...]:
        """The sizes on which the kernel was not right, in order."""
        return tuple(sorted((one for one in self.trials if not one.right), key=lambda one: one.value))

    @property
    def outside(self) -> str:
        """What happens off the steps, in one line: an example of each kind."""
        kinds: dict[str, Trial] = {}
        for one in self.wrong:
            kinds.setdefault(one.outcome.split(":")[0].split(",")[0], one)
        return "; ".join(f"{self.name}={one.value} {one.outcome}" for one in kinds.values()) or "always right"


@dataclass(frozen=True)
class DomainProbe:
    """What a domain probe found.

    Attributes:
        kernel: its name.
        base: the problem that sizes were varied from.
        sizes: what was found for each.
        overrun: of right results, the most elements written outside of the result.
        launches: how many it took.
        seconds: wall time.
    """

    kernel: str
    base: Case
    sizes: tuple[SizeProbe, ...]
    overrun: int
    launches: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "kernel": self.kernel,
            "base": str(self.base),
            "sizes": [
                {"name": one.name, "step": one.step, "smallest": one.smallest, "outside": one.outside,
                 "trials": [dataclasses.asdict(trial) for trial in one.trials]}
                for one in self.sizes
            ],
            "overrun": self.overrun,
            "launches": self.launches,
            "seconds": self.seconds,
        }  # fmt: skip


def probe_domain(
    kernel: Kernel, *, names: tuple[str, ...] | None = None, base: Case | None = None, **options: Any
) -> DomainProbe:
    """Find the sizes on which a kernel is right.

    Args:
        names: fields of the problem's case; by default those without a default.
        base: the problem to start from; by default one of whole tiles.
        options: launch options of the device.

    Raises:
        KernelNotFoundError: no declared problems. ArgumentError: a name that is none, or a base on which the kernel is
            wrong.
    """
    start = time.perf_counter()
    definition = declared(kernel)
    parameters = definition.parameters(kernel.info)
    if base is None:
        base = definition.cases(parameters)[0]
        if definition.name in CONTRACTIONS:
            m, n, k = CONTRACTIONS[definition.name].sizes(parameters)[1]
            base = definition.case(m=m, n=n, k=k)  # type: ignore[call-arg]
    fields = {entry.name: entry for entry in dataclasses.fields(base) if isinstance(getattr(base, entry.name), int)}
    if names is None:
        names = tuple(name for name, entry in fields.items() if entry.default is dataclasses.MISSING)
    for name in names:
        if name not in fields:
            raise ArgumentError("size", got=name, need=f"some of {', '.join(fields)}")
    launcher = _Launcher(kernel, options)
    first = launcher.trial(base, names[0], getattr(base, names[0]))
    if not first.right:
        raise ArgumentError(f"problem {base} of {kernel.name}", got=first.outcome, need="one on which it is right")
    found = tuple(_search(launcher, base, name) for name in names)
    overrun = max([first.outside, *(t.outside for one in found for t in one.trials if t.right)])
    return DomainProbe(kernel.name, base, found, overrun, launcher.launches, time.perf_counter() - start)


def _search(launcher: _Launcher, base: Case, name: str) -> SizeProbe:
    middle: int = getattr(base, name)
    trials: dict[int, Trial] = {}

    def right(value: int) -> bool:
        if value not in trials:
            trials[value] = launcher.trial(base, name, value)
        return trials[value].right

    step = None
    for candidate in STEPS:
        if middle % candidate == 0 and all(right(middle + count * candidate) for count in _MULTIPLES):
            step = candidate
            break
    smallest = None
    if step is not None:
        smallest = next((step * count for count in range(1, _SMALLEST + 1) if right(step * count)), None)
    right(0)
    return SizeProbe(name, step, smallest, tuple(trials.values()))


class _Launcher:
    def __init__(self, kernel: Kernel, options: dict[str, Any]) -> None:
        self._kernel, self._options, self.launches = kernel, options, 0
        self._first: Observation | None = None

    def trial(self, base: Case, name: str, value: int) -> Trial:
        try:
            with np.errstate(all="ignore"):  # a size of 0 is one of those tried
                rig = Rig(self._kernel, dataclasses.replace(base, **{name: value}), **self._options)
        except (AsmlaunchError, ZeroDivisionError) as error:
            return Trial(value, f"no launch: {error}")
        self.launches += 1
        rig.limit(self._first)
        seen = rig.run()
        self._first = self._first or seen
        outside = rig.outside()
        if seen.error is not None:
            return Trial(value, f"{seen.ended}: {seen.error}" if seen.ended == "error" else seen.ended, outside)
        try:
            with np.errstate(all="ignore"):
                compared = [output.compare() for output in rig.problem.outputs]
        except (AsmlaunchError, ValueError):  # a reference of no elements, or of none but NaN
            return Trial(value, "nothing to compare", outside)
        spilled = rig.spilled()
        if all(one.passed for one in compared) and not spilled:
            return Trial(value, RIGHT, outside)
        equal = min((one.equal_fraction for one in compared), default=0.0)
        text = "wrong" if compared and compared[0].elements else "writes nothing"
        if text == "wrong":
            text += f", {equal:.0%} of the elements right"
        return Trial(value, text + (f", {spilled} written outside" if spilled else ""), outside)
