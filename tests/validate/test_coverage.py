"""Instruction keys: what makes one, and which a run executed."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.toolkit import build

from asmlaunch.validate.coverage import key_of, keys_of, union


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("v_mul_f32_e32 v1, v2, v3", "v_mul_f32"),
        ("v_mul_f32_e64 v1, |v2|, 0.5 clamp", "v_mul_f32"),
        ("v_mul_f32_dpp v1, v2, v3 row_newbcast:1 row_mask:0xf bank_mask:0xf", "v_mul_f32 dpp"),
        ("buffer_load_dword v1, s[4:7], 0 offen lds", "buffer_load_dword lds"),
        ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v20, v21 cbsz:4 blgp:4",
         "v_mfma_scale_f32_16x16x128_f8f6f4 cbsz:4 blgp:4"),
        ("s_waitcnt vmcnt(0)", "s_waitcnt"),
    ],
)  # fmt: skip
def test_what_makes_a_key(text: str, key: str) -> None:
    assert key_of(text) == key


def test_code_that_a_run_jumps_over_is_not_executed() -> None:
    kernel = build(
        """
        s_load_dwordx2 s[2:3], s[0:1], 0x0
        s_load_dword s4, s[0:1], 0x8
        v_lshlrev_b32 v1, 2, v0
        s_waitcnt lgkmcnt(0)
        s_cmp_eq_u32 s4, 0
        s_cbranch_scc1 .Lover
        v_not_b32 v0, v0
.Lover:
        global_store_dword v1, v0, s[2:3]
        """,
        "out count:u32",
    )
    out = np.zeros(64, np.uint32)
    runs = [keys_of([kernel.launch({"out": out, "count": n}, grid=(1, 1, 1), block=(64, 1, 1))]) for n in (0, 1)]
    assert runs[0]["not executed"] == ["v_not_b32"]
    assert not runs[1]["not executed"]
    assert sorted([*runs[0]["executed"], "v_not_b32"]) == runs[1]["executed"]
    assert union([{"keys": runs[0]}, {"status": "error"}])[1] == {"v_not_b32": 1}
    assert union([{"keys": one} for one in runs]) == (runs[1]["executed"], {})
