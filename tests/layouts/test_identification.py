"""Buffers made in known ways are recognised, and near misses are explained."""

from __future__ import annotations

import numpy as np
import pytest

from asmlaunch import layouts
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import identify

RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal((96, 2048)).astype(np.float32)
BYTES = RNG.integers(0, 256, (192, 512), dtype=np.uint8)

BYTE_LAYOUTS = [name for name in layouts.names() if layouts.get(name).rank == 2 and layouts.get(name).itemsize == 1]


@pytest.mark.parametrize("name", BYTE_LAYOUTS)
def test_every_layout_is_recognised(name):
    layout = layouts.get(name)
    found = identify(layout.apply(BYTES, pad_value=3), BYTES)
    assert found
    assert found.layout == layout
    assert found.pad_values in ((), (3,))


def test_padding_is_reported():
    scales = BYTES[:100, :50]
    for pad, rows in ((0, 256), (0x7F, 256), (0xFF, 32)):
        found = identify(layouts.tile_scales(scales, pad_value=pad, row_multiple=rows), scales)
        assert found
        assert found.pad_values == (pad,)
        assert f"0x{pad:02x}" in str(found)


@pytest.mark.parametrize("mode", ["RoundDown", "RoundUp", "Even", "Ceil"])
def test_the_rounding_of_scales(mode):
    tiled = layouts.tile_scales(layouts.quantize_mxfp4(VALUES, mode)[1])
    found = identify(tiled, VALUES)
    assert found
    assert (found.layout, found.rounding) == (layouts.SCALES_32X8, mode)
    if mode == "RoundDown":
        assert "one low: rounding mode RoundDown, expected RoundUp" in str(found)
    if mode == "RoundUp":
        assert not found.note
    assert identify(tiled, VALUES, rounding=mode).note == ""


def test_scale_bytes_that_are_all_one_low():
    right = layouts.quantize_mxfp4(VALUES)[1]
    found = identify(layouts.tile_scales(right - 1), right)
    assert not found
    assert "scale bytes are all one low: another scale rounding mode" in str(found)
    wrong = layouts.quantize_mxfp4(VALUES, "RoundDown")[1]
    found = identify(layouts.tile_scales(wrong), right)
    assert found.layout == layouts.SCALES_32X8
    assert "one low" in found.note


def test_the_order_of_nibbles():
    packed = layouts.quantize_mxfp4(VALUES)[0]
    swapped = packed << 4 | packed >> 4
    codes = layouts.unpack_fp4(packed)
    ggml = layouts.pack_fp4(layouts.get("nibbles_ggml").apply(codes))
    for buffer, order in ((packed, "low first"), (swapped, "high first"), (ggml, "ggml")):
        found = identify(layouts.shuffle_weights(buffer), VALUES)
        assert found
        assert (found.layout, found.nibble_order) == (layouts.WEIGHTS_16X16, order)
    assert identify(ggml, packed).nibble_order == "ggml"
    assert identify(swapped, packed).layout.name == "row_major"


def test_a_damaged_byte_is_found():
    tiled = layouts.tile_scales(BYTES).copy()
    row, column = layouts.SCALES_32X8.element(1000, tiled.shape)
    tiled.reshape(-1)[1000] ^= 1
    found = identify(tiled, BYTES)
    assert not found
    assert found.departs == (row, column)
    assert found.expected == BYTES[row, column]
    assert f"closest is scales_32x8, pad 0x00: 100.00% of the elements fit, element ({row}, {column})" in str(found)


def test_small_tensors_fit_several_layouts():
    found = identify(np.arange(8, dtype=np.uint8), np.arange(8, dtype=np.uint8).reshape(1, 8))
    assert found
    assert found.layout.name == "row_major"
    assert "scales_gfx1250_mx32" in found.also
    assert "as well" in str(found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: identify(np.zeros(5, np.uint8), np.zeros((2, 2), np.uint8)), "5 bytes"),
        (lambda: identify(np.zeros(5, np.uint16), np.zeros((2, 2), np.uint8)), "one byte"),
        (lambda: identify(np.zeros(5, np.uint8), np.zeros(5, np.uint8)), "rank 2"),
        (lambda: identify(np.zeros(4, np.uint8), np.zeros((2, 2), np.uint8), rounding="Up"), "RoundDown"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(LayoutError, match=message):
        call()
