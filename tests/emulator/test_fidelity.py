"""Fidelity reports: counts against the trace, and where approximate values go."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.toolkit import build

import asmlaunch
from asmlaunch.emulator.fidelity import Fidelity
from asmlaunch.emulator.trace import Event
from asmlaunch.validate import a4w4

START = """
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 2.0
    s_waitcnt lgkmcnt(0)
"""
#: An instruction whose result the manual does not fix.
APPROXIMATE = "v_rcp_iflag_f32 v3, v2\n"
STORE = "global_store_dword v1, v3, s[6:7]\n"


def run(body: str, **options: Any) -> Fidelity:
    out = np.zeros(256, np.uint32)
    events: list[Event] = []
    result = build(body, "out", **options).launch({"out": out}, grid=1, block=64, trace=events.append)
    assert result.fidelity is not None
    assert result.fidelity.total == len(events) == result.instructions
    # Counted another way: one event an instruction.
    approximate = {one.mnemonic: one.executed for one in result.fidelity.approximate}
    traced = Counter(event.text.split()[0].removesuffix("_e32") for event in events)
    assert all(traced[name] == count for name, count in approximate.items())
    return result.fidelity


def test_everything_exact() -> None:
    report = run(START + "v_mov_b32 v3, 1\n" + STORE)
    assert report.exact == report.total == 7
    assert report.instructions == {
        "scalar": 0, "vector": 3, "matrix": 0, "memory": 2, "branch": 0, "control": 2
    }  # fmt: skip
    assert report.approximate == ()
    assert "wave-instructions" in str(report)
    assert "checks: bounds; found nothing" in str(report)


def test_an_approximate_value_that_is_only_stored() -> None:
    report = run(START + APPROXIMATE + STORE)
    (one,) = report.approximate
    assert (one.mnemonic, one.executed) == ("v_rcp_iflag_f32", 1)
    assert "ulp" in one.how
    assert report.exact == report.total - 1
    assert report.reach.addresses == report.reach.branches == report.reach.synchronisation == ()
    assert report.reach.through_memory


@pytest.mark.parametrize(
    ("body", "where", "text"),
    [
        (
            "v_cvt_u32_f32 v4, v3\n v_lshl_add_u32 v4, v4, 2, v1\n global_load_dword v3, v4, s[6:7]\n"
            "s_waitcnt vmcnt(0)\n",
            "addresses",
            "global_load_dword",
        ),
        (
            "v_cmp_gt_u32 vcc, 9, v3\n s_cbranch_vccnz .Lover\n v_mov_b32 v3, 1\n .Lover:\n",
            "branches",
            "s_cbranch_vccnz",
        ),
        (
            "v_readfirstlane_b32 s9, v3\n s_cmp_eq_u32 s9, 0\n s_cbranch_scc1 .Lover\n s_barrier\n .Lover:\n",
            "synchronisation",
            "s_barrier",
        ),
        (
            "s_mov_b64 s[10:11], exec\n v_cmp_gt_u32 vcc, 9, v3\n s_mov_b64 exec, vcc\n v_mov_b32 v4, 1\n"
            "s_mov_b64 exec, s[10:11]\n",
            "branches",
            "s_mov_b64 exec, vcc",
        ),
        (
            "ds_write_b32 v1, v3\n ds_read_b32 v5, v1\n s_waitcnt lgkmcnt(0)\n v_and_b32 v5, 4, v5\n"
            "global_load_dword v3, v5, s[6:7]\n s_waitcnt vmcnt(0)\n",
            "addresses",
            "global_load_dword",
        ),
    ],
)
def test_where_an_approximate_value_goes(body: str, where: str, text: str) -> None:
    report = run(START + APPROXIMATE + body + STORE, lds=256)
    assert any(text in place for place in getattr(report.reach, where))
    assert f"approximate values in {where}: 0x" in str(report)


def test_a_value_that_is_overwritten_goes_nowhere() -> None:
    report = run(START + APPROXIMATE + "v_readfirstlane_b32 s9, v3\n s_mov_b32 s9, 0\n s_cmp_eq_u32 s9, 0\n"
                 "s_cbranch_scc1 .Lover\n .Lover:\n" + STORE)  # fmt: skip
    assert report.reach.branches == ()


def test_matrix_models_and_json(f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel
    result = kernel.launch(a4w4.build(kernel.info, a4w4.Case(32, 128, 256)).arguments, checks="all")
    text = json.dumps(result.to_json())
    report = json.loads(text)["fidelity"]
    assert report["mfma_models"] == ["exact inside a K-block of 32, one f32 rounding a block, ascending K"]
    assert report["instructions"]["matrix"] == 32
    assert sum(report["instructions"].values()) == result.instructions
    assert report["checks"][:2] == ["bounds", "uninitialised"]
    assert report["findings"] == {}
    # Its division of the workgroup's number ends in addresses.
    assert [one["mnemonic"] for one in report["approximate"]] == ["v_rcp_iflag_f32"]
    assert report["approximate_values_reach"]["addresses"]
    assert "matrix arithmetic (exact): exact inside" in str(result.fidelity)
