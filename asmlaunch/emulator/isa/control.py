"""Program flow, waits and barriers (AMD CDNA4 ISA manual, "Program Flow Control" and the SOPP opcodes)."""

from asmlaunch.emulator.isa.language import Bool, Exec, Scc, VccMask
from asmlaunch.emulator.isa.table import Branch, Control, branch, register

register(Branch("s_branch", None))


@branch
def s_cbranch_scc0(scc: Scc) -> Bool:
    return ~scc


@branch
def s_cbranch_scc1(scc: Scc) -> Bool:
    return scc


@branch
def s_cbranch_execz(exec: Exec) -> Bool:
    return exec == 0


@branch
def s_cbranch_execnz(exec: Exec) -> Bool:
    return exec != 0


@branch
def s_cbranch_vccz(vcc: VccMask) -> Bool:
    return vcc == 0


@branch
def s_cbranch_vccnz(vcc: VccMask) -> Bool:
    return vcc != 0


# They place, delay or wake the wave, or write back caches that the emulator does not have; no result depends on them.
for _mnemonic in (
    "s_nop", "v_nop", "s_setprio", "s_sleep", "s_sethalt", "s_incperflevel", "s_decperflevel", "s_ttracedata",
    "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "s_code_end", "s_wakeup",
    "buffer_wbl2", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_invl2", "s_waitcnt_depctr",
):  # fmt: skip
    register(Control(_mnemonic, "nothing"))

register(Control("s_getpc_b64", "pc"))
register(Control("s_setpc_b64", "jump"))
register(Control("s_swappc_b64", "call"))
register(Control("s_endpgm", "end"))
register(Control("s_endpgm_saved", "end"))
register(Control("s_barrier", "barrier"))
register(Control("s_waitcnt", "wait"))
register(Control("s_set_gpr_idx_on", "index_on"))
register(Control("s_set_gpr_idx_idx", "index_number"))
register(Control("s_set_gpr_idx_mode", "index_roles"))
register(Control("s_set_gpr_idx_off", "index_off"))
register(Control("s_setvskip", "skip"))
register(Control("s_setreg_b32", "mode"))
register(Control("s_setreg_imm32_b32", "mode"))
