"""Operands in another memory layout than the kernel reads: any known one, none, transposed, or laid out twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from asmlaunch.layouts import LAYOUTS, Layout, pack_fp4, unpack_fp4
from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.model import Model, Operand, layout_name

_NEAR = ("weights_16x16", "weights_32x16", "scales_32x8")  # what people mix up most


def hypotheses(model: Model) -> Iterator[Hypothesis]:
    """For each operand, each way in which it may have been stored."""
    for name, operand in model.operands.items():
        right = layout_name(operand.layout)
        for how, cost, stored in _ways(operand):
            yield Hypothesis(
                "layout",
                name,
                f"{name} is {how}; the kernel reads {right}",
                _fix(name, operand),
                cost,
                partial(_stored, name=name, operand=operand, way=stored),
            )


def _stored(state: State, name: str, operand: Operand, way: Callable[[np.ndarray], np.ndarray]) -> State:
    """The operand as the kernel reads it when it is stored in that way."""
    values = state.inputs.values[name]
    read = operand.read(way(values))
    return State(state.inputs.with_values(**{name: read}), state.after, state.rounding)


def _ways(operand: Operand) -> Iterator[tuple[str, int, Callable[[np.ndarray], np.ndarray]]]:
    """Words, cost, and the memory made of the values."""
    if operand.values.ndim != 2:
        return
    if operand.layout is not None:
        yield "in row-major order", 1, lambda values: values
        if operand.in_memory != operand.values.shape:
            yield "padded and in row-major order", 1, partial(_padded, operand=operand)
        yield "laid out twice", 3, lambda values: operand.stored(operand.stored(values))
    else:
        gaps = operand.in_memory != operand.values.shape
        if gaps:
            yield "without the padding between its rows", 2, lambda values: values
    yield "transposed", 2, partial(_flipped, operand=operand)
    for layout in LAYOUTS.values():
        if layout.rank == 2 and layout.itemsize == operand.values.itemsize and layout != operand.layout:
            near = 1 if layout.name in _NEAR else 3
            yield f"in layout {layout.label}", near, partial(_applied, layout=layout)


def _applied(values: np.ndarray, layout: Layout) -> np.ndarray:
    return layout.apply(values, pad_value=layout.pad_value or 0)


def _padded(values: np.ndarray, operand: Operand) -> np.ndarray:
    return Operand(values, operand.axes, operand.form, None, operand.in_memory).stored(values)


def _flipped(values: np.ndarray, operand: Operand) -> np.ndarray:
    """The memory of the transposed matrix, without padding between its rows."""
    turned = _transposed(values, operand.form)
    return Operand(turned, operand.axes, operand.form, operand.layout).stored(turned)


def _transposed(values: np.ndarray, form: str) -> np.ndarray:
    if form == "mxfp4":  # two codes a byte: bytes do not change places, codes do
        return np.asarray(pack_fp4(unpack_fp4(values).T))
    return np.ascontiguousarray(values.T)


def _fix(name: str, operand: Operand) -> str:
    layout = operand.layout
    if layout is None:
        return f"{name} = np.ascontiguousarray({name})  # [{', '.join(operand.axes)}], no layout applied"
    if layout.name not in LAYOUTS:
        return f"{name} = np.ascontiguousarray({name}.T)  # memory order [{', '.join(reversed(operand.axes))}]"
    pad = f", pad_value={layout.pad_value}" if layout.pad_value is not None else ""
    return f'{name} = layouts.get("{layout.name}").apply({name}{pad})'
