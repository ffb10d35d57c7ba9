"""The search: every single mistake, then pairs, from the likely to the unlikely; and what is concluded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from asmlaunch.errors import AsmlaunchError
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.compare import Bound, fits
from asmlaunch.validate.diagnose import factors, layouts, numbers, operands, sums
from asmlaunch.validate.diagnose.emulated import Emulator, Launch, Relaunch
from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.diagnose.sample import choose
from asmlaunch.validate.model import Model
from asmlaunch.validate.reference import Reference

Mistake = Hypothesis | Relaunch


@dataclass(frozen=True)
class Explanation:
    """One or two mistakes that give the result.

    Attributes:
        mistakes: what was done.
        explained: fraction of the wrong elements that are as predicted.
        whole: whether the whole result is.
        how: "float64" or "emulator", what the prediction comes from.
    """

    mistakes: tuple[Mistake, ...]
    explained: float
    whole: bool
    how: str

    @property
    def cost(self) -> int:
        """How unlikely it is."""
        return sum(one.cost for one in self.mistakes)

    @property
    def about(self) -> tuple[tuple[str, str], ...]:
        """Kinds and subjects."""
        return tuple((one.kind, one.subject) for one in self.mistakes)

    @property
    def text(self) -> str:
        """What was done, in words."""
        return "; and ".join(one.text for one in self.mistakes)

    @property
    def fix(self) -> str:
        """The lines that would be right."""
        return "; ".join(one.fix for one in self.mistakes if one.fix)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        mistakes = [{name: getattr(one, name) for name in ("kind", "subject", "text", "fix")} for one in self.mistakes]
        return {"mistakes": mistakes, "explained": self.explained, "whole": self.whole, "how": self.how}


@dataclass(frozen=True)
class Wrong:
    """A wrong result.

    Attributes:
        result: bits or numbers, as ``validate.compare`` takes them.
        bound: what a right result keeps.
        reference: what it should be.
        before: float64, what was there before the launch; None where that is not known.
    """

    result: np.ndarray
    bound: Bound
    reference: Reference
    before: np.ndarray | None = None

    @property
    def elements(self) -> np.ndarray:
        """Which elements are wrong; where none is beyond its bound, those that are not equal."""
        right, _ = fits(self.result, self.reference, self.bound)
        return ~right if not right.all() else np.ones_like(right)


def hypotheses(model: Model, wrong: Wrong) -> Iterator[Hypothesis]:
    """Everything that float64 can predict."""
    yield from layouts.hypotheses(model)
    yield from numbers.hypotheses(model, wrong.result)
    yield from factors.hypotheses(model)
    yield from operands.hypotheses(model)
    yield from sums.hypotheses(model, wrong.before)


@dataclass(frozen=True)
class Tried:
    """A mistake that changes something, and the state it leads to."""

    hypothesis: Hypothesis
    state: State


class Predictions:
    """Hypotheses evaluated in float64, each effect once.

    Args:
        model: of the problem.
        wrong: the result to explain.
    """

    def __init__(self, model: Model, wrong: Wrong) -> None:
        self.model, self.wrong = model, wrong
        self.tried = 0
        self._start = State(model.inputs)
        self._wrong = wrong.elements
        self._sample = choose(model, self._wrong)
        self._seen: dict[Any, Explanation | None] = {self._key(self._start): None}

    def singles(self) -> tuple[list[Explanation], list[Tried]]:
        """What each mistake alone explains, and those that change anything."""
        with np.errstate(all="ignore"):
            part = to_float64(self._sample.of(self.wrong.result))
            fitted = [*factors.fitted(self._sample, part), *sums.lost(self._sample, part)]
        declared = list(hypotheses(self.model, self.wrong))
        ordered = sorted([*declared, *fitted], key=lambda one: one.cost)
        found, states = [], []
        for one in ordered:
            state, explanation = self._explained((one,), self._start)
            if explanation is not None:
                found.append(explanation)
            if state is not None and one in declared:
                states.append(Tried(one, state))
        return found, states

    def pairs(self, states: Sequence[Tried], most: int, advance: Callable[[], Any]) -> list[Explanation]:
        """What two mistakes together explain; none when one of them does already."""
        found = []
        chosen = sorted(
            (
                (first, second) for first, second in combinations(states, 2)
                if (first.hypothesis.kind, first.hypothesis.subject)
                != (second.hypothesis.kind, second.hypothesis.subject)
            ),
            key=lambda pair: pair[0].hypothesis.cost + pair[1].hypothesis.cost,
        )  # fmt: skip
        for first, second in chosen[:most]:
            advance()
            _, explanation = self._explained((first.hypothesis, second.hypothesis), first.state)
            if explanation is not None and explanation.whole:
                found.append(explanation)
        return found

    def _explained(self, mistakes: tuple[Hypothesis, ...], start: State) -> tuple[State | None, Explanation | None]:
        """The state after the last mistake, None where it cannot be made or its effect is not new; and what the
        mistakes explain, None where that is no wrong element."""
        try:
            state = mistakes[-1].change(start)
        except (AsmlaunchError, ValueError):
            return None, None
        key = self._key(state)
        if key in self._seen:
            known = self._seen[key]
            return None, None if known is None else replace(known, mistakes=mistakes)
        self._seen[key] = found = self._judged(mistakes, state)
        return state, found

    def _predicted(self, state: State) -> Reference:
        known = state.inputs is self._start.inputs
        return state.finished(self.wrong.reference) if known else state.predict(self.model)

    def _key(self, state: State) -> tuple[Any, ...]:
        """Equal for states of equal effect."""
        right = self.model.operands
        values = tuple(
            (name, hashlib.blake2b(array.tobytes()).digest())
            for name, array in sorted(state.inputs.values.items())
            if array is not right[name].values
            and not (array.shape == right[name].values.shape and array.tobytes() == right[name].values.tobytes())
        )
        forms = tuple(sorted(state.inputs.forms.items()))
        return values, forms, tuple(sorted(state.inputs.factors.items())), state.after, state.rounding

    def _judged(self, mistakes: tuple[Hypothesis, ...], state: State) -> Explanation | None:
        self.tried += 1
        bound = state.bound(self.wrong.bound)
        try:
            with np.errstate(all="ignore"):
                if not state.after:
                    part = self._sample.evaluate(state.inputs)
                    if fits(self._sample.of(self.wrong.result), part, bound)[0].mean() < 0.5:
                        return None
                right, whole = fits(self.wrong.result, self._predicted(state), bound)
        except (AsmlaunchError, ValueError):
            return None
        explained = float(right[self._wrong].mean())
        return Explanation(mistakes, explained, whole, "float64") if explained else None


class Executions:
    """Hypotheses executed on the emulator.

    Args:
        emulator: the kernel and its right launch.
        wrong: the result to explain.
        output: number of the output that it is.
    """

    def __init__(self, emulator: Emulator, wrong: Wrong, output: int) -> None:
        self.emulator, self.wrong, self.output = emulator, wrong, output
        self.tried = 0
        self._wrong = wrong.elements
        self._seen: dict[bytes, Explanation | None] = {self._key(emulator.results): None}

    def reproduced(self) -> tuple[float, bool]:
        """How many of the wrong elements (a fraction) the launch as it should be has wrong as well, and whether it
        gives the whole wrong result."""
        bad = Wrong(self.emulator.results[self.output], self.wrong.bound, self.wrong.reference)
        right, _ = fits(bad.result, bad.reference, bad.bound)
        return float((~right)[self._wrong].mean()), self._fits(self.emulator.results)[1]

    def singles(self, mistakes: Iterable[Relaunch], advance: Callable[[], Any]) -> list[Explanation]:
        """What each mistake explains."""
        found = []
        for one in mistakes:
            advance()
            changed = one.change(self.emulator.right)
            launches = [changed]
            if self.emulator.grid_of(changed) not in (None, self.emulator.grid):
                launches.append(replace(changed, grid=self.emulator.grid))
            for launch in launches:
                explanation = self._explained(one, launch)
                if explanation is not None:
                    found.append(explanation)
        return found

    def _explained(self, mistake: Relaunch, launch: Launch) -> Explanation | None:
        self.tried += 1
        results = self.emulator.run(launch)
        if results is None:
            return None
        key = self._key(results)
        if key not in self._seen:
            right, whole = self._fits(results)
            if self._fits(results, self.emulator.results[self.output])[1]:
                right[...] = whole = False  # a mistake without an effect
            explained = float(right[self._wrong].mean())
            self._seen[key] = Explanation((mistake,), explained, whole, "emulator") if explained else None
        known = self._seen[key]
        if known is None:
            return None
        # Such a launch would have been noticed by what it writes next to the result.
        noticed = replace(mistake, cost=mistake.cost + 4) if self.emulator.spilled else mistake
        return replace(known, mistakes=(noticed,))

    def _fits(self, results: list[np.ndarray], result: np.ndarray | None = None) -> tuple[np.ndarray, bool]:
        """How the wrong result (or another) fits what a launch gave: two right results may be twice as far from each
        other as from the reference."""
        result = self.wrong.result if result is None else result
        bound = self.wrong.bound
        twice = replace(
            bound,
            equal_fraction=max(0.0, 2 * bound.equal_fraction - 1),
            relative=2 * bound.relative,
            cancellation=2 * bound.cancellation,
            of_max=2 * bound.of_max,
            absolute=2 * bound.absolute,
        )
        found = results[self.output]
        predicted = Reference(to_float64(found), self.wrong.reference.magnitude, 2 * self.wrong.reference.slack)
        with np.errstate(all="ignore"):
            right, whole = fits(result, predicted, twice)
        # An element that was not written is no NaN that was computed.
        unlike = _unwritten(found) != _unwritten(result)
        return right & ~unlike, whole and not unlike.any()

    def _key(self, results: list[np.ndarray]) -> bytes:
        return hashlib.blake2b(results[self.output].tobytes()).digest()


def _unwritten(array: np.ndarray) -> np.ndarray:
    """Which elements have all bits set, as outputs have before a launch."""
    bits = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, -1)
    return np.asarray((bits == 0xFF).all(axis=-1))
