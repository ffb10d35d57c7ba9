"""Sizes on which kernels are right, found without their declared domain."""

from __future__ import annotations

from pathlib import Path

import pytest

import asmlaunch
from asmlaunch.devices.emulator import EmulatorDevice
from asmlaunch.errors import ArgumentError, InstructionBudgetError
from asmlaunch.validate.probe import probe_domain
from asmlaunch.validate.problems import f4gemm
from asmlaunch.validate.problems.topksoftmax import Sizes


@pytest.mark.parametrize(("name", "step"), [("BpreShuffle_32x128", 32), ("noBpreShuffle_256x256", 256)])
def test_kernels_with_and_without_a_mask_of_columns(f4gemm_folder: Path, name: str, step: int) -> None:
    kernel = asmlaunch.load(f4gemm_folder / f"f4gemm_bf16_per1x32Fp4_{name}.co", device="emulator").kernel
    found = probe_domain(kernel, names=("n",), base=f4gemm.Sizes(m=40, n=512, k=256))
    (n,) = found.sizes
    assert (n.step, n.smallest) == (step, step)
    assert "of the elements right" in n.outside
    assert bool(found.overrun) == (name == "noBpreShuffle_256x256")
    assert found.as_dict()["sizes"][0]["step"] == step


def test_rows_beside_the_result(f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256.co", device="emulator").kernel
    found = probe_domain(kernel, names=("m",), base=f4gemm.Sizes(m=64, n=256, k=256))
    assert (found.sizes[0].step, found.sizes[0].smallest) == (1, 1)
    assert found.overrun == 255 * 256  # m = 1 writes a whole tile


def test_faults_and_endless_launches_are_outcomes(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    launch = EmulatorDevice.launch

    def endless_on_odd_rows(self, kernel, code_object, kernarg, **how):
        if int.from_bytes(kernarg[48:52], "little") % 4:
            raise InstructionBudgetError("a loop of this test")
        return launch(self, kernel, code_object, kernarg, **how)

    monkeypatch.setattr(EmulatorDevice, "launch", endless_on_odd_rows)
    found = probe_domain(kernel, names=("batch",), base=Sizes(batch=8, levels=128))
    assert found.sizes[0].step == 4
    assert "endless" in found.sizes[0].outside
    with pytest.raises(ArgumentError, match="need one on which it is right"):
        probe_domain(kernel, base=Sizes(batch=9, levels=128))


def test_sizes_that_are_none(aiter_kernels: Path) -> None:
    kernel = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    with pytest.raises(ArgumentError, match="got m, need some of seed, batch"):
        probe_domain(kernel, names=("m",))
