"""Mixture-of-experts layers in one kernel: executed in each format, and compared with what their arguments say."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import ArgumentError, DomainError
from asmlaunch.validate.bfloat16 import bfloat16_bits
from asmlaunch.validate.problems.fmoe import DEFINITION, Sizes

#: One kernel of each format, and of each way to scale, to sort and to schedule.
KERNELS = {
    "int8": "gfx942/fmoe/silu/fmoe_bf16_pertokenInt8_g1u1_vs_silu_1tg_32x128.co",
    "int8 by slot": "gfx950/fmoe/silu/fmoe_fp16_pertokenInt8_g1u0_vs_silu_1tg_ps_32x128.co",
    "int8 quantised inside": "gfx942/fmoe/silu/fmoe_bf16_pertokenInt8_g1u1_vs_smf_silu_1tg_1tg_32x256.co",
    "fp8": "gfx942/fmoe/gelu/fmoe_bf16_pertokenFp8_g1u1_vs_gelu_1tg_ps_32x128.co",
    "fp8 rows skipped": "gfx950/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x128.co",
    "fp8 weights first": "gfx950/fmoe/silu/fmoe_fp16_pertokenFp8_g1u1_vs_tkw1_silu_1tg_32x128.co",
    "fp8 by slot": "gfx942/fmoe_fp8_g1u1_multix_subGU_128.co",
    "fp8 in bf16 bits": "gfx942/fmoe/silu/fmoe_fp16_pertokenFp8_g1u1_silu_1tg_32x128.co",
    "fp8 in blocks": "gfx950/fmoe/silu/fmoe_bf16_blockscaleFp8_g1u1_novs_silu_1tg_ps_32x256.co",
    "mxfp4": "gfx950/fmoe/gelu/fmoe_bf16_pertokenMXfp4_g1u1_vs_gelu_2tg_32x256.co",
    "int4": "gfx942/fmoe_int4fp8_g1u1_subGU_128_gelu.co",
    "bf16": "gfx942/fmoe/silu/fmoe_bf16_noquantBf16_g1u0_vs_atm_inlv_silu_1tg_32x512.co",
    "f16": "gfx942/fmoe_f16.co",
}


@pytest.fixture
def load(aiter_kernels: Path):
    """A kernel by its key in ``KERNELS``."""
    return lambda name: asmlaunch.load(aiter_kernels / KERNELS[name], device="emulator").kernel


@pytest.mark.parametrize("name", KERNELS)
def test_the_standard_problems(load, name: str) -> None:
    kernel = load(name)
    for case in DEFINITION.cases(DEFINITION.parameters(kernel.info)):
        outcome = DEFINITION.run(kernel, case)
        assert outcome.passed, (case, str(outcome.comparisons["O"]))


@pytest.mark.parametrize("groups", [0, 1, 5])
def test_persistent_groups(load, groups: int) -> None:
    """None: each workgroup its block. One: it takes them all. More than blocks: some have nothing to do."""
    assert DEFINITION.run(load("fp8"), Sizes(m=37, dim=256, groups=groups)).passed


@pytest.mark.parametrize("m", [1, 31, 32, 33, 64])
def test_tokens_around_a_block(load, m: int) -> None:
    assert DEFINITION.run(load("int8"), Sizes(m=m, dim=256, chunks=3)).passed


def test_what_is_wrong_is_rejected(load) -> None:
    """Results that are zero, negated, scaled by 2 %, or of another expert's weights."""
    kernel = load("int8")
    case = Sizes(m=37, dim=256)
    problem = DEFINITION.problem(kernel.info, case)
    output = problem.outputs[0]
    value = output.reference().value
    for factor, passes in ((1, True), (0, False), (-1, False), (1.02, False), (0.98, False)):
        output.result[...] = bfloat16_bits(value * factor)
        assert output.compare().passed is passes
    experts = np.array(problem.launches[0]["SEP"])
    experts[0] = 1
    output.result[...] = 0
    kernel.launch({**problem.launches[0], "SEP": experts})
    assert not output.compare().passed


