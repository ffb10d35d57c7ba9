"""The machine code of AMD's kernels confirms the scale layout: right with it, wrong with every near miss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import asmlaunch
from asmlaunch import layouts, validate
from asmlaunch.kernels import aiter_folder, find_objects
from asmlaunch.layouts import Layout
from asmlaunch.validate import a4w4

SMALL = "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"

TILE_TRANSPOSED = Layout("(t rh l) (c kh k) -> t c kh k rh l", layouts.SCALES_32X8.sizes)

NEAR_MISSES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed tile": TILE_TRANSPOSED.apply,
    "row halves swapped": lambda s: layouts.SCALES_32X8.apply(_swap(s, (-1, 2, 16, s.shape[1]), 1)),
    "k halves swapped": lambda s: layouts.SCALES_32X8.apply(_swap(s, (s.shape[0], -1, 2, 4), 2)),
    "128x4": layouts.SCALES_128X4.apply,
    "none": lambda s: s.copy(),
}


def test_tensors_that_carry_their_layout_are_arguments_as_they_are():
    kernel = asmlaunch.load(aiter_folder() / SMALL, device="emulator").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(m=32, n=128, k=256))
    arguments = {
        **problem.arguments,
        "B": layouts.tile(problem.b, "weights_16x16", element="e2m1"),
        "ScaleA": layouts.tile(problem.scale_a, "scales_32x8", element="e8m0", rounding="RoundUp"),
        "ScaleB": layouts.tile(problem.scale_b, "scales_32x8", element="e8m0", rounding="RoundUp"),
    }
    kernel.launch(arguments)
    assert problem.compare().passed


def _swap(scales: np.ndarray, split: tuple[int, ...], axis: int) -> np.ndarray:
    return np.flip(scales.reshape(split), axis).reshape(scales.shape)


@pytest.mark.parametrize(
    "path", find_objects("f4gemm_*.co", aiter_folder()), ids=lambda path: path.stem.rpartition("Fp4_")[2]
)
def test_kernels_want_the_32x8_layout_and_no_other(path):
    kernel = asmlaunch.load(path, device="emulator").kernel
    _, tile_n = a4w4.tile(kernel.info)
    problem = a4w4.build(kernel.info, a4w4.Case(m=32, n=tile_n, k=256))
    reference = problem.reference()
    padded = layouts.pad_scales(problem.scale_a)

    def equal_fraction(scales: np.ndarray) -> tuple[bool, float]:
        problem.output[...] = 0xFFFF
        kernel.launch({**problem.arguments, "ScaleA": scales})
        comparison = validate.compare(problem.output, reference)
        return comparison.passed, comparison.equal_fraction

    assert equal_fraction(layouts.SCALES_32X8.apply(padded)) == (True, pytest.approx(1, abs=2e-4))
    for name, lay_out in NEAR_MISSES.items():
        passed, fraction = equal_fraction(lay_out(padded))
        assert not passed, name
        assert fraction < 0.9, name
