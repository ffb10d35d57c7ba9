"""The references of the families, against other people's code and against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from asmlaunch.validate.bfloat16 import bfloat16_bits, to_float64
from asmlaunch.validate.compare import compare
from asmlaunch.validate.matrix import added_bound, gemm, gemm_block_scaled, gemm_scaled, split_sum, sum_bound
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.rows import rms_norm, top_k_softmax

RANDOM = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("decode", "dtype"), [(decode_e4m3, ml_dtypes.float8_e4m3fn), (decode_e4m3fnuz, ml_dtypes.float8_e4m3fnuz)]
)
def test_8_bit_floats(decode, dtype):
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(decode(codes), codes.view(dtype).astype(np.float64), equal_nan=True)


def test_products_with_scales():
    """Element by element in exact fractions."""
    a, b = RANDOM.integers(-128, 128, (3, 5)), RANDOM.integers(-128, 128, (2, 5))
    scale_a, scale_b, bias = RANDOM.random(3), RANDOM.random(2), RANDOM.standard_normal(2)
    got = gemm_scaled(a, b, scale_a, scale_b, bias)
    for i in range(3):
        for j in range(2):
            total = sum(int(x) * int(y) for x, y in zip(a[i], b[j], strict=True))
            exact = total * Fraction(scale_a[i]) * Fraction(scale_b[j]) + Fraction(bias[j])
            assert got.value[i, j] == pytest.approx(float(exact), rel=1e-14)
    assert np.all(got.magnitude >= np.abs(got.value))
    assert np.allclose(gemm_scaled(a, b, scale_a, scale_b).value, got.value - bias)


def test_products_with_block_scales():
    a, b = RANDOM.standard_normal((3, 8)), RANDOM.standard_normal((5, 8))
    scale_a, scale_b = RANDOM.random((3, 2)), RANDOM.random((2, 2))
    got = gemm_block_scaled(a, b, scale_a, scale_b, block=4).value
    for i in range(3):
        for j in range(5):
            exact = sum(a[i, k] * b[j, k] * scale_a[i, k // 4] * scale_b[j // 4, k // 4] for k in range(8))
            assert got[i, j] == pytest.approx(exact, rel=1e-13)


def test_the_bound_of_a_sum_holds_for_f32_and_for_no_less():
    """Summed in f32 one product after the other passes; with bf16 sums, or a product left out, it does not."""
    k = 512
    a, b = RANDOM.standard_normal((16, k)), RANDOM.standard_normal((32, k))
    reference = gemm(a, b)
    in_order = np.zeros((16, 32), np.float32)
    in_bf16 = np.zeros((16, 32))
    for column in range(k):
        product = a[:, column, None] * b[:, column]
        in_order += product.astype(np.float32)
        in_bf16 = to_float64(bfloat16_bits(in_bf16 + product))
    bound = sum_bound(2 * k, "float32")
    assert compare(in_order, reference, bound).passed
    assert not compare(in_bf16.astype(np.float32), reference, bound).passed
    assert not compare((a[:, 1:] @ b[:, 1:].T).astype(np.float32), reference, bound).passed
    assert compare(bfloat16_bits(in_order), reference, sum_bound(k, "bfloat16")).passed
    assert compare(in_order.astype(np.float16), reference, sum_bound(k, "float16")).passed
    assert not compare(bfloat16_bits(in_bf16), reference, sum_bound(k, "bfloat16")).passed


def test_parts_added_in_bfloat16():
    parts = [gemm(*RANDOM.standard_normal((2, 16, 64))) for _ in range(4)]
    reference = split_sum(parts)
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        total = np.zeros((16, 16))
        for index in order:
            total = to_float64(bfloat16_bits(total + to_float64(bfloat16_bits(parts[index].value))))
        assert compare(bfloat16_bits(total), reference, added_bound(4)).passed
    lost = sum(part.value for part in parts[1:])
    assert not compare(bfloat16_bits(lost), reference, added_bound(4)).passed


def test_softmax_ties_go_to_the_lower_index():
    logits = np.array([[0.0, 2.0, 2.0, 1.0, 2.0]])
    indices, weights = top_k_softmax(logits, 3, renormalize=False)
    assert indices.tolist() == [[1, 2, 4]]
    assert np.allclose(weights, np.exp(2) / (1 + np.e + 3 * np.exp(2)), rtol=1e-14)
    assert np.allclose(top_k_softmax(logits, 3, renormalize=True)[1], 1 / 3, rtol=1e-14)
    assert np.isfinite(top_k_softmax(logits + 1000, 2, renormalize=False)[1]).all()


def test_rms_norm():
    x, residual = RANDOM.standard_normal((2, 3, 16))
    weight, bias, x_scale = RANDOM.standard_normal((3, 16))
    normed = rms_norm([x, residual], weight, bias, 0.5, x_scale)
    for row in range(3):
        total = x[row] + residual[row]
        root = (sum(v * v for v in total) / 16 + 0.5) ** 0.5
        value = total / root * weight + bias
        scale = max(abs(value * x_scale)) / 127
        assert np.allclose(normed.residual.value[row], total)
        assert np.allclose(normed.value.value[row], value)
        assert np.allclose(normed.quantised.value[row], value * x_scale / scale)
        assert normed.scale.value[row] == pytest.approx(scale)
    assert np.abs(normed.quantised.value).max() == pytest.approx(127)