def test_an_f16_kernel_that_adds_bf16_bits(load) -> None:
    """Two parts of an element: their bits are added as if they were f16."""
    kernel = load("fp8 in bf16 bits")
    for case in (Sizes(m=8, dim=256, chunks=1, topk=2), Sizes(m=8, dim=256, chunks=2, topk=1)):
        assert not DEFINITION.run(kernel, case, check=False).passed
    with pytest.raises(DomainError, match="adds bf16 bits as f16"):
        DEFINITION.run(kernel, Sizes(m=8, dim=256, chunks=2, topk=1))


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("int8", 640, 768),
        ("fp8 rows skipped", 512, 256),
        ("fp8 in blocks", 768, 1024),
        ("mxfp4", 768, 256),
        ("bf16", 256, 768),
        ("int8 quantised inside", 768, 1024),
    ],
)
def test_columns_come_in_pairs_of_tiles(load, name: str, wrong: int, right: int) -> None:
    kernel = load(name)
    case = Sizes(m=8, dim=wrong, chunks=1, topk=1)
    with pytest.raises(DomainError, match=f"dim .*got {wrong}"):
        DEFINITION.run(kernel, case)
    assert not DEFINITION.run(kernel, case, check=False).passed
    assert DEFINITION.run(kernel, dataclasses.replace(case, dim=right)).passed


@pytest.mark.parametrize(
    ("name", "changes", "rule"),
    [
        ("int8", {"inter_dim": 192}, "a multiple of the kernel's columns"),
        ("int8 quantised inside", {"eDQs": 64}, "pitch of XQ"),
        ("int8", {"token_cnt": 1 << 24, "Xs": 64, "Os": 64}, "the slot is above the token"),
        ("int8", {"token_cnt": 1 << 20, "Xs": 1 << 12}, "X for .*less than 4 GiB"),
        ("int8", {"token_cnt": 1 << 20, "Os": 1 << 12}, "O for .*less than 4 GiB"),
        ("int8", {"eGUs": 1 << 31}, "eGUs for .*less than 4 GiB"),
        ("int8", {"eDs": 1 << 31}, "eDs for .*less than 4 GiB"),
        ("fp8", {"total_tgs": 4, "ps_deno": 0}, "at least 1"),
    ],
)
def test_sizes_outside_the_domain(load, name: str, changes: Mapping[str, int], rule: str) -> None:
    kernel = load(name)
    sizes = {**DEFINITION.sizes(Sizes(m=37, dim=512), DEFINITION.parameters(kernel.info)), **changes}
    with pytest.raises(DomainError, match=rule):
        DEFINITION.family.require(kernel.info, sizes)


@pytest.mark.parametrize("array", ["O", "X", "GU", "XC", "D", "XQ", "GUQ", "DQ", "SMQ", "STP", "SW", "SEP"])
def test_an_array_that_is_too_small(load, array: str) -> None:
    kernel = load("fp8 by slot")
    arguments = dict(DEFINITION.problem(kernel.info, Sizes(m=37, dim=256)).launches[0])
    arguments[array] = np.ascontiguousarray(arguments[array].reshape(-1)[: -600 if array == "O" else -1])
    if array == "SEP":
        # Blocks are counted by it: those that are gone are not asked for.
        kernel.launch(arguments)
        return
    with pytest.raises(ArgumentError, match=f"array ptr_{array}: got .* bytes, need"):
        kernel.launch(arguments)


def test_parameters_from_names(load) -> None:
    def of(name: str) -> dict[str, Any]:
        return dict(DEFINITION.parameters(load(name).info))

    assert of("fp8")["format"] == "fp8"
    assert of("fp8")["activation"] == "gelu"
    assert of("fp8")["persistent"]
    assert of("int8 by slot") | {"sub": 128, "gated": False, "rows_by_slot": True} == of("int8 by slot")
    assert of("f16")["format"] == of("f16")["output"] == "f16"
    assert of("int8 quantised inside")["swapped"]
    assert [of(name)["one_part"] for name in ("fp8 in bf16 bits", "fp8 weights first", "f16")] == [True, False, False]


