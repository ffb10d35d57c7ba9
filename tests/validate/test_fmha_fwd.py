"""Attention forward: the rounding variants of gfx942 apart, further edges, what is refused, and tensors by strides."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import ArgumentError, DomainError
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import ROUNDINGS, bfloat16_bits, round_bfloat16, to_float64
from asmlaunch.validate.compare import compare
from asmlaunch.validate.problems.base import Outcome
from asmlaunch.validate.problems.fmha_fwd import DEFINITION, Sizes
from asmlaunch.validate.problems.sequences import Heads, Layout, batch, group

VARIANTS = dict(zip(("rtne", "rtna", "rtz"), ROUNDINGS, strict=True))


def kernel(folder: Path, name: str) -> Kernel:
    return asmlaunch.load(folder / f"{name}.co", device="emulator").kernel


def run(one: Kernel, case: Sizes, check: bool = True) -> Outcome:
    return DEFINITION.run(one, case, check=check)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_right_with_its_own_rounding_only(aiter_kernels: Path, name: str) -> None:
    one = kernel(aiter_kernels, f"gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_{name}")
    _results_half_way(one, VARIANTS[name])
    _probabilities_half_way(one, VARIANTS[name])


def _results_half_way(one: Kernel, own: str) -> None:
    """Means of two integers, of which half lie between two bf16 numbers: every bit is known."""
    parameters = DEFINITION.parameters(one.info)
    case = DEFINITION.cases(parameters)[-1]
    assert case.ties
    problem = DEFINITION.problem(one.info, case)
    one.launch(problem.launches[0])
    output = next(output for output in problem.outputs if output.name.startswith("O"))
    for rounding in ROUNDINGS:
        passed = compare(output.result, output.reference(), dataclasses.replace(output.bound, rounding=rounding)).passed
        assert passed == (rounding == own), rounding


def _probabilities_half_way(one: Kernel, own: str) -> None:
    """P of exactly 1/2 + 2^-9 and 1/2 + 3 * 2^-9, half-way between bf16 numbers, and a V that takes 1/2 away again.

    With a factor of ln 2 the kernel computes exp2 of the score; a score of 24 bits is a sum of three bf16 numbers.
    """
    halfway = np.array([0.5 + 2.0**-9, 0.5 + 3 * 2.0**-9])
    q, k = np.zeros((2, 128)), np.zeros((2, 128))
    for row, value in enumerate(halfway):
        left = float(np.float32(np.log2(value)))
        for column in range(3 * row, 3 * row + 3):
            q[row, column], k[1, column] = 1.0, round_bfloat16(left, "toward_zero")
            left -= k[1, column]
        assert left == 0
    v = np.repeat([[-0.5], [1.0]], 128, axis=1)
    problem = DEFINITION.problem(one.info, Sizes(1, 2, 2, heads=1, key_heads=1))
    arguments = dict(problem.launches[0])
    for name, values in (("Q", q), ("K", k), ("V", v)):
        arguments[name][...] = bfloat16_bits(values).reshape(-1)
    one.launch(arguments | {"scalar": float(np.float32(np.log(2)))}, schedule="lockstep")
    got = to_float64(arguments["O"].reshape(2, 128))
    expected = {
        rounding: round_bfloat16((round_bfloat16(halfway, rounding) - 0.5) / (1 + halfway), rounding)
        for rounding in ROUNDINGS
    }
    assert len({tuple(values) for values in expected.values()}) == 3
    for rounding, values in expected.items():
        assert (got == values[:, None]).all() == (rounding == own), rounding


def test_lengths_around_tiles(aiter_kernels: Path) -> None:
    """Groups of every length around the tiles of rows (256) and keys (64), empty ones among them."""
    lengths = "256/64 255/65 257/63 1/1 0/5 512/128 5/256"
    one = kernel(aiter_kernels, "gfx950/fmha_v3_fwd/fwd_hd128_bf16_causal_group")
    # Rows without keys give zeros, which say nothing by themselves.
    assert run(one, Sizes(0, 0, 0, more=lengths, heads=2, key_heads=1)).passed
    problem = DEFINITION.problem(one.info, Sizes(1, 3, 0, more="1/1"))
    one.launch(problem.launches[0], schedule="lockstep")
    assert not problem.outputs[0].result.any()
    assert np.isneginf(next(output.result for output in problem.outputs if output.name == "lse 0")).all()


@pytest.mark.parametrize(
    ("name", "case", "rule"),
    [
        ("gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal", Sizes(1, 300, 310, opt=1), "wrong in mirrored tiles"),
        ("gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_rtne", Sizes(1, 5, 0), "at least 1 row of Q and K"),
        ("gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtne", Sizes(1, 5, 5, heads=2, opt=4), "tiles are lost"),
    ],
)
def test_refused(aiter_kernels: Path, name: str, case: Sizes, rule: str) -> None:
    with pytest.raises(DomainError, match=re.escape(rule)):
        run(kernel(aiter_kernels, name), case)


def test_the_older_kernels_take_strides_from_elsewhere(aiter_kernels: Path) -> None:
    one = kernel(aiter_kernels, "gfx942/fmha_v3_fwd/MI308/fwd_hd128_bf16")
    sizes = dict(DEFINITION.sizes(Sizes(2, 5, 5), DEFINITION.parameters(one.info)))
    DEFINITION.family.require(one.info, sizes)
    for name, rule in (("s_o_Seqs", "the strides of Q"), ("s_Bs", "Q packed"), ("s_lse_Hs", "as packed")):
        changed = sizes | {name: sizes[name] + 256} | ({"s_o_Bs": sizes["s_Bs"] + 256} if name == "s_Bs" else {})
        with pytest.raises(DomainError, match=rule):
            DEFINITION.family.require(one.info, changed)


def test_further_sequences_are_for_groups(aiter_kernels: Path) -> None:
    for name, text in (("fwd_hd128_bf16", "1/3"), ("fwd_hd128_bf16_group", "1-3")):
        with pytest.raises((ArgumentError, ValueError), match=r"one length|invalid literal"):
            run(kernel(aiter_kernels, f"gfx950/fmha_v3_fwd/{name}"), Sizes(1, 5, 5, more=text))


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("of", [batch(2, 3), group([3, 0, 2])])
def test_tensors_by_their_strides(of, outside: bool) -> None:
    layout = Layout(of, heads=2, width=4, heads_outside=outside, pad=5)
    tensor = Heads(layout, np.uint16)
    before = tensor.whole.copy()
    rows = [span.rows for span in of.each]
    parts = [np.arange(2 * count * 4).reshape(2, count, 4) for count in rows]
    tensor.filled(parts)
    assert tensor.spilled(before) == 0
    for span, part in zip(of.each, parts, strict=True):
        for head, row, column in np.ndindex(part.shape):
            at = span.entry * layout.entry + head * layout.head + (span.first + row) * layout.row + 2 * column
            assert tensor.whole[at // 2] == part[head, row, column]
    inside = {int(i) for i in np.flatnonzero(tensor.whole != 0xFFFF)}
    assert len(inside) == 8 * sum(rows)
    outside_of_all = next(i for i in range(len(tensor.whole)) if i not in inside)
    tensor.whole[outside_of_all] = 0
    assert tensor.spilled(before) == 1
    assert not tensor.untouched("memory").compare().passed
    assert of.cumulative.tolist() == [0, *np.cumsum(rows)]
    assert of.longest == 3
