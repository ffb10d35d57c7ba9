"""The attention reference: against sums written out, and against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asmlaunch.errors import ArgumentError
from asmlaunch.validate import attention


def test_masks_written_out() -> None:
    assert attention.causal(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert attention.causal(2, 3, bottom_right=True).tolist() == [[True, True, False], [True, True, True]]
    assert attention.causal(3, 2, bottom_right=True).tolist() == [[False, False], [True, False], [True, True]]
    assert attention.window(3, 4, 1, 0).tolist() == [
        [True, False, False, False], [True, True, False, False], [False, True, True, False],
    ]  # fmt: skip
    assert attention.window(2, 4, 0, None, bottom_right=True).tolist() == [
        [False, False, True, True], [False, False, False, True],
    ]  # fmt: skip
    assert attention.band(2, 3, before=-1).tolist() == [[False, True, True], [False, False, True]]


def _by_hand(q, k, v, scale, visible):
    """One head at a time, one row at a time, with math.exp."""
    heads, rows, _ = q.shape
    ratio = heads // len(k)
    output, lse = np.zeros((heads, rows, v.shape[-1])), np.full((heads, rows), -np.inf)
    for h in range(heads):
        for i in range(rows):
            keys = [j for j in range(k.shape[1]) if visible[i, j]]
            weights = [math.exp(scale * float(q[h, i] @ k[h // ratio, j])) for j in keys]
            if keys:
                lse[h, i] = math.log(sum(weights))
                output[h, i] = sum(w * v[h // ratio, j] for w, j in zip(weights, keys, strict=True)) / sum(weights)
    return output, lse


@pytest.fixture
def operands():
    random = np.random.default_rng(3)
    q, do = random.standard_normal((4, 5, 8)), random.standard_normal((4, 5, 6))
    return q, random.standard_normal((2, 7, 8)), random.standard_normal((2, 7, 6)), do


@pytest.mark.parametrize("visible", [np.ones((5, 7), bool), attention.causal(5, 7), attention.band(5, 7, after=-2)])
def test_forward_is_the_sum_written_out(operands, visible: np.ndarray) -> None:
    q, k, v, _ = operands
    made = attention.forward(q, k, v, 0.4, visible)
    output, lse = _by_hand(q, k, v, 0.4, visible)
    np.testing.assert_allclose(made.output.value, output, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(made.lse, lse, rtol=1e-13)
    np.testing.assert_allclose(
        made.probabilities.sum(-1), np.broadcast_to(visible.any(1), (4, 5)).astype(float), rtol=1e-13
    )
    assert (made.output.magnitude * (1 + 1e-12) >= np.abs(output)).all()


def test_large_scores_do_not_overflow() -> None:
    made = attention.forward(np.full((1, 1, 1), 1e3), np.array([[[1.0], [2.0]]]), np.array([[[3.0], [5.0]]]), 1.0)
    assert made.output.value.item() == 5
    assert made.lse.item() == 2000


@pytest.mark.parametrize("visible", [None, attention.causal(5, 7), attention.band(5, 7, after=-2)])
def test_gradients_are_the_differences(operands, visible: np.ndarray | None) -> None:
    q, k, v, do = operands
    made = attention.gradients(q, k, v, do, 0.4, visible)

    def loss(q, k, v):
        return float((attention.forward(q, k, v, 0.4, visible).output.value * do).sum())

    given = {"dq": q, "dk": k, "dv": v}
    for index, name in enumerate(given):
        value = getattr(made, name).value
        gradient = value if name == "dq" else attention.sum_of_groups(value, 2)
        assert gradient.shape == given[name].shape
        for at in np.ndindex(gradient.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [one.copy() for one in (q, k, v)]
                moved[index][at] += step
                ends.append(loss(*moved))
            assert gradient[at] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


def test_gradients_of_what_a_kernel_is_given(operands) -> None:
    """Log-sum-exp and D are taken as they are, not computed again."""
    q, k, v, do = operands
    made = attention.forward(q, k, v, 0.4)
    d = attention.row_sums(made.output.value, do)
    same = attention.gradients(q, k, v, do, 0.4, lse=made.lse, d=d.value)
    np.testing.assert_array_equal(same.dq.value, attention.gradients(q, k, v, do, 0.4).dq.value)
    halved = attention.gradients(q, k, v, do, 0.4, lse=made.lse + math.log(2), d=d.value)
    np.testing.assert_allclose(halved.dv.value, same.dv.value / 2)
    masked = attention.gradients(q, k, v, do, 0.4, lse=np.full((4, 5), -np.inf), d=d.value)
    assert not masked.dq.value.any()
    assert not masked.dv.value.any()
    assert not masked.dv.magnitude.any()


def test_magnitudes_count_small_numbers_as_the_smallest_normal(operands) -> None:
    q, k, v, do = operands
    small = attention.gradients(q, k, v, do, 0.4, smallest=2.0)
    np.testing.assert_allclose(small.dv.magnitude, 2 * np.abs(do).sum(1, keepdims=True).repeat(7, 1))


def test_heads_that_do_not_divide(operands) -> None:
    q, k, v, _ = operands
    with pytest.raises(ArgumentError, match="multiple of the 2 key heads"):
        attention.forward(q[:3], k, v, 0.4)
