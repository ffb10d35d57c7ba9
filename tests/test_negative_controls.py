"""Mistakes that must not pass: each makes a real launch wrong in a way the comparison has to see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch import layouts
from asmlaunch.validate import a4w4
from asmlaunch.validate.compare import Comparison


@pytest.fixture(scope="module")
def kernel(f4gemm_folder: Path) -> asmlaunch.Kernel:
    path = f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128.co"
    return asmlaunch.load(path, device="emulator").kernel


def run(kernel: asmlaunch.Kernel, k: int = 512, check: bool = True, **changes: object) -> Comparison:
    """One tile of the kernel with some arguments replaced, by a value or by a function of the problem."""
    problem = a4w4.build(kernel.info, a4w4.Case(*a4w4.tile(kernel.info), k))
    for name, change in changes.items():
        problem.arguments[name] = change(problem) if callable(change) else change
    kernel.launch(problem.arguments, check=check)
    return problem.compare()


def test_the_control_itself_passes(kernel: asmlaunch.Kernel) -> None:
    assert run(kernel).passed
    assert run(kernel, k=384).passed


def test_scale_bytes_swapped(kernel: asmlaunch.Kernel) -> None:
    def swapped(problem: a4w4.Problem) -> np.ndarray:
        scales = problem.arguments["ScaleA"].copy()
        flat = scales.reshape(-1)
        flat[0::2], flat[1::2] = flat[1::2].copy(), flat[0::2].copy()
        return scales

    assert not run(kernel, ScaleA=swapped).passed


def test_scales_not_tiled(kernel: asmlaunch.Kernel) -> None:
    result = run(kernel, ScaleB=lambda problem: layouts.pad_scales(problem.scale_b))
    assert not result.passed


def test_weights_not_shuffled(kernel: asmlaunch.Kernel) -> None:
    assert not run(kernel, B=lambda problem: problem.b).passed


@pytest.mark.parametrize("pad", [0x7F, 0xFF])
def test_scale_padding_other_than_zero_where_k_has_a_tail(kernel: asmlaunch.Kernel, pad: int) -> None:
    """K=384 leaves 4 of 16 scale columns to padding, and the K loop reads them: only byte 0 makes them harmless."""
    result = run(
        kernel,
        k=384,
        ScaleA=lambda problem: layouts.tile_scales(problem.scale_a, pad_value=pad),
        ScaleB=lambda problem: layouts.tile_scales(problem.scale_b, pad_value=pad),
    )
    assert not result.passed
    assert (result.non_finite > 0) == (pad == 0xFF)


@pytest.mark.parametrize("name", ["stride_A0", "stride_B0", "stride_C0", "stride_ScaleA0", "stride_ScaleB0"])
def test_a_wrong_stride(kernel: asmlaunch.Kernel, name: str) -> None:
    right = {"stride_A0": 512, "stride_B0": 512, "stride_C0": 128, "stride_ScaleA0": 16, "stride_ScaleB0": 16}[name]
    assert run(kernel, **{name: right}).passed
    assert not run(kernel, check=False, **{name: right // 2}).passed
