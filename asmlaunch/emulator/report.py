"""Access records -> sentences: which instruction, which lane, which argument, how far outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from asmlaunch.abi.arguments import Buffer
from asmlaunch.devices.base import Finding
from asmlaunch.emulator.prepare import CompiledKernel
from asmlaunch.emulator.state import Fault
from asmlaunch.errors import MemoryFaultError

#: Kernels read a little past their buffers and throw the values away; that is reported. A read further from every
#: buffer than this is a wild address, and an error.
NEAR = 1 << 20


def explain(
    compiled: CompiledKernel, records: Sequence[NDArray[np.void]], buffers: Sequence[Buffer]
) -> tuple[list[Finding], list[MemoryFaultError]]:
    """Findings of a run, in order of address, and what makes it fail: writes outside the buffers, reads far from all of
    them, resources without a meaning.

    Args:
        records: one array a worker, one record a memory instruction.
    """
    findings, faults = [], []
    for number in np.flatnonzero(np.sum([worker["count"] for worker in records], axis=0)):
        instruction = compiled.program.accesses[number]
        there = [worker[number] for worker in records if worker[number]["count"]]
        count = sum(int(record["count"]) for record in there)
        first = there[0]
        group = f"({first['group_x']}, {first['group_y']}, {first['group_z']})"
        where = (
            f"kernel {compiled.kernel.name} at {instruction.address:#x} `{instruction.text}`, "
            f"workgroup {group} wave {first['wave']} lane {first['lane']}"
        )
        kind, address = Fault(int(first["kind"])), int(first["address"])
        if kind is Fault.DESCRIPTOR:
            faults.append(
                MemoryFaultError(
                    f"{where}: a buffer resource that swizzles addresses or adds the lane number",
                    hint="the emulator does not define these; run the kernel on a GPU",
                )
            )
            continue
        if kind in (Fault.LDS_READ, Fault.LDS_WRITE):
            verb = "reads" if kind is Fault.LDS_READ else "writes"
            findings.append(Finding("lds", f"{where} {verb} LDS at {address:#x}, outside its allocation ({count:,}x)"))
            continue
        if kind in (Fault.SCRATCH_READ, Fault.SCRATCH_WRITE):
            verb = "reads" if kind is Fault.SCRATCH_READ else "writes"
            size = f"{compiled.kernel.scratch_size:,} bytes a lane"
            findings.append(
                Finding("scratch", f"{where} {verb} byte {address:,} of scratch memory, which has {size} ({count:,}x)")
            )
            continue
        distance, place = locate(address, buffers)
        if kind is Fault.WRITE:
            hint = "check the pointer, the sizes and the strides, and that the output has the rows the kernel writes"
            text = f"{where} writes {first['size']} bytes at {address:#x}: {place} ({count:,}x)"
            faults.append(MemoryFaultError(text, hint=hint))
        elif distance > NEAR:
            text = f"{where} reads {first['size']} bytes at {address:#x}: {place} ({count:,}x)"
            faults.append(MemoryFaultError(text, hint="check the pointers and strides of the arguments"))
        else:
            text = f"{where} reads at {address:#x}: {place} ({count:,}x); zeros were returned"
            findings.append(Finding("over-read", text))
    return findings, faults


def locate(address: int, buffers: Sequence[Buffer]) -> tuple[int, str]:
    """Distance to the nearest buffer (0: inside one), and where that is, in words."""
    best: tuple[int, str] | None = None
    for buffer in buffers:
        end = buffer.address + buffer.nbytes
        size = f"{buffer.nbytes:,} bytes"
        if buffer.address <= address < end:
            access = "" if buffer.writable else ", which is read-only"
            place = f"at byte {address - buffer.address:,} of {buffer.name}"
            candidate = 0, f"{place} ({element(address, buffer)}{size}){access}"
        elif address >= end:
            candidate = address - end + 1, f"{address - end:,} bytes past the end of {buffer.name} ({size})"
        else:
            before = buffer.address - address
            candidate = before, f"{before:,} bytes before {buffer.name} ({size})"
        if best is None or candidate[0] < best[0]:
            best = candidate
    if best is None:
        return 1 << 64, "no buffer was given"
    return best


def element(address: int, buffer: Buffer) -> str:
    """Row and column of an address in a matrix, "" in other arrays."""
    if len(buffer.shape) != 2 or not all(buffer.strides):
        return ""
    row, rest = divmod(address - buffer.address, buffer.strides[0])
    return f"row {row}, column {rest // buffer.strides[1]}; "


def named_lanes(lanes: Sequence[int]) -> str:
    """Lanes as ranges: "lanes 0-15, 32"."""
    ranges: list[list[int]] = []
    for lane in lanes:
        if ranges and ranges[-1][1] == lane - 1:
            ranges[-1][1] = lane
        else:
            ranges.append([lane, lane])
    shown = ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)
    return f"lane{'s' if len(lanes) > 1 else ''} {shown}"
