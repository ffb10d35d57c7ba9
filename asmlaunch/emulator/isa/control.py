"""Program flow, waits and barriers (AMD CDNA4 ISA manual, "Program Flow Control" and the SOPP opcodes)."""

from asmlaunch.emulator.isa.language import Bool, Exec, Scc
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


# They place or delay the wave; no result depends on them.
for _mnemonic in ("s_nop", "s_setprio", "s_sleep"):
    register(Control(_mnemonic, "nothing"))

register(Control("s_endpgm", "end"))
register(Control("s_barrier", "barrier"))
register(Control("s_waitcnt", "wait"))
register(Control("s_set_gpr_idx_on", "index_on"))
register(Control("s_set_gpr_idx_off", "index_off"))
