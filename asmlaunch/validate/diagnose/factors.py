"""Scalars that the kernel ignores, applies twice or got with another value; scales and biases that have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.diagnose.sample import Sample
from asmlaunch.validate.model import Model, Operand


def hypotheses(model: Model) -> Iterator[Hypothesis]:
    """For each scalar and each scale or bias."""
    for name, value in model.factors.items():
        none = model.ignored[name]
        for cost, word, wrong in (
            (1, "is ignored", none),
            (2, "is applied twice", value * value),
            (2, "is doubled", 2 * value),
            (2, "has the other sign", -value),
            (3, "is its reciprocal", 1 / value if value else value),
            (3, "is 1 for the kernel", 1.0),
        ):
            text = f"{name} {word}: the result is that of {name} = {wrong:g}, not {value:g}"
            yield Hypothesis("factor", name, text, f"{name}={value:g}", cost, partial(_factor, name=name, value=wrong))
    for name, operand in model.operands.items():
        if operand.neutral is not None:
            yield from _neutral(name, operand)


def _factor(state: State, name: str, value: float) -> State:
    return replace(state, inputs=state.inputs.with_factors(**{name: value}))


def _neutral(name: str, operand: Operand) -> Iterator[Hypothesis]:
    assert operand.neutral is not None
    nothing = np.full_like(operand.values, operand.neutral)
    text = f"{name} has no effect: the result is that of {operand.neutral:g} throughout"
    yield Hypothesis("factor", name, text, f"{name}={name}", 1, partial(_values, name=name, values=nothing))
    if operand.values.dtype.kind == "f" and operand.neutral == 1:
        text = f"{name} holds the reciprocals of the scales"
        inverse = np.reciprocal(operand.values)
        yield Hypothesis("scale", name, text, f"{name} = 1 / {name}", 2, partial(_values, name=name, values=inverse))
    if operand.values.dtype.kind == "f":
        word = "added twice" if operand.neutral == 0 else "applied twice"
        twice = 2 * operand.values if operand.neutral == 0 else operand.values * operand.values
        yield Hypothesis("factor", name, f"{name} is {word}", "", 2, partial(_values, name=name, values=twice))


def _values(state: State, name: str, values: np.ndarray) -> State:
    return replace(state, inputs=state.inputs.with_values(**{name: values}))


def fitted(sample: Sample, result: np.ndarray) -> Iterator[Hypothesis]:
    """For each scalar, the value with which the result comes closest, which depends linearly on it.

    Args:
        sample: of the result.
        result: float64, the sample's part.
    """
    inputs = sample.model.inputs
    for name, value in sample.model.factors.items():
        without, once = (sample.evaluate(inputs.with_factors(**{name: v})).value for v in (0.0, 1.0))
        step = once - without
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (result - without) / step
        found = found[np.isfinite(found) & (np.abs(step) > np.median(np.abs(step)))]
        if found.size == 0:
            continue
        best = float(np.float32(np.median(found)))
        for wrong in dict.fromkeys((float(f"{best:.3g}"), best)):
            text = f"the result is that of {name} = {wrong:g}, not {value:g}"
            yield Hypothesis("factor", name, text, f"{name}={value:g}", 4, partial(_factor, name=name, value=wrong))
