"""From a table of addresses to the layout that makes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asmlaunch.layouts import LAYOUTS
from asmlaunch.layouts.layout import Layout


@dataclass(frozen=True)
class _Axis:
    """``size`` steps of ``stride`` along a dimension, each ``step`` indices long."""

    dimension: int
    step: int
    size: int
    stride: int


def axes(addresses: np.ndarray) -> tuple[_Axis, ...] | None:
    """The axes of which ``addresses`` is the sum, slowest in each dimension last; None where it is no such sum.

    Args:
        addresses: ``[rows, columns]`` integers, 0 at the first element.
    """
    found: list[_Axis] = []
    total = np.zeros(addresses.shape, np.int64)
    for dimension in range(addresses.ndim):
        line = addresses.take(0, axis=1 - dimension) if addresses.ndim == 2 else addresses
        step = 1
        while step < len(line):
            stride, size = int(line[step]), 1
            most = len(line) // step
            while size < most and line[size * step] == size * stride:
                size += 1
            size = max((f for f in range(2, size + 1) if len(line) % (f * step) == 0), default=0)
            if not size:
                return None
            found.append(_Axis(dimension, step, size, stride))
            index = np.arange(len(line)) // step % size * stride
            total += index[:, None] if dimension == 0 and addresses.ndim == 2 else index
            step *= size
    return tuple(found) if np.array_equal(total, addresses) else None


def layout_of(addresses: np.ndarray, itemsize: int = 1) -> Layout | None:
    """The layout that puts element (row, column) at ``addresses[row, column]``; None where there is none.

    The slowest axis of each dimension is taken as the free one.
    """
    parts = axes(addresses)
    if parts is None or int(addresses[0, 0]):
        return None
    expected = 1
    for axis in sorted(parts, key=lambda axis: axis.stride):
        if axis.stride != expected:
            return None
        expected *= axis.size
    names: dict[_Axis, str] = {}
    sizes: dict[str, int] = {}
    groups = []
    for dimension, letter in enumerate("rc"):
        own = [axis for axis in reversed(parts) if axis.dimension == dimension]
        for number, axis in enumerate(own):
            names[axis] = letter if number == 0 else f"{letter}{number}"
            if number:
                sizes[names[axis]] = axis.size
        group = [names[axis] for axis in own] or [letter]
        groups.append(f"({' '.join(group)})" if len(group) > 1 else group[0])
    order = [names[axis] for axis in sorted(parts, key=lambda axis: -axis.stride)]
    # A dimension of one element can be anywhere: rows slowest, columns fastest, as in plain rows.
    order = [*(["r"] if "r" not in order else []), *order, *(["c"] if "c" not in order else [])]
    pattern = f"{' '.join(groups)} -> {' '.join(order)}"
    return Layout(pattern, sizes, itemsize=itemsize)


def known_as(layout: Layout) -> tuple[str, ...]:
    """Names of the layouts that are the same permutation; ``"plain"`` for rows one after the other."""
    if layout == Layout("r c -> r c", itemsize=layout.itemsize):
        return ("plain",)
    return tuple(name for name, one in LAYOUTS.items() if one == layout)


def same_at(addresses: np.ndarray, itemsize: int) -> tuple[str, ...]:
    """Names of the layouts that make these addresses at this shape, though at others they may differ from each other.

    Args:
        addresses: ``[rows, columns]``, of whole tiles.
    """
    index = tuple(np.indices(addresses.shape))
    return tuple(
        name
        for name, one in LAYOUTS.items()
        if (one.rank, one.itemsize) == (2, itemsize)
        and not any(size % tile for size, tile in zip(addresses.shape, one.tile, strict=True))
        and np.array_equal(one.address(index, addresses.shape), addresses)
    )
