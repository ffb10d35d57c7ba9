"""Liveness of hand-written programs (results worked out by hand) and of shipped kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from emulator.assembler import assemble
from rich.console import Console

from asmlaunch import codeobject
from asmlaunch.abi.families import family_of
from asmlaunch.abi.schema import Field, KernargSchema
from asmlaunch.codeobject import KernelInfo, TargetId
from asmlaunch.codeobject.descriptor import KernelDescriptor
from asmlaunch.emulator.isa.table import mnemonics
from asmlaunch.emulator.liveness import Liveness, Status, Use, liveness
from asmlaunch.emulator.liveness.roles import from_definition, from_table
from asmlaunch.errors import CodeObjectError, TargetError

USER_SGPRS = (
    "private_segment_buffer", "dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id", "flat_scratch_init",
    "private_segment_size",
)  # fmt: skip


def kernel(text: str, processor: str = "gfx950", size: int = 256, **descriptor: int) -> KernelInfo:
    """A kernel of assembly text; s[0:1] is the kernarg pointer unless ``descriptor`` says otherwise."""
    code = assemble(text, processor)
    bits = {f"enable_sgpr_{name}": int(name == "kernarg_segment_ptr") for name in USER_SGPRS}
    preload = {"kernarg_preload_spec_length": 0, "kernarg_preload_spec_offset": 0}
    return KernelInfo(
        name="test", symbol="test.kd", arguments=(), kernarg_size=size, kernarg_align=16, lds_size=0, scratch_size=0,
        vgpr_count=64, agpr_count=0, sgpr_count=64, max_workgroup_size=256, required_workgroup_size=None,
        wavefront_size=64, descriptor=KernelDescriptor({**bits, **preload, **descriptor}),
        target=TargetId(processor, "any", "any"), code_address=0x1000, code=code, text=code, text_address=0x1000,
    )  # fmt: skip


def analysed(text: str, **descriptor: int) -> Liveness:
    return liveness(kernel(text, **descriptor))


def words(found: frozenset[int]) -> list[int]:
    """Offsets of the dwords touched."""
    return sorted({byte & ~3 for byte in found})


def uses(text: str) -> dict[Use, list[int]]:
    """Dwords by use, kinds that do not occur left out."""
    return {use: words(found) for use, found in analysed(text).by_use.items() if found}


STORE = "global_store_dword v[2:3], v1, off\n"

LOADED = {
    "one dword": ("s_load_dword s4, s[0:1], 0x10", [0x10]),
    "sixteen": ("s_load_dwordx16 s[4:19], s[0:1], 0x40", list(range(0x40, 0x80, 4))),
    "through a copy": ("s_mov_b64 s[8:9], s[0:1]\ns_load_dword s4, s[8:9], 0x20", [0x20]),
    "through dword copies": ("s_mov_b32 s8, s0\ns_mov_b32 s9, s1\ns_load_dword s4, s[8:9], 0x20", [0x20]),
    "pointer moved on": ("s_add_u32 s8, s0, 0x40\ns_addc_u32 s9, s1, 0\ns_load_dword s4, s[8:9], 8", [0x48]),
    "constant first": ("s_add_u32 s8, 64, s0\ns_addc_u32 s9, 0, s1\ns_load_dword s4, s[8:9], 8", [0x48]),
    "pointer moved on and back": (
        "s_add_u32 s8, s0, 0x40\ns_addc_u32 s9, s1, 0\n"
        "s_sub_u32 s8, s8, 32\ns_subb_u32 s9, s9, 0\ns_load_dword s4, s[8:9], 0", [0x20]),
    "negative step": (
        "s_add_u32 s8, s0, 0x40\ns_addc_u32 s9, s1, 0\n"
        "s_add_u32 s8, s8, -16\ns_addc_u32 s9, s9, -1\ns_load_dword s4, s[8:9], 0", [0x30]),
    "48-bit mask": ("s_and_b32 s9, s1, 0xffff\ns_mov_b32 s8, s0\ns_load_dword s4, s[8:9], 4", [4]),
    "alignment mask": ("s_add_u32 s8, s0, 6\ns_and_b32 s8, s8, -4\ns_mov_b32 s9, s1\ns_load_dword s4, s[8:9], 0", [4]),
    "offset in a register": ("s_movk_i32 s6, 0x24\ns_load_dword s4, s[0:1], s6", [0x24]),
    "offset computed": ("s_mov_b32 s6, 3\ns_lshl_b32 s6, s6, 4\ns_load_dword s4, s[0:1], s6", [0x30]),
    "offset chosen by a constant condition": (
        "s_cmp_eq_u32 1, 1\ns_mov_b32 s6, 8\ns_load_dword s4, s[0:1], s6", [8]),
    "low bits of the offset": ("s_movk_i32 s6, 0x27\ns_load_dword s4, s[0:1], s6", [0x24]),
    "vector load, scalar base": ("v_mov_b32 v0, 0\nglobal_load_dwordx2 v[4:5], v0, s[0:1] offset:16", [16, 20]),
    "vector load, vector address": (
        "v_mov_b32 v0, s0\nv_mov_b32 v1, s1\nglobal_load_dword v4, v[0:1], off offset:12", [12]),
    "flat load": ("v_mov_b32 v0, s0\nv_mov_b32 v1, s1\nflat_load_dword v4, v[0:1] offset:12", [12]),
    "vector pointer moved on": (
        "v_mov_b32 v0, s0\nv_mov_b32 v1, s1\nv_add_co_u32 v0, vcc, 16, v0\nv_addc_co_u32 v1, vcc, 0, v1, vcc\n"
        "global_load_dword v4, v[0:1], off", [16]),
    "64-bit vector addition": (
        "v_mov_b32 v0, s0\nv_mov_b32 v1, s1\nv_mov_b64 v[6:7], 4\nv_lshl_add_u64 v[0:1], v[6:7], 2, v[0:1]\n"
        "global_load_dword v4, v[0:1], off", [16]),
    "bytes of a vector load": ("v_mov_b32 v0, 0\nglobal_load_ubyte v4, v0, s[0:1] offset:17", [16]),
    "buffer over the segment": (
        "s_mov_b64 s[8:9], s[0:1]\ns_or_b32 s9, s9, 0x40000\ns_mov_b32 s10, 0x100\ns_mov_b32 s11, 0x20000\n"
        "s_mov_b32 s5, 8\nbuffer_load_dword v4, off, s[8:11], s5 offset:4", [12]),
    "scalar buffer load": ("s_mov_b64 s[8:9], s[0:1]\ns_buffer_load_dwordx2 s[4:5], s[8:11], 0x18", [0x18, 0x1C]),
    "scalar spill and readback": (
        "v_mov_b32 v8, s0\nv_mov_b32 v9, s1\nv_readfirstlane_b32 s8, v8\nv_readfirstlane_b32 s9, v9\n"
        "s_load_dword s4, s[8:9], 0x1c", [0x1C]),
    "same pointer on both ways": (
        "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 L\ns_mov_b64 s[8:9], s[0:1]\ns_branch M\n"
        "L: s_mov_b64 s[8:9], s[0:1]\nM: s_load_dword s4, s[8:9], 4", [4]),
}  # fmt: skip


@pytest.mark.parametrize("name", LOADED)
def test_bytes_loaded(name: str) -> None:
    text, expected = LOADED[name]
    result = analysed(text + "\ns_endpgm")
    assert (words(result.loaded), result.complete, result.used) == (expected, True, frozenset())


def test_the_bytes_of_a_narrow_load() -> None:
    result = analysed("v_mov_b32 v0, 0\nglobal_load_ushort v4, v0, s[0:1] offset:18\n"
                      "global_store_dword v[2:3], v4, off\ns_endpgm")  # fmt: skip
    assert result.loaded == result.used == {18, 19}


UNKNOWN = {
    "offset from a register at entry": "s_load_dword s4, s[0:1], s3",
    "pointer plus an unknown": "s_add_u32 s0, s0, s3\ns_addc_u32 s1, s1, 0\ns_load_dword s4, s[0:1], 0",
    "pointer walked in a loop": (
        "L: s_load_dword s4, s[0:1], 0\ns_add_u32 s0, s0, 4\ns_addc_u32 s1, s1, 0\ns_cmp_lt_u32 s4, 9\n"
        "s_cbranch_scc1 L"),
    "lane offset": "global_load_dword v4, v0, s[0:1]",
    "indexed buffer": "s_mov_b64 s[8:9], s[0:1]\nbuffer_load_dword v4, v0, s[8:11], 0 idxen",
    "pointer through memory": (
        "v_mov_b32 v0, s0\nds_write_b32 v9, v0\nds_read_b32 v1, v9\nv_readfirstlane_b32 s8, v1\ns_mov_b32 s9, s1\n"
        "s_load_dword s4, s[8:9], 0"),
    "to LDS": "v_mov_b32 v0, 0\nglobal_load_lds_dword v0, s[0:1]",
    "buffer to LDS": "s_mov_b64 s[8:9], s[0:1]\nbuffer_load_dword off, s[8:11], 0 lds",
    "atomic": "v_mov_b32 v0, 0\nglobal_atomic_add v0, v1, s[0:1]",
    "before the segment": "s_add_u32 s0, s0, -64\ns_addc_u32 s1, s1, -1\ns_load_dword s4, s[0:1], 0",
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_loads_at_unknown_offsets_are_reported(name: str) -> None:
    result = analysed(UNKNOWN[name] + "\ns_endpgm")
    assert [load.text.split()[0] for load in result.unknown]
    assert not result.complete
    assert result.status(0x40, 4) is Status.UNKNOWN


def test_a_store_into_the_segment_loads_nothing() -> None:
    result = analysed("v_mov_b32 v0, 0\nglobal_store_dword v0, v1, s[0:1]\ns_endpgm")
    assert (result.loads, result.complete) == ((), True)


def test_a_jump_through_a_register_leaves_the_rest_unknown() -> None:
    result = analysed("s_load_dword s4, s[0:1], 0\ns_setpc_b64 s[8:9]")
    assert len(result.unresolved) == 1
    assert not result.complete
    assert result.status(8, 4) is Status.UNKNOWN


LOAD = "s_load_dwordx4 s[4:7], s[0:1], 0x0\ns_load_dwordx4 s[8:11], s[0:1], 0x10\n"

USED = {
    "store data": ("v_mov_b32 v1, s4\n" + STORE, {Use.STORE: [0]}),
    "scalar store": ("s_store_dword s4, s[20:21], 0x0", {Use.STORE: [0]}),
    "address of a store": (
        "v_mov_b32 v2, s4\nv_mov_b32 v3, s5\n" + STORE, {Use.ADDRESS: [0, 4]}),
    "scalar base of a store": ("global_store_dword v0, v1, s[4:5]", {Use.ADDRESS: [0, 4]}),
    "scalar load from a loaded pointer": ("s_load_dword s20, s[4:5], s6", {Use.ADDRESS: [0, 4, 8]}),
    "value behind a pointer is not the argument": (
        "s_load_dword s20, s[4:5], 0x0\nv_mov_b32 v1, s20\n" + STORE, {Use.ADDRESS: [0, 4]}),
    "resource and offset": (
        "buffer_load_dword v1, v0, s[4:7], s8 offen", {Use.ADDRESS: [0, 4, 8, 12, 16]}),
    "lane offset of a buffer": (
        "v_mov_b32 v0, s4\nbuffer_store_dword v1, v0, s[20:23], 0 offen", {Use.ADDRESS: [0]}),
    "buffer to LDS": (
        "s_mov_b32 m0, s4\nbuffer_load_dword v0, s[20:23], 0 offen lds", {Use.LDS_ADDRESS: [0]}),
    "global to LDS": (
        "s_mov_b32 m0, s4\nglobal_load_lds_dword v0, s[8:9]", {Use.LDS_ADDRESS: [0], Use.ADDRESS: [0x10, 0x14]}),
    "atomic": ("v_mov_b32 v1, s4\nglobal_atomic_add_f32 v0, v1, s[6:7]", {Use.STORE: [0], Use.ADDRESS: [8, 12]}),
    "atomic's old value": (
        "v_mov_b32 v1, s4\nglobal_atomic_add v4, v0, v1, s[6:7] sc0\nds_write_b32 v4, v5",
        {Use.STORE: [0], Use.ADDRESS: [8, 12], Use.LDS_ADDRESS: [0]}),
    "typed buffer": (
        "v_mov_b32 v1, s4\ntbuffer_store_format_x v1, off, s[20:23], s5 "
        "format:[BUF_DATA_FORMAT_32,BUF_NUM_FORMAT_UINT]",
        {Use.STORE: [0], Use.ADDRESS: [4]}),
    "trap register": ("s_mov_b32 ttmp0, s4\nv_mov_b32 v1, ttmp0\n" + STORE, {Use.STORE: [0]}),
    "buffer atomic": (
        "v_mov_b32 v1, s4\nbuffer_atomic_pk_add_bf16 v1, v0, s[20:23], 0 offen", {Use.STORE: [0]}),
    "LDS data and address": (
        "v_mov_b32 v1, s4\nv_mov_b32 v2, s5\nds_write_b32 v2, v1", {Use.LDS_DATA: [0], Use.LDS_ADDRESS: [4]}),
    "through LDS": (
        "v_mov_b32 v1, s4\nds_write_b32 v2, v1\nds_read_b32 v1, v2\n" + STORE, {Use.LDS_DATA: [0], Use.STORE: [0]}),
    "lane shuffles do not use LDS": (
        "v_mov_b32 v1, s4\nds_bpermute_b32 v1, v9, v1\n" + STORE, {Use.STORE: [0]}),
    "through scratch": (
        "v_mov_b32 v1, s4\nscratch_store_dword off, v1, s30\nscratch_load_dword v1, off, s30\n" + STORE,
        {Use.STORE: [0]}),
    "spilled and dropped": ("v_mov_b32 v1, s4\nscratch_store_dword off, v1, s30", {}),
    "branch": ("s_cmp_lt_u32 s4, 5\ns_cbranch_scc1 L\ns_nop 0\nL:", {Use.BRANCH: [0]}),
    "comparison without a branch": ("s_cmp_lt_u32 s4, 5", {}),
    "branch on VCC": ("v_cmp_lt_u32 vcc, s4, v0\ns_cbranch_vccnz L\ns_nop 0\nL:", {Use.BRANCH: [0]}),
    "EXEC": ("v_cmp_lt_u32 vcc, s4, v0\ns_and_saveexec_b64 s[20:21], vcc", {Use.BRANCH: [0]}),
    "EXEC by comparison": ("v_cmpx_lt_u32 vcc, s4, v0", {Use.BRANCH: [0]}),
    "skip mode": ("s_setvskip s4, 0", {Use.BRANCH: [0]}),
    "MODE": ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s4", {Use.BRANCH: [0]}),
    "message": ("s_mov_b32 m0, s4\ns_sendmsg sendmsg(MSG_INTERRUPT)", {Use.STORE: [0]}),
    "jump": ("s_setpc_b64 s[4:5]", {Use.BRANCH: [0, 4]}),
    "call": ("s_swappc_b64 s[20:21], s[4:5]", {Use.BRANCH: [0, 4]}),
    "carry": (
        "s_add_u32 s20, s4, s5\ns_addc_u32 s21, 0, 0\nv_mov_b32 v1, s21\n" + STORE, {Use.STORE: [0, 4]}),
    "select": (
        "s_cmp_lt_u32 s4, 5\ns_cselect_b32 s20, s5, s6\nv_mov_b32 v1, s20\n" + STORE, {Use.STORE: [0, 4, 8]}),
    "overwritten": ("s_mov_b32 s4, 0\nv_mov_b32 v1, s4\n" + STORE, {}),
    "masked away": ("s_and_b32 s4, s4, 0\nv_mov_b32 v1, s4\n" + STORE, {}),
    "halves stay apart": (
        "s_mov_b64 s[20:21], s[4:5]\nv_mov_b32 v1, s21\n" + STORE, {Use.STORE: [4]}),
    "halves of a mask": (
        "s_or_b64 s[20:21], s[4:5], s[8:9]\nv_mov_b32 v1, s20\n" + STORE, {Use.STORE: [0, 0x10]}),
    "a 64-bit shift joins halves": (
        "s_lshl_b64 s[20:21], s[4:5], 2\nv_mov_b32 v1, s21\n" + STORE, {Use.STORE: [0, 4]}),
    "kept in part": (
        "s_mov_b32 s20, s4\ns_bitset1_b32 s20, s5\nv_mov_b32 v1, s20\n" + STORE, {Use.STORE: [0, 4]}),
    "accumulated": (
        "v_mov_b32 v1, s4\nv_mov_b32 v5, s5\nv_fmac_f32 v1, v5, v5\n" + STORE, {Use.STORE: [0, 4]}),
    "lane written": (
        "v_mov_b32 v1, s4\nv_writelane_b32 v1, s5, 3\n" + STORE, {Use.STORE: [0, 4]}),
    "lane read": (
        "v_mov_b32 v5, s4\nv_readlane_b32 s20, v5, 3\nv_mov_b32 v1, s20\n" + STORE, {Use.STORE: [0]}),
    "swapped": (
        "v_mov_b32 v1, s4\nv_mov_b32 v5, s5\nv_swap_b32 v1, v5\n" + STORE, {Use.STORE: [0, 4]}),
    "part of a register": (
        "v_mov_b32 v1, s4\nv_mov_b32 v5, s5\n"
        "v_cvt_f16_f32_sdwa v1, v5 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD\n" + STORE,
        {Use.STORE: [0, 4]}),
    "lanes without a source": (
        "v_mov_b32 v1, s4\nv_mov_b32 v5, s5\nv_mov_b32_dpp v1, v5 row_shr:1 row_mask:0xf bank_mask:0xf\n" + STORE,
        {Use.STORE: [0, 4]}),
    "accumulation registers": (
        "v_accvgpr_write_b32 a3, s4\nv_accvgpr_read_b32 v1, a3\n" + STORE, {Use.STORE: [0]}),
    "matrix core": (
        "v_mov_b32 v4, s4\nv_mfma_f32_16x16x16_f16 v[8:11], v[4:5], v[6:7], 0\nv_mov_b32 v1, v11\n" + STORE,
        {Use.STORE: [0]}),
    "old lanes under EXEC": (
        "v_mov_b32 v1, s4\ns_mov_b64 exec, s[20:21]\nv_mov_b32 v1, 0\n" + STORE, {Use.STORE: [0]}),
    "every lane again": (
        "v_mov_b32 v1, s4\ns_and_saveexec_b64 s[20:21], vcc\ns_mov_b64 exec, -1\nv_mov_b32 v1, 0\n" + STORE, {}),
    "old lanes when skipped": (
        "v_mov_b32 v1, s4\ns_setvskip s20, 0\nv_mov_b32 v1, 0\ns_setvskip 0, 0\n" + STORE, {Use.STORE: [0]}),
    "not skipped any more": (
        "v_mov_b32 v1, s4\ns_setvskip s20, 0\ns_setvskip 0, 0\nv_mov_b32 v1, 0\n" + STORE, {}),
    "relative source": (
        "v_mov_b32 v9, s4\ns_set_gpr_idx_on s20, gpr_idx(SRC0)\nv_mov_b32 v1, v5\ns_set_gpr_idx_off\n" + STORE,
        {Use.STORE: [0]}),
    "index of a relative source": (
        "s_set_gpr_idx_on s4, gpr_idx(SRC0)\nv_mov_b32 v1, v5\ns_set_gpr_idx_off\n" + STORE, {Use.STORE: [0]}),
    "relative destination": (
        "v_mov_b32 v5, s4\ns_set_gpr_idx_on s20, gpr_idx(DST)\nv_mov_b32 v0, v5\ns_set_gpr_idx_off\n" + STORE,
        {Use.STORE: [0], Use.ADDRESS: [0]}),
    "relative scalar source": (
        "s_mov_b32 m0, s20\ns_movrels_b32 s21, s3\nv_mov_b32 v1, s21\n" + STORE,
        {Use.STORE: list(range(0, 0x20, 4))}),
    "either way": (
        "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 L\nv_mov_b32 v1, s4\ns_branch M\nL: v_mov_b32 v1, s5\nM:\n" + STORE,
        {Use.STORE: [0, 4]}),
    "around a loop": (
        "v_mov_b32 v1, 0\nL: v_add_u32 v1, v1, v5\nv_mov_b32 v5, s4\ns_add_u32 s20, s20, 1\ns_cmp_lt_u32 s20, 9\n"
        "s_cbranch_scc1 L\n" + STORE, {Use.STORE: [0]}),
    "behind the end": ("s_endpgm\nv_mov_b32 v1, s4\n" + STORE, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_bytes_used(name: str) -> None:
    text, expected = USED[name]
    assert uses(LOAD + text + "\ns_endpgm") == expected


def test_images_of_other_gfx9_processors() -> None:
    text = "image_load v1, v[8:11], s[4:11] dmask:0x1 unorm\n" + STORE + "v_mov_b32 v1, s4\n"
    text += "image_store v1, v[8:11], s[8:15] dmask:0x1 unorm\ns_endpgm"
    result = liveness(kernel(LOAD + text, "gfx906"))
    assert words(result.by_use[Use.ADDRESS]) == list(range(0, 0x20, 4))
    assert words(result.by_use[Use.STORE]) == [0]


def test_kernarg_pointer_after_other_user_registers() -> None:
    result = analysed("s_load_dword s20, s[6:7], 0x8\ns_endpgm", enable_sgpr_private_segment_buffer=1,
                      enable_sgpr_dispatch_ptr=1)  # fmt: skip
    assert words(result.loaded) == [8]


def test_preloaded_arguments() -> None:
    """s2 and s3 hold the dwords at 8 and 12; the hardware starts 256 bytes after the entry."""
    text = "s_endpgm\n.fill 63, 4, 0xbf800000\nv_mov_b32 v1, s3\n" + STORE + "s_endpgm"
    result = analysed(text, kernarg_preload_spec_length=2, kernarg_preload_spec_offset=2)
    assert (words(result.loaded), words(result.used)) == ([8, 12], [12])


def test_data_between_instructions_is_stepped_over() -> None:
    result = analysed("s_branch L\n.long 0xffffffff\nL: s_load_dword s4, s[0:1], 4\ns_endpgm")
    assert words(result.loaded) == [4]


def test_refusals() -> None:
    with pytest.raises(CodeObjectError, match="a jump to"):
        analysed("s_branch 0x1000")
    with pytest.raises(CodeObjectError, match="an instruction of gfx950"):
        analysed(".long 0xffffffff")
    with pytest.raises(TargetError, match="gfx1100"):
        liveness(kernel("s_endpgm", "gfx1100"))


def test_roles_of_the_table_cover_those_of_the_definitions() -> None:
    """Two sources for one fact, where both speak: what the defining function's signature says, the table has too."""
    for mnemonic in mnemonics():
        defined, tabled = from_definition(mnemonic), from_table(mnemonic)
        if defined is None:
            continue
        assert tabled is not None, mnemonic
        assert tabled.outputs == defined.outputs, mnemonic
        assert tabled.keeps >= defined.keeps, mnemonic
        assert set(tabled.reads) >= set(defined.reads), mnemonic
        assert set(tabled.writes) >= set(defined.writes), mnemonic


