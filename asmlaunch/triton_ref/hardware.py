"""The limits of the processor that a kernel is compiled for."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache

import torch


@dataclass(frozen=True)
class Hardware:
    """What the choice of tiles knows of a processor.

    Attributes:
        name: as in :data:`KNOWN`.
        units: multiprocessors or compute units.
        shared: bytes of shared memory (LDS) one program may take.
        registers: 32-bit registers of a unit that accumulators and operands can use.
        thread_registers: of one thread.
        warp: threads of a warp (wave).
        flops: dense bf16 operations a second of the whole processor.
        bandwidth: bytes a second from memory.
        shared_rate: bytes a second to and from a unit's shared memory.
        launch: seconds from a launch to the first product, and from the last to the next launch.
        tma: whether tiles can be loaded by descriptor (Hopper's tensor memory accelerator).
        copies: whether loads go to shared memory without passing registers.
    """

    name: str
    units: int
    shared: int
    registers: int
    thread_registers: int
    warp: int
    flops: float
    bandwidth: float
    shared_rate: float
    launch: float = 2.5e-6
    tma: bool = False
    copies: bool = True


# Limits: CUDA C++ Programming Guide, compute capability 9.0; AMD CDNA3 and CDNA4 ISA manuals (512 registers a lane,
# four SIMDs a unit, LDS of 64 and 160 KiB). Rates: measured on an H200; AMD's MI300X and MI350X data sheets. Shared
# memory: 128 bytes a cycle, at the clock of an H200 under load and at the highest of the others.
KNOWN = {
    hardware.name: hardware
    for hardware in (
        Hardware("sm90", 132, 227 << 10, 64 << 10, 255, 32, 790e12, 4.3e12, 212e9, tma=True),
        Hardware("sm80", 108, 163 << 10, 64 << 10, 255, 32, 250e12, 1.5e12, 180e9),
        Hardware("gfx942", 304, 64 << 10, 128 << 10, 512, 64, 1300e12, 5.3e12, 269e9, copies=False),
        Hardware("gfx950", 256, 160 << 10, 128 << 10, 512, 64, 2300e12, 8e12, 307e9),
        # Small, so that the interpreter reaches every path with few programs.
        Hardware("interpreter", 4, 227 << 10, 64 << 10, 255, 32, 1e9, 1e9, 1e12, tma=True),
    )
}


pretended: ContextVar[Hardware | None] = ContextVar("pretended", default=None)
"""The hardware that tensors on the CPU stand for while kernels are compiled ``offline``."""


def hardware_of(device: torch.device) -> Hardware:
    """The hardware behind a torch device; unknown processors get the smallest limits of their kind."""
    if device.type != "cuda":
        return pretended.get() or KNOWN["interpreter"]
    return _gpu(device)


@cache
def _gpu(device: torch.device) -> Hardware:
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        known = KNOWN.get(properties.gcnArchName.split(":")[0], KNOWN["gfx942"])
    else:
        known = KNOWN["sm90"] if properties.major == 9 else KNOWN["sm80"]
    return replace(known, units=properties.multi_processor_count)
