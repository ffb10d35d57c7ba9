"""Kernels that seem to read an operand elsewhere: its memory is rearranged on the way to the emulator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from asmlaunch.devices.emulator import EmulatorDevice
from asmlaunch.errors import MemoryFaultError


def rearrange(
    monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[np.ndarray], np.ndarray], *, fault: int | None = None
) -> None:
    """From now on each launch finds ``change`` of the argument's array in its memory, which then is as before.

    ``fault``: the launch, from 1, that ends with an error instead.
    """
    launch, calls = EmulatorDevice.launch, 0

    def rearranged(self, *arguments, buffers, **options):
        nonlocal calls
        calls += 1
        if calls == fault:
            raise MemoryFaultError("a fault of this test")
        array = next(buffer.owner for buffer in buffers if buffer.name == name)
        before = array.copy()
        array[...] = change(before)
        try:
            return launch(self, *arguments, buffers=buffers, **options)
        finally:
            array[...] = before

    monkeypatch.setattr(EmulatorDevice, "launch", rearranged)
