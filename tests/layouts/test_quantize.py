"""MXFP4 quantisation and the preparation of a4w4 operands."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asmlaunch import layouts
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import (
    ROUNDINGS,
    SCHEMES,
    _jit,
    check_padding,
    dequantize_mxfp4,
    encode_e8m0,
    pad_scales,
    quantize,
    quantize_mxfp4,
    quantize_mxfp4_tiled,
    quantize_mxfp8_tiled,
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


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("k", [2048, 2010])
def test_compiled_quantisation_is_that_of_numpy(rounding, dtype, k, monkeypatch):
    rng = np.random.default_rng(k)
    x = rng.standard_normal((300, k)) * np.exp2(rng.integers(-140, 127, (300, 1)))
    x[0, 5], x[1, 40], x[2, :64], x[3, :32], x[4, :32] = np.nan, -np.inf, 0, 3.3e38, -0.0
    x[5, :7] = [0.25, 0.75, -1.25, 1.75, 2.5, -3.5, 5.0]
    x[5, 7:32] = 6
    with np.errstate(over="ignore"):
        x = x.astype(np.float32).astype(dtype)
    compiled = quantize_mxfp4(x, rounding)
    monkeypatch.setattr(_jit, "available", lambda: False)
    for got, expected in zip(compiled, quantize_mxfp4(x, rounding), strict=True):
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("scheme", ["mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2"])
@pytest.mark.parametrize("rounding", ["RoundDown", "RoundUp", "Even", "Ceil"])
def test_other_mx_formats(scheme, rounding):
    fmt = SCHEMES[scheme].element
    x = np.random.default_rng(3).standard_normal((5, 70)).astype(np.float32)
    x[1, 3] = np.inf
    q = quantize(x, scheme, scale_rounding=rounding)
    assert q.codes.shape == x.shape
    assert q.scales.shape == (5, 3)
    for block in range(3):
        part = x[:, 32 * block : 32 * block + 32]
        amax = np.abs(part).max(axis=1)
        assert np.array_equal(q.scales[:, block], encode_e8m0(amax, rounding, fmt))
        scaled = part / np.exp2(q.scales[:, block : block + 1].astype(np.float64) - 127)
        nearest = fmt.decode(fmt.encode(scaled))
        good = np.isfinite(amax)
        assert np.array_equal(fmt.decode(q.codes[:, 32 * block : 32 * block + 32])[good], nearest[good])
    assert np.isnan(q.dequantize()[1, :32]).all()
    assert np.nanmax(np.abs(q.dequantize()[2:] - x[2:])) < 0.3


@pytest.mark.parametrize("name", [name for name, scheme in SCHEMES.items() if not scheme.mx])
def test_float_scales(name):
    scheme = SCHEMES[name]
    x = np.random.default_rng(4).standard_normal((150, 200)).astype(np.float32)
    x[:, 7] = 0
    x[9] = 0
    q = quantize(x, name)
    assert q.scale_rounding is None
    rows, columns = (e if b is None else b for b, e in zip(scheme.block, x.shape, strict=True))
    for r in range(0, 150, rows):
        for c in range(0, 200, columns):
            part = x[r : r + rows, c : c + columns]
            scale = np.float32(np.abs(part).max() / np.float32(scheme.element.max)) or np.float32(1)
            assert q.scales[r // rows, c // columns] == scale
            expected = scheme.element.encode(part / scale)
            assert np.array_equal(q.codes[r : r + rows, c : c + columns], expected)
    assert np.abs(q.dequantize() - x).max() < 0.2
    x[0, 0] = np.nan
    assert np.isnan(quantize(x, name).dequantize()[0, 0])


def test_one_row_and_empty_tensors():
    q = quantize(np.ones(64, np.float32), "mxfp8_e4m3")
    assert q.scales.shape == (2,)
    assert q.dequantize().tolist() == [1.0] * 64
    row = quantize(np.array([1.0, -2.0], np.float32), "int8_per_token")
    assert row.dequantize().tolist() == [pytest.approx(1.0, abs=0.01), -2.0]
    packed, scales = quantize_mxfp4(np.empty((0, 64), np.float32))
    assert (packed.shape, scales.shape) == ((0, 32), (0, 2))
    assert quantize(np.empty((3, 0), np.float32), "fp8_128x128").codes.shape == (3, 0)


def test_tiled_quantisation():
    x = np.random.default_rng(6).standard_normal((40, 340)).astype(np.float32)
    packed, tiled = quantize_mxfp4_tiled(x, "Even", row_multiple=32)
    expected = quantize_mxfp4(x, "Even")
    assert np.array_equal(packed, expected[0])
    assert np.array_equal(untile_scales(tiled, (40, 11)), expected[1])


@pytest.mark.parametrize(("element", "kind"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_tiled_mxfp8(element, kind):
    x = np.random.default_rng(6).standard_normal((40, 333)).astype(np.float32)
    codes, tiled = quantize_mxfp8_tiled(x, element, "RoundDown", row_multiple=32)
    assert (codes.shape, codes.dtype, tiled.shape) == ((40, 333), np.uint8, (64, 16))
    scales = untile_scales(tiled, (40, 11))
    largest = np.abs(np.pad(x, ((0, 0), (0, 19))).reshape(40, 11, 32)).max(axis=2)
    top = {"e4m3": 8, "e5m2": 15}[element]
    assert np.array_equal(scales, np.floor(np.log2(largest)) - top + 127)
    scaled = x / np.exp2(scales.repeat(32, axis=1)[:, :333] - 127.0)
    limit = float(ml_dtypes.finfo(kind).max)
    assert np.array_equal(codes, np.clip(scaled, -limit, limit).astype(np.float32).astype(kind).view(np.uint8))
    assert check_padding(tiled, (40, 11))


@pytest.mark.parametrize(("poison", "says"), [(0x7F, "garbage"), (0xFF, "NaN"), (0x31, "stale")])
def test_check_padding(poison, says):
    scales = np.full((40, 12), 0x80, np.uint8)
    good = tile_scales(scales)
    report = check_padding(good, scales.shape)
    assert report
    assert f"all {256 * 16 - 480}" in str(report)
    bad = check_padding(tile_scales(scales, pad_value=poison), scales.shape)
    assert not bad
    assert (bad.wrong, bad.values, bad.first) == (256 * 16 - 480, ((poison, 256 * 16 - 480),), (0, 12))
    assert says in str(bad)
    one = good.copy()
    one[layouts.SCALES_32X8.element(0, (256, 16))] = 1  # a valid byte: not padding
    assert check_padding(one, scales.shape)
    assert check_padding(tile_scales(scales, pad_value=9), scales.shape, expected=9)
    with pytest.raises(LayoutError, match="expected="):
        check_padding(np.zeros((32, 4), np.uint8), (30, 4), layouts.get("scales_n32k4"))
    with pytest.raises(LayoutError, match=r"at least \(40, 17\)"):
        check_padding(good, (40, 17))


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
        (lambda: quantize(np.zeros((2, 32), np.float32), "mxfp5"), "mxfp6_e2m3"),
        (lambda: quantize(np.zeros((2, 32), np.float32), "fp8_128x128", scale_rounding="Even"), "float32"),
        (lambda: quantize_mxfp4_tiled(np.zeros((1, 2, 32), np.float32)), "K even"),
        (lambda: quantize_mxfp8_tiled(np.zeros(32, np.float32)), r"got shape \(32,\), need \[rows, K\]"),
        (lambda: quantize_mxfp8_tiled(np.zeros((2, 32), np.float32), "e3m4"), "one of e4m3, e5m2"),
        (lambda: quantize_mxfp8_tiled(np.zeros((2, 32), np.int32)), "int32"),
        (lambda: quantize_mxfp8_tiled(np.zeros((2, 32), np.float32), rounding="Nearest"), "RoundUp"),
        (lambda: quantize_mxfp8_tiled(np.zeros((2, 32), np.float32), row_multiple=48), "multiple of 32"),
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
