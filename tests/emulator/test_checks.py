"""Choosing checks, what they cost when they are off, and the parts of a finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator.toolkit import build

import asmlaunch
from asmlaunch.emulator.checks import CHECKS, select
from asmlaunch.emulator.checks.waits import Wait, wait_of
from asmlaunch.emulator.compile import compile_blocks
from asmlaunch.emulator.decode import parse
from asmlaunch.emulator.report import named_lanes
from asmlaunch.errors import InstructionBudgetError, MemoryFaultError

UNDEFINED = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v5, s[6:7]
"""


def launch(body: str, **options: Any) -> Any:
    return build(body, "out").launch({"out": np.zeros((4, 16), np.uint32)}, grid=1, block=64, **options)


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ("all", tuple(CHECKS)),
        ("off", ()),
        ("bounds", ("bounds",)),
        ("races, waits", ("waits", "races")),
        (["numerics"], ("numerics",)),
        ([], ()),
    ],
)
def test_choosing(names: Any, chosen: tuple[str, ...]) -> None:
    assert select(names) == chosen


def test_a_check_that_there_is_not() -> None:
    with pytest.raises(asmlaunch.errors.LaunchError, match=r"checks: got rases.*need all, off, or some of bounds"):
        launch(UNDEFINED, checks="rases")


def test_by_default_only_bounds() -> None:
    result = launch(UNDEFINED)
    assert result.findings == ()
    assert result.fidelity.checks == ("bounds",)


def test_off_leaves_nothing_in_the_code() -> None:
    from asmlaunch.emulator import program

    kernel = build(UNDEFINED, "out").info
    text = compile_blocks(program.build(kernel, waits=False, full_exec=True))
    assert "check_" not in text


def test_the_parts_of_a_finding() -> None:
    (finding,) = launch(UNDEFINED, checks="uninitialised").findings
    assert finding.kind == "uninitialised"
    assert finding.severity == "error"
    assert (finding.kernel, finding.text) == ("kernel", "global_store_dword v1, v5, s[6:7]")
    assert finding.address is not None
    assert (finding.workgroup, finding.wave, finding.lanes) == ((0, 0, 0), 0, tuple(range(64)))
    assert (finding.argument, finding.count) == ("out", 1)
    assert "byte 0 of out (row 0, column 0; 256 bytes)" in finding.message
    assert finding.to_json()["lanes"] == tuple(range(64))


def test_repeated_findings_are_counted() -> None:
    body = (
        UNDEFINED.replace("global_store", "s_movk_i32 s8, 5\n.Lagain:\n global_store")
        + """
        s_sub_u32 s8, s8, 1
        s_cmp_lg_u32 s8, 0
        s_cbranch_scc1 .Lagain
    """
    )
    (finding,) = launch(body, checks="all").findings
    assert finding.count == 5
    assert finding.message.endswith("(5x)")


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("s_waitcnt vmcnt(3)", Wait(vm=3)),
        ("s_waitcnt lgkmcnt(0)", Wait(lgkm=0)),
        ("s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)", Wait(0, 0)),
        ("s_waitcnt 0xc07f", Wait(vm=63, lgkm=0)),
        ("s_waitcnt 0xf70", Wait(vm=0, lgkm=15)),
    ],
)
def test_what_a_wait_waits_for(text: str, wait: Wait) -> None:
    assert wait_of(parse(text)) == wait


def test_lanes_as_ranges() -> None:
    assert named_lanes((0, 1, 2, 5)) == "lanes 0-2, 5"
    assert named_lanes((7,)) == "lane 7"


@pytest.mark.parametrize("schedule", ["barrier", "lockstep"])
@pytest.mark.parametrize("resident", [1, 3])
def test_several_workgroups_at_once(schedule: str, resident: int) -> None:
    """Shadows are kept apart by wave and workgroup: what one has defined, another has not."""
    body = """
        s_load_dwordx2 s[6:7], s[0:1], 0x0
        s_lshl_b32 s8, s2, 9
        v_lshlrev_b32 v1, 2, v0
        v_add_u32 v3, s8, v1
        s_cmp_eq_u32 s2, 1
        s_cbranch_scc1 .Lskip
        ds_write_b32 v1, v0
        s_waitcnt lgkmcnt(0)
    .Lskip:
        s_barrier
        v_xor_b32 v4, 0x100, v1
        ds_read_b32 v2, v4
        s_waitcnt lgkmcnt(0)
        global_store_dword v3, v2, s[6:7]
    """
    out = np.zeros(4 * 128, np.uint32)
    result = build(body, "out", lds=512).launch(
        {"out": out}, grid=4, block=128, checks="all", schedule=schedule, resident=resident
    )
    assert {(finding.kind, finding.workgroup) for finding in result.findings} == {("uninitialised", (1, 0, 0))}


