"""What the emulator does not define is refused when a kernel is prepared, with the instruction and its address."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.toolkit import build

from asmlaunch.emulator import mode, program
from asmlaunch.errors import CodeObjectError, UnsupportedInstructionError


def launch(body: str, processor: str = "gfx950") -> None:
    """Run one wave."""
    kernel = build(body, "x:ptr", processor=processor, vgprs=64)
    kernel.launch({"x": np.zeros(64, np.uint32)}, grid=(1, 1, 1), block=(64, 1, 1))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("s_nop 0\n s_sendmsg sendmsg(MSG_INTERRUPT)", r"s_sendmsg at 0x1004 \(1x\)"),
        ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", "v_smfmac_f32_16x16x32_f16"),
        ("s_getreg_b32 s2, hwreg(HW_REG_HW_ID)", r"s_getreg_b32 s2, hwreg\(HW_REG_HW_ID\)"),
        ("v_mul_lo_u32 v0, v1, v2\n v_mad_u64_u32 v[0:1], s[2:3], v2, v3, v[4:5] clamp", "clamp of an integer result"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 1\n v_add_f32 v0, v1, v2", "rounding mode"),
        ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s2", "HW_REG_MODE set to a constant"),
        ("s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS), 1", "HW_REG_TRAPSTS"),
        ("s_mov_b32 exec_lo, s2\n ds_read_b64_tr_b16 v[2:3], v1", "transposing read where EXEC may not be all ones"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1", "cbsz 1"),
        ("tbuffer_load_format_x v0, v1, s[4:7], 0 idxen", "tbuffer_load_format_x"),
    ],
)  # fmt: skip
def test_the_instruction_is_named(body: str, says: str) -> None:
    with pytest.raises(UnsupportedInstructionError, match=says):
        launch(body)


_RESTORED = "s_mov_b32 s10, -1\n s_mov_b32 s11, -1\n s_mov_b64 exec, s[4:5]\n {}\n s_mov_b64 exec, s[10:11]\n"


@pytest.mark.parametrize(
    ("between", "known"),
    [
        ("s_nop 0", True),
        ("s_mov_b64 s[12:13], s[10:11]\n s_mov_b64 s[10:11], s[12:13]", True),
        ("s_mov_b32 s11, s4", False),
        ("s_add_u32 s10, s10, s4", False),
        ("v_cmp_eq_u32_e64 s[10:11], v0, v1", False),
        ("s_load_dword s11, s[0:1], 0x0", False),
        ("s_cmp_eq_u32 s4, 0\n s_cbranch_scc1 over\n s_mov_b32 s10, s4\nover:", False),
        ("s_cmp_eq_u32 s4, 0\n s_cbranch_scc1 over\n s_mov_b32 s10, -1\nover:", True),
    ],
)
def test_exec_restored_from_registers_that_hold_ones(between: str, known: bool) -> None:
    """A transposing read is compiled only where EXEC is known to be all ones."""
    body = _RESTORED.format(between) + "ds_read_b64_tr_b16 v[2:3], v1"
    kernel = build(body, "x:ptr", processor="gfx950", vgprs=64).info
    parsed = program.build(kernel, waits=False, full_exec=True)
    state = parsed.blocks[-1].mode
    for instruction in parsed.blocks[-1].instructions:
        if instruction.mnemonic == "ds_read_b64_tr_b16":
            break
        state = mode.after(instruction, state)
    assert state.full_exec is known


def test_a_mode_that_depends_on_the_path_is_refused() -> None:
    body = """
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 1f
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0
1:
    v_add_f32 v0, v1, v2"""
    with pytest.raises(UnsupportedInstructionError, match=r"the paths that meet at 0x10.*the same on all paths"):
        launch(body)


def test_a_jump_out_of_the_code_is_refused() -> None:
    with pytest.raises(CodeObjectError, match="a jump to"):
        launch("s_branch 0x7000")


def test_blocks_end_at_branches_targets_barriers_and_where_asked_at_waits() -> None:
    kernel = build(
        """
    s_waitcnt vmcnt(0)
    s_barrier
1:
    s_sub_u32 s2, s2, 1
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 1b
    s_nop 0""",
        "x:ptr",
    )
    plain = program.build(kernel.info, waits=False, full_exec=True)
    assert [len(block.instructions) for block in plain.blocks] == [2, 3, 2]
    assert [block.successors for block in plain.blocks] == [[1], [1, 2], []]
    waits = program.build(kernel.info, waits=True, full_exec=True)
    assert [len(block.instructions) for block in waits.blocks] == [1, 1, 3, 2]


def test_waves_that_advance_together_may_stop_before_the_first_write_after_reads_of_lds() -> None:
    kernel = build(
        """
    ds_write_b32 v1, v2
    ds_read_b32 v3, v1
    ds_read_b32 v4, v1
    ds_write_b32 v1, v2
    ds_write_b32 v1, v2
    ds_read_b32 v3, v1
    s_waitcnt lgkmcnt(0)
    ds_write_b32 v1, v2""",
        "x:ptr",
    )
    for waits, lengths in ((False, [9]), (True, [3, 4, 2])):
        blocks = program.build(kernel.info, waits=waits, full_exec=True).blocks
        assert [len(block.instructions) for block in blocks] == lengths


def test_waves_that_advance_together_may_stop_after_each_load_that_goes_to_lds() -> None:
    kernel = build(
        """
    buffer_load_dword v1, s[4:7], 0 offen lds
    buffer_load_dword v2, v1, s[4:7], 0 offen
    buffer_load_dword v1, s[4:7], 0 offen lds
    s_nop 0""",
        "x:ptr",
    )
    for waits, lengths in ((False, [5]), (True, [1, 2, 2])):
        blocks = program.build(kernel.info, waits=waits, full_exec=True).blocks
        assert [len(block.instructions) for block in blocks] == lengths


def test_full_exec_is_followed_through_branches() -> None:
    kernel = build(
        """
    s_cmp_eq_u32 s2, 0
    s_cbranch_scc1 1f
    s_and_saveexec_b64 s[4:5], vcc
1:
    s_nop 0
    s_mov_b64 exec, -1
    s_branch 2f
2:
    s_nop 0""",
        "x:ptr",
    )
    blocks = program.build(kernel.info, waits=False, full_exec=True).blocks
    assert [block.full_exec for block in blocks] == [True, True, False, True]
    blocks = program.build(kernel.info, waits=False, full_exec=False).blocks
    assert [block.full_exec for block in blocks] == [False, False, False, True]
