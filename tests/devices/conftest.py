"""The stand-in HIP runtime as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hip_runtime import standin

from asmlaunch.devices.hip import device


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> Iterator[standin.StandIn]:
    """One MI350 that records launches and runs them in the emulator. Without this fixture there is no device."""
    monkeypatch.setenv("HIP_STANDIN_DEVICES", "1")
    device.opened.clear()
    runtime = standin.load()
    runtime.emulate(True)
    yield runtime
    device.opened.clear()


@pytest.fixture
def two_gpus(hip: standin.StandIn, monkeypatch: pytest.MonkeyPatch) -> standin.StandIn:
    """As ``hip``, with two devices."""
    monkeypatch.setenv("HIP_STANDIN_DEVICES", "2")
    return hip