# ---------------------------------------------------------------- the result


SCHEMA = KernargSchema(
    [Field("a", 0, "pointer"), Field("b", 8, "u32"), Field("c", 16, "u32"), Field("gap", 24, "u32", role="padding")], 32
)
PROGRAM = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_mov_b32 v1, 0\nglobal_store_dword v0, v1, s[4:5]\ns_endpgm"


def test_fields_of_a_schema() -> None:
    result = analysed(PROGRAM)
    found = {name: (entry.status, entry.uses, entry.loaded) for name, entry in result.of(SCHEMA).items()}
    assert found == {
        "a": (Status.USED, (Use.ADDRESS,), 8),
        "b": (Status.UNUSED, (), 4),
        "c": (Status.NEVER, (), 0),
    }
    assert (result.highest_byte, result.highest_used_byte) == (15, 7)


def test_json_is_plain() -> None:
    answer = json.loads(json.dumps(analysed(PROGRAM).to_json(SCHEMA)))
    assert (answer["loaded"], answer["used"], answer["complete"]) == ([[0, 16]], [[0, 8]], True)
    assert answer["uses"]["address"] == [[0, 8]]
    assert answer["sinks"] == [
        {"use": "address", "bytes": [[0, 8]], "instructions": 1, "first": "0x100c global_store_dword v0, v1, s[4:5]"}
    ]
    assert [field["status"] for field in answer["fields"]] == ["used", "loaded, unused", "never loaded"]


