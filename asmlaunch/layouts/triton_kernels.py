"""Layouts and quantisation on a GPU: the Triton kernel that a layout, a shape and an alignment allow, launched.

Everything a kernel needs to know of a layout comes from the description that numpy applies. Every kernel also runs
under ``TRITON_INTERPRET=1`` on tensors in host memory, which is how the tests check it without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import triton

from asmlaunch.layouts import _triton_jit
from asmlaunch.layouts.e8m0 import f32_rule
from asmlaunch.layouts.formats import E2M1
from asmlaunch.layouts.named import SCALES_32X8, SCALES_32X8_GATE_UP
from asmlaunch.layouts.tiling import BLOCK, padded_scales

if TYPE_CHECKING:
    from asmlaunch.layouts.formats import Format
    from asmlaunch.layouts.layout import Axis, Layout

_TILE_BYTES = 16384
"""Bytes that a program of ``move`` moves, about."""
_RUN = 8
"""Vectors next to each other in memory that a warp of ``move`` moves; 32 / _RUN are next to each other in a row."""
_MOVE_WARPS, _EXCHANGE_WARPS, _QUANTIZE_WARPS = 8, 4, 4
_EXCHANGE_LANES = 128
_QUANTIZE_TILES = 1


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


def quantize_tiled(x: Any, element: Format, rounding: str, row_multiple: int) -> tuple[Any, Any]:
    """``x`` (``[rows, K]``, on a GPU) in an MX format: codes ``[rows, K]`` and scales in the 32x8 tiling.

    Args:
        element: E2M1 (K even, two codes a byte), E4M3FN or E5M2.
        rounding: of the scales, a name of ``e8m0.ROUNDINGS``.
        row_multiple: as for ``tile_scales``.
    """
    rule = f32_rule(rounding, element)
    rows, k = x.shape
    blocks = -(-k // BLOCK)
    padding = -k % BLOCK
    if padding:
        # Zeros change neither the scale of a block nor the codes before them.
        x = torch.nn.functional.pad(x, (0, padding))
    elif x.stride(1) != 1:
        x = x.contiguous()
    codes = torch.empty((rows, BLOCK * blocks * element.bits // 8), dtype=torch.uint8, device=x.device)
    padded = padded_scales((rows, blocks), row_multiple=row_multiple)
    scales = torch.empty(padded, dtype=torch.uint8, device=x.device)
    if scales.numel():
        pairs = element == E2M1 and _has_pairs(x)
        if pairs:
            x = x.view(torch.int32)
        grid = (triton.cdiv(padded[1], 8 * _QUANTIZE_TILES) * (padded[0] // 32),)
        _triton_jit.quantize[grid](
            x,
            codes.view(torch.int32),
            scales,
            rows,
            k + padding,
            x.stride(0),
            blocks,
            padded[1],
            BITS=element.bits,
            MANTISSA=element.mantissa_bits,
            BIAS=element.bias,
            MAX_CODE=element.max_code,
            CARRY=rule.carry,
            TOP=rule.top,
            CLAMP=rule.saturates,
            TILES=_QUANTIZE_TILES,
            PAIRS=pairs,
            num_warps=_QUANTIZE_WARPS,
        )
    return codes[:, : k * element.bits // 8].contiguous(), scales


def _has_pairs(x: Any) -> bool:
    """Whether the processor calculates with pairs of bfloat16, and ``x`` is one that whole pairs begin the rows of."""
    return (
        x.dtype == torch.bfloat16
        and x.is_cuda
        and torch.version.hip is None
        and torch.cuda.get_device_capability(x.device) >= (9, 0)
        and x.stride(0) % 2 == 0
        and x.storage_offset() % 2 == 0
    )


def _run(layout: Layout, logical: Any, memory: Any, shape: tuple[int, ...], pad_value: int, *, invert: bool) -> None:
    """Launch the widest kernel that the layout, the shape and the alignment allow."""
    if memory.numel() == 0:
        return
    rank = layout.rank
    if logical.dim() != rank + 1:
        logical = logical.reshape(-1, *shape[-rank:])
    if memory.dim() != rank + 1:
        memory = memory.reshape(-1, *memory.shape[-rank:])
    strides = logical.stride()
    alignment = logical.data_ptr() | memory.data_ptr() | layout.itemsize * math.gcd(*strides[:-1])
    plan = None
    if rank == 2 and strides[-1] == 1:
        width = min(16, alignment & -alignment)
        plan = _plan(layout, tuple(logical.shape[1:]), tuple(memory.shape[1:]), strides[1], width)
    if plan is None:
        _run_elements(layout, logical, memory, pad_value, invert)
        return
    plan.kernel[plan.programs, logical.shape[0]](
        logical.view(torch.int32),
        memory.view(torch.int32),
        logical.shape[1],
        _repeat(pad_value, layout.itemsize, 4),
        *plan.arguments,
        strides[0] * layout.itemsize // plan.logical_unit,
        memory.stride(0) * layout.itemsize // plan.memory_unit,
        **plan.constants,
        INVERT=invert,
    )


@dataclass(frozen=True)
class _Plan:
    """A launch for tensors of one shape: what does not depend on where they are and what is in them.

    ``logical_unit`` and ``memory_unit`` are the bytes in which the distances between batches are counted.
    """

    kernel: Any
    programs: int
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    logical_unit: int
    memory_unit: int


@lru_cache(maxsize=4096)
def _plan(layout: Layout, extents: tuple[int, int], padded: tuple[int, int], row_step: int, width: int) -> _Plan | None:
    """How to move words of up to ``width`` bytes, the alignment of every row; None where there are none of 4 bytes.

    ``row_step`` is the elements from a row of the tensor to the next.
    """
    if extents[1] != padded[1] or extents[1] % layout.tile[1]:
        return None
    if layout.itemsize == 1 and layout in (SCALES_32X8, SCALES_32X8_GATE_UP):
        return _exchange_plan(layout, extents, padded, row_step, width)
    if any(size & (size - 1) for size in layout.sizes.values()):
        return None
    return next((p for v in (16, 8, 4) if v <= width and (p := _move_plan(layout, padded, row_step, v))), None)


def _exchange_plan(
    layout: Layout, extents: tuple[int, int], padded: tuple[int, int], row_step: int, width: int
) -> _Plan | None:
    if width < 8:
        return None
    tiles = 2 if width == 16 and extents[1] % 16 == 0 else 1
    vectors = extents[1] // (8 * tiles)
    lanes = 4 * min(_EXCHANGE_LANES // 4, triton.next_power_of_2(vectors))
    gate_up = layout == SCALES_32X8_GATE_UP
    across = triton.cdiv(vectors, lanes // 4)
    tile_rows, half_rows = (16, extents[0] // 2) if gate_up else (32, 16)
    return _Plan(
        _triton_jit.exchange_bytes,
        across * (padded[0] // 32),
        (row_step // (8 * tiles), tile_rows, half_rows, across, vectors),
        {"W": tiles, "N": lanes, "num_warps": max(1, min(_EXCHANGE_WARPS, lanes // 32))},
        8 * tiles,
        256,
    )


def _move_plan(layout: Layout, padded: tuple[int, int], row_step: int, vector: int) -> _Plan | None:
    """``move`` with vectors of ``vector`` bytes: which axes a thread has, which a warp and which a program."""
    axes = {axis.name: axis for axis in layout.axes(padded)}
    memory_order = list(reversed(layout.order))
    column_order = list(reversed(layout.groups[1]))
    last = column_order[0]
    run = layout.sizes.get(last, 1) * layout.itemsize
    if memory_order[0] != last or run < 4:
        return None
    pieces = max(1, vector // run)
    left = {name: axis.size for name, axis in axes.items()}
    taken = dict.fromkeys(axes, 1)
    left[last], taken[last] = max(1, run // vector), min(run, vector) // layout.itemsize
    piece = ((0, 0), 0)
    if pieces > 1:
        if len(memory_order) < 2 or len(column_order) < 2:
            return None
        stacked, beside = memory_order[1], column_order[1]
        if stacked == beside or left[stacked] % pieces or left[beside] % pieces:
            return None
        piece = (_steps(axes[stacked], layout.itemsize, vector)[:2], axes[beside].stride * layout.itemsize // vector)
        for name in (stacked, beside):
            left[name], taken[name] = left[name] // pieces, pieces
    free = _free(layout)
    counts = tuple(left[name] for name in free)
    units = tuple(taken[name] for name in free)
    for name in free:
        left[name] = triton.next_power_of_2(left[name])
    chosen: list[tuple[int, tuple[int, int, int], tuple[int, int]]] = []

    def take(names: Sequence[str], lanes: int) -> int:
        """Give lanes to the axes, the first first; the lanes that are left."""
        for name in names:
            size = min(lanes, left[name])
            if size > 1:
                rows, columns, memory = _steps(axes[name], layout.itemsize, vector, taken[name])
                moved = (name == free[0], name == free[1])
                chosen.append(
                    (
                        size,
                        (rows, columns, memory),
                        (moved[0] * taken[name] // units[0], moved[1] * taken[name] // units[1]),
                    )
                )
                left[name], taken[name], lanes = left[name] // size, taken[name] * size, lanes // size
        return lanes

    take(column_order, 32 // _RUN * take(memory_order, _RUN))
    sized = [name for name in memory_order if name in layout.sizes]
    take(sized, math.prod(layout.tile))
    lanes = math.prod(size for size, _, _ in chosen)
    take([free[1], free[0]], max(1, _TILE_BYTES // (lanes * vector * pieces)))
    chosen = chosen or [(1, (0, 0, 0), (0, 0))]
    lanes = math.prod(size for size, _, _ in chosen)
    blocks = tuple(taken[name] // unit for name, unit in zip(free, units, strict=True))
    across = triton.cdiv(counts[1], blocks[1])
    free_steps = [_steps(axes[name], layout.itemsize, vector, unit) for name, unit in zip(free, units, strict=True)]
    return _Plan(
        _triton_jit.move,
        across * triton.cdiv(counts[0], blocks[0]),
        (
            row_step * layout.itemsize // vector,
            across,
            counts,
            *zip(*free_steps, strict=True),
            *zip(*(steps for _, steps, _ in chosen), strict=True),
            *piece[0],
            piece[1],
        ),
        {
            "SIZES": tuple(size for size, _, _ in chosen),
            "FREE_STEPS": tuple(moved for _, _, moved in chosen),
            "BLOCKS": blocks,
            "N": lanes,
            "P": pieces,
            "VEC": vector // 4,
            "num_warps": max(1, min(_MOVE_WARPS, lanes // 32)),
        },
        vector,
        vector,
    )


def _steps(axis: Axis, itemsize: int, vector: int, times: int = 1) -> tuple[int, int, int]:
    """Rows, vectors of a row and vectors of memory that ``times`` steps along an axis make."""
    step = axis.step * times
    rows, columns = (step, 0) if axis.dimension == 0 else (0, step * itemsize // vector)
    return rows, columns, axis.stride * times * itemsize // vector


def _free(layout: Layout) -> tuple[str, ...]:
    return tuple(next(axis for axis in group if axis not in layout.sizes) for group in layout.groups)


def _repeat(pad_value: int, item: int, word: int) -> int:
    value = int.from_bytes(pad_value.to_bytes(item, "little") * (word // item), "little")
    return value - (1 << 8 * word) if value >= 1 << (8 * word - 1) else value


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
