"""The shadow: what the checks remember of waves, workgroups and memory, shared by compiled code and Python."""

from __future__ import annotations

import enum

import numpy as np

from asmlaunch.emulator.state import LANES, SGPRS, VGPRS

#: Counters of memory operations that s_waitcnt waits for: vector memory, LDS, scalar memory.
COUNTERS = ("vm", "lds", "scalar")

#: One wave; ``fresh`` points to its state at entry. ``vgpr`` has a bit a lane, ``sgpr`` a bit a bit: 1 is defined.
#: ``issued_*`` and ``done_*`` number the operations of a counter; ``of_vgpr`` and ``of_sgpr`` hold 4 times the number
#: of the load that a register waits for, plus its counter's place in ``COUNTERS``, and ``published_*`` what was done at
#: the last barriers of even and of odd number.
SHADOW = np.dtype(
    [
        ("group", "u8"), ("regions", "u8"), ("region_count", "u4"), ("epoch", "u4"), ("found", "u8"), ("fresh", "u8"),
        ("scc", "i8"),
        *((f"{what}_{name}", "i8") for what in ("issued", "done", "published0", "published1") for name in COUNTERS),
        ("sgpr", "u4", SGPRS), ("vgpr", "u8", VGPRS), ("of_sgpr", "i8", SGPRS), ("of_vgpr", "i8", VGPRS),
    ]
)  # fmt: skip

#: One resident workgroup. ``lds`` points to the entries of its LDS, of whose bytes the first ``used`` have been
#: touched, and ``fresh`` to what they are at entry. ``number`` is its place in the grid; ``entered`` one more than the
#: workgroup whose waves have entered last, ``ended`` one more than the barriers that the first wave to end had passed.
GROUP_SHADOW = np.dtype(
    [
        ("lds", "u8"), ("fresh", "u8"), ("used", "i8"), ("grid_x", "u4"), ("grid_y", "u4"),
        ("number", "u4"), ("entered", "u4"), ("ended", "u4"), ("pad", "u4"),
    ]
)  # fmt: skip

#: One array: its bytes [start, end), and the entries of its dwords, or 0 where nothing has to be remembered.
REGION_SHADOW = np.dtype([("start", "u8"), ("end", "u8"), ("entries", "u8")])

#: Four dwords of memory: for each (the last index) who wrote and read it last, field by field, so that a lane that
#: moves four is one vector. An agent is 16 * workgroup + wave + 1; ``bits`` holds the undefined bytes (3:0), the bytes
#: read (7:4) and written (11:8), an atomic write (12) and the waves that read (31:16); ``pending`` the number of the
#: load (even: twice its number) or LDS write (odd) that writes it.
ENTRIES = np.dtype(
    [
        (name, "u4", 4)
        for name in (
            "write_agent", "write_epoch", "write_at", "pending", "read_group", "read_epoch", "read_at", "bits"
        )
    ]
)  # fmt: skip

#: ``read_group`` of a dword that several workgroups have read.
MANY = 0xFFFFFFFF

#: What happened at one instruction: how often, and the first time: lanes, wave, workgroup, address, the dword there,
#: and the instruction and agent of the other access.
FOUND = np.dtype(
    [
        ("count", "i8"), ("lanes", "u8"), ("address", "u8"), ("wave", "u4"), ("value", "u4"),
        ("group_x", "u4"), ("group_y", "u4"), ("group_z", "u4"), ("other_at", "u4"), ("other_agent", "u4"),
        ("pad", "u4"),
    ]
)  # fmt: skip


class Kind(enum.IntEnum):
    """What an instruction can be found doing."""

    UNDEFINED_ADDRESS = 0
    UNDEFINED_STORE = 1
    UNDEFINED_BRANCH = 2
    KERNARG = 3
    MISALIGNED = 4
    EARLY_REGISTER = 5
    EARLY_LDS = 6
    RACE_WAVES = 7
    RACE_GROUPS = 8
    BARRIER = 9
    NAN = 10
    DENORMAL = 11
    UNDEFINED_UPDATE = 12


ALL_LANES = (1 << LANES) - 1
