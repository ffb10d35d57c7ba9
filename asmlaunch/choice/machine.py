"""The numbers of a GPU that a choice depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from asmlaunch.devices import Device, open_device


@dataclass(frozen=True)
class Machine:
    """What the selectors know of a GPU.

    Attributes:
        units: compute units.
        clock: engine clock in Hz.
        fp4_rate: dense FP4 operations a unit does in a cycle (a multiply and an add are two).
        memory_bandwidth: bytes a second from HBM.
        cache_bandwidth: bytes a second from the last-level cache.
        cache_bytes: capacity of the last-level cache.
        lds_bandwidth: bytes a unit reads from LDS in a cycle.
    """

    units: int
    clock: float
    fp4_rate: float
    memory_bandwidth: float
    cache_bandwidth: float
    cache_bytes: float
    lds_bandwidth: float


# AMD Instinct MI350X data sheet: 256 units, 2.2 GHz peak, 9.2 PFLOP/s of dense MXFP4, 8 TB/s of HBM3E, 256 MB of
# Infinity Cache. AMD CDNA4 white paper: 128 bytes of LDS a unit and cycle, Infinity Cache 17.2 TB/s as in CDNA3.
MI350 = Machine(
    units=256,
    clock=2.2e9,
    fp4_rate=9.2e15 / (256 * 2.2e9),
    memory_bandwidth=8e12,
    cache_bandwidth=17.2e12,
    cache_bytes=256 << 20,
    lds_bandwidth=128,
)


def machine_of(device: str | Device | None) -> Machine:
    """An MI350 with the units that the device has; None and the emulator have a whole one's."""
    if device is None:
        return MI350
    opened = open_device(device) if isinstance(device, str) else device
    limits = getattr(opened, "limits", None)
    return MI350 if limits is None else replace(MI350, units=limits.units)
