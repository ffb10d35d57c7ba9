"""How products of few rows are cut up for Hopper, and what the kernels are asked; they run on a GPU only."""

from __future__ import annotations

import pytest
import torch

from asmlaunch.errors import ArgumentError
from asmlaunch.triton_ref import _jit_hopper, few_rows, gemm_a4w4, mx
from asmlaunch.triton_ref.hardware import KNOWN, pretended

SM90 = KNOWN["sm90"]


def operands(m, n, k):
    def matrix(rows, columns):
        return torch.zeros((rows, columns), dtype=torch.uint8)

    return matrix(m, k // 2), matrix(n, k // 2), matrix(m, k // 32), matrix(n, k // 32)


def checked(a, b, sa, sb):
    return mx.operand("a", a, sa, "", ""), mx.operand("b", b, sb, "", "")


@pytest.mark.parametrize("m", [1, 8, 9, 16, 17, 64, 65, 128])
@pytest.mark.parametrize(("n", "k"), [(8192, 8192), (1280, 8192), (8192, 1024), (64, 128), (100, 384), (128, 65536)])
def test_every_cut_fits_and_covers(m, n, k):
    cut = few_rows.cut(m, n, k, SM90)
    assert cut.shared * cut.resident <= SM90.shared
    assert cut.rows >= min(m, 64)
    assert cut.part % 512 == 0
    assert 2 <= cut.stages <= cut.part // 256
    assert cut.part == 512 or cut.part < 2 * k


@pytest.fixture
def hopper(monkeypatch):
    """Tensors on the CPU stand for a Hopper's, and launches are recorded: [(kernel, grid, arguments, constants)]."""
    launches = []

    class Recorder:
        def __init__(self, name):
            self.name = name

        def __getitem__(self, grid):
            return lambda *arguments, **constants: launches.append((self.name, grid, arguments, constants))

    for name in ("few_rows", "one_row"):
        monkeypatch.setattr(_jit_hopper, name, Recorder(name))
    token = pretended.set(SM90)
    yield launches
    pretended.reset(token)


def test_one_row(hopper):
    gemm_a4w4(*operands(1, 8192, 8192))
    gemm_a4w4(*operands(1, 100, 1152))
    (large, small) = hopper
    assert large[:2] == ("one_row", (512,))
    assert large[3]["EVEN"]
    assert large[3]["CHUNKS"] == 8
    assert small[:2] == ("one_row", (25,))
    assert not small[3]["EVEN"]
    assert small[3]["CHUNKS"] == 2


def test_few_rows(hopper):
    gemm_a4w4(*operands(70, 300, 1152))
    ((name, (tiles, parts), arguments, constants),) = hopper
    assert name == "few_rows"
    assert tiles == 2 * 3
    assert parts * constants["PART"] >= 1152
    assert (parts - 1) * constants["PART"] < 1152
    assert arguments[11:14] == (70, 300, 1152)
    sums = tiles * parts * constants["ROWS"] * 128
    assert [t.numel() for t in arguments[7:11]] == [sums, sums, tiles * parts, tiles]


def test_a_row_too_long_for_shared_memory_is_few_rows(hopper):
    gemm_a4w4(*operands(1, 16, 128 * 1024))
    assert hopper[0][0] == "few_rows"


def test_what_the_kernels_do_not_take():
    a, b, sa, sb = operands(4, 64, 256)
    assert few_rows.fits(*checked(a, b, sa, sb), SM90)
    assert not few_rows.fits(*checked(a, b, sa, sb), KNOWN["gfx950"])
    assert not few_rows.fits(*checked(*operands(4, 64, 96)), SM90)
    fp8 = torch.zeros((4, 256), dtype=torch.float8_e4m3fn)
    assert not few_rows.fits(*checked(fp8, b, sa, sb), SM90)
    wide = torch.zeros((64, 136), dtype=torch.uint8)
    assert not few_rows.fits(*checked(a, wide[:, :128], sa, sb), SM90), "rows of 136 bytes"
    strided = torch.zeros((64, 256), dtype=torch.uint8)[:, ::2]
    assert not few_rows.fits(*checked(a, strided, sa, sb), SM90)
    with pytest.raises(ArgumentError, match="Hopper"):
        gemm_a4w4(a, b, sa, sb, schedule="blocks")