# What the arguments say, by other code: addresses of the shuffled bytes in closed form, formats from ml_dtypes, f32.


def row_of(data: np.ndarray, row: int, width: int) -> np.ndarray:
    """The ``width`` bytes along K of a row of shuffled weights ``[rows / 16][width / 32][2][16 rows][16 bytes]``."""
    k = np.arange(width)
    at = (((row // 16 * (width // 32) + k // 32) * 2 + k // 16 % 2) * 16 + row % 16) * 16 + k % 16
    return data.reshape(-1)[at]


def scale_at(data: np.ndarray, row: int, columns: int) -> np.ndarray:
    """E8M0 scales of a row: dword (row / 32, column / 8, column % 4, row % 16), byte (column / 4 % 2, row / 16 % 2)."""
    c = np.arange(columns)
    dword = ((row // 32 * (columns // 8) + c // 8) * 4 + c % 4) * 16 + row % 16
    return 2.0 ** (data.reshape(-1)[4 * dword + 2 * (c // 4 % 2) + row // 16 % 2].astype(float) - 127)


def nibbles(data: np.ndarray) -> np.ndarray:
    return np.stack([data & 15, data >> 4], axis=-1).reshape(-1)


def values(format_: str, data: np.ndarray, ocp: bool) -> np.ndarray:
    if format_ == "int8":
        return data.view(np.int8).astype(float)
    if format_ == "int4":
        ordered = nibbles(data).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1).astype(int)
        return np.where(ordered > 7, ordered - 16, ordered).astype(float)
    if format_ == "mxfp4":
        return nibbles(data).view(ml_dtypes.float4_e2m1fn).astype(float)
    if format_ in ("bf16", "f16"):
        return data.view(ml_dtypes.bfloat16 if format_ == "bf16" else np.float16).astype(float)
    return data.view(ml_dtypes.float8_e4m3fn if ocp else ml_dtypes.float8_e4m3fnuz).astype(float)


class Layer:
    """A layer as the arguments of a launch describe it, one row after the other."""

    def __init__(self, arguments: Mapping[str, Any], p: Mapping[str, Any]) -> None:
        self.a, self.p = arguments, p
        self.ocp = p["processor"] == "gfx950"
        self.dim, self.inter = arguments["dim"], arguments["inter_dim"]
        self.rows = self.inter * (2 if p["gated"] else 1)

    def weights(self, data: str, scales: str, expert: int, rows: int, k: int) -> np.ndarray:
        """``[rows, K]`` of an expert."""
        form = self.p["format"]
        width = k * {"int4": 4, "mxfp4": 4, "bf16": 16, "f16": 16}.get(form, 8) // 8
        whole = self.a[data].view(np.uint8)
        out = np.stack([values(form, row_of(whole, expert * rows + n, width), self.ocp) for n in range(rows)])
        for n in range(rows):
            if form == "mxfp4":
                out[n] *= np.repeat(scale_at(self.a[scales], expert * rows + n, k // 32), 32)
            elif form == "fp8_blocks":
                out[n] *= np.repeat(self.a[scales].reshape(-1, rows // 128, k // 128)[expert, n // 128], 128)
            elif form not in ("bf16", "f16"):
                out[n] *= self.a[scales].reshape(-1, rows)[expert, n]
        return out

    def activations(self, position: int, token: int, slot: int, expert: int) -> np.ndarray:
        form, m = self.p["format"], self.a["token_cnt"]
        row = slot * m + token if self.p["rows_by_slot"] else token
        data = self.a["X"][row, : self.a["X"].shape[1] - self.pad]
        if self.p["quantises"]:
            smoothed = values("bf16", data, self.ocp) * self.a["XQ"].reshape(-1, self.dim)[expert]
            groups = smoothed.astype(np.float32).reshape(-1, 256)
            return self.rounded(groups).reshape(-1)
        out = values("fp8" if form == "int4" else form, data, self.ocp)
        if form == "mxfp4":
            return out * np.repeat(scale_at(self.a["XQ"], position, self.dim // 32), 32)
        if form == "fp8_blocks":
            return out * np.repeat(self.a["XQ"][:, row], 128)
        return out if form in ("bf16", "f16") else out * self.a["XQ"].reshape(-1)[row]

    def rounded(self, groups: np.ndarray) -> np.ndarray:
        """Groups ``[n, columns]`` of f32 in the kernel's format."""
        form = self.p["format"]
        if form in ("bf16", "f16"):
            return groups.astype(ml_dtypes.bfloat16 if form == "bf16" else np.float16).astype(float)
        amax = np.abs(groups).max(axis=1, keepdims=True)
        if form == "mxfp4":
            power = np.floor(np.log2(amax / 4))
            scale = 2.0 ** (power + (amax / 4 >= 1.5 * 2.0**power))
            return (groups / scale).astype(np.float32).astype(ml_dtypes.float4_e2m1fn).astype(float) * scale
        if form == "int8":
            return np.trunc(groups * (np.float32(127) / amax)) * (amax.astype(float) / 127)
        largest = 448 if self.ocp and form != "fp8_blocks" else 240
        dtype = ml_dtypes.float8_e4m3fn if self.ocp else ml_dtypes.float8_e4m3fnuz
        return (groups * (np.float32(largest) / amax)).astype(dtype).astype(float) * (amax.astype(float) / largest)

    def output(self, case: Sizes) -> np.ndarray:
        """``[tokens, dim]``."""
        self.pad = case.pad
        out = np.zeros((case.m, self.dim))
        cache: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for position in range(self.a["XC"][0]):
            token, slot = int(self.a["STP"][position]) & 0xFFFFFF, int(self.a["STP"][position]) >> 24
            if token >= case.m:
                continue
            expert, weight = int(self.a["SEP"][position // 32]), float(self.a["SW"][position])
            if expert not in cache:
                cache[expert] = (
                    self.weights("GU", "GUQ", expert, self.rows, self.dim),
                    self.weights("D", "DQ", expert, self.dim, self.inter),
                )
            gate_up, down = cache[expert]
            h = gate_up @ self.activations(position, token, slot, expert)
            if self.p["weight_first"]:
                h, weight = h * weight, 1.0
            gate = h[: self.inter]
            if self.p["activation"] == "silu":
                a = gate / (1 + np.exp(-gate))
            else:
                a = gate / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
            if self.p["gated"]:
                a = a * h[self.inter :]
            if self.p["smoothed"]:
                a = a * self.a["SMQ"].reshape(-1, self.inter)[expert]
            group = {"fp8_blocks": 128, "mxfp4": 32}.get(self.p["format"], self.p["sub"])
            out[token] += down @ self.rounded(a.astype(np.float32).reshape(-1, group)).reshape(-1) * weight
        return out


@pytest.mark.parametrize("name", KERNELS)
def test_the_reference_is_what_the_arguments_say(load, name: str) -> None:
    info = load(name).info
    p = DEFINITION.parameters(info)
    case = Sizes(m=5, dim=256, chunks=1, topk=2, here=3, pad=16)
    problem = DEFINITION.problem(info, case, check=False)
    reference = problem.outputs[0].reference()
    got = Layer(problem.launches[0], p).output(case)
    assert np.all(np.abs(got - reference.value) <= reference.slack + 1e-5 * np.abs(reference.magnitude))
    assert np.median(np.abs(got - reference.value)) <= 1e-3 * np.abs(reference.value).max()
