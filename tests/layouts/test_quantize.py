"""MXFP4 quantisation and the preparation of a4w4 operands."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import (
    dequantize_mxfp4,
    pad_scales,
    quantize_mxfp4,
    shuffle_weights,
    tile_scales,
    unpack_fp4,
    unshuffle_weights,
    untile_scales,
)

GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest(value: float, scale: float) -> float:
    """The FP4 multiple of scale nearest to value, by trying all of them; ties to the even code."""
    distance = np.abs(GRID * scale - abs(value))
    best = np.flatnonzero(distance == distance.min())
    code = best[0] if len(best) == 1 or best[0] % 2 == 0 else best[1]
    return float(np.copysign(GRID[code] * scale, value))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 3),
    k=st.integers(1, 50).map(lambda half: 2 * half),
    power=st.integers(-100, 100),
    rounding=st.sampled_from(["RoundDown", "RoundUp", "Even", "Ceil"]),
    seed=st.integers(0, 2**31),
)
def test_elements_are_the_nearest_multiples_of_the_scale(rows, k, power, rounding, seed):
    x = np.ldexp(np.random.default_rng(seed).standard_normal((rows, k)), power).astype(np.float32)
    packed, scales = quantize_mxfp4(x, rounding)
    assert packed.shape == (rows, k // 2)
    assert scales.shape == (rows, -(-k // 32))
    back = dequantize_mxfp4(packed, scales)
    expected = [
        [nearest(float(v), 2.0 ** (int(scales[r, c // 32]) - 127)) for c, v in enumerate(x[r])] for r in range(rows)
    ]
    assert np.array_equal(back, np.array(expected))
    assert np.array_equal(np.signbit(back), np.signbit(x))


def test_ties_at_scale_one():
    x = np.zeros((1, 32), np.float32)
    x[0, :8] = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0]
    packed, scales = quantize_mxfp4(x)
    assert scales.tolist() == [[127]]
    assert unpack_fp4(packed)[0, :8].tolist() == [0, 2, 2, 4, 4, 6, 6, 7]


def test_special_blocks():
    x = np.zeros((6, 32), np.float32)
    x[1, :2] = -0.0
    x[2, 3] = np.nan
    x[3, 4] = -np.inf
    x[4, 5] = np.finfo(np.float32).max
    x[5, 6] = 1e-45
    packed, scales = quantize_mxfp4(x)
    assert scales[:, 0].tolist() == [0, 0, 255, 255, 253, 0]
    assert not packed[0].any()
    assert unpack_fp4(packed)[1, :3].tolist() == [8, 8, 0]
    assert unpack_fp4(packed)[3, 3:5].tolist() == [7, 15]
    assert np.isnan(dequantize_mxfp4(packed, scales)[2:4]).all()
    assert quantize_mxfp4(x, "Even")[1][4, 0] == 254
    assert quantize_mxfp4(x, "EvenRaw")[1][4, 0] == 255


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_input_types(dtype):
    x = np.random.default_rng(0).standard_normal((4, 96)).astype(dtype)
    for got, expected in zip(quantize_mxfp4(x), quantize_mxfp4(x.astype(np.float32)), strict=True):
        if dtype is not np.float64:
            assert np.array_equal(got, expected)
        assert got.dtype == np.uint8


def test_a_short_last_block_has_a_scale_of_its_own():
    x = np.ones((1, 34), np.float32)
    x[0, 32:] = 6
    assert quantize_mxfp4(x)[1].tolist() == [[125, 127]]


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 65), columns=st.integers(1, 20), pad=st.sampled_from([0, 127, 255]))
def test_every_padded_byte_of_tiled_scales_is_written(rows, columns, pad):
    x = np.full((rows, columns), 9, np.uint8)
    padded = pad_scales(x, pad_value=pad)
    assert padded.shape == (256, -(-columns // 8) * 8)
    assert np.count_nonzero(padded == pad) == padded.size - x.size
    tiled = tile_scales(x, pad_value=pad)
    assert np.count_nonzero(tiled == pad) == tiled.size - x.size
    assert np.array_equal(untile_scales(tiled, x.shape), x)
    small = tile_scales(x, pad_value=pad, row_multiple=32)
    assert small.shape[0] == -(-rows // 32) * 32
    # Row padding comes after the valid tiles, so nothing else moves.
    assert np.array_equal(tiled.ravel()[: small.size], small.ravel())


@pytest.mark.parametrize(("k", "valid", "padded"), [(1664, 52, 56), (1824, 57, 64), (1856, 58, 64)])
def test_scale_columns_of_tails(k, valid, padded):
    scales = np.full((3, valid), 127, np.uint8)
    tiled = tile_scales(scales, k=k)
    assert tiled.shape == (256, padded)
    assert np.count_nonzero(tiled) == scales.size


def test_weights_round_trip():
    w = np.random.default_rng(1).integers(0, 256, (2, 48, 96), dtype=np.uint8)
    assert np.array_equal(unshuffle_weights(shuffle_weights(w)), w)
    assert not np.array_equal(shuffle_weights(w), w)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantize_mxfp4(np.zeros((2, 33), np.float32)), "even"),
        (lambda: quantize_mxfp4(np.zeros((2, 32), np.int32)), "int32"),
        (lambda: quantize_mxfp4(np.zeros((2, 32), np.float32), "Nearest"), "RoundUp"),
        (lambda: tile_scales(np.zeros((4, 52), np.uint8), k=832), r"bytes of packed FP4; K counts elements \(1664\)"),
        (lambda: tile_scales(np.zeros((4, 52), np.uint8), k=1600), "got 52, need 50"),
        (lambda: tile_scales(np.zeros(8, np.uint8)), "rows"),
        (lambda: tile_scales(np.zeros((4, 8), np.float32)), "float32"),
        (lambda: tile_scales(np.zeros((4, 8), np.uint8), row_multiple=48), "multiple of 32"),
        (lambda: pad_scales(np.zeros((4, 8), np.uint8), pad_value=-1), r"0\.\.255"),
        (lambda: untile_scales(np.zeros((32, 8), np.uint8), (33, 8)), r"\(64, 8\)"),
        (lambda: shuffle_weights(np.zeros((24, 32), np.uint8)), r"\(32, 32\)"),
        (lambda: shuffle_weights(np.zeros((16, 32), np.int16)), "int16"),
        (lambda: dequantize_mxfp4(np.zeros((4, 32), np.uint8), np.zeros((4, 1), np.uint8)), "need 2"),
        (lambda: dequantize_mxfp4(np.zeros((4, 32), np.uint8), np.zeros((3, 2), np.uint8)), r"\(4, 2\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(LayoutError, match=message):
        call()
