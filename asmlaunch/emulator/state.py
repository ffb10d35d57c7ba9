"""The memory that compiled code and Python share: waves, workgroups, memory regions and access records.

Each is a numpy structured type; compiled code finds fields by the same offsets (``emulator.lower``,
``emulator.native``).
"""

from __future__ import annotations

import enum
import threading

import numpy as np
from numpy.typing import NDArray

LANES = 64
SGPRS = 128
VGPRS = 512  # v0..v255, then a0..a255

#: One wavefront. ``block`` is the index of the block to run next, ``counts`` points to how often each block has run,
#: and ``shadow`` to what the checks keep of the wave (``emulator.checks``). ``scratch`` points to 64 times
#: ``scratch_size`` bytes, a lane's share after the other.
WAVE = np.dtype(
    [
        ("block", "i4"), ("status", "i4"), ("budget", "i8"), ("executed", "i8"),
        ("group", "u8"), ("lds", "u8"), ("lds_size", "u4"), ("scc", "u4"),
        ("regions", "u8"), ("region_count", "u4"), ("id", "u4"), ("records", "u8"), ("stop", "u8"),
        ("group_id", "u4", 3), ("skip", "u4"), ("scratch", "u8"), ("scratch_size", "u4"), ("pad", "u4"),
        ("counts", "u8"), ("shadow", "u8"),
        ("sgpr", "u4", SGPRS),
        ("vgpr", "u4", (VGPRS, LANES)),
    ]
)  # fmt: skip

#: One workgroup: how many of its waves wait at a barrier, and how many have not ended.
GROUP = np.dtype([("waiting", "i4"), ("alive", "i4")])

#: What one thread needs to run its share of a grid. ``waves`` points to the addresses of the waves of all resident
#: workgroups, ``entry`` to their ``ENTRY`` states, ``next`` counts the workgroups that have started, shared by the
#: threads; ``first``, ``step`` and ``random`` are the schedule's (``emulator.schedule``).
WORKER = np.dtype(
    [
        ("next", "u8"), ("total", "i8"), ("waves", "u8"), ("entry", "u8"), ("groups", "u8"), ("table", "u8"),
        ("lds", "u8"), ("lds_stride", "i8"), ("stop", "u8"), ("executed", "i8"),
        ("first", "i8"), ("step", "i8"), ("random", "u8"),
        ("resident", "i4"), ("group_waves", "i4"), ("quantum", "i4"),
        ("grid_x", "u4"), ("grid_y", "u4"), ("vgprs", "i4"), ("agprs", "i4"),
        ("sgpr_x", "i4"), ("sgpr_y", "i4"), ("sgpr_z", "i4"),
    ]
)  # fmt: skip

#: A wave as it enters: everything before the VGPRs, then v0.
ENTRY_BYTES = WAVE.itemsize - VGPRS * LANES * 4 + LANES * 4

#: Memory the kernel may touch: [start, end), and whether it may be written.
REGION = np.dtype([("start", "u8"), ("end", "u8"), ("writable", "u8")])

#: What went wrong at one memory instruction: how often, and where first.
RECORD = np.dtype(
    [
        ("count", "i8"), ("kind", "i4"), ("lane", "i4"), ("address", "u8"), ("size", "i4"), ("wave", "u4"),
        ("group_x", "u4"), ("group_y", "u4"), ("group_z", "u4"), ("pad", "u4"),
    ]
)  # fmt: skip

assert WAVE.fields is not None
assert WAVE.fields["sgpr"][1] % 64 == 0
assert WAVE.fields["vgpr"][1] % 64 == 0
assert WAVE.itemsize % 64 == 0


class Status(enum.IntEnum):
    """What a wave is doing."""

    READY = 0
    BARRIER = 1
    ENDED = 2
    FAULT = 3
    BUDGET = 4
    STOPPED = 5
    LOST = 6  # jumped to where no code is known


class Fault(enum.IntEnum):
    """Kinds of access records. Writes outside the arrays, and resources without a meaning, end the run; reads outside
    give zero, writes outside LDS and scratch memory are dropped, and the run goes on.
    """

    READ = 1
    WRITE = 2
    LDS_READ = 3
    LDS_WRITE = 4
    DESCRIPTOR = 5
    SCRATCH_READ = 6
    SCRATCH_WRITE = 7


class Pool:
    """Memory that outlives a launch: fresh pages cost more than a small kernel."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """At least ``nbytes`` bytes of any content, aligned to 64."""
        with self._lock:
            fitting = [number for number, memory in enumerate(self._free) if memory.nbytes >= nbytes]
            if fitting:
                return self._free.pop(min(fitting, key=lambda number: self._free[number].nbytes))
        return aligned(nbytes)

    def give(self, memory: NDArray[np.uint8]) -> None:
        """Hand memory back; the smallest pieces beyond ``keep`` are freed."""
        with self._lock:
            self._free.append(memory)
            self._free.sort(key=len, reverse=True)
            del self._free[self._keep :]


def offset(dtype: np.dtype[np.void], name: str) -> int:
    """Byte offset of a field."""
    assert dtype.fields is not None
    return int(dtype.fields[name][1])


def aligned(nbytes: int, alignment: int = 64) -> NDArray[np.uint8]:
    """Zeroed bytes that start at a multiple of ``alignment``."""
    raw = np.zeros(nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]
