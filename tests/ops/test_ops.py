"""The torch operators on CPU tensors, which run AMD's kernels in the emulator."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import asmlaunch
from asmlaunch import layouts, validate
from asmlaunch.errors import ArgumentError, DomainError, KernelNotFoundError, LayoutError
from asmlaunch.ops import gemm, gemm_a4w4, register
from asmlaunch.ops.kernels import device_name

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def logical(m: int, n: int, k: int, seed: int = 0) -> Operands:
    """Packed operands and scales in logical order."""
    random = np.random.default_rng(seed)
    a, a_scale = layouts.quantize_mxfp4(random.standard_normal((m, k), np.float32))
    b, b_scale = layouts.quantize_mxfp4(random.standard_normal((n, k), np.float32))
    a, b, a_scale, b_scale = map(torch.from_numpy, (a, b, a_scale, b_scale))
    return a, b, a_scale, b_scale


def prepare(operands: Operands) -> Operands:
    a, b, a_scale, b_scale = operands
    return a, layouts.shuffle_weights(b), layouts.tile_scales(a_scale), layouts.tile_scales(b_scale)


def expected(operands: Operands) -> validate.Reference:
    return validate.gemm_a4w4(*(operand.numpy() for operand in operands))


def bits(result: torch.Tensor) -> np.ndarray:
    return result.view(torch.int16).numpy().view(np.uint16)


@pytest.mark.parametrize("m", [1, 33, 100])
def test_numbers_shape_and_strides(m: int) -> None:
    operands = logical(m, 160, 384)
    result = gemm_a4w4(*prepare(operands))
    assert (result.shape, result.stride(), result.dtype) == ((m, 160), (160, 1), torch.bfloat16)
    validate.compare(bits(result), expected(operands)).require()
    assert torch.equal(result, gemm_a4w4(*operands, layout="logical"))


def test_a_kernel_by_name_with_and_without_shuffled_weights() -> None:
    operands = logical(48, 256, 256)
    for kernel in ("noBpreShuffle_256x256", "BpreShuffle_64x128"):
        result = gemm_a4w4(*operands, kernel=kernel, layout="logical")
        validate.compare(bits(result), expected(operands)).require()
    a, b, a_scale, b_scale = operands
    tiled = layouts.tile_scales(a_scale), layouts.tile_scales(b_scale)
    assert torch.equal(gemm_a4w4(a, b, *tiled, kernel="noBpreShuffle_256x256"), result)


def test_mx_types_of_torch_and_another_output_type() -> None:
    operands = logical(32, 128, 256)
    a, b, a_scale, b_scale = operands
    typed = a.view(torch.float4_e2m1fn_x2), b.view(torch.float4_e2m1fn_x2)
    scales = a_scale.view(torch.float8_e8m0fnu), b_scale.view(torch.float8_e8m0fnu)
    plain = gemm_a4w4(*operands, layout="logical")
    assert torch.equal(gemm_a4w4(*typed, *scales, layout="logical"), plain)
    wide = gemm_a4w4(*operands, layout="logical", out_dtype=torch.float32)
    assert wide.dtype == torch.float32
    assert torch.equal(wide.bfloat16(), plain)


def test_split_k_gives_the_same_result_when_called_twice() -> None:
    operands = logical(128, 512, 1024)
    first = gemm_a4w4(*prepare(operands), split_k=1)
    assert torch.equal(first, gemm_a4w4(*prepare(operands), split_k=1))
    model = validate.gemm_a4w4_split_k(*(operand.numpy() for operand in operands), k_per_split=512)
    validate.compare(bits(first), model, asmlaunch.validate.a4w4.SPLIT_K_BOUND).require()


@pytest.mark.parametrize("shape", [(0, 64, 64), (3, 0, 64)])
def test_an_empty_result(shape: tuple[int, int, int]) -> None:
    result = gemm_a4w4(*logical(*shape), layout="logical")
    assert (result.shape, result.stride()) == (shape[:2], torch.empty(shape[:2]).stride())


def test_operands_that_do_not_belong_together() -> None:
    a, b, a_scale, b_scale = logical(64, 64, 256)
    with pytest.raises(LayoutError, match=r"a_scale in the prepared layout: got \(64, 4\), need at least \(64, 8\)"):
        gemm_a4w4(a, b, a_scale[:, :4], layouts.tile_scales(b_scale))
    with pytest.raises(LayoutError, match=r"b_scale in the logical layout: got \(64, 7\), need \(64, 8\)"):
        gemm_a4w4(a, b, a_scale, b_scale[:, :7], layout="logical")
    with pytest.raises(LayoutError, match="K/2 = 128 and 64, need the same"):
        gemm_a4w4(a, b[:, :64], a_scale, b_scale, layout="logical")
    with pytest.raises(LayoutError, match=r"operand a .*torch.float32 of shape \(64, 128\), need a matrix of bytes"):
        gemm_a4w4(a.float(), b, a_scale, b_scale)
    with pytest.raises(LayoutError, match="got 'shuffled', need one of logical, prepared"):
        gemm_a4w4(a, b, a_scale, b_scale, layout="shuffled")
    with pytest.raises(KernelNotFoundError, match="nothing"):
        gemm_a4w4(a, b, a_scale, b_scale, layout="logical", kernel="nothing")
    with pytest.raises(DomainError, match="N for"):
        gemm_a4w4(a, b, a_scale, b_scale, layout="logical", kernel="BpreShuffle_256x256")


def test_keyword_only() -> None:
    with pytest.raises(TypeError, match="positional"):
        gemm_a4w4(*logical(32, 32, 64), "BpreShuffle_32x128")  # type: ignore[misc]


def test_without_a_kernel_the_reference_answers_with_one_warning() -> None:
    operands = logical(16, 48, 64)
    gemm._warn_once.cache_clear()
    with pytest.warns(
        RuntimeWarning, match="falls back to its reference: no a4w4 kernel is right on m=16 n=48"
    ) as seen:
        results = [gemm_a4w4(*operands, layout="logical") for _ in range(2)]
    assert len(seen) == 1
    wanted = torch.from_numpy(expected(operands).value).bfloat16()
    assert all(torch.equal(result, wanted) for result in results)


def test_disabled_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(gemm.DISABLE, "1")
    monkeypatch.setattr(gemm, "_find", None)  # nothing is looked for
    operands = logical(40, 64, 256)
    wanted = torch.from_numpy(expected(operands).value).bfloat16()
    assert torch.equal(gemm_a4w4(*prepare(operands)), wanted)
    a, b, a_scale, b_scale = operands
    tiled = layouts.tile_scales(a_scale), layouts.tile_scales(b_scale)
    assert torch.equal(gemm_a4w4(a, b, *tiled, kernel="noBpreShuffle_256x256"), wanted)


def test_opcheck() -> None:
    for m in (33, 64):
        torch.library.opcheck(gemm._gemm_a4w4, (*prepare(logical(m, 128, 256)), None, 0, "prepared"))


def test_compiled_into_one_graph_and_called_twice() -> None:
    operands = prepare(logical(33, 128, 256))

    @torch.compile(fullgraph=True)
    def twice(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        return gemm_a4w4(a, b, a_scale, b_scale) * 2

    wanted = gemm_a4w4(*operands) * 2
    for _ in range(2):
        result = twice(*operands)
        assert torch.equal(result, wanted)
        assert result.stride() == wanted.stride()


def test_autocast_changes_nothing() -> None:
    operands = prepare(logical(32, 128, 256))
    with torch.autocast("cpu", dtype=torch.float16):
        assert gemm_a4w4(*operands).dtype == torch.bfloat16


def test_tensors_of_several_devices_or_of_one_that_is_not_there() -> None:
    with pytest.raises(ArgumentError, match="devices cpu, meta, need one device"):
        device_name([torch.empty(1), torch.empty(1, device="meta")])
    with pytest.raises(ArgumentError, match="device meta, need a CPU or an AMD GPU"):
        device_name([torch.empty(1, device="meta")])


def test_importing_and_tracing_touch_no_gpu(f4gemm_folder: Path) -> None:
    """Trace with fake tensors, then look: no runtime is mapped, and torch has not initialised a GPU."""
    code = """
