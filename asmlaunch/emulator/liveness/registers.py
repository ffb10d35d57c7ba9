"""Numbers for everything a wave holds: one integer a register, so that sets of registers are bit masks.

SGPRs keep their own numbers (AMD CDNA3 ISA manual, "Scalar ALU operands"), VGPRs and AccVGPRs follow; what has no
register number (SCC, LDS, memory) gets one in between.
"""

from __future__ import annotations

import re

from asmlaunch.emulator import decode
from asmlaunch.emulator.decode import Operand, Register, Word

M0, VCC, EXEC = decode.M0, decode.VCC, decode.EXEC

#: The scalar condition code; then LDS, scratch and global memory, each as one cell that is never cleared.
SCC, LDS, SCRATCH, MEMORY = 128, 129, 130, 131
VGPR, ACC = 256, 512
END = 768

#: The last SGPR that indexing can reach (``s_movrel*``).
LAST_SGPR = 101

#: Registers of the trap handler, which the disassembler prints by another name.
TRAP = 108
_TRAP = re.compile(r"ttmp(?:(\d+)|\[(\d+):(\d+)\])")
#: The first register of each file.
_FIRST = {"s": 0, "v": VGPR, "a": ACC}

#: Operands that are a register by another name.
_NAMED = {"scc": (SCC,), "src_scc": (SCC,), "vccz": (VCC, VCC + 1), "src_vccz": (VCC, VCC + 1),
          "execz": (EXEC, EXEC + 1), "src_execz": (EXEC, EXEC + 1),
          "lds_direct": (LDS, M0), "src_lds_direct": (LDS, M0)}  # fmt: skip


def numbers(operand: Operand) -> tuple[int, ...]:
    """The registers an operand names, lowest first; () for constants and words that are no register."""
    if isinstance(operand, Register):
        start = _FIRST[operand.file] + operand.index
        return tuple(range(start, start + operand.count))
    if not isinstance(operand, Word):
        return ()
    if trap := _TRAP.fullmatch(operand.text):
        return tuple(range(TRAP + int(trap[1] or trap[2]), TRAP + int(trap[1] or trap[3]) + 1))
    return _NAMED.get(operand.text, ())


def file_from(register: int) -> tuple[int, ...]:
    """The register and all above it in its file: what relative indexing from it can reach."""
    end = LAST_SGPR + 1 if register < VGPR else ACC if register < ACC else END
    return tuple(range(register, end))


def bits(registers: tuple[int, ...]) -> int:
    """The set of registers as a bit mask."""
    mask = 0
    for register in registers:
        mask |= 1 << register
    return mask
