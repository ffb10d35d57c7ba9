"""Sums of crafted terms: expected values are written here, as IEEE 754 and the OCP formats have them."""

from __future__ import annotations

from pathlib import Path

import pytest

import asmlaunch
from asmlaunch.errors import ArgumentError
from asmlaunch.validate.probe import probe_numerics
from asmlaunch.validate.probe.numerics import differences


def test_mxfp4(f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel
    found = probe_numerics(kernel)
    bits = {line.name: line.bits for line in found.lines}
    assert (found.operand, found.depth) == ("ScaleA", 32)
    assert bits["output: tie above an even number"] == "3f80"  # 1
    assert bits["output: tie above an odd number"] == "3f82"  # 1 + 2^-6
    assert bits["output: just above a tie"] == "3f81"
    assert bits["sum: just above a tie in f32"] == "3400"  # 2^-23
    assert bits["sum: just below a tie in f32"] == "0000"
    assert bits["neighbours: 1 + 2^-23 - 1"] == "3400"
    assert bits["subnormal alone"] == "0040"  # 2^-127
    assert bits["2^127 + 2^127"] == "7f80"
    meanings = {line.name: line.meaning for line in found.lines}
    assert meanings["NaN times 0"] == "NaN"
    assert found.order == "in order of K"
    assert sorted(place for group in found.groups for place in group) == list(range(16))
    same = found.as_dict()
    assert differences(same, same) == []
    lines = [{**line, "bits": "0001"} if line["name"] == "subnormal alone" else line for line in same["lines"]]
    assert differences({**same, "lines": lines}, same) == [("subnormal alone", "0001", "0040")]


def test_bf16_with_f32_results(aiter_kernels: Path) -> None:
    path = aiter_kernels / "gfx942" / "bf16gemm" / "bf16gemm_outf32_tn_32x64_pf3.co"
    found = probe_numerics(asmlaunch.load(path, device="emulator").kernel)
    bits = {line.name: line.bits for line in found.lines}
    assert bits["infinity alone"] == "7f800000"
    assert bits["sum: tie in f32 above an odd number"] == "34800000"  # 2^-22
    assert {line.name: line.meaning for line in found.lines}["infinity minus infinity"] == "NaN"
    assert "NaN times 0" not in bits
    assert not any(name.startswith("output") for name in bits)


def test_what_has_no_answer(aiter_kernels: Path) -> None:
    path = aiter_kernels / "gfx942" / "i8gemm" / "I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co"
    with pytest.raises(ArgumentError, match="sums of integers are exact"):
        probe_numerics(asmlaunch.load(path, device="emulator").kernel)
    with pytest.raises(ArgumentError, match="need what --json prints"):
        differences({"lines": 3}, {})
