"""Schedules: orders that differ, that can be had again, and results that depend on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.toolkit import build

import asmlaunch
from asmlaunch.devices import LaunchResult
from asmlaunch.emulator.schedule import SCHEDULES, schedule_of
from asmlaunch.emulator.trace import Event, Trace
from asmlaunch.errors import InstructionBudgetError

FOLDER = Path(__file__).parents[2] / "fixtures" / "kernels"
ALL = [name.replace("SEED", "3") for name in SCHEDULES]

#: The number of the wave in v1, of the workgroup in s2; out in s[4:5], and v2 = 0.
ENTRY = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshrrev_b32 v1, 6, v0
    v_mov_b32 v2, 0
    s_waitcnt lgkmcnt(0)
"""
#: The last wave to come leaves its number, and the workgroup's 16 times, in element 1.
LAST = f"""{ENTRY}
    v_mov_b32 v3, s2
    v_lshl_add_u32 v1, v3, 4, v1
    global_store_dword v2, v1, s[4:5] offset:4
"""
#: Each workgroup says that it is there, and waits for the other one.
MEET = f"""{ENTRY}
    s_mov_b64 exec, 1
    v_mov_b32 v3, 1
    global_atomic_add v2, v3, s[4:5]
wait:
    global_load_dword v4, v2, s[4:5] sc1
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s6, v4
    s_cmp_lt_u32 s6, 2
    s_cbranch_scc1 wait
    global_store_dword v2, v3, s[4:5] offset:4
"""


def run(text: str, schedule: Any, *, grid: int = 1, block: int = 256, **options: Any) -> tuple[list[int], LaunchResult]:
    out = np.zeros(4, np.uint32)
    result = build(text, "out:ptr").launch({"out": out}, grid=grid, block=block, schedule=schedule, **options)
    return out.tolist(), result


@pytest.mark.parametrize(
    ("grid", "schedule", "last"),
    [(1, "barrier", 3), (1, "reverse", 0), (3, "barrier", 0x23), (3, "reverse", 0), (1, "lockstep", 3)],
)
def test_who_comes_last(grid: int, schedule: str, last: int) -> None:
    assert run(LAST, schedule, grid=grid, threads=1)[0][1] == last


@pytest.mark.parametrize("schedule", ALL)
@pytest.mark.parametrize("total", [0, 1, 2, 30, 4096])
def test_every_workgroup_starts_once(schedule: str, total: int) -> None:
    numbers = list(schedule_of(schedule).numbers(total))
    assert sorted(numbers) == list(range(total))
    assert numbers == list(range(total)) or schedule in ("reverse", "random(3)")


def test_random_orders_can_be_had_again() -> None:
    found = {seed: [run(LAST, f"random({seed})", grid=3)[0][1] for _ in range(2)] for seed in range(12)}
    assert all(first == second for first, second in found.values())
    assert len({first for first, _ in found.values()}) > 4


@pytest.mark.parametrize("schedule", ALL)
def test_a_run_step_by_step_takes_the_same_turns(schedule: str) -> None:
    events: list[Event] = []
    traced = run(LAST, schedule, grid=3, trace=Trace(events.append, instructions="^global_store"))[0]
    # Stopping before an instruction makes more blocks of the program, and so other turns.
    assert traced == run(LAST, schedule, grid=3, trace=Trace(lambda _: None, instructions="^global_store"))[0]
    assert traced[1] == 16 * events[-1].workgroup[0] + events[-1].wave


@pytest.mark.parametrize("schedule", ALL)
def test_workgroups_that_wait_for_each_other_finish(schedule: str) -> None:
    assert run(MEET, schedule, grid=2, block=64, resident=2, threads=1)[0][:2] == [2, 1]


def test_one_that_waits_for_another_that_cannot_start() -> None:
    with pytest.raises(InstructionBudgetError):
        run(MEET, "barrier", grid=2, block=64, threads=1, max_instructions=100_000)


class TestFindings:
    """Several schedules at once."""

    def test_what_depends_on_them(self) -> None:
        out, result = run(LAST, ["barrier", "reverse", "lockstep"])
        assert out[1] == 3  # of the first schedule
        (finding,) = result.findings
        assert (finding.kind, finding.severity, finding.argument, finding.count) == ("schedule", "error", "out", 1)
        assert finding.message == (
            "kernel kernel: the result depends on the schedule: out differs in 1 of 4 elements, first in element 1: "
            "0x00000003 under barrier, 0x00000000 under reverse"
        )

    def test_elements_of_a_matrix(self) -> None:
        out = np.zeros((3, 2), np.uint16)
        result = build(LAST, "out:ptr").launch({"out": out}, grid=1, block=256, schedule="barrier, reverse")
        assert "1 of 6 elements, first in element (1, 0): 0x0003 under barrier" in result.findings[0].message

    @pytest.mark.parametrize("kernel", ["reduce_dpp", "reduce_lds"])
    def test_what_does_not(self, kernel: str) -> None:
        one = asmlaunch.load(FOLDER / "reductions.gfx950.co", device="emulator")[kernel]
        x = np.random.default_rng(1).integers(-50, 50, (3, 256)).astype(np.float32)
        out = np.full(3, np.nan, np.float32)
        result = one.launch({"out": out, "x": x}, grid=3, block=256, schedule=ALL, checks="all")
        assert result.findings == ()
        np.testing.assert_array_equal(out, x.sum(axis=1))

    def test_every_run_starts_from_the_same_memory(self) -> None:
        text = f"{ENTRY}\nv_mov_b32 v3, 1\nglobal_atomic_add v2, v3, s[4:5]"
        out, result = run(text, ALL, block=64)
        assert result.findings == ()
        assert out[0] == 64

    def test_one_that_does_not_end_under_another(self) -> None:
        # Wave 0 waits for wave 1, and its instructions run out before its turn does.
        text = f"""{ENTRY}
            v_readfirstlane_b32 s7, v1
            s_cmp_eq_u32 s7, 1
            s_cbranch_scc1 store
        wait:
            global_load_dword v4, v2, s[4:5] sc1
            s_waitcnt vmcnt(0)
            v_readfirstlane_b32 s6, v4
            s_cmp_eq_u32 s6, 0
            s_cbranch_scc1 wait
        store:
            v_mov_b32 v3, 1
            global_store_dword v2, v3, s[4:5]"""
        out, result = run(text, "barrier,reverse", block=128, max_instructions=1000)
        (finding,) = result.findings
        assert "does not run to its end under barrier, but under reverse" in finding.message
        assert out[0] == 1
        with pytest.raises(InstructionBudgetError):
            run(text, "barrier,barrier", block=128, max_instructions=1000)
