"""Kernels declare the layouts they need, and tensors that carry another one do not reach them."""

from __future__ import annotations

import numpy as np
import pytest

import asmlaunch
from asmlaunch import layouts
from asmlaunch.abi import check_tiling
from asmlaunch.abi.families import f4gemm
from asmlaunch.errors import LayoutError
from asmlaunch.kernels import aiter_folder, find_objects
from asmlaunch.validate import a4w4

SMALL = "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"
SCALES = np.full((256, 8), 127, np.uint8)
FIELDS = {field.name: field for field in f4gemm.FAMILY.fields}


@pytest.fixture(scope="module")
def small():
    kernel = asmlaunch.load(aiter_folder() / SMALL, device="emulator").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(m=32, n=128, k=256))
    tagged = {
        "B": layouts.tile(problem.b, "weights_16x16"),
        "ScaleA": layouts.tile(problem.scale_a, "scales_32x8"),
        "ScaleB": layouts.tile(problem.scale_b, "scales_32x8"),
    }
    return kernel, problem, tagged


def test_every_f4gemm_kernel_declares_its_layouts():
    paths = find_objects("f4gemm_*.co", aiter_folder())
    assert len(paths) == 35
    for path in paths:
        schema = asmlaunch.load(path, device="emulator").kernel.schema
        declared = {field.name: field.tiling for field in schema.fields if field.tiling}
        assert declared == {
            "ptr_A": "plain",
            "ptr_B": "plain" if "noBpreShuffle" in path.name else "weights_16x16",
            "ptr_ScaleA": "scales_32x8",
            "ptr_ScaleB": "scales_32x8",
        }


@pytest.mark.parametrize("name", ["ScaleA", "ptr_ScaleA"])
def test_another_layout_is_named_beside_the_one_needed(name):
    field = FIELDS["ptr_ScaleA"]
    check_tiling(field, {name: layouts.tile(SCALES, "scales_32x8")}, strict=True)
    wrong = layouts.tile(SCALES, "scales_128x4")
    with pytest.raises(
        LayoutError, match=r"ptr_ScaleA .*got layout scales_128x4, need layout scales_32x8; layouts.conv"
    ):
        check_tiling(field, {name: wrong})
    check_tiling(field, {name: layouts.tile(wrong.logical(), "scales_32x8")})


def test_arrays_without_a_layout_pass_unless_strict():
    field = FIELDS["ptr_ScaleA"]
    for value in (SCALES, 4096):
        check_tiling(field, {"ScaleA": value})
        with pytest.raises(LayoutError, match=r"got plain .*need a tensor in layout scales_32x8; layouts.tile"):
            check_tiling(field, {"ScaleA": value}, strict=True)
    check_tiling(field, {"ScaleA": None}, strict=True)
    check_tiling(field, {}, strict=True)


def test_plain_operands_take_no_layout():
    check_tiling(FIELDS["ptr_A"], {"A": SCALES}, strict=True)
    with pytest.raises(LayoutError, match=r"got layout weights_16x16, need elements in logical order; .logical\(\)"):
        check_tiling(FIELDS["ptr_A"], {"A": layouts.tile(np.zeros((16, 32), np.uint8), "weights_16x16")})


def test_launches_refuse_another_layout(small):
    kernel, problem, tagged = small
    wrong = {**problem.arguments, **tagged, "ScaleB": layouts.tile(problem.scale_b, "scales_n32k4")}
    for start in (kernel.launch, kernel.prepare):
        with pytest.raises(LayoutError, match=r"ptr_ScaleB .*scales_n32k4.*scales_32x8"):
            start(wrong)
    with pytest.raises(LayoutError, match=r"ptr_B .*scales_32x8.*weights_16x16"):
        kernel.launch({**problem.arguments, **tagged, "B": tagged["ScaleB"]})
    kernel.launch(wrong, check=False)
    assert not problem.compare().passed


def test_strict_launches(small):
    kernel, problem, tagged = small
    with pytest.raises(LayoutError, match=r"need a tensor in layout"):
        kernel.launch(problem.arguments, strict_layouts=True)
    kernel.launch({**problem.arguments, **tagged}, strict_layouts=True)
    assert problem.compare().passed
