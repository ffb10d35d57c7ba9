"""Kernels that Triton compiled (fixtures/kernels/triton_kernels.py), run with all checks and compared with numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulator import collatz

import asmlaunch

FOLDER = Path(__file__).parents[2] / "fixtures" / "kernels"

#: What ``tl.dot`` is given by name; 8-bit floats are FNUZ on gfx942.
TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}
TILES = {"fp16": (32, 64), "bf16": (64, 64), "fp8": (64, 32)}
#: Bytes of dynamic LDS, as the script that compiles them prints.
LDS = {
    "gfx942": {"softmax": 16, "matmul_fp16": 4096, "matmul_bf16": 8192, "matmul_fp8": 4096, "collatz": 16},
    "gfx950": {"softmax": 16, "matmul_fp16": 12288, "matmul_bf16": 32768, "matmul_fp8": 12288, "collatz": 16},
}


@pytest.fixture(params=["gfx942", "gfx950"])
def processor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def launch(name: str, processor: str, *values: Any, grid: tuple[int, ...] | int) -> None:
    """Run it; Triton adds two pointers to scratch memory that these kernels do not use."""
    kernel = asmlaunch.load(FOLDER / f"triton_{name}.{processor}.hsaco", device="emulator").kernel
    names = [field.name for field in kernel.schema.fields]
    arguments = dict(zip(names, (*values, None, None), strict=True))
    lds = LDS[processor].get(name, 0)
    # What checks add does not depend on the processor, and takes long to compile.
    checks = "all" if processor == "gfx950" else "bounds"
    result = kernel.launch(arguments, grid=grid, block=256, dynamic_lds=lds, checks=checks)
    assert [finding for finding in result.findings if finding.severity == "error"] == []


def test_softmax(processor: str) -> None:
    x = np.random.default_rng(1).standard_normal((3, 300), np.float32)
    out = np.zeros_like(x)
    launch("softmax", processor, out, x, 300, grid=3)
    wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, wide / wide.sum(axis=1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("kind", TILES)
def test_matmul(kind: str, processor: str) -> None:
    m, n, k = 70, 50, 100
    dtype = TYPES.get(kind) or FP8[processor]
    a, b = (np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32).astype(dtype)
            for seed, shape in ((1, (m, k)), (2, (n, k))))  # fmt: skip
    out = np.zeros((m, n), np.float32)
    tile_m, tile_n = TILES[kind]
    left, right = (x.view(np.uint8 if kind == "fp8" else np.uint16) for x in (a, b))
    launch(f"matmul_{kind}", processor, out, left, right, m, n, k, grid=(-(-m // tile_m), -(-n // tile_n)))
    # Whole numbers of this size: every order of adding gives the same sum.
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)


def test_histogram(processor: str) -> None:
    x = np.random.default_rng(3).integers(0, 16, 1200).astype(np.int32)
    bins = np.zeros(16, np.int32)
    launch("histogram", processor, bins, x, 1200, grid=3)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=16))


def test_collatz(processor: str) -> None:
    x = np.arange(1, 257, dtype=np.int32)
    out = np.zeros(256, np.int32)
    launch("collatz", processor, out, x, grid=1)
    np.testing.assert_array_equal(out, [collatz.steps(int(number)) for number in x])
