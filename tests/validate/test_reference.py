"""The float64 references against sums written out in exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from asmlaunch.errors import LayoutError
from asmlaunch.validate import (
    bfloat16_bits,
    decode_mxfp4,
    gemm_a4w4,
    gemm_a4w4_split_k,
    reference,
    round_bfloat16,
    to_float64,
)


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    blocks = -(-k // 32)
    return (
        rng.integers(0, 256, (m, k // 2), dtype=np.uint8),
        rng.integers(0, 256, (n, k // 2), dtype=np.uint8),
        rng.integers(120, 134, (m, blocks), dtype=np.uint8),
        rng.integers(120, 134, (n, blocks), dtype=np.uint8),
    )


def exact(row: np.ndarray, scales: np.ndarray) -> list[Fraction]:
    """One row as fractions, by the format's formula rather than a table."""
    values = []
    for k in range(2 * len(row)):
        code = int(row[k // 2]) >> (4 * (k % 2)) & 15
        exponent, mantissa = code >> 1 & 3, code & 1
        value = Fraction(mantissa, 2) if exponent == 0 else (1 + Fraction(mantissa, 2)) * 2 ** (exponent - 1)
        values.append((-1 if code & 8 else 1) * value * Fraction(2) ** (int(scales[k // 32]) - 127))
    return values


@pytest.mark.parametrize("k", [32, 64, 96, 80])
def test_gemm_is_the_exact_sum(k, monkeypatch):
    monkeypatch.setattr(reference, "_CHUNK_BYTES", 16 * k)  # two rows a chunk
    a, b, scale_a, scale_b = operands(5, 3, k)
    got = gemm_a4w4(a, b, scale_a, scale_b, alpha=-0.5)
    for m in range(5):
        for n in range(3):
            products = [x * y for x, y in zip(exact(a[m], scale_a[m]), exact(b[n], scale_b[n]), strict=True)]
            assert Fraction(got.value[m, n]) == -sum(products) / 2
            assert Fraction(got.magnitude[m, n]) == sum(map(abs, products)) / 2


def test_scale_bytes_at_the_ends():
    ones = np.full((3, 16), 0x22, np.uint8)
    values = decode_mxfp4(ones, np.array([[0], [254], [255]], np.uint8))
    assert values[:2, 0].tolist() == [2.0**-127, 2.0**127]
    assert np.isnan(values[2]).all()


def test_a_nan_scale_reaches_its_row_and_no_other():
    a, b, scale_a, scale_b = operands(4, 4, 64)
    scale_a[1, 0] = 255
    value = gemm_a4w4(a, b, scale_a, scale_b).value
    assert np.isnan(value[1]).all()
    assert np.isfinite(np.delete(value, 1, axis=0)).all()


def test_split_k_adds_rounded_parts_in_order():
    a, b, scale_a, scale_b = operands(6, 7, 768 + 64)
    got = gemm_a4w4_split_k(a, b, scale_a, scale_b, k_per_split=256)
    total = np.zeros((6, 7), ml_dtypes.bfloat16)
    for start in (0, 256, 512, 768):
        part = gemm_a4w4(
            a[:, start // 2 : start // 2 + 128],
            b[:, start // 2 : start // 2 + 128],
            scale_a[:, start // 32 : start // 32 + 8],
            scale_b[:, start // 32 : start // 32 + 8],
        )
        total = total + part.value.astype(ml_dtypes.bfloat16)
    assert np.array_equal(got.value, total.astype(np.float64))
    whole = gemm_a4w4(a, b, scale_a, scale_b)
    assert np.allclose(got.magnitude, whole.magnitude, rtol=1e-12)
    assert not np.array_equal(got.value, round_bfloat16(whole.value))
    one = gemm_a4w4_split_k(a, b, scale_a, scale_b, k_per_split=1024)
    assert np.array_equal(one.value, round_bfloat16(whole.value))


def test_rounding_to_bfloat16_is_that_of_ml_dtypes():
    rng = np.random.default_rng(3)
    bits = np.concatenate([np.arange(0x7F80), np.arange(0x8000, 0xFF80)]).astype(np.uint16)
    grid = to_float64(bits)
    assert np.array_equal(grid, bits.view(ml_dtypes.bfloat16).astype(np.float64))
    assert np.array_equal(bfloat16_bits(grid), bits)
    middles = np.concatenate(
        [(grid[:-1] + grid[1:]) / 2, np.ldexp(rng.standard_normal(4000), rng.integers(-140, 128, 4000))]
    )
    with np.errstate(over="ignore"):
        f32 = middles.astype(np.float32)
    values = np.concatenate([f32, np.nextafter(f32, np.float32(np.inf)), np.nextafter(f32, np.float32(-np.inf))])
    values = np.concatenate([values, np.float32([np.inf, -np.inf, 3.4e38, -3.39e38])])
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(bfloat16_bits(values), expected)
    # float64 is rounded once, not by way of float32: just above the middle goes up.
    assert bfloat16_bits(np.nextafter([1 + 2**-8, -1e39], np.inf)).tolist() == [0x3F81, 0xFF80]
    assert np.isnan(round_bfloat16(np.array([np.nan]))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_a": np.zeros((4, 3), np.uint8)}, r"\(4, 2\) for K=64"),
        ({"scale_b": np.zeros((4, 2), np.float32)}, "float32"),
        ({"a": np.zeros(32, np.uint8)}, r"\(32,\)"),
        ({"b": np.zeros((4, 64), np.uint8), "scale_b": np.zeros((4, 4), np.uint8)}, r"\(4, 64\)"),
    ],
)
def test_bad_operands(change, message):
    a, b, scale_a, scale_b = operands(4, 4, 64)
    arguments = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, **change}
    with pytest.raises(LayoutError, match=message):
        gemm_a4w4(**arguments)
    with pytest.raises(LayoutError, match=message):
        gemm_a4w4_split_k(**arguments, k_per_split=32)


def test_bad_split():
    with pytest.raises(LayoutError, match="multiple of 32"):
        gemm_a4w4_split_k(*operands(2, 2, 64), k_per_split=48)
