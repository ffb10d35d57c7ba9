"""Layouts and quantisation on a GPU: the Triton kernel that a layout, a shape and an alignment allow, launched.

Everything a kernel needs to know of a layout comes from the description that numpy applies. Every kernel also runs
under ``TRITON_INTERPRET=1`` on tensors in host memory, which is how the tests check it without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import triton

from asmlaunch.layouts import _triton_jit
from asmlaunch.layouts.named import SCALES_32X8, SCALES_32X8_GATE_UP

if TYPE_CHECKING:
    from asmlaunch.layouts.layout import Layout

_UNSIGNED = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TILE_BYTES = 16384
"""Bytes that a program moves, about."""


def apply(layout: Layout, tensor: Any, padded: Sequence[int], pad_value: int, out: Any | None = None) -> Any:
    """``layout`` applied to ``tensor`` (unsigned integers of its element size, any strides): contiguous, ``padded``."""
    memory = torch.empty(tuple(padded), dtype=tensor.dtype, device=tensor.device) if out is None else out
    _run(layout, tensor, memory, tuple(tensor.shape), pad_value, invert=False)
    return memory


def invert(layout: Layout, buffer: Any, shape: Sequence[int], out: Any | None = None) -> Any:
    """The tensor of logical ``shape`` whose layout ``buffer`` (contiguous, padded shape) is."""
    logical = torch.empty(tuple(shape), dtype=buffer.dtype, device=buffer.device) if out is None else out
    _run(layout, logical, buffer, tuple(shape), 0, invert=True)
    return logical


def quantize_mxfp4_tiled(x: Any, carry: int, top: int, row_multiple: int) -> tuple[Any, Any]:
    """MXFP4 of ``x`` (``[rows, K]``, K even, on a GPU): packed ``[rows, K/2]`` and scales in the 32x8 tiling.

    ``carry`` and ``top`` describe the rounding of the scales (``e8m0.f32_rule``).
    """
    rows, k = x.shape
    if x.stride(1) != 1:
        x = x.contiguous()
    blocks = -(-k // 32)
    packed = torch.empty((rows, k // 2), dtype=torch.uint8, device=x.device)
    padded = -(-rows // row_multiple) * row_multiple, -(-blocks // 8) * 8
    scales = torch.empty(padded, dtype=torch.uint8, device=x.device)
    if scales.numel():
        per_program = 8
        grid = (padded[1] // per_program * (padded[0] // 32),)
        _triton_jit.quantize[grid](
            x, packed, scales, rows, k, x.stride(0), k // 2, padded[1], carry, top, per_program, num_warps=8
        )
    return packed, scales


def _run(layout: Layout, logical: Any, memory: Any, shape: tuple[int, ...], pad_value: int, *, invert: bool) -> None:
    """Launch the widest kernel that the layout, the shape and the alignment allow."""
    if memory.numel() == 0:
        return
    rank = layout.rank
    logical = logical.reshape(-1, *shape[-rank:]) if logical.dim() != rank + 1 else logical
    memory = memory.reshape(-1, *memory.shape[-rank:])
    if rank == 2 and layout.itemsize == 1 and layout in (SCALES_32X8, SCALES_32X8_GATE_UP):
        if _words_fit(logical, memory, layout, 8):
            _run_exchange(layout, logical, memory, pad_value, invert)
            return
    elif rank == 2 and layout.order[:2] == _free(layout) and _is_tile(layout):
        word = _common_run(layout)
        if word >= 4 and _words_fit(logical, memory, layout, word):
            _run_tiles(layout, logical, memory, pad_value, word, invert)
            return
    _run_elements(layout, logical, memory, pad_value, invert)


def _free(layout: Layout) -> tuple[str, ...]:
    return tuple(next(axis for axis in group if axis not in layout.sizes) for group in layout.groups)


def _is_tile(layout: Layout) -> bool:
    """Tiles that lie side by side, with power-of-two axes: what a Triton block can hold."""
    return not any(group[0] in layout.sizes for group in layout.groups) and all(
        size & (size - 1) == 0 for size in layout.sizes.values()
    )


def _common_run(layout: Layout) -> int:
    """Bytes, up to 8, that stay together: the last axis of the last dimension, where it is also last in memory."""
    last = layout.groups[-1][-1]
    if layout.order[-1] != last or last not in layout.sizes:
        return layout.itemsize
    return min(8, layout.sizes[last] * layout.itemsize)


def _words_fit(logical: Any, memory: Any, layout: Layout, word: int) -> bool:
    """True if rows are whole tiles wide and all that is loaded or stored starts at multiples of a word."""
    item = layout.itemsize
    return (
        logical.shape[-1] % layout.tile[-1] == 0
        and logical.stride(-1) == 1
        and all(stride * item % word == 0 for stride in logical.stride()[:-1])
        and logical.data_ptr() % word == 0
        and memory.data_ptr() % word == 0
    )


def _repeat(pad_value: int, item: int, word: int) -> int:
    value = int.from_bytes(pad_value.to_bytes(item, "little") * (word // item), "little")
    return value - (1 << 8 * word) if value >= 1 << (8 * word - 1) else value


def _run_exchange(layout: Layout, logical: Any, memory: Any, pad_value: int, invert: bool) -> None:
    batch, rows, columns = logical.shape
    padded_rows = memory.shape[1]
    gate_up = layout == SCALES_32X8_GATE_UP
    tiles = min(64, triton.next_power_of_2(columns // 8))
    words = logical.view(torch.int64)
    grid = (triton.cdiv(columns // 8, tiles) * (padded_rows // 32), batch)
    _triton_jit.exchange_bytes[grid](
        words,
        memory.view(torch.int32),
        rows,
        _repeat(pad_value, 1, 8),
        words.stride(1),
        16 if gate_up else 32,
        rows // 2 if gate_up else 16,
        columns // 8,
        words.stride(0),
        padded_rows * columns // 4,
        TILES=tiles,
        INVERT=invert,
    )


def _run_tiles(layout: Layout, logical: Any, memory: Any, pad_value: int, word: int, invert: bool) -> None:
    batch, rows, columns = logical.shape
    padded_rows = memory.shape[1]
    per_word = word // layout.itemsize
    tile_rows, tile_words = layout.tile[0], layout.tile[1] // per_word
    tiles = max(
        1, min(_TILE_BYTES // (tile_rows * tile_words * word), triton.next_power_of_2(columns // layout.tile[1]))
    )
    free_row, free_column = _free(layout)
    sizes = {**layout.sizes, free_row: 1, free_column: tiles}
    last = layout.groups[1][-1]
    sizes[last] //= per_word
    flat = [axis for group in layout.groups for axis in group]
    split = tuple(sizes[axis] for axis in flat)
    order = tuple(flat.index(axis) for axis in layout.order)
    back = tuple(layout.order.index(axis) for axis in flat)
    words, target = logical.view(_UNSIGNED[word]), memory.view(_UNSIGNED[word])
    grid = (triton.cdiv(columns // layout.tile[1], tiles) * (padded_rows // tile_rows), batch)
    _triton_jit.permute_tiles[grid](
        words,
        target,
        rows,
        _repeat(pad_value, layout.itemsize, word),
        words.stride(1),
        tile_rows * columns // per_word,
        columns // layout.tile[1],
        words.stride(0),
        padded_rows * columns // per_word,
        TILE_ROWS=tile_rows,
        TILE_WORDS=tile_words,
        TILES=tiles,
        SPLIT=split,
        ORDER=order,
        SPLIT_BACK=tuple(split[i] for i in order),
        ORDER_BACK=back,
        INVERT=invert,
    )


def _run_elements(layout: Layout, logical: Any, memory: Any, pad_value: int, invert: bool) -> None:
    axes = layout.axes(memory.shape[1:])
    shared = {
        "sizes": tuple(axis.size for axis in axes),
        "adds": tuple(axis.step for axis in axes),
        "strides": tuple(axis.stride for axis in axes),
        "DIMENSIONS": tuple(axis.dimension for axis in axes),
        "RANK": layout.rank,
        "BLOCK": 1024,
    }
    extents = tuple(logical.shape[1:])
    places = math.prod(memory.shape[1:])
    if invert:
        count = math.prod(extents)
        grid = (triton.cdiv(count, 1024), logical.shape[0])
        _triton_jit.scatter[grid](logical, memory, count, extents, count, places, **shared)
    else:
        value = _repeat(pad_value, layout.itemsize, layout.itemsize) if layout.itemsize > 1 else pad_value
        _triton_jit.gather[(triton.cdiv(places, 1024), logical.shape[0])](
            logical,
            memory,
            places,
            value,
            extents,
            tuple(logical.stride()[1:]),
            logical.stride(0),
            places,
            **shared,
        )
