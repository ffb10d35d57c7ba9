"""``Layout``: a memory layout as a value.

A layout says where each element of a small-rank tensor goes in memory. It is written the way einops writes a
rearrangement, one group of axes a dimension on the left, the memory order (slowest axis first) on the right::

    Layout("(t rh l) (c kh k) -> t c k l kh rh", sizes={"rh": 2, "l": 16, "kh": 2, "k": 4})

Axes without a size (here ``t`` and ``c``) are *free*, one a dimension: they take what the shape gives. Everything else
is derived from that description: apply, invert, closed-form addresses, padded shape, equality, composition, pictures.

The notation is that of einops (``layout.einops(shape)`` gives its arguments); numpy and torch apply it without einops.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import _permute, _tensors

if TYPE_CHECKING:
    from pathlib import Path

Array = TypeVar("Array")
"""A numpy array or a torch tensor on any device; results are of the same kind."""

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
        aliases: names that other projects have for the same layout.

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
    aliases: tuple[str, ...] = ()

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
        index = [_wide(value) for value in index]
        return sum(index[a.dimension] // a.step % a.size * a.stride for a in self.axes(shape))

    def element(self, address: Any, shape: Sequence[int]) -> tuple[Any, ...]:
        """Closed form: the index of the element at ``address`` (elements); the inverse of :meth:`address`.

        Raises:
            LayoutError: an address outside the padded tensor.
        """
        count = math.prod(self.padded_shape(shape)[-self.rank :])
        if np.any(np.asarray(address) < 0) or np.any(np.asarray(address) >= count):
            raise LayoutError(f"address in layout {self.label}", got=address, need=f"0..{count - 1}")
        address = _wide(address)
        index: list[Any] = [0] * self.rank
        for a in self.axes(shape):
            index[a.dimension] = index[a.dimension] + address // a.stride % a.size * a.step
        return tuple(index)

    def apply(
        self,
        array: Array,
        *,
        pad_value: int | None = None,
        padded: Sequence[int] | None = None,
        out: Array | None = None,
    ) -> Array:
        """Lay ``array`` (logical order, any strides) out: a new contiguous array of the padded shape in memory order.

        Args:
            array: ``[..., *dimensions]``, elements of ``itemsize`` bytes; numpy, or torch on any device.
            pad_value: the element (as an unsigned integer) for every padded position; the layout's own where left out.
            padded: the shape to pad to, whole tiles; the next whole tiles where left out.
            out: contiguous memory of the padded shape to write to, of the same kind as ``array``; new where left out.

        Raises:
            LayoutError: wrong rank or element size, padding needed and no value for it, ``padded`` too small, or an
                ``out`` that does not fit.
        """
        self.check_itemsize(array)
        shape = tuple(array.shape)  # type: ignore[attr-defined]
        padded = self.padded_shape(shape) if padded is None else self.buffer_shape(tuple(padded), shape)
        value = self._pad_value(shape, padded, self.pad_value if pad_value is None else pad_value)
        if out is not None:
            _tensors.check_out(out, array, padded)
        if _tensors.on_device(array):
            return _tensors.apply_on_device(self, array, padded, value, out)
        source = _tensors.as_unsigned(array)
        memory = np.empty(padded, source.dtype) if out is None else _tensors.as_unsigned(out)
        logical = self._logical_view(memory)
        for part, tiles in self._regions(shape, padded):
            target = logical[tiles]
            piece = source[part]
            if piece.shape != self._joined(target.shape):
                edge = np.full(self._joined(target.shape), value, source.dtype)
                edge[tuple(slice(size) for size in piece.shape)] = piece
                piece = edge
            _permute.copy(piece.reshape(target.shape), target, tiled="destination")
        return _tensors.like(array, memory) if out is None else out

    def invert(self, buffer: Array, shape: Sequence[int] | None = None, *, out: Array | None = None) -> Array:
        """The logical tensor that ``buffer`` is the layout of, without its padding.

        Args:
            buffer: what :meth:`apply` returns, or the same with more padding in whole tiles. A flat buffer is taken as
                one of the padded shape.
            shape: the logical shape; the buffer's own where it is left out.
            out: contiguous memory of ``shape`` to write to, of the same kind as ``buffer``; new where left out.

        Raises:
            LayoutError: wrong element size, a buffer that is not whole tiles or too small for ``shape``, or an ``out``
                that does not fit.
        """
        self.check_itemsize(buffer)
        shape = tuple(buffer.shape if shape is None else shape)  # type: ignore[attr-defined]
        given = self.buffer_shape(tuple(buffer.shape), shape)  # type: ignore[attr-defined]
        if out is not None:
            _tensors.check_out(out, buffer, shape)
        if _tensors.on_device(buffer):
            return _tensors.invert_on_device(self, buffer, given, shape, out)
        source = _tensors.as_unsigned(buffer)
        logical = self._logical_view(np.ascontiguousarray(source).reshape(given))
        result = np.empty(shape, source.dtype) if out is None else _tensors.as_unsigned(out)
        for part, tiles in self._regions(shape, self.padded_shape(shape)):
            piece, target = logical[tiles], result[part]
            joined = self._joined(piece.shape)
            if target.shape == joined:
                _permute.copy(piece, target.reshape(piece.shape), tiled="source")
            else:
                edge = np.empty(joined, source.dtype)
                _permute.copy(piece, edge.reshape(piece.shape), tiled="source")
                target[...] = edge[tuple(slice(size) for size in target.shape)]
        return _tensors.like(buffer, result) if out is None else out

    def einops(self, shape: Sequence[int]) -> tuple[str, dict[str, int]]:
        """The arguments ``(pattern, axes)`` with which ``einops.rearrange`` puts a tensor of padded ``shape`` (without
        batch dimensions) into memory order."""
        sizes = {axis.name: axis.size for axis in self.axes(shape)}
        return self.pattern, {name: size for name, size in sizes.items() if name in self.sizes}

    def then(self, other: Layout) -> Layout:
        """The composition: ``other`` applied to the result of this layout, as one layout.

        Raises:
            LayoutError: different ranks or element sizes, or a memory order that ``other`` cannot be written on (its
                dimensions must be whole groups of this layout's axes).
        """
        from asmlaunch.layouts.compose import compose

        return compose(self, other)

    def plot(
        self, form: str = "text", *, shape: Sequence[int] | None = None, path: str | Path | None = None
    ) -> str | bytes:
        """A picture of where each element goes: rows and columns of the tensor, in each cell the address.

        Args:
            form: ``"text"`` for a terminal, ``"svg"``, or ``"png"`` (bytes).
            shape: of the tensor drawn, rank 1 or 2; one tile where it is left out.
            path: a file to write it to, too.

        Raises:
            LayoutError: an unknown form, or a layout of higher rank.
        """
        from asmlaunch.layouts.plot import plot

        return plot(self, form, shape=shape, path=path)

    def formula(self) -> str:
        """The closed form of :meth:`address` as a Python expression.

        Indices are called x, y, z, w by dimension, and X, Y, Z, W are the padded extents.
        """
        factors: dict[str, list[str]] = {}
        index: dict[str, str] = {}
        for dimension, group in enumerate(self.groups):
            name = "xyzw"[dimension]
            step: list[str] = []
            for axis in reversed(group):
                size = str(self.sizes[axis]) if axis in self.sizes else f"({name.upper()}//{self.tile[dimension]})"
                if size == f"({name.upper()}//1)":
                    size = name.upper()
                term = name if not step else f"{name}//{_product(step)}"
                index[axis] = term if axis == group[0] else f"{term}%{size}"
                factors[axis] = [size]
                step = [size, *step]
        terms: list[str] = []
        stride: list[str] = []
        for axis in reversed(self.order):
            terms.append(f"{index[axis]}*{_product(stride)}" if stride else index[axis])
            stride = factors[axis] + stride
        return " + ".join(reversed(terms))

    def _repr_html_(self) -> str:
        return f"<p><code>{repr(self)[1:-1].replace('>', '&gt;')}</code></p>{self.plot('svg')!s}"

    def check_itemsize(self, array: Any) -> None:
        """Refuse an array whose elements are not of the layout's size.

        Raises:
            LayoutError: another element size, or no array.
        """
        itemsize = _tensors.itemsize(array)
        if itemsize != self.itemsize:
            raise LayoutError(
                f"tensor for layout {self.label}",
                got=f"dtype {array.dtype} of {itemsize} bytes",
                need=f"elements of {self.itemsize} bytes",
                hint="view it with the right dtype",
            )

    def _pad_value(self, shape: tuple[int, ...], padded: tuple[int, ...], value: int | None) -> int:
        if value is None and shape != padded:
            raise LayoutError(
                f"shape for layout {self.label}", got=shape, need=f"{padded}, or a pad_value to pad it with"
            )
        if value is not None and not 0 <= value < 256**self.itemsize:
            raise LayoutError(f"pad value for layout {self.label}", got=value, need=f"0..{256**self.itemsize - 1}")
        return value or 0

    def buffer_shape(self, given: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of whole tiles that a buffer of shape ``given`` has, checked to hold a tensor of ``shape``.

        Raises:
            LayoutError: not whole tiles, or too few of them.
        """
        padded = self.padded_shape(shape)
        if len(given) == 1 and given[0] == math.prod(padded):
            return padded
        whole = len(given) == len(padded) and self.padded_shape(given) == given
        fixed = [*range(len(padded) - self.rank), *(len(padded) - self.rank + d for d in self._unpaddable)]
        if (
            not whole
            or any(g < p for g, p in zip(given, padded, strict=True))
            or any(given[i] != padded[i] for i in fixed)
        ):
            raise LayoutError(
                f"buffer in layout {self.label}",
                got=f"shape {given}",
                need=f"{padded}, or more in whole tiles of {self.tile}, for a tensor of shape {shape}",
            )
        return given

    @cached_property
    def _unpaddable(self) -> tuple[int, ...]:
        """The dimensions whose slowest axis has a fixed size: their end is not the end of the memory they take."""
        return tuple(d for d, group in enumerate(self.groups) if group[0] in self.sizes)

    def _logical_view(self, memory: np.ndarray) -> np.ndarray:
        """``memory`` (contiguous, padded shape) seen with its axes in logical order, ``[*batch, *axes]``."""
        sizes, into_memory = self.split(memory.shape)
        return memory.reshape([sizes[axis] for axis in into_memory]).transpose(np.argsort(into_memory))

    def _joined(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The shape ``[*batch, *dimensions]`` of an array ``[*batch, *axes in logical order]``."""
        count = sum(map(len, self.groups))
        dims, start = [], len(axes) - count
        for group in self.groups:
            dims.append(math.prod(axes[start : start + len(group)]))
            start += len(group)
        return (*axes[: len(axes) - count], *dims)

    def _regions(self, shape: tuple[int, ...], padded: tuple[int, ...]) -> Iterator[tuple[Any, Any]]:
        """Parts of a tensor, by slices of its dimensions, and the tiles they fill, by slices of its axes: the whole
        tiles, which need no copy on the way, then the edges that are padded."""
        choices = []
        for group, tile, size, end in zip(
            self.groups, self.tile, shape[-self.rank :], padded[-self.rank :], strict=True
        ):
            whole = size // tile
            cuts = [(slice(0, whole * tile), slice(0, whole))] if whole or not end else []
            if whole * tile < end:
                cuts.append((slice(whole * tile, size), slice(whole, end // tile)))
            choices.append([(part, [slice(None) if a in self.sizes else tiles for a in group]) for part, tiles in cuts])
        for chosen in product(*choices):
            yield (..., *(part for part, _ in chosen)), (..., *(axis for _, axes in chosen for axis in axes))

    def split(self, padded: Sequence[int]) -> tuple[list[int], list[int]]:
        """The padded shape ``[*batch, *dimensions]`` split into axes in logical order, and the transposition from there
        into memory order: what reshape and permute of numpy and torch take."""
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

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (self.pattern, dict(self.sizes), self.name, self.pad_value, self.itemsize, self.source, self.aliases)
        return Layout, fields

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis}={size}" for axis, size in self.sizes.items())
        return f"<Layout {self.name + ': ' if self.name else ''}{self.pattern}{'; ' + sizes if sizes else ''}>"


def _wide(value: Any) -> Any:
    """Integers that do not overflow when they are multiplied by strides."""
    return value if isinstance(value, int) else np.asarray(value, np.int64)


def _product(factors: Sequence[str]) -> str:
    """A product of numbers and names as text, its numbers multiplied out."""
    number = math.prod(int(f) for f in factors if f.isdigit())
    names = [f for f in factors if not f.isdigit()]
    parts = ([str(number)] if number != 1 or not names else []) + names
    return parts[0] if len(parts) == 1 else f"({'*'.join(parts)})"
