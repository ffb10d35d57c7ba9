"""Some rows and columns of a result, on which hypotheses are tried before the whole of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asmlaunch.validate.model import Inputs, Model
from asmlaunch.validate.reference import Reference

_ROWS, _COLUMNS = 8, 64


@dataclass(frozen=True)
class Sample:
    """Rows and columns of a result.

    Attributes:
        model: of the problem.
        rows, columns: which; None for all.
    """

    model: Model
    rows: np.ndarray | None
    columns: np.ndarray | None

    def of(self, array: np.ndarray) -> np.ndarray:
        """The sample's part of an array of the result's shape."""
        array = array if self.rows is None else array[self.rows]
        return array if self.columns is None else array[:, self.columns]

    def evaluate(self, inputs: Inputs) -> Reference:
        """The sample's part of the result of these inputs."""
        cut = {}
        for name, operand in self.model.operands.items():
            values = inputs.values[name]
            for axis, chosen in zip(self.model.axes, (self.rows, self.columns), strict=True):
                if chosen is None:
                    continue
                if values.ndim > operand.values.ndim:  # moved to the other axis of the result
                    values = values[chosen] if axis == self.model.axes[0] else values
                elif axis in operand.axes:
                    values = np.take(values, chosen, axis=operand.axes.index(axis))
            cut[name] = values
        return self.model.evaluate(inputs.with_values(**cut))


def choose(model: Model, wrong: np.ndarray) -> Sample:
    """A sample with wrong elements in each row and column.

    Args:
        wrong: which elements are.
    """
    sizes = [
        (operand.values.shape[operand.axes.index(axis)], axis)
        for operand in model.operands.values() for axis in model.axes if axis in operand.axes
    ]  # fmt: skip
    # Where an operand has one item for several rows or columns, they cannot be picked.
    rows, columns = (
        all(size == n for size, name in sizes if name == axis) for axis, n in zip(model.axes, wrong.shape, strict=True)
    )
    chosen = _some(np.any(wrong, axis=1), _ROWS) if rows else None
    inside = wrong if chosen is None else wrong[chosen]
    return Sample(model, chosen, _some(np.any(inside, axis=0), _COLUMNS) if columns else None)


def _some(wrong: np.ndarray, most: int) -> np.ndarray | None:
    """Positions that are wrong, evenly over all of them; None where there are few in all."""
    if wrong.size <= 2 * most:
        return None
    found = np.flatnonzero(wrong)
    return np.unique(found[np.linspace(0, len(found) - 1, most).astype(int)])
