"""The steps that prepare operands of an MI350 a4w4 GEMM: pad and tile the scales, pre-shuffle the weights.

Arrays are numpy or torch; torch tensors stay on their device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts._tensors import accepts_torch, byte_view
from asmlaunch.layouts.layout import Array, Layout
from asmlaunch.layouts.named import SCALES_32X8, WEIGHTS_16X16

BLOCK = 32
"""Elements along K that share one scale in the MX formats."""


@accepts_torch
def pad_scales(scales: np.ndarray, *, pad_value: int = 0, row_multiple: int = 256, k: int | None = None) -> np.ndarray:
    """Scales ``[..., rows, n]`` padded to whole tiles, ``[..., R, C]`` uint8, still in logical order.

    Args:
        scales: one byte a block of 32 elements along K.
        pad_value: the byte for every padded position. 0 is the value the kernels need (see ``named.SCALES_32X8``).
        row_multiple: rows are padded to a multiple of this; 32 is what the kernels need, 256 what AITER allocates.
        k: the K (in elements) the scales are for; where given, the number of columns is checked against it.

    Raises:
        LayoutError: not bytes, a rank below 2, a bad multiple or pad value, or columns that are not ceil(k/32).
    """
    scales = byte_view(scales, "scales")
    shape = padded_scales(scales.shape, pad_value, row_multiple, k)
    padded = np.full(shape, pad_value, np.uint8)
    padded[..., : scales.shape[-2], : scales.shape[-1]] = scales
    return padded


def tile_scales(scales: Array, *, pad_value: int = 0, row_multiple: int = 256, k: int | None = None) -> Array:
    """Scales ``[..., rows, n]`` padded (see :func:`pad_scales`) and put into the 32x8 tiling: uint8 ``[..., R, C]``.

    Byte (x, y) lands at ``named.SCALES_32X8.address((x, y), (R, C))``; C is the scale row stride a kernel is given.

    Raises:
        LayoutError: as in :func:`pad_scales`.
    """
    scales = byte_view(scales, "scales")
    padded = padded_scales(tuple(scales.shape), pad_value, row_multiple, k)  # type: ignore[attr-defined]
    return SCALES_32X8.apply(scales, pad_value=pad_value, padded=padded)


def untile_scales(tiled: Array, shape: Sequence[int]) -> Array:
    """The scales of logical ``shape`` ``[..., rows, n]`` out of a tiled buffer ``[..., R, C]``.

    Raises:
        LayoutError: a buffer that is not whole tiles, or is smaller than ``shape``.
    """
    return SCALES_32X8.invert(byte_view(tiled, "tiled scales"), shape)


def shuffle_weights(weights: Array) -> Array:
    """Packed weights ``[..., N, bytes along K]`` in the (16,16) pre-shuffled order, same shape.

    Raises:
        LayoutError: not bytes, N % 16 or bytes % 32 not 0.
    """
    return WEIGHTS_16X16.apply(byte_view(weights, "weights"))


def unshuffle_weights(shuffled: Array) -> Array:
    """The inverse of :func:`shuffle_weights`.

    Raises:
        LayoutError: as in :func:`shuffle_weights`.
    """
    return WEIGHTS_16X16.invert(byte_view(shuffled, "shuffled weights"))


def check_scale_columns(columns: int, k: int) -> None:
    """Check that scales of ``columns`` blocks belong to a K of ``k`` elements.

    Raises:
        LayoutError: another number than ceil(k/32); the message says so if ``k`` looks like bytes of packed FP4.
    """
    need = -(-k // BLOCK)
    if columns == need:
        return
    hint = None
    if columns == -(-2 * k // BLOCK):
        hint = f"k={k} looks like bytes of packed FP4; K counts elements ({2 * k})"
    raise LayoutError("scale columns", got=columns, need=f"{need} (K={k} in blocks of {BLOCK})", hint=hint)


@dataclass(frozen=True)
class Padding:
    """What :func:`check_padding` found; true if every padded position holds the right value.

    Attributes:
        expected: the value the padding should have.
        positions: padded positions in the buffer.
        wrong: how many hold another value.
        values: those other values and how often each is there, most frequent first.
        first: the logical index of the first of them, None if there is none.
    """

    expected: int
    positions: int
    wrong: int
    values: tuple[tuple[int, int], ...]
    first: tuple[int, ...] | None

    def __bool__(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        if not self.wrong:
            return f"all {self.positions} padded bytes are 0x{self.expected:02x}"
        found = ", ".join(f"0x{value:02x} ({count})" for value, count in self.values[:4])
        meaning = {0x7F: "a scale of 1, which adds garbage", 0xFF: "NaN"}.get(self.values[0][0], "stale bytes")
        return (
            f"{self.wrong} of {self.positions} padded bytes are not 0x{self.expected:02x}: {found}, "
            f"first at {self.first}; 0x{self.values[0][0]:02x} is {meaning}"
        )


def check_padding(
    buffer: Array, shape: Sequence[int], layout: Layout = SCALES_32X8, *, expected: int | None = None
) -> Padding:
    """Look at the padded positions of a buffer that someone else made.

    Args:
        buffer: bytes in ``layout``, of a padded shape.
        shape: the logical shape of what it holds.
        expected: the right value; the layout's own where it is left out.

    Raises:
        LayoutError: a buffer that does not fit, or a layout without a pad value and none given.
    """
    expected = layout.pad_value if expected is None else expected
    if expected is None:
        raise LayoutError(f"pad value of layout {layout.label}", got="none", need="expected=")
    logical = _host(layout.invert(byte_view(buffer, "buffer")))
    shape = tuple(shape)
    if logical.ndim != len(shape) or any(a < b for a, b in zip(logical.shape, shape, strict=True)):
        raise LayoutError("buffer to check", got=f"shape {logical.shape}", need=f"at least {shape}")
    padding = np.ones(logical.shape, bool)
    padding[tuple(slice(size) for size in shape)] = False
    wrong = padding & (logical != expected)
    values, counts = np.unique(logical[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    first = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else None
    return Padding(
        expected,
        int(padding.sum()),
        int(wrong.sum()),
        tuple((int(values[i]), int(counts[i])) for i in order),
        first,
    )


def _host(array: Array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()  # type: ignore[attr-defined]


def padded_scales(
    shape: Sequence[int], pad_value: int = 0, row_multiple: int = 256, k: int | None = None
) -> tuple[int, ...]:
    """The shape that :func:`pad_scales` gives scales of ``shape``.

    Raises:
        LayoutError: as there.
    """
    if len(shape) < 2:
        raise LayoutError("scales", got=f"shape {tuple(shape)}", need="[rows, ceil(K/32)]")
    if k is not None:
        check_scale_columns(shape[-1], k)
    tile_rows, tile_columns = SCALES_32X8.tile
    if row_multiple <= 0 or row_multiple % tile_rows:
        raise LayoutError("row_multiple of scales", got=row_multiple, need=f"a multiple of {tile_rows}")
    if not 0 <= pad_value <= 255:
        raise LayoutError("pad value of scales", got=pad_value, need="0..255")
    rows, columns = shape[-2:]
    return (*shape[:-2], -(-rows // row_multiple) * row_multiple, -(-columns // tile_columns) * tile_columns)
