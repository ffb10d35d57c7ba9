"""Where two layouts differ, and converting from one to the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.layout import Array, Layout


@dataclass(frozen=True)
class Difference:
    """The outcome of :func:`compare`; true if the layouts are equal.

    Attributes:
        shape: the smallest shape that both layouts take without padding, where they were compared.
        index: the first element (in logical order) that they put at different addresses, None if they are equal.
        addresses: where they put it.
    """

    first: Layout
    second: Layout
    shape: tuple[int, ...]
    index: tuple[int, ...] | None
    addresses: tuple[int, int] | None

    def __bool__(self) -> bool:
        return self.index is None

    def __str__(self) -> str:
        if self.addresses is None:
            return f"{self.first.label} and {self.second.label} are the same permutation"
        return (
            f"{self.first.label} and {self.second.label} differ at shape {self.shape}: element {self.index} is at "
            f"{self.addresses[0]} and at {self.addresses[1]}"
        )


def compare(first: Layout, second: Layout) -> Difference:
    """Whether two layouts are the same permutation, and if not the first element that shows it.

    Raises:
        LayoutError: different ranks or element sizes.
    """
    if (first.rank, first.itemsize) != (second.rank, second.itemsize):
        raise LayoutError(
            f"comparison of {first.label} and {second.label}",
            got=f"rank {first.rank} of {first.itemsize} bytes and rank {second.rank} of {second.itemsize} bytes",
            need="equal ranks and element sizes",
        )
    # Two of everything that is free: enough to tell the orders of the free axes apart.
    shape = tuple(2 * math.lcm(a, b) for a, b in zip(first.tile, second.tile, strict=True))
    index = tuple(np.indices(shape))
    a, b = (np.asarray(layout.address(index, shape)) for layout in (first, second))
    if first == second or np.array_equal(a, b):
        return Difference(first, second, shape, None, None)
    where = tuple(int(i) for i in np.unravel_index(np.argmax(a != b), shape))
    return Difference(first, second, shape, where, (int(a[where]), int(b[where])))


def convert(
    buffer: Array, source: Layout, target: Layout, shape: Sequence[int] | None = None, *, pad_value: int | None = None
) -> Array:
    """A buffer in layout ``source`` put into layout ``target``.

    Args:
        buffer: numpy or torch.
        shape: the logical shape; the buffer's own (all its padding taken as data) where it is left out.
        pad_value: as for :meth:`Layout.apply` of ``target``.

    Raises:
        LayoutError: as :meth:`Layout.invert` and :meth:`Layout.apply`.
    """
    return target.apply(source.invert(buffer, shape), pad_value=pad_value)
