"""Attention tile after tile against softmax of whole rows, and what rounding of the weights adds."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from asmlaunch.validate.attention import causal, forward
from asmlaunch.validate.bfloat16 import round_bfloat16
from asmlaunch.validate.estimates import Plain, Rounding, round_e4m3
from asmlaunch.validate.online import Rounder, attend, scores

EXACT = Plain(np.asarray)
BF16 = Plain(partial(round_bfloat16, rounding="half_away"))
E4M3 = Rounding(round_e4m3, 448.0)
ROWS, KEYS, WIDTH = 5, 70, 32


@pytest.fixture
def qkv() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    q, k = random.standard_normal((ROWS, WIDTH)), random.standard_normal((KEYS, WIDTH))
    return q, k, random.standard_normal((KEYS, 8))


@pytest.mark.parametrize("tile", [1, 16, 70, 256])
@pytest.mark.parametrize("masked", [False, True])
def test_exact_weights_give_the_softmax_whatever_the_tile(qkv, tile: int, masked: bool) -> None:
    q, k, v = qkv
    visible = causal(ROWS, KEYS, bottom_right=True) if masked else None
    whole = forward(q[None], k[None], v[None], 0.2, visible)
    made = attend(scores(q, k, 0.2), v, EXACT, tile, visible=visible)
    assert np.allclose(made.output.value, whole.output.value[0], rtol=1e-12)
    assert np.allclose(made.output.magnitude, whole.output.magnitude[0], rtol=1e-12)
    assert np.allclose(made.lse.value, whole.lse[0], rtol=1e-12)


def test_scales_of_keys_and_values(qkv) -> None:
    q, k, v = qkv
    key_scales, value_scales = np.random.default_rng(2).uniform(0.5, 2, (2, KEYS))
    made = attend(scores(q, k, 0.2 * key_scales), v, EXACT, 16, value_scales=value_scales)
    whole = forward(q[None], (k * key_scales[:, None])[None], (v * value_scales[:, None])[None], 0.2)
    assert np.allclose(made.output.value, whole.output.value[0], rtol=1e-12)


@pytest.mark.parametrize(("rounder", "step"), [(BF16, 2.0**-8), (E4M3, 2.0**-4)])
def test_rounded_weights_are_off_by_half_a_step(qkv, rounder: Rounder, step: float) -> None:
    q, k, v = qkv
    exact, rounded = (attend(scores(q, k, 0.2), v, one, 16).output for one in (EXACT, rounder))
    error = np.abs(rounded.value - exact.value)
    assert error.max() > 0
    assert (error <= step * exact.magnitude).all()


def test_the_last_tile_may_be_rounded_otherwise(qkv) -> None:
    q, k, v = qkv
    s = scores(q, k, 0.2)
    for keys, same in ((64, True), (KEYS, False)):
        part = type(s)(s.value[:, :keys], s.error[:, :keys])
        plain, tail = (attend(part, v[:keys], E4M3, 16, last=last).output.value for last in (None, EXACT))
        assert np.array_equal(plain, tail) == same


def test_a_weight_on_a_boundary_is_slack() -> None:
    """Two keys of equal score, one of which f32 may put on either side of the middle between two bf16 numbers."""
    middle = -np.log(1 - 2.0**-9)  # e to minus this is half-way between 1 and the bf16 number before
    s = scores(np.ones((1, 1)), np.array([[0.0], [-middle]]), 1)
    made = attend(s, np.eye(2), BF16, 2)
    assert made.output.slack.max() > 1e-6
    away = attend(scores(np.ones((1, 1)), np.array([[0.0], [-1.001]]), 1), np.eye(2), BF16, 2)
    assert away.output.slack.max() < 1e-6


def test_rows_that_see_nothing(qkv) -> None:
    q, k, v = qkv
    visible = np.ones((ROWS, KEYS), bool)
    visible[2] = False
    made = attend(scores(q, k, 0.2), v, BF16, 16, visible=visible)
    assert np.isnan(made.output.value[2]).all()
    assert made.lse.value[2] == -np.inf
    assert np.isfinite(made.output.value[[0, 1, 3, 4]]).all()


def test_keys_that_count_for_the_largest_score_only(qkv) -> None:
    q, k, v = qkv
    k[-1] = 50 * q[0]
    exact = [attend(scores(q, k[:n], 0.2), v[:n], EXACT, 16, counted=KEYS - 1) for n in (KEYS - 1, KEYS)]
    assert np.allclose(exact[0].lse.value, exact[1].lse.value)
    assert np.allclose(exact[0].output.value, exact[1].output.value)
    # Weights far below the largest are rounded to nothing.
    lost = attend(scores(q, k, 0.2), v, Plain(round_e4m3), 256, counted=KEYS - 1).output
    assert not lost.value[0].any()
