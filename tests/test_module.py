"""load, Module, Kernel.launch: choices, argument forms, and what bad input says."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import (
    ArgumentError,
    CodeObjectError,
    DeviceError,
    DomainError,
    KernelNotFoundError,
    LaunchError,
    TargetError,
)
from asmlaunch.module import dim3
from asmlaunch.validate import a4w4


@pytest.fixture(scope="module")
def path(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"


@pytest.fixture(scope="module")
def kernel(path: Path) -> asmlaunch.Kernel:
    return asmlaunch.load(path, device="emulator").kernel


@pytest.fixture
def problem(kernel: asmlaunch.Kernel) -> a4w4.Problem:
    return a4w4.build(kernel.info, a4w4.Case(32, 128, 256))


def test_import_is_light_and_touches_no_gpu() -> None:
    """Only the dependencies of the core, and none of the heavy ones, come with the package and its light parts."""
    code = (
        "import sys, time; start = time.perf_counter(); import asmlaunch; seconds = time.perf_counter() - start; "
        "asmlaunch.load, asmlaunch.layouts, asmlaunch.abi, asmlaunch.codeobject, asmlaunch.devices; "
        "heavy = {'llvmlite', 'rocm', 'torch', 'triton', 'hip', 'ml_dtypes', 'typer'} & set(sys.modules); "
        "print(seconds, heavy or '')"
    )
    seconds, *heavy = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not heavy
    assert float(seconds) < 0.3


def test_names_of_the_package() -> None:
    assert set(asmlaunch.__all__) <= set(dir(asmlaunch))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        asmlaunch.nothing  # noqa: B018


def test_load_from_bytes_and_path_and_what_repr_says(path: Path) -> None:
    module = asmlaunch.load(path.read_bytes(), device="emulator")
    assert list(module) == [module.kernel.name]
    assert len(module) == 1
    assert module.kernel.name in module
    assert "on emulator" in repr(module)
    assert "bytes for gfx950" in repr(module)
    assert path.name in repr(asmlaunch.load(path, device="emulator"))
    assert repr(module.kernel) == f"<Kernel {module.kernel.name} for gfx950 on emulator>"


def test_without_a_gpu_the_emulator_is_chosen(path: Path) -> None:
    assert asmlaunch.load(path).device.name == "emulator"


def test_a_device_object_is_taken_as_it_is(path: Path, kernel: asmlaunch.Kernel) -> None:
    assert asmlaunch.load(path, device=kernel.device).device is kernel.device


def test_launch_gives_the_right_numbers_and_says_where(path: Path, problem: a4w4.Problem) -> None:
    result = asmlaunch.load(path).launch(problem.arguments)
    assert result.device == "emulator"
    assert result.seconds > 0
    problem.compare().require()


def test_arguments_as_another_mapping_or_a_dataclass(kernel: asmlaunch.Kernel, problem: a4w4.Problem) -> None:
    Arguments = dataclasses.make_dataclass("Arguments", list(problem.arguments))
    for arguments in (UserDict(problem.arguments), Arguments(**problem.arguments)):
        problem.output[:] = 0
        kernel.launch(arguments)
        problem.compare().require()


@pytest.mark.parametrize("arguments", [None, [("M", 1)], dict])
def test_arguments_of_another_kind(kernel: asmlaunch.Kernel, arguments: Any) -> None:
    with pytest.raises(ArgumentError, match="need a mapping or a dataclass"):
        kernel.launch(arguments)


def bad_output(problem: a4w4.Problem) -> dict[str, np.ndarray]:
    d = problem.arguments["D"]
    return {
        "dtype": d.astype(np.float32),
        "size": d[:16].copy(),
        "layout": np.asfortranarray(d),
        "kind": "an array",
    }


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("dtype", "array ptr_D: got dtype float32, need bfloat16 or uint16"),
        ("size", r"array ptr_D: got 4096 bytes, need 8192 bytes"),
        ("layout", r"need a C-contiguous array; copy it \(numpy.ascontiguousarray"),
        ("kind", "got str, need a number, an address, None, or an array"),
    ],
)
def test_an_unusable_array(kernel: asmlaunch.Kernel, problem: a4w4.Problem, what: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        kernel.launch(problem.arguments | {"D": bad_output(problem)[what]})


def test_missing_and_unknown_arguments(kernel: asmlaunch.Kernel, problem: a4w4.Problem) -> None:
    with pytest.raises(ArgumentError, match=r"ScaleB.* is missing|missing: ptr_ScaleB"):
        kernel.launch({name: value for name, value in problem.arguments.items() if name != "ScaleB"})
    with pytest.raises(ArgumentError, match=r"got 'ScaleD'.*did you mean Scale[AB]"):
        kernel.launch(problem.arguments | {"ScaleD": 1})


def test_outside_the_domain_unless_told(kernel: asmlaunch.Kernel) -> None:
    problem = a4w4.build(kernel.info, a4w4.Case(32, 144, 256))
    with pytest.raises(DomainError, match=r"N for .*got 144, need a multiple of 32"):
        kernel.launch(problem.arguments)
    d = np.zeros((64, 144), np.uint16)
    kernel.launch(problem.arguments | {"D": d}, check=False)
    assert d.any()


def test_a_grid_or_block_that_differs_from_the_rule(kernel: asmlaunch.Kernel, problem: a4w4.Problem) -> None:
    kernel.launch(problem.arguments, grid=(1, 1), block=256)
    with pytest.raises(LaunchError, match=r"grid .*got \(2, 1, 1\), need \(1, 1, 1\) by the launch rule"):
        kernel.launch(problem.arguments, grid=2)
    with pytest.raises(LaunchError, match=r"block .*got \(128, 1, 1\), need \(256, 1, 1\)"):
        kernel.launch(problem.arguments, block=128)


def test_a_kernel_of_no_family_needs_grid_and_block(kernel: asmlaunch.Kernel) -> None:
    info = dataclasses.replace(kernel.info, name="kernel of an unknown family")
    kernel = asmlaunch.Kernel(info, kernel.code_object, kernel.device, kernel._opened)
    assert kernel.family is None
    arguments = dict.fromkeys(kernel.schema.names, 0)
    with pytest.raises(LaunchError, match=r"need grid and block .*pass grid=, block="):
        kernel.launch(arguments)
    with pytest.raises(LaunchError, match=r"need block .*pass block="):
        kernel.launch(arguments, grid=1)


@pytest.mark.parametrize("value", [(), (1, 2, 3, 4), (1.5,), (-1,), "x"])
def test_extents_that_are_none(value: Any) -> None:
    with pytest.raises(LaunchError, match="one to three integers"):
        dim3("grid", value)


def test_target(path: Path) -> None:
    assert asmlaunch.load(path, device="emulator", target="gfx950").kernel
    with pytest.raises(TargetError, match="got gfx950, need gfx942"):
        asmlaunch.load(path, target="gfx942")


def test_devices_that_are_not_there(path: Path) -> None:
    with pytest.raises(DeviceError, match="got 'gpu', need 'emulator', 'hip' or 'hip:N'"):
        asmlaunch.load(path, device="gpu")
    with pytest.raises(DeviceError):
        asmlaunch.load(path, device="hip:0")


def test_an_object_the_emulator_cannot_run(aiter_kernels: Path, path: Path) -> None:
    other = bytearray(path.read_bytes())
    other[48] = 0x3F  # e_flags: gfx90a
    with pytest.raises(TargetError, match="an object for gfx90a, need gfx942, gfx950"):
        asmlaunch.load(bytes(other), device="emulator")


def test_not_a_code_object(tmp_path: Path) -> None:
    with pytest.raises(CodeObjectError, match="cannot read"):
        asmlaunch.load(tmp_path / "nothing.co")
    with pytest.raises(CodeObjectError, match="not an ELF"):
        asmlaunch.load(b"hello")


def test_several_kernels(aiter_kernels: Path, kernel: asmlaunch.Kernel) -> None:
    info = kernel.info
    two = dataclasses.replace(kernel.code_object, kernels={"one": info, "two": dataclasses.replace(info, name="two")})
    module = asmlaunch.Module(two, kernel.device)
    assert module["two"].name == "two"
    with pytest.raises(
        KernelNotFoundError, match=r'holds 2 kernels: need a choice among one, two; take one with module\["name"\]'
    ):
        module.launch({})


def test_an_unknown_kernel_name(path: Path) -> None:
    module = asmlaunch.load(path, device="emulator")
    with pytest.raises(KernelNotFoundError, match=f"'x', need one of {module.kernel.name}"):
        module["x"]


def test_split_k_zeroes_the_output_and_refuses_a_read_only_one(f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_128x512.co", device="emulator").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(128, 512, 1024, split_k=1))
    for _ in range(2):  # a second launch must not add to the first
        kernel.launch(problem.arguments, threads=1)
        problem.compare().require()
    problem.arguments["D"].flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel.launch(problem.arguments)


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("launch", r"_BpreShuffle_32x128E on emulator grid=\(1, 1, 1\) block=\(256, 1, 1\) dynamic_lds=0$"),
        ("args", r"dynamic_lds=0 ptr_D=0x[0-9a-f]+ .* M=32 N=128 K=256 .*log2_k_split=0$"),
        ("bytes", r"log2_k_split=0 bytes=[0-9a-f]{744}$"),
    ],
)
def test_the_log_has_one_line_a_launch(
    kernel: asmlaunch.Kernel,
    problem: a4w4.Problem,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: str,
    shown: str,
) -> None:
    monkeypatch.setenv("ASMLAUNCH_LOG", level)
    kernel.launch(problem.arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(shown, line)


def test_an_unknown_log_level(kernel: asmlaunch.Kernel, problem: a4w4.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASMLAUNCH_LOG", "all")
    with pytest.raises(ArgumentError, match="ASMLAUNCH_LOG: got 'all', need one of launch, args, bytes"):
        kernel.launch(problem.arguments)