def test_tables() -> None:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    result = analysed(PROGRAM)
    console.print(result)
    console.print(result.table(SCHEMA))
    console.print(analysed(UNKNOWN["lane offset"] + "\ns_endpgm"))
    text = console.export_text()
    for line in ("0..7", "8..15", "loaded, unused", "never loaded", "loaded at 0x1000"):
        assert line in text


def test_nothing_loaded() -> None:
    result = analysed("s_endpgm", enable_sgpr_kernarg_segment_ptr=0)
    assert (result.loaded, result.highest_byte, result.highest_used_byte) == (frozenset(), None, None)


# ---------------------------------------------------------------- shipped kernels

#: What executing the f4gemm kernels with one argument changed at a time showed: arguments of every kernel that are
#: never loaded, that are loaded without effect, and those that only some kernels use.
NEVER = {"stride_D0", "stride_D1", "stride_C1", "stride_A1", "stride_B1", "stride_ScaleA1", "stride_ScaleB1"}
NO_EFFECT = {"ptr_C", "beta"}
SPLIT_K = ("_BpreShuffle_256x256", "_BpreShuffle_128x512")
USES_ALPHA = (*SPLIT_K, "_noBpreShuffle_256x256")


def test_f4gemm(f4gemm_folder: Path) -> None:
    files = sorted(f4gemm_folder.glob("*.co"))
    assert len(files) == 35
    for file in files:
        info = next(iter(codeobject.read(file).kernels.values()))
        family = family_of(info)
        assert family is not None
        result = liveness(info)
        status: dict[Status, set[str]] = {each: set() for each in Status}
        for name, entry in result.of(family.schema(info)).items():
            status[entry.status].add(name)
        splits = {"log2_k_split"} if not file.stem.endswith(SPLIT_K) else set()
        alpha = {"alpha"} if not file.stem.endswith(USES_ALPHA) else set()
        assert result.complete, file.stem
        assert status[Status.NEVER] == NEVER | splits, file.stem
        assert status[Status.UNUSED] == NO_EFFECT | alpha, file.stem
        assert result.highest_byte == (371 if not splits else 339), file.stem


def test_every_family_has_an_object_that_is_analysed_whole(aiter_kernels: Path) -> None:
    """One object a folder: no load at an unknown offset, none behind the segment."""
    folders: dict[Path, Path] = {}
    for path in sorted(aiter_kernels.rglob("*.co")):
        folders.setdefault(path.parent, path)
    for path in folders.values():
        for info in codeobject.read(path).kernels.values():
            result = liveness(info)
            assert result.complete, path.name
            assert result.highest_byte is not None, path.name
            assert result.highest_byte < info.kernarg_size, path.name
