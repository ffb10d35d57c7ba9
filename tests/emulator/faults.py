"""Kernels with one fault each, and what has to be said about it; the same kernels without the fault.

Each fault is a small program in which one thing is wrong. ``sound`` is the program with that put right, where that is a
change of the code: it must give no finding at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One faulty kernel.

    Attributes:
        name: what is wrong.
        check: the check that has to find it.
        says: regular expression for the finding.
        body: the instructions; ``x`` and ``out`` are the first two arguments unless ``arguments`` says otherwise.
        sound: the instructions without the fault, or "".
        block, grid: of the launch.
        outputs: buffers that hold nothing before the launch.
        options: of the kernel (``toolkit.source``).
        launch: further options of the launch.
        elements: dwords of x and of out.
        also: checks whose findings are a consequence of the fault.
    """

    name: str
    check: str
    says: str
    body: str
    sound: str = ""
    block: int = 64
    grid: int = 1
    outputs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    launch: Mapping[str, Any] = field(default_factory=dict)
    elements: tuple[int, int] = (64, 64)
    also: tuple[str, ...] = ()


#: s[4:5] = x, s[6:7] = out, v1 = 4 * work-item.
START = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
"""

#: s[8:11] = a buffer resource of 256 bytes at x.
RESOURCE = (
    START
    + """
    s_mov_b64 s[8:9], s[4:5]
    s_mov_b32 s10, 0x100
    s_mov_b32 s11, 0x20000
"""
)

LOAD = """
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
"""

STORE = """
    global_store_dword v1, v2, s[6:7]
"""

#: The wave's number in s12, as a scalar.
WAVE = """
    v_lshrrev_b32 v3, 6, v0
    v_readfirstlane_b32 s12, v3
