"""Keys and values of paged caches, found by experiment; expected addresses are written here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from validate.probe.rearranged import rearrange

import asmlaunch
from asmlaunch.errors import ArgumentError, KernelNotFoundError
from asmlaunch.module import Kernel
from asmlaunch.validate.probe import probe_layout
from asmlaunch.validate.probe.paged import locate


@pytest.fixture(scope="module")
def kernel(aiter_kernels: Path) -> Kernel:
    path = aiter_kernels / "gfx942" / "pa" / "pa_bf16_pertokenFp8_gqa8_2tg_4w_hp.co"
    return asmlaunch.load(path, device="emulator").kernel


def test_keys_and_values_of_one_byte(kernel: Kernel) -> None:
    token, column = np.indices((16, 128))
    found = probe_layout(kernel, "K")  # [128/16, 16 tokens, 16]
    assert np.array_equal(found.addresses, column // 16 * 256 + token * 16 + column % 16)
    assert found
    assert found.known == ("paged_keys",)
    found = probe_layout(kernel, "ptr_V")  # [16/16, 128, 16]
    assert np.array_equal(found.addresses, column * 16 + token)
    assert (found.known, found.unreached) == (("paged_values",), 0)
    assert "paged_values is the same in a block of 16 tokens" in found.notes
    assert dict(found.lines())["entry"] == "1 bytes"
    assert found.launches < 30
    with pytest.raises(ArgumentError, match="need K or V"):
        probe_layout(kernel, "Q")


def test_faults_and_values_that_lie_elsewhere(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of a block moved around on the way to the kernel; the fourth launch faults."""
    places = np.random.default_rng(1).permutation(2048)
    rearrange(monkeypatch, "ptr_V", lambda v: v.reshape(-1, 2048)[:, places].reshape(v.shape), fault=4)
    found = probe_layout(kernel, "V")
    assert not found
    assert any("a fault of this test" in note for note in found.notes)
    again = locate(kernel, "V")[0]
    token, column = np.indices((16, 128))
    assert np.array_equal(again, places[column * 16 + token])


def test_other_kernels(aiter_kernels: Path) -> None:
    path = aiter_kernels / "gfx942" / "topksoftmax" / "topksoftmax_4x128x6.co"
    with pytest.raises(KernelNotFoundError, match="need paged attention, blocks of 16 tokens"):
        locate(asmlaunch.load(path, device="emulator").kernel, "V")