import torch
from torch._subclasses import FakeTensorMode
from asmlaunch.ops import gemm_a4w4
from asmlaunch.devices.hip.library import mapped_runtimes
with FakeTensorMode():
    a, b = torch.empty(33, 128, dtype=torch.uint8), torch.empty(64, 128, dtype=torch.uint8)
    scales = torch.empty(256, 8, dtype=torch.uint8), torch.empty(256, 8, dtype=torch.uint8)
    result = gemm_a4w4(a, b, *scales)
print(tuple(result.shape), result.stride(), mapped_runtimes(), torch.cuda.is_initialized())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.strip() == "(33, 64) (64, 1) () False", done.stderr


@pytest.fixture(scope="module")
def kernel(f4gemm_folder: Path) -> asmlaunch.Kernel:
    path = f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"
    return asmlaunch.load(path, device="emulator").kernel


TENSORS = "Tensor A, Tensor B, Tensor ScaleA, Tensor ScaleB"


@pytest.fixture(scope="module")
def operator(kernel: asmlaunch.Kernel) -> object:
    return register(kernel, f"asmlaunch_test::gemm({TENSORS}, *, Tensor(a!) D) -> ()")


def call(operator: object, operands: Operands, d: torch.Tensor) -> None:
    a, b, a_scale, b_scale = prepare(operands)
    operator(a, b, a_scale, b_scale, D=d)


