"""The kernels of our own: linked code objects beside their sources, run for both processors and compared with numpy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator import collatz

import asmlaunch
from asmlaunch.devices import LaunchResult
from asmlaunch.validate.problems import sgemm
from asmlaunch.validate.problems.sgemm import Sizes

FOLDER = Path(__file__).parents[2] / "fixtures" / "kernels"
CHECKS = "all"


@pytest.fixture(params=["gfx942", "gfx950"])
def processor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def launch(
    name: str, processor: str, arguments: dict[str, Any], kernel: str = "", checks: str = CHECKS, **how: Any
) -> LaunchResult:
    module = asmlaunch.load(FOLDER / f"{name}.{processor}.co", device="emulator")
    one = module[kernel] if kernel else module.kernel
    result = one.launch(arguments, checks=checks, **how)
    assert result.findings == ()
    return result


@pytest.mark.parametrize("count", [1, 255, 256, 1000])
def test_vector_add(processor: str, count: int) -> None:
    random = np.random.default_rng(count)
    x, y = random.standard_normal((2, count), np.float32)
    out = np.zeros(count, np.float32)
    launch("vector_add", processor, {"out": out, "x": x, "other": y, "count": count}, grid=-(-count // 256), block=256)
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("kernel", ["reduce_dpp", "reduce_lds"])
def test_reductions(processor: str, kernel: str) -> None:
    # Small integers: every order of adding gives the same sum.
    x = np.random.default_rng(1).integers(-50, 50, (3, 256)).astype(np.float32)
    out = np.full(3, np.nan, np.float32)
    launch("reductions", processor, {"out": out, "x": x}, kernel, grid=3, block=256)
    np.testing.assert_array_equal(out, x.sum(axis=1))


def test_lanes_that_leave_a_loop_at_different_times(processor: str) -> None:
    x = np.arange(1, 129, dtype=np.uint32)
    out = np.zeros(128, np.uint32)
    launch("control", processor, {"out": out, "x": x}, "collatz", grid=2, block=64)
    np.testing.assert_array_equal(out, [collatz.steps(int(number)) for number in x])


def test_atomics_in_lds_and_memory(processor: str) -> None:
    x = np.random.default_rng(2).integers(0, 1 << 32, 1024, np.uint32)
    out = np.zeros(16, np.uint32)
    launch("control", processor, {"out": out, "x": x}, "histogram", grid=4, block=256)
    np.testing.assert_array_equal(out, np.bincount(x & 15, minlength=16))


def test_a_function_called_twice(processor: str) -> None:
    x = np.arange(1 << 31, (1 << 31) + 128, dtype=np.uint32)
    out = np.zeros(128, np.uint32)
    result = launch("control", processor, {"out": out, "x": x}, "polynomial", grid=2, block=64)
    np.testing.assert_array_equal(out, 9 * x + 4)
    assert result.profile is not None
    assert dict(result.profile.by_mnemonic())["s_swappc_b64"] == 2 * 2


class TestCompiled:
    """What clang makes of C, with its optimisations and without, where everything goes over the stack."""

    @pytest.fixture(params=["compiled", "compiled_O0"])
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def run(self, name: str, processor: str, kernel: str, *values: Any, **how: Any) -> None:
        schema = asmlaunch.load(FOLDER / f"{name}.{processor}.co", device="emulator")[kernel].schema
        names = [field.name for field in schema.fields if not field.name.startswith("hidden_")]
        # What checks add does not depend on the processor, and takes long to compile.
        checks = CHECKS if processor == "gfx950" else "bounds"
        launch(name, processor, dict(zip(names, values, strict=True)), kernel, checks, **how)

    def test_a_table_on_the_stack(self, name: str, processor: str) -> None:
        x, y = np.random.default_rng(1).integers(0, 1 << 32, (2, 128), np.uint32)
        out = np.zeros(128, np.uint32)
        self.run(name, processor, "digits", out, x, y, grid=2, block=64)
        np.testing.assert_array_equal(out, [f"{b:o}".count(f"{a & 7}") for a, b in zip(x, y, strict=True)])

    def test_a_call_whose_result_comes_by_the_stack(self, name: str, processor: str) -> None:
        random = np.random.default_rng(2)
        x = random.integers(0, 1 << 32, 128, np.uint32)
        y = random.integers(0, 1 << 32, 128, np.uint32) >> random.integers(0, 32, 128).astype(np.uint32)
        y[::7] = 0
        out = np.full((128, 2), 77, np.uint32)
        self.run(name, processor, "division", out, x, y, grid=2, block=64)
        want = [divmod(int(a), int(b)) if b else (77, 77) for a, b in zip(x, y, strict=True)]
        np.testing.assert_array_equal(out, want)

    def test_a_sum_through_lds(self, name: str, processor: str) -> None:
        x = np.random.default_rng(3).integers(-50, 50, (3, 256)).astype(np.float32)
        out = np.zeros(3, np.float32)
        self.run(name, processor, "sum", out, x, grid=3, block=256)
        np.testing.assert_array_equal(out, x.sum(axis=1))

    def test_matrix_instructions(self, name: str, processor: str) -> None:
        a, b = np.random.default_rng(4).integers(-8, 8, (2, 16, 48)).astype(np.float16)
        out = np.zeros((16, 16), np.float32)
        self.run(name, processor, "matmul", out, a, b, 48, grid=1, block=64)
        np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32).T)

    def test_atomics(self, name: str, processor: str) -> None:
        x = np.random.default_rng(5).integers(0, 16, 1024).astype(np.uint32)
        bins, top = np.zeros(16, np.uint32), np.zeros(1, np.uint32)
        self.run(name, processor, "histogram", bins, top, x, grid=4, block=256)
        np.testing.assert_array_equal(bins, np.bincount(x, minlength=16))
        assert top[0] == x.max()


class TestSgemm:
    def run(self, processor: str, case: Sizes, **options: Any) -> Any:
        kernel = asmlaunch.load(FOLDER / f"sgemm.{processor}.co", device="emulator").kernel
        return sgemm.DEFINITION.run(kernel, case, **options)

    def test_the_usual_size(self, processor: str) -> None:
        outcome = self.run(processor, Sizes(m=128, n=64, k=256, alpha=1.0, beta=1.0), checks=CHECKS)
        assert outcome.passed
        assert outcome.findings == ()
        assert outcome.comparisons["C"].norm_error <= 3e-7

    def test_sizes_from_1_to_70(self, processor: str) -> None:
        """Every size along each axis; ``tests/corpus/sgemm_sizes.py`` runs all combinations."""
        cases = [
            *(Sizes(m=size, n=3, k=5, pad=1) for size in range(1, 71)),
            *(Sizes(m=2, n=size, k=70, beta=0.0) for size in range(1, 71)),
            *(Sizes(m=65, n=2, k=size, alpha=-0.5) for size in range(1, 71)),
        ]
        failed = [case for case in cases if not self.run(processor, case).passed]
        assert failed == []

    def test_c_is_not_read_when_beta_is_0(self, processor: str) -> None:
        # Outside of the problem's own canvas too, C starts as NaN.
        assert self.run(processor, Sizes(m=7, n=5, k=3, beta=0.0)).passed

    @pytest.mark.parametrize(("name", "value"), [("lda", 4), ("ldb", 1), ("ldc", 2)])
    def test_a_leading_dimension_that_is_too_small(self, processor: str, name: str, value: int) -> None:
        kernel = asmlaunch.load(FOLDER / f"sgemm.{processor}.co", device="emulator").kernel
        arrays = {letter: np.zeros((8, 8), np.float32) for letter in "ABC"}
        with pytest.raises(asmlaunch.errors.DomainError, match=f"{name}.*at least"):
            kernel.launch({**arrays, "M": 8, "N": 8, "K": 8, name: value})


def test_the_objects_are_what_the_sources_give(tmp_path: Path) -> None:
    if not shutil.which("llvm-mc-22") or not shutil.which("ld.lld-22"):
        return  # LLVM 22 is a tool of development; without it the committed objects stand for themselves
    copy = tmp_path / "kernels"
    shutil.copytree(FOLDER, copy)
    for built in copy.glob("*.co"):
        built.unlink()
    subprocess.run([copy / "build.sh"], check=True)
    committed = {path.name: path.read_bytes() for path in FOLDER.glob("*.co")}
    if not shutil.which("clang-22"):
        committed = {name: data for name, data in committed.items() if not name.startswith("compiled")}
    assert {path.name: path.read_bytes() for path in copy.glob("*.co")} == committed