"""

UNINITIALISED = [
    Fault(
        "a VGPR that nobody writes is stored", "uninitialised", r"global_store_dword.*lanes 0-63: stores a value that "
        r"nobody has written: byte 0 of out",
        START + "v_mov_b32 v2, v5" + STORE, START + "v_mov_b32 v5, 1\n v_mov_b32 v2, v5" + STORE,
    ),
    Fault(
        "an SGPR that nobody writes is stored", "uninitialised", "stores a value that nobody has written",
        START + "v_mov_b32 v2, s20" + STORE, START + "s_mov_b32 s20, 7\n v_mov_b32 v2, s20" + STORE,
    ),
    Fault(
        "an AccVGPR that nobody writes is stored", "uninitialised", "stores a value that nobody has written",
        START + "v_accvgpr_read_b32 v2, a3" + STORE,
        START + "v_accvgpr_write_b32 a3, 1\n s_nop 4\n v_accvgpr_read_b32 v2, a3" + STORE,
        options={"vgprs": 64, "accum": 32},
    ),
    Fault(
        "LDS that nobody writes is stored", "uninitialised", "stores a value that nobody has written",
        START + "ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)" + STORE,
        START + "ds_write_b32 v1, v0\n ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)" + STORE,
        options={"lds": 256},
    ),
    Fault(
        "LDS is read with another pitch than it is written with", "uninitialised", r"lanes \d+-63: stores a value",
        START + "v_lshlrev_b32 v4, 2, v1\n ds_write_b32 v1, v0\n ds_read_b32 v2, v4\n s_waitcnt lgkmcnt(0)" + STORE,
        START + "v_lshlrev_b32 v4, 2, v1\n ds_write_b32 v4, v0\n ds_read_b32 v2, v4\n s_waitcnt lgkmcnt(0)" + STORE,
        options={"lds": 1024},
    ),
    Fault(
        "an output is read before it is written", "uninitialised", "stores a value that nobody has written",
        START + LOAD + STORE, outputs=("x",),
    ),
    Fault(
        "an output is added to before it is zeroed", "uninitialised",
        "global_atomic_add.*adds to a value that nobody has written: byte 0 of out",
        START + "v_mov_b32 v2, 1\n global_atomic_add v1, v2, s[6:7]", outputs=("out",),
        sound=START + "v_mov_b32 v2, 0" + STORE + "s_waitcnt vmcnt(0)\n v_mov_b32 v2, 1\n"
        "global_atomic_add v1, v2, s[6:7]",
    ),
    Fault(
        "a VGPR that nobody writes is an address", "uninitialised", "the address is made of values that nobody",
        START + "global_load_dword v2, v9, s[4:5]\n s_waitcnt vmcnt(0)" + STORE,
    ),
    Fault(
        "an SGPR that nobody writes is part of an address", "uninitialised", "the address is made of values",
        RESOURCE + "buffer_load_dword v2, v1, s[8:11], s20 offen\n s_waitcnt vmcnt(0)" + STORE,
        RESOURCE + "s_mov_b32 s20, 0\n buffer_load_dword v2, v1, s[8:11], s20 offen\n s_waitcnt vmcnt(0)" + STORE,
    ),
    Fault(
        "M0 is not set before a load to LDS", "uninitialised", "buffer_load_dword.*lds.*the address is made of values",
        RESOURCE + "buffer_load_dword v1, s[8:11], 0 offen lds\n s_waitcnt vmcnt(0)\n ds_read_b32 v2, v1\n"
        "s_waitcnt lgkmcnt(0)" + STORE,
        RESOURCE + "s_mov_b32 m0, 0\n buffer_load_dword v1, s[8:11], 0 offen lds\n s_waitcnt vmcnt(0)\n"
        "ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)" + STORE,
        options={"lds": 256},
    ),
    Fault(
        "a scalar comparison of an SGPR that nobody writes decides", "uninitialised", "s_cbranch_scc1.*control flow",
        START + "s_cmp_eq_u32 s20, 1\n s_cbranch_scc1 .Ldone\n v_mov_b32 v2, 1" + STORE + ".Ldone:",
        START + "s_mov_b32 s20, 0\n s_cmp_eq_u32 s20, 1\n s_cbranch_scc1 .Ldone\n v_mov_b32 v2, 1" + STORE + ".Ldone:",
    ),
    Fault(
        "EXEC takes a mask that nobody writes", "uninitialised", "s_mov_b64 exec.*control flow",
        START + "v_mov_b32 v2, 1\n s_mov_b64 exec, s[20:21]" + STORE,
        START + "v_mov_b32 v2, 1\n s_mov_b64 s[20:21], 15\n s_mov_b64 exec, s[20:21]" + STORE,
    ),
    Fault(
        "half of the lanes never get a value", "uninitialised", "lanes 32-63: stores a value that nobody",
        START + "s_mov_b32 exec_hi, 0\n v_mov_b32 v2, 1\n s_mov_b32 exec_hi, -1" + STORE,
        START + "s_mov_b32 exec_hi, 0\n v_mov_b32 v2, 1\n" + STORE,
    ),
    Fault(
        "a value comes from a lane that has none", "uninitialised", "lane 5: stores a value",
        START + "s_mov_b64 exec, 15\n v_mov_b32 v3, 1\n s_mov_b64 exec, -1\n v_mov_b32 v2, 0\n"
        "s_mov_b64 exec, 32\n v_mov_b32_dpp v2, v3 quad_perm:[1,1,1,1] row_mask:0xf bank_mask:0xf bound_ctrl:0" + STORE,
    ),
    Fault(
        "a scalar comes from a lane that has no value", "uninitialised", "the address is made of values",
        START + "v_readfirstlane_b32 s20, v9\n s_load_dword s21, s[4:5], s20\n s_waitcnt lgkmcnt(0)\n"
        "v_mov_b32 v2, s21" + STORE,
    ),
    Fault(
        "what was read past the end of an array is stored", "uninitialised", "lane 63: stores a value",
        START + "global_load_dword v2, v1, s[4:5] offset:4\n s_waitcnt vmcnt(0)" + STORE,
        START + "global_load_dword v2, v1, s[4:5]\n s_waitcnt vmcnt(0)" + STORE, also=("over-read",),
    ),
    Fault(
        "a condition of a selection is undefined", "uninitialised", "stores a value that nobody has written",
        START + "v_mov_b32 v3, 1\n v_mov_b32 v4, 2\n v_cndmask_b32 v2, v3, v4, s[20:21]" + STORE,
        START + "s_mov_b64 s[20:21], 5\n v_mov_b32 v3, 1\n v_mov_b32 v4, 2\n v_cndmask_b32 v2, v3, v4, s[20:21]"
        + STORE,
    ),
]  # fmt: skip

#: One of A and B in v[8:9] and v[10:11], all 1.0 in f16.
_MATRIX = START + "v_mov_b32 v8, 0x3c003c00\n v_mov_b32 v9, v8\n v_mov_b32 v10, v8\n v_mov_b32 v11, v8\n"
_ROWS = "v_mfma_f32_16x16x16_f16 a[0:3], v[8:9], v[10:11], {}\n s_nop 15\n v_accvgpr_read_b32 v2, a1\n"
_BLOCKS = "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[8:9], v[10:11], {}\n s_nop 15\n v_accvgpr_read_b32 v2, a1\n"

UNINITIALISED += [
    Fault(
        "a call to an address that nobody writes", "uninitialised", "s_swappc_b64.*control flow depends",
        # The low half is right: what the SGPR holds by chance is 0, as the high half should be.
        START + "s_getpc_b64 s[20:21]\n.Lhere:\n s_add_u32 s22, s20, .Lnext-.Lhere\n s_addc_u32 s24, s21, 0\n"
        "s_swappc_b64 s[30:31], s[22:23]\n.Lnext:\n s_nop 0",
    ),
    Fault(
        "an accumulator that nobody clears", "uninitialised", "lanes 0-63: stores a value that nobody has written",
        _MATRIX + _ROWS.format("a[0:3]") + STORE, _MATRIX + _ROWS.format("0") + STORE,
        options={"vgprs": 64, "accum": 32},
    ),
    Fault(
        "an accumulator of a matrix instruction with many blocks", "uninitialised", "lanes 0-63: stores a value",
        _MATRIX + _BLOCKS.format("a[0:3]") + STORE, _MATRIX + _BLOCKS.format("0") + STORE,
        options={"vgprs": 64, "accum": 32},
    ),
    Fault(
        # Row 5 of A is in lanes 5, 21, 37 and 53; of the result it is register 1 of lanes 16 to 31.
        "one row of a matrix operand", "uninitialised", "lanes 16-31: stores a value",
        START + "v_mov_b32 v8, 0\n v_mov_b32 v10, 0\n v_mov_b32 v11, 0\n s_mov_b64 exec, 0xffffffdf\n"
        "s_mov_b32 exec_hi, -1\n v_mov_b32 v9, 0\n s_mov_b64 exec, -1\n" + _ROWS.format("0") + STORE,
        options={"vgprs": 64, "accum": 32},
    ),
    Fault(
        "a VGPR found by a relative number", "uninitialised", "stores a value that nobody has written",
        START + "v_mov_b32 v4, 1\n s_mov_b32 s20, 2\n s_set_gpr_idx_on s20, gpr_idx(SRC0)\n v_mov_b32 v2, v3\n"
        "s_set_gpr_idx_off" + STORE,
        START + "v_mov_b32 v5, 1\n s_mov_b32 s20, 2\n s_set_gpr_idx_on s20, gpr_idx(SRC0)\n v_mov_b32 v2, v3\n"
        "s_set_gpr_idx_off" + STORE,
    ),
    Fault(
        "a relative number that nobody writes", "uninitialised", "s_set_gpr_idx_on.*the address is made of values",
        START + "v_mov_b32 v2, 1\n s_set_gpr_idx_on s20, gpr_idx(SRC0)\n s_set_gpr_idx_off" + STORE,
    ),
    Fault(
        "the second half of a pair in LDS", "uninitialised", "stores a value that nobody has written",
        START + "ds_write_b32 v1, v0\n ds_read2_b32 v[8:9], v1 offset0:0 offset1:64\n s_waitcnt lgkmcnt(0)\n"
        "v_mov_b32 v2, v9" + STORE,
        START + "ds_write2_b32 v1, v0, v0 offset0:0 offset1:64\n ds_read2_b32 v[8:9], v1 offset0:0 offset1:64\n"
        "s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, v9" + STORE,
        options={"lds": 512},
    ),
    Fault(
        "a flat load from an output", "uninitialised", "stores a value that nobody has written",
        START + "v_mov_b32 v8, s4\n v_mov_b32 v9, s5\n flat_load_dword v2, v[8:9]\n s_waitcnt vmcnt(0) lgkmcnt(0)"
        + STORE,
        outputs=("x",),
    ),
    Fault(
        "the old value of an atomic is defined, its address is not", "uninitialised", "global_atomic_add.*the address",
        START + "v_mov_b32 v4, 1\n global_atomic_add v2, v9, v4, s[4:5] sc0\n s_waitcnt vmcnt(0)" + STORE,
        START + "v_mov_b32 v4, 1\n global_atomic_add v2, v1, v4, s[4:5] sc0\n s_waitcnt vmcnt(0)" + STORE,
    ),
]  # fmt: skip

BOUNDS = [
    Fault(
        "one element past the end of an array is read", "over-read", "global_load_dword.*0 bytes past the end of x",
        START + "global_load_dword v2, v1, s[4:5] offset:4\n s_waitcnt vmcnt(0)\n v_mov_b32 v2, 0" + STORE,
        START + "global_load_dword v2, v1, s[4:5]\n s_waitcnt vmcnt(0)\n v_mov_b32 v2, 0" + STORE,
    ),
    Fault(
        "a resource is larger than the array", "over-read", "buffer_load_dword.*past the end of x",
        RESOURCE + "s_mov_b32 s10, 0x1000\n buffer_load_dword v2, v1, s[8:11], 0 offen offset:8\n s_waitcnt vmcnt(0)\n"
        "v_mov_b32 v2, 0" + STORE,
        RESOURCE + "buffer_load_dword v2, v1, s[8:11], 0 offen offset:8\n s_waitcnt vmcnt(0)\n v_mov_b32 v2, 0" + STORE,
    ),
    Fault(
        "LDS is read outside the allocation", "lds", "ds_read_b32.*reads LDS at 0x100, outside its allocation",
        START + "v_mov_b32 v2, 0\n ds_write_b32 v1, v2\n ds_read_b32 v2, v1 offset:4\n s_waitcnt lgkmcnt(0)\n"
        "v_mov_b32 v2, 0" + STORE,
        START + "v_mov_b32 v2, 0\n ds_write_b32 v1, v2\n ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, 0"
        + STORE,
        options={"lds": 256},
    ),
    Fault(
        "LDS is written outside the allocation", "lds", "ds_write_b32.*writes LDS at 0x100, outside its allocation",
        START + "v_mov_b32 v2, 0\n ds_write_b32 v1, v2 offset:4\n s_waitcnt lgkmcnt(0)" + STORE,
        START + "v_mov_b32 v2, 0\n ds_write_b32 v1, v2\n s_waitcnt lgkmcnt(0)" + STORE,
        options={"lds": 256},
    ),
    Fault(
        "a load to LDS goes outside the allocation", "lds", "buffer_load_dword.*writes LDS at 0x100, outside",
        RESOURCE + "s_mov_b32 m0, 4\n buffer_load_dword v1, s[8:11], 0 offen lds\n s_waitcnt vmcnt(0)",
        RESOURCE + "s_mov_b32 m0, 0\n buffer_load_dword v1, s[8:11], 0 offen lds\n s_waitcnt vmcnt(0)",
        options={"lds": 256},
    ),
    Fault(
        "the kernel loads past its arguments", "over-read", "s_load_dword.*past the end of kernarg",
        START + "s_load_dword s20, s[0:1], 0x10\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, 0" + STORE,
    ),
]  # fmt: skip

STOPS = [
    Fault(
        "one element past the end of an array is written", "MemoryFaultError",
        r"global_store_dword.*writes 4 bytes.*0 bytes past the end of out \(256 bytes\)",
        START + "v_mov_b32 v2, 1\n global_store_dword v1, v2, s[6:7] offset:4",
        START + "v_mov_b32 v2, 1\n global_store_dword v1, v2, s[6:7]",
    ),
    Fault(
        "an address is far from every array", "MemoryFaultError", "global_load_dword.*reads 4 bytes",
        START + "s_mov_b32 s5, 0x1234\n" + LOAD + STORE,
    ),
    Fault(
        "a return to nowhere", "EmulationError", "s_setpc_b64.*wave 0 .*jumps to where no code is known",
        START + "s_mov_b64 s[20:21], s[4:5]\n s_setpc_b64 s[20:21]",
        START + "s_getpc_b64 s[20:21]\n.Lhere:\n s_add_u32 s20, s20, .Lnext-.Lhere\n s_addc_u32 s21, s21, 0\n"
        "s_setpc_b64 s[20:21]\n.Lnext:\n s_nop 0",
    ),
    Fault(
        "the loop never ends", "InstructionBudgetError", "more than 10,000 instructions",
        START + ".Lagain:\n s_branch .Lagain", launch={"max_instructions": 10_000},
    ),
]  # fmt: skip

KERNARG = [
    Fault(
        "an argument that the caller has not set decides", "kernarg",
        r"s_load_dword .*argument bytes 0x10..0x13 \(count\)",
        START + "s_load_dword s20, s[0:1], 0x10\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, s20" + STORE,
        launch={"unset": [(16, 20)]}, options={"arguments": "x out count:u32"}, also=("uninitialised",),
    ),
]  # fmt: skip

REGISTERS = [
    Fault(
        "a VGPR beyond the allocation", "registers", "v20 is beyond the kernel's 8 VGPRs",
        START + "v_mov_b32 v20, 1\n v_mov_b32 v2, v20" + STORE,
        START + "v_mov_b32 v7, 1\n v_mov_b32 v2, v7" + STORE, options={"vgprs": 8},
    ),
    Fault(
        "an SGPR beyond the allocation", "registers", "s40 is beyond the kernel's",
        START + "s_mov_b32 s40, 1\n v_mov_b32 v2, s40" + STORE,
        START + "s_mov_b32 s8, 1\n v_mov_b32 v2, s8" + STORE,
        options={"sgprs": 10},
    ),
    Fault(
        "an AccVGPR of a kernel that has none", "registers", "a0 is beyond the kernel's 0 AccVGPRs",
        START + "v_accvgpr_write_b32 a0, 1\n s_nop 4\n v_accvgpr_read_b32 v2, a0" + STORE, options={"vgprs": 8},
    ),
]  # fmt: skip

ALIGNMENT = [
    Fault(
        "a dword is loaded from an odd address", "alignment", r"lanes 0-62: the address is not aligned.*byte 2 of x",
        START + "s_mov_b32 exec_hi, 0x7fffffff\n v_mov_b32 v2, 0\n"
        "global_load_dword v2, v1, s[4:5] offset:2\n s_waitcnt vmcnt(0)" + STORE,
    ),
    Fault(
        "eight bytes of LDS at a multiple of four", "alignment", "ds_read_b64.*not aligned",
        START + "v_mov_b32 v2, 0\n v_mov_b32 v4, 4\n ds_write_b32 v1, v2\n ds_read_b64 v[6:7], v4\n"
        "s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, v6" + STORE,
        START + "v_mov_b32 v2, 0\n v_mov_b32 v4, 8\n ds_write_b32 v1, v2\n ds_read_b64 v[6:7], v4\n"
        "s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, v6" + STORE,
        options={"lds": 256},
    ),
    Fault(
        "sixteen bytes of LDS at a multiple of eight", "alignment", "ds_read_b128.*not aligned",
        START + "v_mov_b32 v2, 0\n v_mov_b32 v4, 8\n ds_write_b32 v1, v2\n ds_read_b128 v[8:11], v4\n"
        "s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, v8" + STORE,
        START + "v_mov_b32 v2, 0\n v_mov_b32 v4, 16\n ds_write_b32 v1, v2\n ds_read_b128 v[8:11], v4\n"
        "s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, v8" + STORE,
        options={"lds": 256},
    ),
    Fault(
        "a scalar load whose lowest bits the hardware ignores", "alignment", "s_load_dword s20.*not aligned",
        START + "s_load_dword s20, s[4:5], 0x2\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, s20" + STORE,
        START + "s_load_dword s20, s[4:5], 0x4\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, s20" + STORE,
    ),
    Fault(
        "an atomic on eight bytes at a multiple of four", "alignment", "global_atomic_add_x2.*not aligned",
        START + "v_mov_b32 v2, 0\n v_mov_b32 v3, 0\n v_mov_b32 v4, 4\n global_atomic_add_x2 v4, v[2:3], s[6:7]",
        START + "v_mov_b32 v2, 0\n v_mov_b32 v3, 0\n v_mov_b32 v4, 8\n global_atomic_add_x2 v4, v[2:3], s[6:7]",
    ),
]  # fmt: skip

WAITS = [
    Fault(
        "no s_waitcnt after a load", "waits", "global_store_dword.*v2 is used before an s_waitcnt",
        START + "global_load_dword v2, v1, s[4:5]" + STORE, START + LOAD + STORE,
    ),
    Fault(
        "the wait lets one load too many be outstanding", "waits", "v_mov_b32.*v3 is used before an s_waitcnt",
        START + "global_load_dword v2, v1, s[4:5]\n global_load_dword v3, v1, s[4:5]\n s_waitcnt vmcnt(1)\n"
        "v_mov_b32 v2, v3" + STORE,
        START + "global_load_dword v3, v1, s[4:5]\n global_load_dword v2, v1, s[4:5]\n s_waitcnt vmcnt(1)\n"
        "v_mov_b32 v4, v3\n s_waitcnt vmcnt(0)" + STORE,
    ),
    Fault(
        "no s_waitcnt after the arguments are loaded", "waits", "s5? ?.*is used before an s_waitcnt",
        "s_load_dwordx4 s[4:7], s[0:1], 0x0\n v_lshlrev_b32 v1, 2, v0\n v_mov_b32 v2, 0" + STORE,
    ),
    Fault(
        "scalar loads may return out of order", "waits", "s20 is used before an s_waitcnt",
        START + "s_load_dword s20, s[4:5], 0x0\n s_load_dword s21, s[4:5], 0x4\n s_waitcnt lgkmcnt(1)\n"
        "v_mov_b32 v2, s20" + STORE,
        START + "s_load_dword s20, s[4:5], 0x0\n s_load_dword s21, s[4:5], 0x4\n s_waitcnt lgkmcnt(0)\n"
        "v_mov_b32 v2, s20" + STORE,
    ),
    Fault(
        "no s_waitcnt after LDS is read", "waits", "v2 is used before an s_waitcnt",
        START + "ds_write_b32 v1, v0\n ds_read_b32 v2, v1" + STORE,
        START + "ds_write_b32 v1, v0\n ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)" + STORE, options={"lds": 256},
    ),
    Fault(
        "a register is written while a load to it is on its way", "waits", "v_mov_b32_e32 v2, 3.*v2 is used before",
        START + "global_load_dword v2, v1, s[4:5]\n v_mov_b32 v2, 3\n s_waitcnt vmcnt(0)" + STORE,
    ),
    Fault(
        "a wait on one of two ways through a branch", "waits", "v2 is used before an s_waitcnt",
        START + "s_mov_b32 s20, 1\n global_load_dword v2, v1, s[4:5]\n s_cmp_eq_u32 s20, 1\n s_cbranch_scc1 .Lskip\n"
        "s_waitcnt vmcnt(0)\n .Lskip:" + STORE,
        # The way without the wait is not taken: nothing happens that could be wrong.
        START + "s_mov_b32 s20, 0\n global_load_dword v2, v1, s[4:5]\n s_cmp_eq_u32 s20, 1\n s_cbranch_scc1 .Lskip\n"
        "s_waitcnt vmcnt(0)\n .Lskip:" + STORE,
    ),
    Fault(
        "a wave reads LDS before its own load to LDS has arrived", "waits", "ds_read_b32.*reads LDS byte 0 before",
        RESOURCE + "s_mov_b32 m0, 0\n buffer_load_dword v1, s[8:11], 0 offen lds\n ds_read_b32 v2, v1\n"
        "s_waitcnt lgkmcnt(0)" + STORE,
        RESOURCE + "s_mov_b32 m0, 0\n buffer_load_dword v1, s[8:11], 0 offen lds\n s_waitcnt vmcnt(0)\n"
        "ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)" + STORE,
        options={"lds": 256},
    ),
    Fault(
        "a barrier publishes a load to LDS that has not arrived", "waits",
        r"ds_read_b32.*reads LDS byte \d+ before .*buffer_load_dword.* of wave \d is sure to have arrived",
        RESOURCE + WAVE + "s_mov_b32 s10, 0x200\n s_lshl_b32 m0, s12, 8\n buffer_load_dword v1, s[8:11], 0 offen lds\n"
        "s_barrier\n v_xor_b32 v4, 0x100, v1\n ds_read_b32 v2, v4\n s_waitcnt vmcnt(0) lgkmcnt(0)" + STORE,
        RESOURCE + WAVE + "s_mov_b32 s10, 0x200\n s_lshl_b32 m0, s12, 8\n buffer_load_dword v1, s[8:11], 0 offen lds\n"
        "s_waitcnt vmcnt(0)\n s_barrier\n v_xor_b32 v4, 0x100, v1\n ds_read_b32 v2, v4\n s_waitcnt lgkmcnt(0)" + STORE,
        block=128, options={"lds": 512}, elements=(128, 128),
    ),
    Fault(
        "a barrier publishes an LDS write that has not been waited for", "waits",
        r"ds_read_b32.*before .*ds_write_b32.* of wave \d is sure to have arrived",
        START + "ds_write_b32 v1, v0\n s_barrier\n v_xor_b32 v4, 0x100, v1\n ds_read_b32 v2, v4\n s_waitcnt lgkmcnt(0)"
        + STORE,
        START + "ds_write_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n s_barrier\n v_xor_b32 v4, 0x100, v1\n"
        "ds_read_b32 v2, v4\n s_waitcnt lgkmcnt(0)" + STORE,
        block=128, options={"lds": 512}, elements=(128, 128),
    ),
]  # fmt: skip

WAITS += [
    Fault(
        "a global load to LDS that has not arrived", "waits", "ds_read_b32.*reads LDS byte 0 before",
        START + "s_mov_b32 m0, 0\n global_load_lds_dword v1, s[4:5]\n ds_read_b32 v2, v1\n s_waitcnt lgkmcnt(0)"
        + STORE,
        START + "s_mov_b32 m0, 0\n global_load_lds_dword v1, s[4:5]\n s_waitcnt vmcnt(0)\n ds_read_b32 v2, v1\n"
        "s_waitcnt lgkmcnt(0)" + STORE,
        options={"lds": 256},
    ),
]  # fmt: skip

_EXCHANGE = "ds_write_b32 v1, v0\n s_waitcnt lgkmcnt(0)\n {}\n v_xor_b32 v4, 0x100, v1\n ds_read_b32 v2, v4\n"
_WAIT = "s_waitcnt lgkmcnt(0)\n"
_TWO_WAVES: dict[str, Any] = {"block": 128, "options": {"lds": 512}, "elements": (128, 128)}

RACES = [
    Fault(
        "no barrier between writing LDS and reading it", "races", r"LDS byte \d+, as .*ds_\w+.* of wave \d does",
        START + _EXCHANGE.format("") + _WAIT + STORE,
        START + _EXCHANGE.format("s_barrier") + _WAIT + STORE, **_TWO_WAVES,
        also=("uninitialised",),
    ),
    Fault(
        "no barrier before LDS is used again", "races", r"ds_write_b32.*writes LDS byte \d+, as .*ds_read_b32",
        START + _EXCHANGE.format("s_barrier") + _WAIT + "ds_write_b32 v1, v2\n s_waitcnt lgkmcnt(0)" + STORE,
        START + _EXCHANGE.format("s_barrier") + _WAIT + "s_barrier\n ds_write_b32 v1, v2\n s_waitcnt lgkmcnt(0)"
        + STORE,
        **_TWO_WAVES,
    ),
    Fault(
        "two waves write the same LDS", "races", "ds_write_b32.*writes LDS byte 0, as .*ds_write_b32.* of wave 0",
        START + "v_and_b32 v4, 0xfc, v1\n ds_write_b32 v4, v0\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, 0" + STORE,
        START + "v_and_b32 v4, 0x1fc, v1\n ds_write_b32 v4, v0\n s_waitcnt lgkmcnt(0)\n v_mov_b32 v2, 0" + STORE,
        **_TWO_WAVES,
    ),
    Fault(
        "two workgroups write the same bytes", "races", r"writes byte 0 of out .*as .* of workgroup \(0, 0, 0\) does",
        START + "v_mov_b32 v2, s2" + STORE,
        START + "v_mov_b32 v2, s2\n s_lshl_b32 s20, s2, 8\n v_add_u32 v1, s20, v1" + STORE,
        grid=2, elements=(64, 128),
    ),
    Fault(
        "a workgroup reads what another one writes", "races", r"reads byte 0 of out .* of workgroup \(0, 0, 0\) does",
        START + "s_cmp_eq_u32 s2, 0\n s_cbranch_scc0 .Lread\n v_mov_b32 v2, 1" + STORE + "s_endpgm\n .Lread:\n"
        "global_load_dword v2, v1, s[6:7]\n s_waitcnt vmcnt(0)",
        grid=2,
    ),
    Fault(
        "a workgroup writes what others have read", "races", r"writes byte 0 of out .*as .*global_load_dword",
        START + "s_cmp_eq_u32 s2, 2\n s_cbranch_scc0 .Lread\n v_mov_b32 v2, 1" + STORE + "s_endpgm\n .Lread:\n"
        "global_load_dword v2, v1, s[6:7]\n s_waitcnt vmcnt(0)",
        grid=3,
    ),
    Fault(
        "two waves of a workgroup write the same bytes", "races", "writes byte 0 of out .* of wave 0 does",
        START + "v_and_b32 v1, 0xfc, v1\n v_mov_b32 v2, 1" + STORE, START + "v_mov_b32 v2, 1" + STORE,
        block=128, elements=(64, 128),
    ),
    Fault(
        "a plain store meets another workgroup's atomic", "races", "global_atomic_add.*writes byte 0 of out",
        START + "v_mov_b32 v2, 1\n s_cmp_eq_u32 s2, 0\n s_cbranch_scc0 .Ladd" + STORE + "s_endpgm\n .Ladd:\n"
        "global_atomic_add v1, v2, s[6:7]",
        START + "v_mov_b32 v2, 1\n global_atomic_add v1, v2, s[6:7]", grid=2,
    ),
]  # fmt: skip

BARRIERS = [
    Fault(
        "one of two waves passes the barrier by", "barriers",
        r"s_endpgm.*ends after \d barriers, another wave of its workgroup after \d",
        START + WAVE + "v_mov_b32 v2, 1\n s_cmp_eq_u32 s12, 1\n s_cbranch_scc1 .Ldone\n s_barrier\n .Ldone:" + STORE,
        START + WAVE + "v_mov_b32 v2, 1\n s_cmp_eq_u32 s12, 1\n s_cbranch_scc1 .Ldone\n .Ldone:\n s_barrier" + STORE,
        block=128, elements=(64, 128),
    ),
]  # fmt: skip

NUMERICS = [
    Fault(
        "infinity minus infinity", "numerics", "v_sub_f32.*lanes 0-63: a NaN comes out of operands without one",
        START + "v_mov_b32 v3, 0x7f800000\n v_sub_f32 v2, v3, v3" + STORE,
        START + "v_mov_b32 v3, 0x3f800000\n v_sub_f32 v2, v3, v3" + STORE,
    ),
    Fault(
        "zero times infinity, in one lane", "numerics", "v_mul_f32.*lane 7: a NaN comes out",
        START + "v_mov_b32 v3, 0x7f800000\n v_mov_b32 v4, 1.0\n s_mov_b64 exec, 0x80\n v_mov_b32 v4, 0\n"
        "s_mov_b64 exec, -1\n v_mul_f32 v2, v3, v4" + STORE,
    ),
    Fault(
        "a product too small for a normal number", "numerics", "v_mul_f32.*a denormal comes out of operands",
        START + "v_mov_b32 v3, 0x1f000000\n v_mul_f32 v2, 0x1f000000, v3" + STORE,
        START + "v_mov_b32 v3, 0x20000000\n v_mul_f32 v2, 0x20000000, v3" + STORE,
    ),
]  # fmt: skip

FAULTS = [*UNINITIALISED, *BOUNDS, *KERNARG, *REGISTERS, *ALIGNMENT, *WAITS, *RACES, *BARRIERS, *NUMERICS]
