"""Traces, breakpoints, profile, coverage and timeline, on kernels small enough to know what must come out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.toolkit import build

from asmlaunch import errors
from asmlaunch.emulator.debug import WaveState
from asmlaunch.emulator.trace import Event, Trace

#: out[i] = 3 * i by three additions in a loop; a barrier in the middle.
BODY = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 0
    s_movk_i32 s8, 3
    s_waitcnt lgkmcnt(0)
.Lagain:
    v_add_u32 v2, v2, v0
    s_sub_u32 s8, s8, 1
    s_cmp_lg_u32 s8, 0
    s_cbranch_scc1 .Lagain
    s_barrier
    s_cmp_eq_u32 s8, 7
    s_cbranch_scc1 .Lnever
    global_store_dword v1, v2, s[6:7]
    s_endpgm
.Lnever:
    v_mov_b32 v2, 0
"""
EXECUTED = 5 + 3 * 4 + 5  # a wave


@pytest.fixture(scope="module")
def kernel() -> Any:
    return build(BODY, "out")


def launch(kernel: Any, waves: int = 1, **options: Any) -> tuple[np.ndarray, Any]:
    out = np.zeros(64 * waves, np.uint32)
    result = kernel.launch({"out": out}, grid=1, block=64 * waves, **options)
    np.testing.assert_array_equal(out, 3 * np.arange(64 * waves))
    return out, result


def test_a_trace_of_everything(kernel: Any) -> None:
    events: list[Event] = []
    launch(kernel, trace=events.append)
    assert len(events) == EXECUTED
    texts = [event.text.split()[0] for event in events]
    assert texts[:2] == ["s_load_dwordx2", "v_lshlrev_b32_e32"]
    assert texts.count("v_add_u32_e32") == 3
    assert texts[-1] == "s_endpgm"


def test_values_are_those_after_the_instruction(kernel: Any) -> None:
    sums: list[np.ndarray] = []
    launch(kernel, trace=Trace(lambda event: sums.append(event.registers["v2"]), instructions="^v_add_u32"))
    np.testing.assert_array_equal(sums, np.arange(1, 4)[:, None] * np.arange(64))


def test_chosen_waves_addresses_and_registers(kernel: Any) -> None:
    events: list[Event] = []
    launch(kernel, trace=events.append)
    (branch,) = {event.address for event in events if event.text.startswith("s_cbranch_scc1 65")}
    chosen: list[Event] = []
    trace = Trace(chosen.append, instructions=[branch], waves=[1], workgroups=[(0, 0, 0)], registers=["s8", "vcc"])
    launch(kernel, waves=2, trace=trace)
    assert {(event.wave, event.address) for event in chosen} == {(1, branch)}
    assert [int(event.registers["s8"]) for event in chosen] == [2, 1, 0]
    assert set(chosen[0].registers) == {"s8", "s106", "s107"}


def test_a_trace_in_a_file(kernel: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.txt"
    launch(kernel, trace=file)
    lines = file.read_text().splitlines()
    assert len(lines) == EXECUTED
    assert re.fullmatch(r"\(0, 0, 0\) wave 0 0x[0-9a-f]+  s_movk_i32 s8, 0x3  ; s8 = 0x3", lines[3])
    assert re.search(r"v_add_u32_e32 v2, v2, v0  ; v2 = 0x0 0x1 0x2 ", lines[5])


def test_breakpoints_see_and_change_registers(kernel: Any) -> None:
    seen: list[tuple[int, int, int]] = []

    def look(state: WaveState) -> None:
        seen.append((state.wave, int(state.s[8]), int(state["v2"][0, 5])))
        assert state.text.startswith("s_sub_u32")
        assert state.exec == (1 << 64) - 1
        assert state.active.all()
        assert state.a.shape == state.v.shape == (256, 64)
        assert state.scc in (0, 1)
        assert state["s[6:7]"].shape == (2,)

    launch(kernel, breakpoints={"^s_sub_u32": look})
    assert seen == [(0, 3, 5), (0, 2, 10), (0, 1, 15)]

    def shorten(state: WaveState) -> None:
        state.s[8] = 1

    out = np.zeros(64, np.uint32)
    kernel.launch({"out": out}, grid=1, block=64, breakpoints={"^s_sub_u32": shorten})
    np.testing.assert_array_equal(out, np.arange(64))


@pytest.mark.parametrize("where", [0x2, "^v_mfma"])
def test_a_breakpoint_that_is_nowhere(kernel: Any, where: Any) -> None:
    with pytest.raises(errors.ArgumentError, match=r"breakpoint of kernel kernel.*the address of an instruction"):
        launch(kernel, breakpoints={where: print})


def test_a_register_that_there_is_not(kernel: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="register: got 'q3'"):
        launch(kernel, trace=Trace(print, registers=["q3"]))


def test_an_endless_loop_ends_step_by_step_too() -> None:
    endless = build(".Lagain:\n s_branch .Lagain", "out")
    with pytest.raises(errors.InstructionBudgetError):
        endless.launch(
            {"out": np.zeros(1, np.uint32)}, grid=1, block=64, trace=lambda event: None, max_instructions=500
        )


def test_profile_and_coverage(kernel: Any) -> None:
    _, result = launch(kernel, waves=2)
    profile = result.profile
    assert profile.total == result.instructions == 2 * EXECUTED
    assert dict(profile.by_mnemonic())["v_add_u32_e32"] == 6
    # The last two instructions are never reached, and end the program.
    assert [row.text for row in profile.rows if not row.executed] == ["v_mov_b32_e32 v2, 0", "s_endpgm"]
    assert profile.coverage == pytest.approx(1 - 2 / len(profile.rows))
    table = profile.table(3).splitlines()
    assert len(table) == 4
    assert "44 wave-instructions" in table[0]
    folded = profile.folded().splitlines()
    assert len(folded) == len(profile.covered)
    assert sum(int(line.rpartition(" ")[2]) for line in folded) == profile.total


def test_timeline(kernel: Any, tmp_path: Path) -> None:
    file = tmp_path / "waves.json"
    launch(kernel, waves=2, timeline=str(file))
    events = json.loads(file.read_text())["traceEvents"]
    spans = [(event["tid"], event["name"]) for event in events if event["ph"] == "X"]
    # The first wave waits for the second, which comes to the barrier last; then both run to their ends.
    assert spans.count((0, "wait")) == 1
    assert spans.count((0, "run")) == spans.count((1, "run")) == 2
    assert [event["name"] for event in events if event["ph"] == "i"] == ["barrier"]
    assert max(event["ts"] + event.get("dur", 0) for event in events) == 2 * EXECUTED


@pytest.mark.parametrize("schedule", ["barrier", "lockstep"])
def test_schedules_and_checks_work_step_by_step(kernel: Any, schedule: str) -> None:
    events: list[Event] = []
    _, result = launch(kernel, waves=2, trace=events.append, schedule=schedule, checks="all")
    assert len(events) == result.instructions == 2 * EXECUTED
    assert result.findings == ()
    first = [event.wave for event in events[:8]]
    assert (len(set(first)) == 2) == (schedule == "lockstep")
