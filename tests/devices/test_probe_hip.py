"""Probes through the HIP device: nothing in them knows the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from hip_runtime import standin

import asmlaunch
from asmlaunch.errors import DeviceError
from asmlaunch.validate.probe import probe_layout


def test_a_layout(hip: standin.StandIn, f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="hip:0").kernel
    found = probe_layout(kernel, "ScaleB")
    assert found
    assert found.known == ("scales_32x8",)


def test_a_device_that_fails_while_probed(
    hip: standin.StandIn, f4gemm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="hip:0").kernel
    launch, calls = kernel.device.launch, 0

    def failing(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == 5:
            raise DeviceError("a fault of this test")
        return launch(*arguments, **options)

    monkeypatch.setattr(kernel.device, "launch", failing)
    found = probe_layout(kernel, "ScaleB")
    assert any("error: a fault of this test" in note for note in found.notes)
    assert calls > 10
