"""Sorted rows and the reference of mixture-of-experts layers, against loops over single elements."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from asmlaunch.validate import estimates, moe
from asmlaunch.validate.compare import Bound, compare
from asmlaunch.validate.matrix import added_bound
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.reference import Reference

RANDOM = np.random.default_rng(3)


def test_every_row_is_in_a_block_of_its_expert_once():
    routing = moe.route(RANDOM, 37, 5, 3, idle=(1, 4))
    routing.experts[5, 1] = -1
    rows = moe.sort_rows(routing, 16, beyond=2)
    assert rows.counts.tolist() == [16 * (len(rows.experts) - 2), 37]
    assert rows.experts[-2:].tolist() == [-1, -1]
    assert {0, 2, 3} == set(rows.experts[:-2])
    seen = set()
    for index, (entry, weight) in enumerate(zip(rows.ids.tolist(), rows.weights, strict=True)):
        token, slot = entry & 0xFFFFFF, entry >> 24
        if token == 37:
            assert slot == 3
            assert np.isnan(weight)
            continue
        assert rows.experts[index // 16] == routing.experts[token, slot]
        assert weight == routing.weights[token, slot]
        seen.add((token, slot))
    assert seen == {(t, s) for t in range(37) for s in range(3)} - {(5, 1)}
    assert np.count_nonzero(rows.experts == 0) == 3  # every token goes to the first expert


def test_an_idle_expert_has_no_slot():
    routing = moe.route(RANDOM, 50, 4, 2, idle=(2,))
    assert set(routing.experts.reshape(-1)) == {0, 1, 3}
    assert all(len(set(row)) == 2 for row in routing.experts)
    with pytest.raises(ValueError, match="1 experts at work for 2 slots"):
        moe.route(RANDOM, 3, 2, 2)


@pytest.mark.parametrize(
    ("round_", "dtype", "largest"),
    [
        (estimates.round_e2m1, ml_dtypes.float4_e2m1fn, 6),
        (estimates.round_e4m3, ml_dtypes.float8_e4m3fn, 448),
        (estimates.round_e4m3fnuz, ml_dtypes.float8_e4m3fnuz, 240),
        (estimates.round_bf16, ml_dtypes.bfloat16, 1e30),
        (estimates.round_f16, np.float16, 65504),
    ],
)
def test_roundings(round_, dtype, largest):
    x = np.concatenate([RANDOM.uniform(-1, 1, 2000) * largest * 2.0 ** -RANDOM.integers(0, 30, 2000), [0, largest]])
    x = x.astype(np.float32).astype(np.float64)
    assert np.array_equal(round_(x), x.astype(np.float32).astype(dtype).astype(np.float64))


def test_activations():
    for x in (-9.0, -1.5, 0.0, 0.3, 4.0):
        assert moe.silu(np.array(x)) == pytest.approx(x / (1 + math.exp(-x)))
        assert moe.gelu(np.array(x)) == pytest.approx(x * (1 + math.erf(x / math.sqrt(2))) / 2, abs=5e-4)
        # 2 sqrt(2/pi) to 9e-7, and 0.044715 of that to 9e-7: the exponent may be off by that times x and x^3.
        tanh = x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        assert moe.gelu(np.array(x)) == pytest.approx(tanh, rel=1e-12 + 9e-7 * (abs(x) + abs(x) ** 3))
    x = np.linspace(-8, 8, 100001)
    for activation in moe.ACTIVATIONS.values():
        assert np.abs(np.diff(activation(x)) / np.diff(x)).max() < moe._SLOPE


class TestRounding:
    """Scales and codes against loops, and the errors that come out of errors that go in."""

    def test_int8_groups(self):
        x = RANDOM.standard_normal((3, 8))
        got = estimates.Rounding(np.trunc, 127, group=4)(estimates.exact(x))
        for row in range(3):
            for group in range(2):
                part = x[row, 4 * group : 4 * group + 4]
                scale = max(abs(part)) / 127
                assert got.scale[row, group, 0] == pytest.approx(scale)
                inexact = got.slack[row, group] > 0
                # The largest is 127 exactly: cut off, it may as well become 126.
                assert inexact.tolist() == (abs(part) == max(abs(part))).tolist()
                codes = [int(v / scale) for v in part]
                assert np.array_equal(got.codes[row, group][~inexact], np.array(codes)[~inexact])
        assert np.abs(got.estimate.value - x).max() <= got.scale.max() * (1 + 1e-9)

    def test_zeros(self):
        for how in (estimates.Rounding(np.trunc, 127), estimates.MxFp4(), estimates.Plain(estimates.round_bf16)):
            assert not how(estimates.exact(np.zeros((2, 64)))).estimate.value.any()

    def test_an_error_across_a_boundary_is_a_step(self):
        x = np.array([[127.0, 3.5, 3.6, 0.0]])
        got = estimates.Rounding(np.rint, 127)(estimates.Estimate(x, np.full(x.shape, 0.05)))
        assert got.codes.tolist() == [[[127.0, 4.0, 4.0, 0.0]]]
        assert got.slack.tolist() == [[[0.0, 1.0, 0.0, 0.0]]]

    def test_fp8_codes_are_codes(self):
        x = RANDOM.standard_normal((4, 64))
        for round_, largest, decode in (
            (estimates.round_e4m3, 448, decode_e4m3),
            (estimates.round_e4m3fnuz, 240, decode_e4m3fnuz),
        ):
            got = estimates.Rounding(round_, largest)(estimates.exact(x))
            table = decode(np.arange(256, dtype=np.uint8))
            assert np.isin(got.codes, table).all()
            assert np.abs(got.codes).max() == largest

    def test_mxfp4_scales(self):
        """The power of two of amax / 4, one more from 1.5 of its significand on."""
        for amax, scale in ((4.0, 1.0), (5.9, 1.0), (6.0, 2.0), (7.9, 2.0), (8.0, 2.0), (3.0, 1.0), (2.9, 0.5)):
            got = estimates.MxFp4()(estimates.exact(np.array([[amax, *[0.0] * 31]])))
            assert got.scale.item() == scale
            assert got.codes[0, 0, 0] == estimates.round_e2m1(np.array(amax / scale))
        x = np.array([[6.0, 1.3, *[0.0] * 30]])
        unsure = estimates.MxFp4()(estimates.Estimate(x, np.full(x.shape, 1e-5)))
        assert unsure.slack[0, 0, 1] == 0.25  # 1.5 in steps of 1, or 2 * 0.5: 1.3 becomes 1.5 or 1.0
        assert not estimates.MxFp4()(estimates.exact(x + 0.3 * (x == 6))).slack.any()


def layer(routing, x, gate_up, down, how, chunk, activation="silu", first=False):
    """The whole layer with the functions of the module."""
    experts, weights = routing.experts.reshape(-1), routing.weights.reshape(-1)
    product = moe.project(estimates.exact(np.repeat(x, routing.topk, axis=0)), gate_up, experts)
    if first:
        product = product.scaled(weights[:, None])
    middle = how(moe.activate(product, activation)).estimate
    return moe.combine(middle, down, routing, chunk=chunk, row_weights=None if first else weights)


@pytest.mark.parametrize("first", [False, True])
def test_a_layer_element_by_element(first):
    tokens, dim, inter = 5, 8, 6
    routing = moe.route(RANDOM, tokens, 4, 2)
    routing.experts[2, 0] = -1
    x = RANDOM.standard_normal((tokens, dim))
    gate_up, down = RANDOM.standard_normal((4, 2 * inter, dim)), RANDOM.standard_normal((4, dim, inter))
    got = layer(routing, x, gate_up, down, lambda a: estimates.Rounded(a.value, a.error, np.ones((len(a.value), 1))), 3,
                first=first)  # fmt: skip
    for token in range(tokens):
        total = np.zeros(dim)
        for slot in range(2):
            expert, weight = routing.experts[token, slot], float(routing.weights[token, slot])
            if expert < 0:
                continue
            middle = []
            for column in range(inter):
                gate = sum(x[token] * gate_up[expert, column]) * (weight if first else 1)
                up = sum(x[token] * gate_up[expert, inter + column]) * (weight if first else 1)
                middle.append(gate / (1 + math.exp(-gate)) * up)
            total += [sum(middle * down[expert, n]) * (1 if first else weight) for n in range(dim)]
        assert np.allclose(got.value[token], total, rtol=1e-12)
    assert np.all(got.magnitude >= np.abs(got.value))
    assert np.all(got.slack > 0)
    assert got.slack.max() < 1e-3 * got.magnitude.max()


def test_a_layer_in_f32_is_within_its_slack_and_another_expert_is_not():
    """With roundings to fp8 between: all arithmetic in f32, in another order."""
    tokens, dim, inter = 16, 256, 128
    routing = moe.route(RANDOM, tokens, 4, 2)
    x = estimates.round_e4m3(RANDOM.standard_normal((tokens, dim)))
    gate_up = estimates.round_e4m3(RANDOM.standard_normal((4, 2 * inter, dim))) / 16
    down = estimates.round_e4m3(RANDOM.standard_normal((4, dim, inter))) / 16
    how = estimates.Rounding(estimates.round_e4m3, 448)
    bound = Bound(0.0, 0.0, 0.0)

    def in_f32(experts):
        out = np.zeros((tokens, dim), np.float32)
        for token in range(tokens):
            for slot in range(2):
                w1, w2 = (one[experts[token, slot]].astype(np.float32) for one in (gate_up, down))
                h = np.zeros(2 * inter, np.float32)
                for k in range(dim):
                    h += x[token, k].astype(np.float32) * w1[:, k]
                a = h[:inter] / (1 + np.exp(-h[:inter])) * h[inter:]
                factor = np.float32(448) / np.abs(a).max()
                q = (a * factor).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
                out[token] += (w2 @ q) / factor * routing.weights[token, slot]
        return out

    reference = layer(routing, x, gate_up, down, how, inter)
    result = in_f32(routing.experts)
    added = Reference(reference.value, reference.magnitude, reference.slack + 2**-22 * reference.magnitude)
    assert compare(result, added, bound).passed
    in_bf16 = result.astype(ml_dtypes.bfloat16)
    assert compare(in_bf16, reference, added_bound(2)).passed
    swapped = routing.experts.copy()
    swapped[3] = swapped[3, ::-1]
    for wrong in (np.zeros_like(result), -result, 1.03 * result, in_f32(swapped)):
        assert not compare(wrong.astype(ml_dtypes.bfloat16), reference, added_bound(2)).passed

    def as_it_is(a: estimates.Estimate) -> estimates.Rounded:
        return estimates.Rounded(a.value, a.error, np.ones((len(a.value), 1)))

    unrounded = layer(routing, x, gate_up, down, as_it_is, inter)
    assert not compare(in_bf16, unrounded, added_bound(2)).passed


def test_integers_have_no_error_of_sums():
    x, w = RANDOM.integers(-99, 99, (2, 64)), RANDOM.integers(-99, 99, (1, 8, 64))
    got = moe.project(estimates.exact(x), w, np.array([0, -1]), exact_sums=True)
    assert np.array_equal(got.value, np.stack([w[0] @ x[0], np.zeros(8)]))
    assert np.all(got.error <= 2.0**-22 * np.abs(got.value) + 1e-9)


def test_without_a_gate():
    got = moe.activate(estimates.exact(np.array([[1.0, -2.0]])), "gelu", gated=False)
    assert np.allclose(got.value, moe.gelu(np.array([[1.0, -2.0]])))
