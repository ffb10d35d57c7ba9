"""Argument slots, by changing them: against what the ISA listing of the kernels loads and uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.devices.emulator import EmulatorDevice
from asmlaunch.errors import ArgumentError
from asmlaunch.validate.probe import probe_args
from asmlaunch.validate.problems import f4gemm

NEVER_LOADED = {
    "stride_D0", "stride_D1", "stride_C1", "stride_A1", "stride_B1", "stride_ScaleA1", "stride_ScaleB1",
}  # fmt: skip


def test_a_kernel_that_ignores_alpha(f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel
    found = probe_args(kernel)
    slots = {slot.name: slot for slot in found.slots}
    assert set(found.dead) == NEVER_LOADED | {"ptr_C", "alpha", "beta", "log2_k_split"}
    assert not any(slot.live for slot in found.slots if slot.type == "padding")
    assert {slot.name for slot in found.slots if slot.loaded == "loaded, unused"} == {"ptr_C", "alpha", "beta"}
    effects = {
        "ptr_D": "written",
        "ptr_A": "read",
        "stride_C0": "row stride of D in elements of 2 bytes",
        "stride_A0": "row stride of A in elements of half a byte",
        "stride_B0": "row stride of B in elements of half a byte, 16 rows at a time",
        "stride_ScaleA0": "row stride of ScaleA in bytes, 32 rows at a time",
        "M": "bounds the rows",
        "K": "length of a loop",
    }
    assert {name: slots[name].effect for name in effects} == effects
    assert {"0: endless", "38: rows from 38 unwritten"} <= {f"{c.to}: {c.outcome}" for c in slots["M"].changes}
    assert found.as_dict()["dead"] == list(found.dead)


def test_a_factor_and_other_units(aiter_kernels: Path, f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256.co", device="emulator").kernel
    slots = {slot.name: slot for slot in probe_args(kernel, case=f4gemm.Sizes(m=40, n=256, k=256)).slots}
    assert slots["alpha"].effect == "factor of the result"
    assert slots["stride_B0"].effect == "row stride of B in elements of half a byte"
    softmax = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    slots = {slot.name: slot for slot in probe_args(softmax).slots}
    assert slots["batch"].effect == "bounds the rows"
    assert slots["expert"].effect == "row stride of A in elements of 4 bytes"
    assert slots["ptr_A"].effect == "read, 48 bits of the address"


def test_a_problem_that_fails_as_it_is(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    softmax = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    with pytest.raises(ArgumentError, match="need one that runs"):
        probe_args(softmax, max_instructions=5)
    launch = EmulatorDevice.launch
    noise = np.random.default_rng(0)

    def unsteady(self, *args, buffers, **options):
        result = launch(self, *args, buffers=buffers, **options)
        next(buffer.owner for buffer in buffers if buffer.name == "ptr_W")[0, 0] = noise.random()
        return result

    monkeypatch.setattr(EmulatorDevice, "launch", unsteady)
    assert "two equal launches differ" in probe_args(softmax).notes[0]
