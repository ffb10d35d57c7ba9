"""Registers beyond the kernel's allocation, found when it is prepared.

The hardware gives a wave what the kernel descriptor asks for: VGPRs in eights, of which those from ``accum_offset`` on
are AccVGPRs, and SGPRs in sixteens (LLVM AMDGPU usage, "compute_pgm_rsrc1" for gfx90a and gfx942). What lies beyond
reads as anything and is written to nowhere, or to another wave.
"""

from __future__ import annotations

from asmlaunch.codeobject import KernelInfo
from asmlaunch.devices.base import Finding
from asmlaunch.emulator.decode import NAMED_SGPRS, Register
from asmlaunch.emulator.program import Program

#: SGPRs from here on have names of their own (VCC, M0, EXEC, ...) and exist in every wave.
_FIRST_NAMED = min(index for index, _ in NAMED_SGPRS.values())

_FILES = {"v": "VGPRs", "a": "AccVGPRs", "s": "SGPRs"}


def limits(kernel: KernelInfo) -> dict[str, int]:
    """Registers of each file that a wave of the kernel has."""
    descriptor = kernel.descriptor
    vgprs = 8 * (descriptor.granulated_workitem_vgpr_count + 1)
    first_acc = min(descriptor.accum_offset, vgprs)
    sgprs = 16 * (descriptor.granulated_wavefront_sgpr_count // 2 + 1)
    return {"v": first_acc, "a": vgprs - first_acc, "s": sgprs}


def beyond(program: Program) -> list[Finding]:
    """One finding for each instruction that names a register the kernel does not have."""
    kernel, have = program.kernel, limits(program.kernel)
    findings = []
    for instruction in sorted(program.instructions(), key=lambda one: one.address):
        for operand in instruction.operands:
            if not isinstance(operand, Register):
                continue
            last = operand.index + operand.count - 1
            named = operand.file == "s" and operand.index >= _FIRST_NAMED
            if named or last < have[operand.file]:
                continue
            message = (
                f"kernel {kernel.name} at {instruction.address:#x} `{instruction.text}`: register "
                f"{operand.file}{last} is beyond the kernel's {have[operand.file]} {_FILES[operand.file]}; "
                "raise the count in the kernel descriptor"
            )
            name = f"{operand.file}{last}"
            findings.append(
                Finding(
                    "registers",
                    message,
                    "error",
                    kernel.name,
                    instruction.address,
                    instruction.text,
                    argument=name,
                )
            )
            break
    return findings
