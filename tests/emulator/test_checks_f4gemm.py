"""The checks on real kernels: no false alarm inside their domain, and what goes wrong outside of it is named.

A sample; ``tests/corpus/f4gemm_checks.py`` runs every kernel.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.validate import a4w4

CLEAN = "BpreShuffle_32x128"
NO_COLUMN_MASK = "BpreShuffle_192x256"


def load(folder: Path, name: str) -> asmlaunch.Kernel:
    return asmlaunch.load(folder / f"f4gemm_bf16_per1x32Fp4_{name}.co", device="emulator").kernel


@pytest.mark.parametrize("case", [a4w4.Case(32, 128, 512), a4w4.Case(64, 256, 256), a4w4.Case(37, 160, 256)], ids=str)
def test_nothing_is_found_inside_the_domain(f4gemm_folder: Path, case: a4w4.Case) -> None:
    kernel = load(f4gemm_folder, CLEAN)
    problem = a4w4.build(kernel.info, case)
    result = kernel.launch(problem.arguments, checks="all")
    assert problem.compare().passed
    assert result.findings == ()
    assert result.fidelity is not None
    assert "uninitialised" in result.fidelity.checks


def test_checks_change_no_bit(f4gemm_folder: Path) -> None:
    kernel = load(f4gemm_folder, CLEAN)
    outputs = []
    for checks in ("off", "all"):
        problem = a4w4.build(kernel.info, a4w4.Case(40, 128, 256))
        kernel.launch(problem.arguments, checks=checks)
        outputs.append(problem.output.copy())
    np.testing.assert_array_equal(*outputs)


@pytest.mark.parametrize(("columns", "other"), [(256 + 64, r"workgroup \(0, 0, 0\)"), (256 - 32, r"wave \d")])
def test_the_overlap_of_kernels_without_a_column_mask(f4gemm_folder: Path, columns: int, other: str) -> None:
    kernel = load(f4gemm_folder, NO_COLUMN_MASK)
    problem = a4w4.build(kernel.info, a4w4.Case(192, columns, 256))
    arguments = {**problem.arguments, "D": np.zeros((194, columns), np.uint16)}
    findings = kernel.launch(arguments, checks="races", check=False).findings
    assert findings
    for finding in findings:
        assert (finding.kind, finding.severity, finding.argument) == ("races", "error", "ptr_D")
        assert "N-edge overlap" in finding.message
    first = findings[0].message
    assert f"past the row's {columns} columns and into the next row" in first
    assert np.any([f" of {name}" in first for name in ("wave", "workgroup")])
    import re

    assert re.search(other, first)


def test_scale_padding_that_is_not_zero_makes_nans(f4gemm_folder: Path) -> None:
    kernel = load(f4gemm_folder, CLEAN)
    problem = a4w4.build(kernel.info, a4w4.Case(32, 128, 192))
    for name in ("ScaleA", "ScaleB"):
        scales = problem.arguments[name]
        flat = scales.reshape(-1, 256)  # 32 rows by 8 columns; the last two are padding
        flat.reshape(-1)[...] = np.where(flat.reshape(-1) == 0, 0xFF, flat.reshape(-1))
    findings = kernel.launch(problem.arguments, checks="numerics", check=False).findings
    assert any("v_mfma" in finding.text and "NaN" in finding.message for finding in findings)


def test_a_swapped_scale_byte_fails_the_comparison(f4gemm_folder: Path) -> None:
    kernel = load(f4gemm_folder, CLEAN)
    problem = a4w4.build(kernel.info, a4w4.Case(32, 128, 256))
    scales = problem.arguments["ScaleA"].reshape(-1)
    second = next(index for index in range(1, scales.size) if scales[index] != scales[0])
    scales[[0, second]] = scales[[second, 0]]
    kernel.launch(problem.arguments)
    assert not problem.compare().passed


def test_an_argument_array_that_is_too_small_is_named(f4gemm_folder: Path) -> None:
    kernel = load(f4gemm_folder, CLEAN)
    problem = a4w4.build(kernel.info, a4w4.Case(32, 128, 256))
    short = problem.arguments["A"][:16].copy()
    arguments = {**problem.arguments, "A": short, "M": 32, "K": 256, "stride_A0": 256}
    findings = kernel.launch(arguments, checks="all", check=False).findings
    assert any("past the end of ptr_A (2,048 bytes)" in finding.message for finding in findings)
    # Rows 16 to 31 come from what is not there.
    stored = [finding for finding in findings if finding.kind == "uninitialised"]
    assert stored
    assert all(finding.severity == "error" and finding.argument == "ptr_D" for finding in stored)
