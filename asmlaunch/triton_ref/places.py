"""Layouts as Triton kernels read them: the axes of the closed form as constants, their strides as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import Layout, get


@dataclass(frozen=True)
class Placed:
    """Where the elements of a matrix are.

    Attributes:
        axes: constants for the kernel, three an axis: its dimension; its size, or 0 for the slowest axis of a
            dimension, whose position needs no remainder; and how far an index goes while its position goes one.
        strides: elements of memory a step along each axis moves.
        shape: logical rows and columns that the memory holds, padding included.
    """

    axes: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, int]

    @property
    def reach(self) -> int:
        """The largest address plus one."""
        described = zip(self.axes[::3], self.axes[1::3], self.axes[2::3], strict=True)
        sizes = [size or -(-self.shape[dimension] // step) for dimension, size, step in described]
        return 1 + sum((size - 1) * abs(stride) for size, stride in zip(sizes, self.strides, strict=True))


def plain(shape: Sequence[int], strides: Sequence[int]) -> Placed:
    """A matrix in logical order with any strides."""
    return Placed((0, 0, 1, 1, 0, 1), (int(strides[0]), int(strides[1])), (int(shape[0]), int(shape[1])))


def placed(layout: Layout, shape: Sequence[int]) -> Placed:
    """A buffer of padded ``shape`` in a layout of matrices of bytes.

    Raises:
        LayoutError: a shape that is not whole tiles.
    """
    shape = (int(shape[0]), int(shape[1]))
    if tuple(layout.padded_shape(shape)) != shape:
        raise LayoutError(
            f"buffer in layout {layout.label}", got=shape, need=f"whole tiles, {tuple(layout.padded_shape(shape))}"
        )
    axes = layout.axes(shape)
    slowest = {(d, group[0]) for d, group in enumerate(layout.groups)}
    return Placed(
        tuple(
            number
            for axis in axes
            for number in (axis.dimension, 0 if (axis.dimension, axis.name) in slowest else axis.size, axis.step)
        ),
        tuple(axis.stride for axis in axes),
        shape,
    )


def describe(layout: Layout | str | None) -> str:
    """A layout of bytes as text that an operator's schema can carry; "" is logical order.

    Raises:
        LayoutError: a layout that is not one of matrices of bytes.
    """
    if layout is None or layout == "":
        return ""
    if isinstance(layout, str):
        return describe(get(layout))
    if layout.rank != 2 or layout.itemsize != 1:
        got = f"{layout.label}, rank {layout.rank}, elements of {layout.itemsize} bytes"
        raise LayoutError("layout of an operand", got=got, need="a layout of matrices of bytes")
    return ";".join([layout.pattern, *(f"{axis}={size}" for axis, size in layout.sizes.items())])


def parse(text: str) -> Layout | None:
    """The inverse of :func:`describe`, as a layout of bytes."""
    if not text:
        return None
    pattern, *sizes = text.split(";")
    return Layout(pattern, {name: int(size) for name, size in (item.split("=") for item in sizes)})
