"""Problems of pa: what they refuse, and that wrong results fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import DomainError
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import bfloat16_bits
from asmlaunch.validate.problems.base import Output
from asmlaunch.validate.problems.pa import DEFINITION, Sizes


def load(aiter_kernels: Path, file: str) -> Kernel:
    return asmlaunch.load(aiter_kernels / f"{file}.co", device="emulator").kernel


def outputs(kernel: Kernel, case: Sizes, swap: bool = False) -> tuple[Output, ...]:
    """A problem's outputs after its launch, with the first blocks of two sequences swapped if asked for."""
    problem = DEFINITION.problem(kernel.info, case)
    (arguments,) = problem.launches
    if swap:
        arguments["BT"][[0, 1], 0] = arguments["BT"][[1, 0], 0]
    kernel.launch(arguments, threads=1, **problem.options)
    return problem.outputs


@pytest.mark.parametrize("cache", ["noquant_gqa8_1tg_4w", "pertokenInt8_gqa8_2tg_4w"])
def test_a_swapped_block_and_wrong_results_are_seen(aiter_kernels: Path, cache: str) -> None:
    kernel = load(aiter_kernels, f"gfx942/pa/pa_bf16_{cache}")
    case = Sizes("1 300", kv_heads=1, gqa=8)
    (good,) = outputs(kernel, case)
    assert good.compare().passed
    (swapped,) = outputs(kernel, case, swap=True)
    comparison = swapped.compare()
    assert not comparison.passed
    wrong = np.abs(swapped.result.view(np.int16) - good.result.view(np.int16)) > 0
    assert wrong.any(axis=1).all()  # both sequences
    right = good.reference().value
    for factor, passed in ((1.0, True), (0.0, False), (-1.0, False), (1.02, False)):
        good.result[...] = bfloat16_bits(factor * right)
        good_enough = good.compare()
        assert (good_enough.beyond == 0) == passed, factor


@pytest.mark.parametrize(
    ("file", "problem", "rule"),
    [
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w", "contexts=245", "taken for a full tile"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w", "contexts=0", "an empty one gives NaN"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w", "queries=2,contexts=300", "rows beyond are not computed"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w", "gqa=9", "heads beyond are not written"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w_mtp_msk0", "queries=4,contexts=245", "taken for a full tile"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w_mtp_msk1", "queries=5,contexts=300", "4 for mtp"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w_mtp_msk1", "queries=0,contexts=300", "belongs to the next sequence"),
        ("gfx942/pa/pa_bf16_pertokenFp8_gqa10_1tg_4w_qlen3_msk1", "contexts=2", "as many as the sequence has"),
        ("gfx942/pa_a16w16_f16", "kv_heads=2", "one key head"),
    ],
)
def test_problems_outside_the_domain_are_refused(aiter_kernels: Path, file: str, problem: str, rule: str) -> None:
    kernel = load(aiter_kernels, file).info
    first, *_ = DEFINITION.cases(DEFINITION.parameters(kernel))
    with pytest.raises(DomainError, match=rule):
        DEFINITION.problem(kernel, first.changed(problem))


def test_sixteen_blocks_matter_to_rows_without_a_mask(aiter_kernels: Path) -> None:
    """Kernels with a mask take several rows another way; 1024 tokens a block are never 16 blocks of 16."""
    for file, problem in (
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w_mtp_msk1", "queries=2,contexts=245"),
        ("gfx942/pa/pa_bf16_pertokenFp8_gqa10_1tg_4w_qlen3_msk1", "contexts=245"),
    ):
        kernel = load(aiter_kernels, file).info
        first, *_ = DEFINITION.cases(DEFINITION.parameters(kernel))
        assert DEFINITION.problem(kernel, first.changed(problem)).outputs


def test_sixteen_blocks_are_wrong(aiter_kernels: Path) -> None:
    kernel = load(aiter_kernels, "gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w")
    for contexts, passed in (("240", True), ("241", False), ("255", False), ("256", True), ("511", True)):
        outcome = DEFINITION.run(kernel, Sizes(contexts, kv_heads=1), check=False)
        assert outcome.passed == passed, contexts
