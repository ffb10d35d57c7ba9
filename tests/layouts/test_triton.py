"""The Triton kernels, interpreted on the CPU, against numpy."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are decorated, at import

import numpy as np
import pytest
import torch

from asmlaunch import layouts
from asmlaunch.layouts import LAYOUTS, ROUNDINGS, triton_kernels
from asmlaunch.layouts.e8m0 import f32_rule

RNG = np.random.default_rng(0)


def shapes(layout):
    """Whole tiles, edges on all sides, and whole columns with a ragged end of rows."""
    tile, open_ = layout.tile, [group[0] not in layout.sizes for group in layout.groups]
    ragged = [max(1, 2 * t - 3) if o else 2 * t for t, o in zip(tile, open_, strict=True)]
    yield tuple(2 * t for t in tile)
    yield tuple(ragged)
    yield (ragged[0], *(3 * t for t in tile[1:]))
    yield (2, *ragged)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name):
    layout = LAYOUTS[name]
    for shape in shapes(layout):
        x = RNG.integers(0, 256, shape, dtype=f"u{layout.itemsize}")
        tensor = torch.from_numpy(x.view(f"i{layout.itemsize}") if layout.itemsize > 1 else x)
        out = triton_kernels.apply(layout, tensor, layout.padded_shape(shape), 200)
        assert np.array_equal(out.numpy().view(x.dtype), layout.apply(x, pad_value=200)), shape
        assert np.array_equal(triton_kernels.invert(layout, out, shape).numpy().view(x.dtype), x), shape


@pytest.mark.parametrize("name", [name for name in LAYOUTS if LAYOUTS[name].rank == 2])
def test_wide_rows(name):
    """Rows long enough for vectors of 16 bytes, more columns than one program has, and rows of other alignments."""
    layout = LAYOUTS[name]
    unpadded = layout.groups[0][0] in layout.sizes
    for columns in (192, 136, 260):
        shape = 2 * layout.tile[0] - (not unpadded), -(-columns // layout.tile[1]) * layout.tile[1]
        x = RNG.integers(0, 256, shape, dtype=f"u{layout.itemsize}")
        tensor = torch.from_numpy(x.view(f"i{layout.itemsize}") if layout.itemsize > 1 else x)
        out = triton_kernels.apply(layout, tensor, layout.padded_shape(shape), 200)
        assert np.array_equal(out.numpy().view(x.dtype), layout.apply(x, pad_value=200)), shape
        assert np.array_equal(triton_kernels.invert(layout, out, shape).numpy().view(x.dtype), x), shape


def test_more_padding_than_needed():
    x = torch.from_numpy(RNG.integers(0, 256, (40, 16), dtype=np.uint8))
    for layout in (layouts.SCALES_32X8, LAYOUTS["scales_n32k4"]):
        padded = (96, 48)
        out = triton_kernels.apply(layout, x, padded, 7)
        assert np.array_equal(out.numpy(), layout.apply(x.numpy(), pad_value=7, padded=padded))
        assert torch.equal(triton_kernels.invert(layout, out, (40, 16)), x)


@pytest.mark.parametrize("rows", [1, 16, 31, 33, 64, 65])
@pytest.mark.parametrize("columns", [1, 8, 52, 56, 264])
def test_scale_tiles(rows, columns):
    x = RNG.integers(0, 256, (rows, columns), dtype=np.uint8)
    padded = (-(-rows // 256) * 256, -(-columns // 8) * 8)
    out = triton_kernels.apply(layouts.SCALES_32X8, torch.from_numpy(x), padded, 0)
    assert np.array_equal(out.numpy(), layouts.tile_scales(x))
    wide = torch.from_numpy(np.repeat(x, 2, axis=1))[:, ::2]
    assert torch.equal(triton_kernels.apply(layouts.SCALES_32X8, wide, padded, 0), out)
    assert torch.equal(triton_kernels.invert(layouts.SCALES_32X8, out, padded)[:rows, :columns], torch.from_numpy(x))


def test_results_in_given_memory():
    x = torch.from_numpy(RNG.integers(0, 256, (40, 16), dtype=np.uint8))
    memory, back = torch.zeros(64, 16, dtype=torch.uint8), torch.zeros_like(x)
    assert triton_kernels.apply(layouts.SCALES_32X8, x, (64, 16), 0, memory) is memory
    assert torch.equal(memory, layouts.SCALES_32X8.apply(x))
    assert triton_kernels.invert(layouts.SCALES_32X8, memory, (40, 16), back) is back
    assert torch.equal(back, x)
    unaligned = torch.zeros(64 * 16 + 1, dtype=torch.uint8)[1:].view(64, 16)
    triton_kernels.apply(layouts.SCALES_32X8, x, (64, 16), 0, unaligned)
    assert torch.equal(unaligned, memory)


def test_empty_tensors():
    empty = torch.empty((0, 8), dtype=torch.uint8)
    assert triton_kernels.apply(layouts.SCALES_32X8, empty, (0, 8), 0).shape == (0, 8)
    assert triton_kernels.quantize_mxfp4_tiled(torch.empty(0, 64), 0, 0, 256)[1].shape == (0, 8)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_fused_quantisation(rounding, dtype):
    x = RNG.standard_normal((70, 340)) * np.exp2(RNG.integers(-130, 127, (70, 340)))
    x[3, 5], x[4, 40], x[5, :64], x[6, :32], x[7, :32] = np.nan, -np.inf, 0, 3.3e38, -0.0
    x[8, :32], x[9, :32], x[10, 11:32] = 1e-40, 1e-45, 0
    x[10, :11] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -5]
    tensor = torch.from_numpy(x.astype(np.float32)).to(dtype)
    packed, scales = triton_kernels.quantize_mxfp4_tiled(tensor, *f32_rule(rounding), 256)
    with np.errstate(over="ignore"):
        expected = layouts.quantize_mxfp4(tensor.float().numpy(), rounding)
    assert np.array_equal(packed.numpy(), expected[0])
    assert np.array_equal(scales.numpy(), layouts.tile_scales(expected[1]))
    assert torch.equal(
        triton_kernels.quantize_mxfp4_tiled(tensor.T.contiguous().T, *f32_rule(rounding), 256)[0], packed
    )
