"""Operands in each other's place, or on the wrong axis of the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.model import Model
from asmlaunch.validate.reference import Reference


def hypotheses(model: Model) -> Iterator[Hypothesis]:
    """Pairs of one format swapped, one given twice, vectors along the other axis, the result transposed."""
    pairs = [
        (first, second)
        for first, second in combinations(model.operands, 2)
        if model.operands[first].form == model.operands[second].form
        and model.operands[first].neutral == model.operands[second].neutral
    ]
    for first, second in pairs:
        text = f"{first} and {second} are swapped"
        fix = f"{first}={first}, {second}={second}"
        moves = {first: second, second: first}
        yield Hypothesis("swap", f"{first} and {second}", text, fix, 1, partial(_moved, model=model, moves=moves))
        for there, given in ((first, second), (second, first)):
            text = f"{given} is given for {there} too"
            moves = {there: given}
            yield Hypothesis("swap", there, text, f"{there}={there}", 2, partial(_moved, model=model, moves=moves))
    if len(pairs) > 1:
        moves = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
        if len(moves) == 2 * len(pairs):
            text = "left and right operands are swapped: " + ", ".join(f"{a} and {b}" for a, b in pairs)
            fix = ", ".join(f"{name}={name}" for name in moves)
            subject = " and ".join(moves)
            yield Hypothesis("swap", subject, text, fix, 1, partial(_moved, model=model, moves=moves))
    for name, operand in model.operands.items():
        if operand.axes == model.axes[1:] and operand.neutral == 0:
            text = f"{name} is added along {model.axes[0]}, not along {model.axes[1]}"
            yield Hypothesis("axis", name, text, "", 1, partial(_along_rows, name=name, model=model))
    text = f"the result is stored transposed, [{', '.join(reversed(model.axes))}]"
    yield Hypothesis("transposed", "result", text, "result = result.T", 2, _result_transposed)


def _moved(state: State, model: Model, moves: dict[str, str]) -> State:
    """Each operand's memory read as another."""
    values = state.inputs.values
    read = {
        there: model.operands[there].read(model.operands[given].stored(values[given])) for there, given in moves.items()
    }
    return replace(state, inputs=state.inputs.with_values(**read))


def _along_rows(state: State, name: str, model: Model) -> State:
    """A vector of the columns, one element a row; rows past its end get 0."""
    other = next(o for o in model.operands.values() if o.axes[0] == model.axes[0])
    rows = other.values.shape[0]
    values = state.inputs.values[name]
    moved = np.zeros((rows, 1), values.dtype)
    moved[: len(values), 0] = values[:rows]
    return replace(state, inputs=state.inputs.with_values(**{name: moved}))


def _result_transposed(state: State) -> State:
    return state.then(_transposed)


def _transposed(reference: Reference) -> Reference:
    value, magnitude = (one.T.reshape(one.shape) for one in (reference.value, reference.magnitude))
    return Reference(value, magnitude, reference.slack)
