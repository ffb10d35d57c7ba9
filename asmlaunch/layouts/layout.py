"""``Layout``: a memory layout as a value.

A layout says where each element of a small-rank tensor goes in memory. It is written the way einops writes a
rearrangement, one group of axes a dimension on the left, the memory order (slowest axis first) on the right::

    Layout("(t rh l) (c kh k) -> t c k l kh rh", sizes={"rh": 2, "l": 16, "kh": 2, "k": 4})

Axes without a size (here ``t`` and ``c``) are *free*, one a dimension: they take what the shape gives. Everything else
is derived from that description: apply, invert, closed-form addresses, the padded shape, equality.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from asmlaunch.errors import LayoutError

_GROUP = re.compile(r"\(([^()]*)\)|([A-Za-z_]\w*)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Axis:
    """One axis of a layout at a certain shape.

    The position of an element along this axis is ``index[dimension] // step % size``; a step moves the address by
    ``stride`` elements.
    """

    name: str
    dimension: int
    size: int
    step: int
    stride: int


@dataclass(frozen=True, eq=False)
class Layout:
    """A permutation of the elements of a padded tensor, described by named axes.

    Args:
        pattern: ``"(a b) (c d) -> a c b d"``: the axes of each dimension, slowest first, and the memory order.
        sizes: the size of every axis that is not free.
        name: what people call it.
        pad_value: the element that padding holds; None refuses shapes that need padding unless the caller names one.
        itemsize: bytes of one element.
        source: where the layout comes from.

    Two layouts are equal if they are the same permutation of the same element size for every shape, however they are
    written; name and pad value do not count.

    Raises:
        LayoutError: a pattern that cannot be read or does not name the same axes on both sides.
    """

    pattern: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    name: str = ""
    pad_value: int | None = None
    itemsize: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.sizes)))
        self._check_pattern()

    def _check_pattern(self) -> None:
        flat = [axis for group in self.groups for axis in group]
        if sorted(flat) != sorted(self.order) or len(set(flat)) != len(flat):
            raise LayoutError(
                f"layout pattern {self.pattern!r}",
                got=f"{flat} and {list(self.order)}",
                need="each axis once on each side",
            )
        unknown = set(self.sizes) - set(flat)
        if unknown:
            raise LayoutError(f"sizes of layout pattern {self.pattern!r}", got=sorted(unknown), need=f"axes of {flat}")
        if any(not isinstance(size, int) or size <= 0 for size in self.sizes.values()):
            raise LayoutError(
                f"sizes of layout pattern {self.pattern!r}", got=dict(self.sizes), need="positive integers"
            )
        for group in self.groups:
            free = [axis for axis in group if axis not in self.sizes]
            if len(free) != 1:
                raise LayoutError(
                    f"dimension ({' '.join(group)}) of {self.pattern!r}",
                    got=f"axes without a size: {free or 'none'}",
                    need="exactly one",
                )

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The axis names of each dimension, slowest first."""
        left = self._sides[0]
        if _GROUP.sub("", left).strip():
            raise LayoutError(f"layout pattern {self.pattern!r}", got=left, need="names and (groups of names)")
        return tuple(tuple((match[1] or match[2] or "").split()) for match in _GROUP.finditer(left))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The axis names in memory order, slowest first."""
        right = self._sides[1]
        if _NAME.sub("", right).strip():
            raise LayoutError(f"memory order of layout pattern {self.pattern!r}", got=right, need="plain axis names")
        return tuple(right.split())

    @cached_property
    def _sides(self) -> tuple[str, str]:
        sides = self.pattern.split("->")
        if len(sides) != 2:
            raise LayoutError("layout pattern", got=repr(self.pattern), need="'dimensions -> memory order'")
        return sides[0], sides[1]

    @property
    def rank(self) -> int:
        """Number of dimensions the layout moves; more leading dimensions are batches."""
        return len(self.groups)

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """Elements a dimension must be a multiple of: the product of its sized axes."""
        return tuple(math.prod(self.sizes.get(axis, 1) for axis in group) for group in self.groups)

    def padded_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape after padding to whole tiles; leading batch dimensions stay.

        Raises:
            LayoutError: a shape of too low rank, or a dimension that cannot be padded at its end because its free axis
                is not its slowest one.
        """
        shape = tuple(shape)
        if len(shape) < self.rank:
            raise LayoutError(f"tensor for layout {self.label}", got=f"rank {len(shape)}", need=f"at least {self.rank}")
        batch, dims = shape[: -self.rank], shape[-self.rank :]
        padded = tuple(-(-d // m) * m for d, m in zip(dims, self.tile, strict=True))
        for axis, (old, new) in enumerate(zip(dims, padded, strict=True)):
            if old != new and self.groups[axis][0] in self.sizes:
                raise LayoutError(
                    f"dimension {axis} of layout {self.label}",
                    got=old,
                    need=f"a multiple of {self.tile[axis]}",
                    hint=f"it cannot be padded at its end, since {self.groups[axis][0]!r} is its slowest axis",
                )
        return batch + padded

    @property
    def label(self) -> str:
        """The name, or the pattern of a nameless layout."""
        return self.name or self.pattern

    def axes(self, shape: Sequence[int]) -> tuple[Axis, ...]:
        """The axes at a logical shape, in memory order (slowest first), with sizes, steps and strides in elements."""
        dims = self.padded_shape(shape)[-self.rank :]
        size = dict(self.sizes)
        place: dict[str, tuple[int, int]] = {}
        for dimension, group in enumerate(self.groups):
            size.update({a: dims[dimension] // self.tile[dimension] for a in group if a not in self.sizes})
            step = 1
            for axis in reversed(group):
                place[axis] = (dimension, step)
                step *= size[axis]
        found, stride = [], 1
        for axis in reversed(self.order):
            found.append(Axis(axis, place[axis][0], size[axis], place[axis][1], stride))
            stride *= size[axis]
        return tuple(reversed(found))

    def address(self, index: Sequence[Any], shape: Sequence[int]) -> Any:
        """Closed form: the address, in elements, of the element at ``index`` of a tensor of logical ``shape``.

        ``index`` holds one integer, or one array of integers (broadcast together), a dimension; positions in the
        padding have addresses too.

        Raises:
            LayoutError: an index outside the padded shape, or the wrong number of indices.
        """
        padded = self.padded_shape(shape)[-self.rank :]
        if len(index) != self.rank:
            raise LayoutError(f"index into layout {self.label}", got=f"{len(index)} values", need=self.rank)
        for value, limit in zip(index, padded, strict=True):
            if np.any(np.asarray(value) < 0) or np.any(np.asarray(value) >= limit):
                raise LayoutError(f"index into layout {self.label}", got=value, need=f"0..{limit - 1}")
        return sum(index[a.dimension] // a.step % a.size * a.stride for a in self.axes(shape))

    def element(self, address: Any, shape: Sequence[int]) -> tuple[Any, ...]:
        """Closed form: the index of the element at ``address`` (elements); the inverse of :meth:`address`.

        Raises:
            LayoutError: an address outside the padded tensor.
        """
        count = math.prod(self.padded_shape(shape)[-self.rank :])
        if np.any(np.asarray(address) < 0) or np.any(np.asarray(address) >= count):
            raise LayoutError(f"address in layout {self.label}", got=address, need=f"0..{count - 1}")
        index: list[Any] = [0] * self.rank
        for a in self.axes(shape):
            index[a.dimension] = index[a.dimension] + address // a.stride % a.size * a.step
        return tuple(index)

    def apply(self, array: np.ndarray, *, pad_value: int | None = None) -> np.ndarray:
        """Lay ``array`` (logical order, any strides) out: a new contiguous array of the padded shape in memory order.

        Args:
            array: ``[..., *dimensions]``, elements of ``itemsize`` bytes.
            pad_value: the element for every padded position; the layout's own where it is left out.

        Raises:
            LayoutError: wrong rank or element size, or padding needed and no value for it.
        """
        self._check_itemsize(array)
        padded = self.padded_shape(array.shape)
        array = self._pad(array, padded, self.pad_value if pad_value is None else pad_value)
        sizes, into_memory = self._split(padded)
        return np.ascontiguousarray(array.reshape(sizes).transpose(into_memory)).reshape(padded)

    def invert(self, buffer: np.ndarray, shape: Sequence[int] | None = None) -> np.ndarray:
        """The logical tensor that ``buffer`` is the layout of, without its padding.

        Args:
            buffer: what :meth:`apply` returns: contiguous, of the padded shape or of a larger one that is whole tiles.
                A flat buffer is taken as one of the padded shape.
            shape: the logical shape; the buffer's own where it is left out.

        Raises:
            LayoutError: wrong element size, or a buffer that is not whole tiles or too small for ``shape``.
        """
        self._check_itemsize(buffer)
        shape = tuple(buffer.shape if shape is None else shape)
        padded = self.padded_shape(shape)
        if buffer.ndim == 1 and buffer.size == math.prod(padded):
            buffer = buffer.reshape(padded)
        whole = buffer.ndim == len(padded) and self.padded_shape(buffer.shape) == buffer.shape
        whole = whole and buffer.shape[: -self.rank] == padded[: -self.rank]
        if not whole or any(b < p for b, p in zip(buffer.shape, padded, strict=True)):
            raise LayoutError(
                f"buffer in layout {self.label}",
                got=f"shape {buffer.shape}",
                need=f"{padded}, or more in whole tiles of {self.tile}, for a tensor of shape {shape}",
            )
        sizes, into_memory = self._split(buffer.shape)
        memory = np.ascontiguousarray(buffer).reshape([sizes[axis] for axis in into_memory])
        logical = memory.transpose(np.argsort(into_memory)).reshape(buffer.shape)
        return np.ascontiguousarray(logical[tuple(slice(size) for size in shape)])

    def _check_itemsize(self, array: np.ndarray) -> None:
        if array.dtype.itemsize != self.itemsize:
            raise LayoutError(
                f"tensor for layout {self.label}",
                got=f"dtype {array.dtype} of {array.dtype.itemsize} bytes",
                need=f"elements of {self.itemsize} bytes",
                hint="view it with the right dtype",
            )

    def _pad(self, array: np.ndarray, padded: tuple[int, ...], pad_value: int | None) -> np.ndarray:
        if array.shape == padded:
            return array
        if pad_value is None:
            raise LayoutError(
                f"shape for layout {self.label}",
                got=array.shape,
                need=f"{padded}, or a pad_value to pad it with",
            )
        if not 0 <= pad_value < 256**self.itemsize:
            raise LayoutError(f"pad value for layout {self.label}", got=pad_value, need=f"0..{256**self.itemsize - 1}")
        out = np.full(padded, pad_value, dtype=f"u{self.itemsize}")
        out[tuple(slice(size) for size in array.shape)] = array.view(out.dtype)
        return out.view(array.dtype)

    def _split(self, padded: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """The padded shape split into axes, and the transposition from there into memory order."""
        batch = len(padded) - self.rank
        size = {axis.name: axis.size for axis in self.axes(padded)}
        flat = [axis for group in self.groups for axis in group]
        into_memory = list(range(batch)) + [batch + flat.index(axis) for axis in self.order]
        return [*padded[:batch], *(size[axis] for axis in flat)], into_memory

    @cached_property
    def _canonical(self) -> tuple[Any, ...]:
        """The same for every way of writing the same permutation: size-1 axes dropped, neighbours that stay together
        merged, axes numbered in logical order."""
        groups = [[[a] for a in group if self.sizes.get(a) != 1] for group in self.groups]
        order = [a for a in self.order if self.sizes.get(a) != 1]
        follows = dict(pairwise(order))
        merged: list[list[list[str]]] = []
        for group in groups:
            out: list[list[str]] = []
            for (axis,) in group:
                if out and follows.get(out[-1][-1]) == axis:
                    out[-1].append(axis)
                else:
                    out.append([axis])
            merged.append(out)
        numbers = {run[0]: i for i, run in enumerate(run for group in merged for run in group)}
        sizes = tuple(
            tuple(
                None if any(a not in self.sizes for a in run) else math.prod(self.sizes[a] for a in run)
                for run in group
            )
            for group in merged
        )
        return sizes, tuple(numbers[a] for a in order if a in numbers), self.itemsize

    def __eq__(self, other: object) -> bool:
        return self._canonical == other._canonical if isinstance(other, Layout) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._canonical)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.sizes.items())
        return f"<Layout {self.name + ': ' if self.name else ''}{self.pattern}{'; ' + sizes if sizes else ''}>"
