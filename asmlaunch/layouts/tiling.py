"""The steps that prepare operands of an MI350 a4w4 GEMM: pad and tile the scales, pre-shuffle the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.fp4 import as_bytes
from asmlaunch.layouts.named import SCALES_32X8, WEIGHTS_16X16

BLOCK = 32
"""Elements along K that share one scale in the MX formats."""


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
    scales = as_bytes(scales, "scales")
    if scales.ndim < 2:
        raise LayoutError("scales", got=f"shape {scales.shape}", need="[rows, ceil(K/32)]")
    if k is not None:
        check_scale_columns(scales.shape[-1], k)
    if row_multiple <= 0 or row_multiple % SCALES_32X8.tile[0]:
        raise LayoutError("row_multiple of scales", got=row_multiple, need=f"a multiple of {SCALES_32X8.tile[0]}")
    if not 0 <= pad_value <= 255:
        raise LayoutError("pad value of scales", got=pad_value, need="0..255")
    rows, columns = scales.shape[-2:]
    multiple = SCALES_32X8.tile[1]
    padded = np.full(
        (*scales.shape[:-2], -(-rows // row_multiple) * row_multiple, -(-columns // multiple) * multiple),
        pad_value,
        np.uint8,
    )
    padded[..., :rows, :columns] = scales
    return padded


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


def tile_scales(scales: np.ndarray, *, pad_value: int = 0, row_multiple: int = 256, k: int | None = None) -> np.ndarray:
    """Scales ``[..., rows, n]`` padded (see :func:`pad_scales`) and put into the 32x8 tiling: uint8 ``[..., R, C]``.

    Byte (x, y) lands at ``named.SCALES_32X8.address((x, y), (R, C))``; C is the scale row stride a kernel is given.

    Raises:
        LayoutError: as in :func:`pad_scales`.
    """
    return SCALES_32X8.apply(pad_scales(scales, pad_value=pad_value, row_multiple=row_multiple, k=k))


def untile_scales(tiled: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """The scales of logical ``shape`` ``[..., rows, n]`` out of a tiled buffer ``[..., R, C]``.

    Raises:
        LayoutError: a buffer that is not whole tiles, or is smaller than ``shape``.
    """
    return SCALES_32X8.invert(as_bytes(tiled, "tiled scales"), shape)


def shuffle_weights(weights: np.ndarray) -> np.ndarray:
    """Packed weights ``[..., N, bytes along K]`` in the (16,16) pre-shuffled order, same shape.

    Raises:
        LayoutError: not bytes, N % 16 or bytes % 32 not 0.
    """
    return WEIGHTS_16X16.apply(as_bytes(weights, "weights"))


def unshuffle_weights(shuffled: np.ndarray) -> np.ndarray:
    """The inverse of :func:`shuffle_weights`.

    Raises:
        LayoutError: as in :func:`shuffle_weights`.
    """
    return WEIGHTS_16X16.invert(as_bytes(shuffled, "shuffled weights"))
