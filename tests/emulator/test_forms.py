"""Forms: an instruction's meaning does not depend on how its registers overlap, nor on who compiled the form."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.toolkit import build

from asmlaunch.emulator.decode import parse
from asmlaunch.emulator.emit.forms import form_of


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("v_add_f32 v1, v2, v3", "v_add_f32 v9, v8, v7", True),
        ("v_add_f32 v1, v1, v3", "v_add_f32 v9, v9, v7", True),
        ("v_add_f32 v1, v1, v3", "v_add_f32 v1, v3, v1", False),
        ("v_add_f32 v1, v2, v3", "v_add_f32 v1, s2, v3", False),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]", "v_pk_fma_f32 v[6:7], v[4:5], v[2:3], v[0:1]", True),
        ("v_lshlrev_b64 v[2:3], v2, v[4:5]", "v_lshlrev_b64 v[2:3], v3, v[4:5]", False),
        ("v_lshlrev_b64 v[2:3], v3, v[4:5]", "v_lshlrev_b64 v[6:7], v7, v[2:3]", True),
        ("v_mad_u64_u32 v[2:3], vcc, v3, v9, v[2:3]", "v_mad_u64_u32 v[2:3], vcc, v3, v9, v[4:5]", False),
        ("s_and_b64 s[0:1], vcc, s[2:3]", "s_and_b64 s[4:5], vcc, s[6:7]", True),
        ("s_and_b64 s[0:1], vcc, s[2:3]", "s_and_b64 s[0:1], exec, s[2:3]", False),
    ],
)
def test_a_form_forgets_register_numbers_but_not_which_are_the_same(one: str, other: str, same: bool) -> None:
    assert (form_of(parse(one).operands).operands == form_of(parse(other).operands).operands) is same


def test_operands_that_overlap_are_read_before_they_are_written() -> None:
    """Pairs whose halves are operands too; numpy does the same on copies."""
    body = """
        s_load_dwordx2 s[2:3], s[0:1], 0x0
        v_lshlrev_b32 v20, 2, v0
        v_add_u32 v2, 40, v0
        v_mul_u32_u24 v3, v0, v0
        v_mad_u64_u32 v[2:3], vcc, v3, v2, v[2:3]
        v_mov_b32 v4, v2
        v_mov_b32 v5, v3
        v_lshlrev_b64 v[4:5], v4, v[4:5]
        s_waitcnt lgkmcnt(0)
        global_store_dword v20, v2, s[2:3]
        global_store_dword v20, v3, s[2:3] offset:256
        global_store_dword v20, v4, s[2:3] offset:512
        global_store_dword v20, v5, s[2:3] offset:768
    """
    out = np.zeros((4, 64), np.uint32)
    build(body, "out").launch({"out": out}, grid=(1, 1, 1), block=(64, 1, 1))
    lanes = np.arange(64, dtype=np.uint64)
    low, high = lanes + np.uint64(40), lanes * lanes
    sums = high * low + (low | high << np.uint64(32))
    shifted = sums << (sums & np.uint64(63))
    expected = np.stack([part for one in (sums, shifted) for part in (one, one >> np.uint64(32))])
    np.testing.assert_array_equal(out, expected.astype(np.uint32))
