"""The assertion for users' suites: passes on products added in f32, fails as an assertion on wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from asmlaunch.errors import ArgumentError
from asmlaunch.validate import BF16_GEMM, EXACT, Reference, bfloat16_bits
from asmlaunch.validate.testing import assert_kernel_close


@pytest.fixture
def operands() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((64, 512)).astype(np.float32), random.standard_normal((96, 512)).astype(np.float32)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize("convert", [np.float32, np.float16, bfloat16_bits])
def test_f32_sums_pass(operands: tuple[np.ndarray, np.ndarray], convert: object) -> None:
    a, b = operands
    result = convert(np.cumsum(a[:, None] * b, axis=-1, dtype=np.float32)[..., -1])
    assert assert_kernel_close(result, exact(a, b), terms=512)
    assert assert_kernel_close(result, Reference(exact(a, b), exact(np.abs(a), np.abs(b))), terms=512)


def test_wrong_rows_fail_as_an_assertion(operands: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = operands
    result = bfloat16_bits(exact(a, b))
    result[16:32] = result[:16]
    with pytest.raises(AssertionError, match=r"my kernel against its reference.*rows 16\.\.31"):
        assert_kernel_close(result, exact(a, b), terms=512, what="my kernel")
    result[16:32] = bfloat16_bits(exact(a, b))[16:32]
    result[0, :16] = 0xFFFF
    with pytest.raises(AssertionError, match="16 unwritten"):
        assert_kernel_close(result, exact(a, b), terms=512)


def test_one_product_too_few_is_seen(operands: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = operands
    with pytest.raises(AssertionError):
        assert_kernel_close(exact(a[:, 1:], b[:, 1:]).astype(np.float32), exact(a, b), terms=512)


def test_bounds_of_the_callers_own(operands: tuple[np.ndarray, np.ndarray]) -> None:
    a, b = operands
    with pytest.raises(ArgumentError, match="at least 1"):
        assert_kernel_close(a, a, terms=0)
    with pytest.raises(ArgumentError, match="results that are no floats"):
        assert_kernel_close(np.ones(3, np.int8), np.ones(3))
    assert assert_kernel_close(np.ones(3, np.int8), np.ones(3), bound=EXACT)
    value = Reference(exact(a, b), exact(np.abs(a), np.abs(b)))
    assert assert_kernel_close(bfloat16_bits(value.value), value, bound=BF16_GEMM).bound == BF16_GEMM
