"""Problems of mla: what they refuse, and that wrong results fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import DomainError
from asmlaunch.module import Kernel
from asmlaunch.validate.problems.mla import DEFINITION, Sizes


def load(aiter_kernels: Path, file: str) -> Kernel:
    return asmlaunch.load(aiter_kernels / f"{file}.co", device="emulator").kernel


@pytest.mark.parametrize(
    ("file", "problem", "rule"),
    [
        ("gfx950/mla/mla_a8w8_qh16_qseqlen4_gqaratio16", "splits=2", "all to the same place"),
        ("gfx950/mla/mla_a8w8_qh16_qseqlen4_gqaratio16", "contexts=130", "hold something else by then"),
        ("gfx942/mla/mla_a8w8_qh16_qseqlen2_gqaratio16", "contexts=65,splits=2", "gives NaN"),
        ("gfx942/mla/mla_a8w8_qh16_qseqlen2_gqaratio16", "queries=1", "2 for qseqlen2"),
        ("gfx942/mla/mla_a8w8_qh16_qseqlen4_gqaratio16_ps", "unscaled=0", "leaves the cache's scale out"),
        ("gfx942/mla/mla_a16w16_qh16_m16x4_n16x1_coex0_mask1", "queries=5", "4 for m16x4"),
        ("gfx942/mla/mla_a16w16_qh16_m16x4_n16x1_coex0_mask1", "page=16", "takes every page for one token"),
        ("gfx950/mla/mla_a8w8_qh16_qseqlen4_gqaratio16_ps_page", "page=64", "at most the tokens of a chunk"),
        ("gfx942/mla/mla_dec_stage1_bf16_a16w16_subQ128_mqa128", "queries=2", "masks no keys"),
        ("gfx942/mla/mla_pfl_bf16_a16w16_causal_subQ16_mqa16", "splits=2", "1 for prefill"),
        ("gfx942/mla/mla_dec_stage1_bf16_a16w16_subQ16_mqa16", "contexts=0", "at least 1"),
    ],
)
def test_problems_outside_the_domain_are_refused(aiter_kernels: Path, file: str, problem: str, rule: str) -> None:
    kernel = load(aiter_kernels, file).info
    first, *_ = DEFINITION.cases(DEFINITION.parameters(kernel))
    with pytest.raises(DomainError, match=rule):
        DEFINITION.problem(kernel, first.changed(problem))


def test_splits_and_wrong_results(aiter_kernels: Path) -> None:
    kernel = load(aiter_kernels, "gfx942/mla/mla_dec_stage1_bf16_a16w16_subQ16_mqa16")
    problem = DEFINITION.problem(kernel.info, Sizes("100 30", splits=2))
    kernel.launch(problem.launches[0], threads=1, **problem.options)
    partial, lse, together = problem.outputs
    assert all(output.compare().passed for output in problem.outputs)
    # The split of the second sequence that has no chunk is not written.
    assert np.isnan(lse.result[3]).all()
    for factor in (0.0, -1.0, 1.05):
        partial.result[...] *= np.float32(factor)
        assert not partial.compare().passed, factor
        assert not together.compare().passed, factor
        kernel.launch(problem.launches[0], threads=1, **problem.options)
    lse.result[0, 0] += np.float32(0.25)
    assert not lse.compare().passed
    assert not together.compare().passed


def test_works_name_keys_and_rows_of_persistent_kernels(aiter_kernels: Path) -> None:
    """The works of three sequences: the first and the last are split, the others are whole."""
    kernel = load(aiter_kernels, "gfx942/mla/mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_ps").info
    case = Sizes("10 7 20", queries="2 1", splits=2, lists=2)
    (arguments,) = DEFINITION.problem(kernel, case).launches
    table = arguments["ptr_STP"]
    starts, works = (int(address) - table.ctypes.data for address in table[:16].view(np.uint64))
    assert table[starts : starts + 16].view(np.int32).tolist() == [0, 3, 5, 5]
    listed = table[works:].view(np.int32).reshape(-1, 8)
    assert listed[:, :7].tolist() == [
        [0, 0, 0, 2, 0, 5, 5],
        [0, 2, 0, 2, 5, 10, 0],
        [1, -1, 2, 3, 10, 17, 0],
        [2, 4, 3, 5, 17, 27, 10],
        [2, 6, 3, 5, 27, 37, 0],
    ]
