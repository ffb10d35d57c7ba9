"""Sums that were not started at zero, were added twice, or lack parts of K."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.diagnose.sample import Sample
from asmlaunch.validate.model import Model
from asmlaunch.validate.reference import Reference

_MOST = 32  # blocks of K to solve for
_EQUATIONS = 20_000
_SIZES = (256, 128, 64, 32)


def hypotheses(model: Model, before: np.ndarray | None) -> Iterator[Hypothesis]:
    """Results added to what was there.

    Args:
        before: float64, what the result's memory held before the launch; None where that is not known.
    """
    fix = "fill the result with zeros before every launch"
    if before is not None and np.isfinite(before).all() and before.any():
        text = "the result was added to what was there: the memory was not zeroed before the launch"
        yield Hypothesis("accumulation", "result", text, fix, 1, partial(_added, before=before))
    text = "the result was added twice: the memory was not zeroed between two launches"
    cost = 2 if model.parts else 4
    yield Hypothesis("accumulation", "result", text, fix, cost, _twice)


def _added(state: State, before: np.ndarray) -> State:
    return state.then(lambda r: Reference(r.value + before, r.magnitude + np.abs(before), r.slack))


def _twice(state: State) -> State:
    return state.then(lambda r: Reference(2 * r.value, 2 * r.magnitude, r.slack))


def lost(sample: Sample, result: np.ndarray) -> Iterator[Hypothesis]:
    """Blocks of K that the result lacks or holds twice.

    The result is written as a combination of the blocks' own sums; where the best factors are whole numbers and not all
    1, they are the hypothesis.

    Args:
        sample: of the result.
        result: float64, the sample's part.
    """
    model, inputs = sample.model, sample.model.inputs
    found = ((name, o, o.axes.index("k")) for name, o in model.operands.items() if "k" in o.axes)
    name, operand, axis = next(found, ("", None, 0))
    if operand is None:
        return
    codes = 2 if operand.form == "mxfp4" else 1  # in an item
    k = codes * operand.values.shape[axis]
    base = sample.evaluate(inputs.with_values(**{name: np.zeros_like(operand.values)})).value
    for size in dict.fromkeys([*([model.parts] if model.parts else []), *_SIZES]):
        if not 2 <= -(-k // size) <= _MOST:
            continue
        blocks = np.arange(operand.values.shape[axis]) * codes // size
        sums = []
        for number in range(blocks[-1] + 1):
            only = _only(operand.values, axis, blocks == number)
            sums.append(sample.evaluate(inputs.with_values(**{name: only})).value - base)
        times = _times(result - base, sums)
        if times is not None and (times != 1).any():
            change = partial(_summed, model=model, name=name, axis=axis, times=times[blocks])
            yield _lost(size, k, times, size == model.parts, change)


def _only(values: np.ndarray, axis: int, chosen: np.ndarray) -> np.ndarray:
    """The values with zeros where the position along the axis is not chosen."""
    return np.where(np.expand_dims(chosen, tuple(i for i in range(values.ndim) if i != axis)), values, 0).astype(
        values.dtype
    )


def _summed(state: State, model: Model, name: str, axis: int, times: np.ndarray) -> State:
    """Each position along K as often as ``times`` says."""
    values = state.inputs.values[name]
    changed = replace(state, inputs=state.inputs.with_values(**{name: _only(values, axis, times > 0)}))
    if not (times > 1).any():
        return changed
    nothing, again = (
        model.evaluate(state.inputs.with_values(**{name: _only(values, axis, chosen)})).value
        for chosen in (np.zeros_like(times, np.bool_), times > 1)
    )
    return changed.then(lambda r: Reference(r.value + again - nothing, r.magnitude, r.slack))


def _times(result: np.ndarray, sums: list[np.ndarray]) -> np.ndarray | None:
    """How often each sum is in the result: 0, 1 or 2; None where it is no such combination."""
    usable = np.isfinite(result) & np.isfinite(np.sum(sums, axis=0))
    chosen = np.flatnonzero(usable.reshape(-1))[:_EQUATIONS]
    if chosen.size < len(sums):
        return None
    matrix = np.stack([one.reshape(-1)[chosen] for one in sums], axis=1)
    best = np.linalg.lstsq(matrix, result.reshape(-1)[chosen], rcond=None)[0]
    times = np.rint(best)
    close = np.abs(best - times).max() < 0.25 and times.min() >= 0 and times.max() <= 2 and times.any()
    return times if close else None


def _lost(size: int, k: int, times: np.ndarray, split: bool, change: Callable[[State], State]) -> Hypothesis:
    def ranges(count: int) -> str:
        return ", ".join(f"{size * i}..{min(size * (i + 1), k) - 1}" for i in np.flatnonzero(times == count).tolist())

    what = "parts of K that workgroups sum on their own" if split else f"blocks of {size} of K"
    said = [f"{ranges(0)} {'is' if (times == 0).sum() == 1 else 'are'} missing"] if (times == 0).any() else []
    said += [f"{ranges(2)} {'is' if (times == 2).sum() == 1 else 'are'} in it twice"] if (times == 2).any() else []
    fix = "the result's memory zeroed before, and the whole grid launched" if split else f"K={k}, and its whole range"
    text = f"of the {len(times)} {what}, {' and '.join(said)}"
    return Hypothesis("parts", "K", text, fix, 1 if split else 3, change)