def test_an_operator_of_a_kernel(operator: object) -> None:
    operands = logical(32, 128, 256)
    d = torch.empty(32, 128, dtype=torch.bfloat16)
    call(operator, operands, d)
    validate.compare(bits(d), expected(operands)).require()
    a, b, a_scale, b_scale = prepare(operands)
    torch.library.opcheck(torch.ops.asmlaunch_test.gemm.default, (a, b, a_scale, b_scale), {"D": d})


def test_a_registered_operator_compiles_and_its_mutation_is_seen(operator: object) -> None:
    operands = logical(32, 128, 256)

    @torch.compile(fullgraph=True)
    def compiled(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        d = torch.zeros(32, 128, dtype=torch.bfloat16)
        torch.ops.asmlaunch_test.gemm(a, b, a_scale, b_scale, D=d)
        return d + 1

    plain = torch.empty(32, 128, dtype=torch.bfloat16)
    call(operator, operands, plain)
    for _ in range(2):
        assert torch.equal(compiled(*prepare(operands)), plain + 1)


def test_a_gradient_is_refused(operator: object) -> None:
    d = torch.empty(32, 128, dtype=torch.bfloat16, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"requires a gradient.*torch.no_grad"):
        call(operator, logical(32, 128, 256), d)
    with torch.no_grad():
        call(operator, logical(32, 128, 256), d)


def test_a_grid_that_is_a_function_of_the_arguments(kernel: asmlaunch.Kernel) -> None:
    seen: list[object] = []

    def grid(arguments: object) -> tuple[int, int, int]:
        seen.append(arguments["M"])
        return 1, 1, 1

    operator = register(
        kernel, f"asmlaunch_test::sized({TENSORS}, int M, *, Tensor(a!) D) -> ()", grid=grid, block=(256, 1, 1)
    )
    operands = logical(32, 128, 256)
    d = torch.empty(32, 128, dtype=torch.bfloat16)
    operator(*prepare(operands), 32, D=d)
    assert seen == [32]
    validate.compare(bits(d), expected(operands)).require()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("x::bad(Tensor A", "operator schema"),
        ("bad(Tensor A) -> ()", "need a namespace"),
        ("x::bad1(Tensor A) -> Tensor", "kernels write tensors they are given"),
        ("x::bad2(Tensor nothing) -> ()", "got 'nothing', need one of"),
        ("x::bad3(Tensor A, *, Tensor D) -> ()", r"need Tensor\(a!\): it is written"),
        ("x::bad4(Tensor(a!) D, Tensor A) -> ()", "got an output given by position"),
    ],
)
def test_schemas_that_are_refused(kernel: asmlaunch.Kernel, schema: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        register(kernel, schema)


def test_no_warning_in_normal_use() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gemm_a4w4(*prepare(logical(32, 128, 256)))
