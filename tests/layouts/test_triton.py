"""The Triton kernels, interpreted on the CPU, against numpy."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are decorated, at import

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch

from asmlaunch import layouts
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import LAYOUTS, ROUNDINGS, SCHEMES, _tensors, triton_kernels
from asmlaunch.layouts.formats import E4M3FN, E5M2

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
    codes, scales = triton_kernels.quantize_tiled(torch.empty(0, 64), E5M2, "RoundUp", 256)
    assert (codes.shape, scales.shape) == ((0, 64), (0, 8))


FUSED = ("mxfp4", "mxfp8_e4m3", "mxfp8_e5m2")
SPECIFICATION = spec_from_file_location(
    "layouts_gpu", Path(__file__).resolve().parents[2] / "benchmarks" / "layouts_gpu.py"
)
BENCHMARK = module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(BENCHMARK)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("scheme", FUSED)
def test_fused_quantisation(scheme, dtype, rounding):
    """On the values that the benchmark checks on a GPU, fewer of them."""
    element = SCHEMES[scheme].element
    for x in (next(BENCHMARK.ordinary_and_special())[:64], BENCHMARK.around_codes(scheme)[::7, :-12]):
        tensor = torch.from_numpy(x).to(dtype)
        codes, scales = triton_kernels.quantize_tiled(tensor, element, rounding, 32)
        expected = layouts.quantize(tensor.float().numpy(), scheme, scale_rounding=rounding)
        assert np.array_equal(codes.numpy(), expected.codes)
        assert np.array_equal(scales.numpy(), layouts.tile_scales(expected.scales, row_multiple=32))


@pytest.mark.parametrize("element", [E4M3FN, E5M2])
def test_every_bfloat16(element):
    """All of them as 2048 blocks of neighbours: NaN of both signs with every payload, and subnormals, among them."""
    x = torch.from_numpy(np.arange(1 << 16, dtype=np.uint16).view(np.int16).reshape(32, 2048)).view(torch.bfloat16)
    codes, scales = triton_kernels.quantize_tiled(x, element, "RoundDown", 32)
    blocks = x.double().numpy().reshape(-1, 32)
    exact = layouts.untile_scales(scales, (32, 64)).numpy().reshape(-1, 1).astype(np.int64)
    kind = {E4M3FN: torch.float8_e4m3fn, E5M2: torch.float8_e5m2}[element]
    # torch's conversion as the oracle; it does not saturate.
    scaled = np.clip(np.ldexp(blocks, (127 - exact).astype(np.int32)), -element.max, element.max)
    expected = torch.from_numpy(scaled.astype(np.float32)).to(kind).view(torch.uint8).numpy()
    finite = exact[:, 0] < 255
    assert np.array_equal(finite, np.isfinite(blocks).all(axis=1))
    assert np.array_equal(codes.numpy().reshape(-1, 32)[finite], expected[finite])
    assert np.array_equal(codes.numpy().reshape(-1, 32)[~finite], np.where(np.signbit(blocks[~finite]), 0xFF, 0x7F))


@pytest.mark.parametrize("scheme", FUSED)
def test_tensors_that_are_not_plain(scheme):
    """Rows that are not neighbours in memory, several row tiles of padding, one row, a K of less than a block."""
    element = SCHEMES[scheme].element
    x = torch.from_numpy(RNG.standard_normal((40, 300)).astype(np.float32))
    for tensor in (x[:, :258], x[:, 3:67], x.T[:70], x[:1, :2], x[::2, ::2][:, :34]):
        codes, scales = triton_kernels.quantize_tiled(tensor, element, "RoundUp", 64)
        expected = layouts.quantize(tensor.contiguous(), scheme)
        assert torch.equal(codes, expected.codes)
        assert torch.equal(scales, layouts.tile_scales(expected.scales, row_multiple=64))


@pytest.mark.parametrize("element", ["e4m3", "e5m2"])
def test_one_function_for_host_and_device(element, monkeypatch):
    x = torch.from_numpy(RNG.standard_normal((40, 333)).astype(np.float32)).bfloat16()
    host = layouts.quantize_mxfp8_tiled(x, element, "Even", row_multiple=64)
    monkeypatch.setattr(_tensors, "on_device", lambda _: True)
    monkeypatch.setattr(_tensors, "triton_runs", lambda _: True)
    device = layouts.quantize_mxfp8_tiled(x, element, "Even", row_multiple=64)
    for got, want in zip(device, host, strict=True):
        assert got.dtype == torch.uint8
        assert torch.equal(got, want)
    with pytest.raises(LayoutError, match="multiple of 32"):
        layouts.quantize_mxfp4_tiled(x[:, :32], row_multiple=48)
    with pytest.raises(LayoutError, match="RoundUp"):
        layouts.quantize_mxfp8_tiled(x, element, "Nearest")
