"""Layouts found by experiment, against closed forms written here, and against a kernel whose operand is moved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from validate.probe.rearranged import rearrange

import asmlaunch
from asmlaunch.errors import ArgumentError, KernelNotFoundError
from asmlaunch.module import Kernel
from asmlaunch.validate.probe import probe_layout


@pytest.fixture(scope="module")
def shuffled(f4gemm_folder: Path) -> Kernel:
    return asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel


@pytest.mark.parametrize("operand", ["ScaleA", "ptr_ScaleB"])
def test_scales_lie_in_tiles_of_32_rows_and_8_blocks(shuffled: Kernel, operand: str) -> None:
    found = probe_layout(shuffled, operand)
    rows, blocks = np.indices(found.addresses.shape)
    columns = found.addresses.shape[1]
    # hipBLASLt's pre-swizzle of scales for gfx950, as a formula.
    expected = rows // 32 * 32 * columns + blocks // 8 * 256 + blocks % 4 * 64
    expected += rows % 16 * 4 + blocks % 8 // 4 * 2 + rows % 32 // 16
    assert np.array_equal(found.addresses, expected)
    assert found
    assert found.known == ("scales_32x8",)
    assert found.unreached == found.entries - found.addresses.size
    assert found.as_dict()["confirmed"] == [128, 256, 768]
    assert found.launches < found.entries / 20


def test_weights_lie_in_blocks_of_16_rows_and_16_bytes(shuffled: Kernel) -> None:
    found = probe_layout(shuffled, "B")
    rows, bytes_ = np.indices(found.addresses.shape)
    columns = found.addresses.shape[1]
    expected = rows // 16 * columns * 16 + bytes_ // 32 * 512 + bytes_ % 32 // 16 * 256 + rows % 16 * 16 + bytes_ % 16
    assert np.array_equal(found.addresses, expected)
    assert "weights_16x16" in found.known
    assert found.order == "same"
    assert found.unreached == 0
    assert "<svg" in found.picture("svg")
    assert dict(found.lines())["confirmed"] == "128x256x768"


def test_the_left_operand_against_the_right(shuffled: Kernel) -> None:
    found = probe_layout(shuffled, "A")
    assert (found.anchor, found.known) == ("B", ("plain",))


def test_a_kernel_that_reads_other_places(shuffled: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights shuffled, and their nibbles swapped, on the way to the kernel: to the probe it takes plain ones."""

    def moved(before: np.ndarray) -> np.ndarray:
        rows, columns = before.shape
        tiles = before.reshape(rows // 16, 16, columns // 32, 2, 16).transpose(0, 2, 3, 1, 4).reshape(before.shape)
        return tiles << 4 | tiles >> 4

    rearrange(monkeypatch, "ptr_B", moved)
    found = probe_layout(shuffled, "B", sizes=(64, 128, 256))
    assert found.known == ("plain",)
    assert found.order == "swapped"


def test_no_pattern_and_faults_are_said(shuffled: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.random.default_rng(0).permutation(4096)
    rearrange(monkeypatch, "ptr_ScaleA", lambda scales: scales.reshape(-1)[places].reshape(scales.shape), fault=7)
    found = probe_layout(shuffled, "ScaleA")
    assert not found
    assert found.layout is None
    assert any("a fault of this test" in note for note in found.notes)
    assert any("could not be read" in note for note in found.notes)
    good = found.addresses >= 0
    rows, blocks = np.indices(found.addresses.shape)
    tile = (
        rows // 32 * 512 + blocks // 8 * 256 + blocks % 4 * 64 + rows % 16 * 4 + blocks % 8 // 4 * 2 + rows % 32 // 16
    )
    assert good.mean() > 0.7
    assert np.array_equal(found.addresses[good], places[tile][good])
    assert "addresses" in found.as_dict()
    assert "no pattern" in found.picture()


def test_a_shared_scale_and_a_transposed_one(aiter_kernels: Path) -> None:
    kernel = asmlaunch.load(aiter_kernels / "gfx950" / "f8_block_scale_mi350_x32.co", device="emulator").kernel
    found = probe_layout(kernel, "ScaleB")
    assert (found.shared, found.known, found.depth) == (128, ("plain",), 128)
    found = probe_layout(kernel, "ScaleA")
    assert found
    assert (found.addresses == np.arange(64)[:, None] + 64 * np.arange(4)).all()


def test_int8_weights_lie_in_blocks_of_32_rows(aiter_kernels: Path) -> None:
    kernel = asmlaunch.load(
        aiter_kernels / "gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co", device="emulator"
    ).kernel
    assert probe_layout(kernel, "B", sizes=(64, 128, 384)).known == ("weights_32x16",)
    with pytest.raises(ArgumentError, match=r"anchor B of .*got no declared layout"):
        probe_layout(kernel, "A")


def test_what_cannot_be_probed(shuffled: Kernel, aiter_kernels: Path) -> None:
    with pytest.raises(ArgumentError, match="need one of A, B, ScaleA, ScaleB"):
        probe_layout(shuffled, "D")
    with pytest.raises(ArgumentError, match="the other one of A and B"):
        probe_layout(shuffled, "ScaleA", against="ScaleB")
    softmax = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    with pytest.raises(KernelNotFoundError, match="got family topksoftmax, need a matrix product: f4gemm"):
        probe_layout(softmax, "A")
