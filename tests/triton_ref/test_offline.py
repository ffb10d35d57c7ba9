"""Kernels compiled for processors that are not here: within the model's limits, and right in the emulator."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
import triton

import asmlaunch
from asmlaunch import layouts
from asmlaunch.errors import ArgumentError
from asmlaunch.triton_ref import Config, addmm, few_rows, gemm_a4w4, offline
from asmlaunch.triton_ref.hardware import KNOWN


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What ``compile_offline.py`` prints: {(target, case): [kernels]}."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    script = Path(__file__).with_name("compile_offline.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {}
    for entry in json.loads(done.stdout.splitlines()[-1]):
        found.setdefault((entry["target"], entry["case"]), []).append(entry)
    return found


@pytest.mark.parametrize("case", ["dense", "large", "parts"])
@pytest.mark.parametrize("target", ["gfx942", "gfx950", "sm90"])
def test_the_model_knows_what_a_configuration_takes(compiled, target, case):
    kernel, *others = compiled[target, case]
    assert [k["name"] for k in others] == (["add_parts"] if case == "parts" else [])
    bound, limit, _ = kernel["bound"]
    assert kernel["shared"] <= bound <= limit
    assert not kernel["spills"]
    if target != "sm90":
        assert kernel["registers"] <= 512


@pytest.mark.parametrize(("case", "kernel"), [("few rows", "few_rows"), ("one row", "one_row")])
def test_kernels_of_few_rows_compile_for_hopper(compiled, case, kernel):
    (entry,) = compiled["sm90", case]
    assert entry["name"] == kernel
    assert entry["shared"] <= few_rows.cut(16, 128, 256, KNOWN["sm90"]).shared + 4096


def launch(entry, tensors, **options):
    """Run a compiled kernel in the emulator; its integers and pointers follow each other as in the signature."""
    kernel = asmlaunch.load(base64.b64decode(entry["binary"]), device="emulator").kernel
    values = [tensors[v] if isinstance(v, str) else v for v in entry["arguments"]]
    values += [0] * (len(kernel.schema.names) - len(values))  # scratch memory that no kernel here asks for
    arguments = dict(zip(kernel.schema.names, values, strict=True))
    shape = {"grid": tuple(entry["grid"]), "block": (64 * entry["warps"], 1, 1), "dynamic_lds": entry["shared"]}
    return kernel.launch(arguments, **shape, **options)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_dense_in_the_emulator(compiled, target):
    """Each addition of a matrix instruction may be rounded in another order, so the results are close, not equal."""
    torch.manual_seed(0)
    a, b, c = torch.randn(64, 96).bfloat16(), torch.randn(96, 64).bfloat16(), torch.randn(64)
    want = addmm(c, a, b, config=Config(32, 32, 32, 2, 2))
    out = np.full((64, 64), 0xFFFF, np.uint16)
    tensors = {name: t.view(torch.int16).numpy() for name, t in (("a", a), ("b", b))}
    (entry,) = compiled[target, "dense"]
    result = launch(entry, {**tensors, "c": c.numpy(), "out": out}, checks="all")
    assert result.findings == ()
    # gfx950 copies past the registers, unless told otherwise.
    assert any(row.text.endswith(" lds") for row in result.profile.covered) == (target == "gfx950")
    got = torch.from_numpy(out.view(np.int16)).view(torch.bfloat16)
    assert torch.allclose(got.float(), want.float(), rtol=2**-7, atol=1e-5)


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_a4w4_in_the_emulator(compiled, target):
    """Sums of few elements with near scales are exact in float32, in any order: the results are equal."""
    random = np.random.default_rng(0)
    shapes = {"a": (16, 32), "b": (32, 32), "a_scale": (16, 2), "b_scale": (32, 2)}
    tensors = {
        name: random.integers(125, 129, shape, np.uint8)
        if "scale" in name
        else random.integers(0, 256, shape, np.uint8)
        for name, shape in shapes.items()
    }
    want = gemm_a4w4(**{name: torch.from_numpy(t) for name, t in tensors.items()}, schedule="direct")
    out = np.full((16, 32), 0xFFFF, np.uint16)
    (entry,) = compiled[target, "a4w4"]
    launch(entry, {**tensors, "out": out})
    assert np.array_equal(out, want.view(torch.int16).numpy().view(np.uint16))


@pytest.mark.parametrize(
    ("scheme", "dtype"), [("mxfp4", np.float16), ("mxfp8_e4m3", ml_dtypes.bfloat16), ("mxfp8_e5m2", np.float32)]
)
@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_quantisation_in_the_emulator(compiled, target, scheme, dtype):
    """Machine code against numpy, bit for bit: subnormals, saturation, signs and blocks that are not finite too."""
    random = np.random.default_rng(0)
    x = random.standard_normal((40, 288)) * np.exp2(random.integers(-149, 127, (40, 9)).repeat(32, axis=1))
    x *= np.exp2(random.integers(-20, 2, x.shape))
    x[1, 4], x[2, 70], x[3, 70], x[4, 64:96], x[5, 64:96] = -np.nan, np.inf, -np.inf, 0, -0.0
    x[6, 64:96], x[7, 64:96], x[8, 64:96], x[9, 64:96] = 7, 3.4e38, 1e-40, 1e-45
    with np.errstate(over="ignore"):
        x = x.astype(np.float32).astype(dtype)
    want = layouts.quantize(x, scheme, scale_rounding="RoundDown")
    codes, scales = np.full_like(want.codes, 0xCC), np.full((64, 16), 0xCC, np.uint8)
    (entry,) = compiled[target, scheme]
    assert not entry["spills"]
    launch(entry, {"x": x.view(f"u{x.itemsize}"), "out": codes, "out 2": scales})
    assert np.array_equal(codes, want.codes)
    assert np.array_equal(scales, layouts.tile_scales(want.scales, row_multiple=32))


@pytest.mark.parametrize("scheme", ["mxfp8_e4m3", "mxfp8_e5m2"])
def test_quantisation_compiles_for_hopper(compiled, scheme, tmp_path):
    """Accesses of 16 bytes, nothing in local memory, and two sums for each of a thread's 64 elements: ptxas drops
    elements when it takes a float product for one of integers."""
    (entry,) = compiled["sm90", scheme]
    (tmp_path / "kernel.cubin").write_bytes(base64.b64decode(entry["binary"]))
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    command = [tool, "-res-usage", "-sass", tmp_path / "kernel.cubin"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "STACK:0" in text
    assert "LOCAL:0" in text
    assert text.count(" FFMA ") >= 128
    assert "LDG.E.128" in text
    assert "STG.E.128" in text


def test_refusals():
    with pytest.raises(ArgumentError, match="gfx942, gfx950, sm90"), offline("gfx1100"):
        pass
    with pytest.raises(ArgumentError, match="TRITON_INTERPRET"), offline("gfx950"):
        pass
