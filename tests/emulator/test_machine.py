"""Running grids: schedules, threads, limits, and what stops a run."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import InstructionBudgetError, LaunchError, MemoryFaultError, TargetError
from asmlaunch.validate import a4w4


@pytest.fixture(scope="module")
def kernel(f4gemm_folder: Path) -> asmlaunch.Kernel:
    return asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel


def problem(kernel: asmlaunch.Kernel, m: int = 64, n: int = 256, k: int = 256) -> a4w4.Problem:
    return a4w4.build(kernel.info, a4w4.Case(m, n, k))


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "lockstep"},
        {"threads": 1},
        {"threads": 8},
        {"resident": 3},
        {"schedule": "lockstep", "resident": 4},
        {"schedule": "reverse"},
        {"schedule": "random(1)", "resident": 2},
        {"schedule": ["barrier", "reverse", "random(2)"]},
    ],
    ids=str,
)
def test_every_way_of_taking_turns_gives_the_same_bits(kernel: asmlaunch.Kernel, options: dict) -> None:
    usual, other = problem(kernel), problem(kernel)
    first = kernel.launch(usual.arguments)
    second = kernel.launch(other.arguments, **options)
    assert usual.compare().passed
    np.testing.assert_array_equal(usual.output, other.output)
    assert first.instructions == second.instructions
    assert first.findings == second.findings == ()


def test_counted_instructions_grow_with_the_grid(kernel: asmlaunch.Kernel) -> None:
    one = kernel.launch(problem(kernel, 32, 128).arguments).instructions
    four = kernel.launch(problem(kernel, 64, 256).arguments).instructions
    assert one is not None
    # Tiles of the last row and column skip nothing here; their numbers differ in a few scalar instructions.
    assert four == pytest.approx(4 * one, rel=0.05)


def test_no_workgroups_no_work(kernel: asmlaunch.Kernel) -> None:
    case = problem(kernel)
    before = case.output.copy()
    result = kernel.launch(case.arguments, grid=(0, 1, 1), block=(256, 1, 1), check=False)
    assert result.instructions == 0
    np.testing.assert_array_equal(case.output, before)


def test_an_endless_loop_ends(kernel: asmlaunch.Kernel) -> None:
    arguments = {**problem(kernel).arguments, "M": 0}
    with pytest.raises(
        InstructionBudgetError, match=r"wave \d of workgroup .* near 0x.*more than 100,000 instructions"
    ):
        kernel.launch(arguments, grid=1, block=256, check=False, max_instructions=100_000)


def test_a_write_past_the_output_is_an_error(kernel: asmlaunch.Kernel) -> None:
    case = problem(kernel)
    arguments = {**case.arguments, "D": case.arguments["D"].reshape(-1)[: 40 * 256], "stride_C0": 256}
    with pytest.raises(MemoryFaultError, match=r"buffer_store.*writes 4 bytes.*past the end of (ptr_)?D"):
        kernel.launch(arguments, check=False)


def test_an_output_that_is_read_only(kernel: asmlaunch.Kernel) -> None:
    case = problem(kernel)
    case.arguments["D"].flags.writeable = False
    with pytest.raises(MemoryFaultError, match="read-only"):
        kernel.launch(case.arguments, check=False)


def test_a_short_input_is_reported(kernel: asmlaunch.Kernel) -> None:
    case = problem(kernel)
    short = case.arguments["A"][:40].copy()
    result = kernel.launch({**case.arguments, "A": short, "M": 64}, check=False)
    assert any("past the end of" in finding.message and "zeros" in finding.message for finding in result.findings)
    assert not case.compare().passed


def test_a_wild_pointer_is_an_error(kernel: asmlaunch.Kernel) -> None:
    wild = {"A": 0x7000_0000_0000, "M": 64, "K": 256, "stride_A0": 256}
    with pytest.raises(MemoryFaultError, match=r"reads 4 bytes at 0x7000"):
        kernel.launch({**problem(kernel).arguments, **wild}, check=False)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"block": (2048, 1, 1)}, "work-items"),
        ({"block": (0, 1, 1)}, "block at least 1"),
        ({"dynamic_lds": 1 << 20}, "at most 163840"),
        ({"grid": (1 << 30, 1, 1)}, r"2\^32"),
        ({"schedule": "chaos"}, "barrier, lockstep"),
        ({"schedule": "random(x)"}, r"random\(SEED\)"),
        ({"schedule": []}, "barrier, lockstep"),
        ({"colour": "red"}, "launch option"),
    ],
    ids=str,
)
def test_launches_that_are_refused(kernel: asmlaunch.Kernel, how: dict, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        kernel.launch(problem(kernel).arguments, check=False, **how)


def test_another_processor_is_refused(kernel: asmlaunch.Kernel) -> None:
    strange = dataclasses.replace(kernel.info, target=dataclasses.replace(kernel.info.target, processor="gfx1100"))
    with pytest.raises(TargetError, match="gfx1100"):
        kernel.device.prepare(strange)


def test_an_interrupt_stops_the_workers(kernel: asmlaunch.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        if timeout is not None:
            raise KeyboardInterrupt
        join(self)

    join = threading.Thread.join
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    arguments = {**problem(kernel).arguments, "M": 0}
    with pytest.raises(KeyboardInterrupt):
        kernel.launch(arguments, grid=1, block=256, check=False, max_instructions=10**12)