HALF = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_mov_b64 exec, 0xffffffff
    v_mov_b32 v5, 7
    {before}
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v6, s[4:5]
"""


@pytest.mark.parametrize(
    ("before", "undefined"),
    [
        # The other half of the lanes reads the half that is written, and the other way round.
        ("s_mov_b64 exec, -1\nv_xor_b32 v2, 0x80, v1\nds_bpermute_b32 v6, v2, v5\ns_mov_b32 exec_lo, 0", ()),
        ("s_mov_b64 exec, -1\nv_xor_b32 v2, 0x80, v1\nds_bpermute_b32 v6, v2, v5", tuple(range(32))),
        # Lanes that are off send nothing, whatever their registers hold.
        ("v_xor_b32 v2, 4, v1\nds_permute_b32 v6, v2, v5", ()),
        ("v_xor_b32 v2, 4, v1\nv_readlane_b32 s6, v5, 40\nv_writelane_b32 v5, s6, 3\nds_permute_b32 v6, v2, v5", (2,)),
    ],
    ids=["read", "read undefined", "sent", "sent undefined"],
)
def test_values_that_move_between_lanes(before: str, undefined: tuple[int, ...]) -> None:
    kernel = build(HALF.format(before=before), "out:ptr")
    result = kernel.launch({"out": np.zeros(64, np.uint32)}, grid=1, block=64, checks="uninitialised")
    assert [finding.lanes for finding in result.findings] == ([undefined] if undefined else [])


#: Reads past the end of x, stores what nobody has written, and then writes past the end of out.
STRAY = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5] offset:256
    global_store_dword v1, v5, s[6:7]
    s_waitcnt vmcnt(0)
    global_store_dword v1, v1, s[6:7] offset:512
"""


def test_an_error_has_the_findings_from_before_it() -> None:
    kernel = build(STRAY, "x out", vgprs=4)
    x, out = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(MemoryFaultError, match=r"writes 4 bytes.*256 bytes past the end of out") as caught:
        kernel.launch({"x": x, "out": out}, grid=1, block=64, checks="all")
    assert [finding.kind for finding in caught.value.findings] == ["over-read", "uninitialised", "registers"]


def test_of_two_faults_one_is_the_error() -> None:
    """A wild read gives zeros, and the run goes on to a write that is wrong too."""
    body = (
        STRAY.replace("offset:256", "").replace("v5", "v1").replace("global_load", "s_mov_b32 s5, 0x1234\n global_load")
    )
    kernel = build(body, "x out")
    x, out = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(MemoryFaultError, match="reads 4 bytes at 0x1234") as caught:
        kernel.launch({"x": x, "out": out}, grid=1, block=64)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.severity) == ("fault", "error")
    assert "writes 4 bytes" in finding.message


def test_an_endless_loop_has_its_findings_too() -> None:
    with pytest.raises(InstructionBudgetError) as caught:
        launch(UNDEFINED + ".Lagain:\n s_branch .Lagain", checks="all", max_instructions=1000)
    assert [finding.kind for finding in caught.value.findings] == ["uninitialised"]


def test_what_goes_before_the_first_row_is_no_overlap() -> None:
    """Two waves store the same numbers to the same place; no row comes before the first one."""
    body = "v_and_b32 v0, 63, v0" + UNDEFINED.replace("v5", "v1")
    for offset, overlaps in ((0, False), (256, True)):
        body_there = body.replace("s[6:7]\n", f"s[6:7] offset:{offset}\n") if offset else body
        out = np.zeros((2, 64), np.uint32)
        (finding,) = build(body_there, "out").launch({"out": out}, grid=1, block=128, checks="races").findings
        assert "of wave 0 does, with nothing to order the two" in finding.message
        assert ("N-edge overlap" in finding.message) == overlaps
