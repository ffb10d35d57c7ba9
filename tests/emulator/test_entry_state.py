"""What user SGPRs point to when a wave starts."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pytest
from emulator.toolkit import build

from asmlaunch.errors import EmulationError, MemoryFaultError

#: The first lane of the first workgroup copies the 64 bytes of the dispatch packet (s[0:1]), and the address of the
#: arguments (s[2:3]).
COPY = """
    s_load_dwordx2 s[6:7], s[2:3], 0x0
    s_load_dwordx16 s[16:31], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s4, 0
    s_cbranch_scc0 .Lend_of_copy
    s_mov_b64 exec, 1
    v_mov_b32 v1, 0
""" + "\n".join(
    f"v_mov_b32 v2, s{register}\nglobal_store_dword v1, v2, s[6:7] offset:{4 * place}"
    for place, register in enumerate([*range(16, 32), 2, 3])
) + "\n.Lend_of_copy:"  # fmt: skip

BOTH = "dispatch_ptr kernarg_segment_ptr"


def launch(body: str, entry: str, *, scratch: int = 0, **options: Any) -> tuple[np.ndarray, Any]:
    kernel = build(body, "out", entry=entry, sgprs=40, lds=256)
    kernel.info = dataclasses.replace(kernel.info, scratch_size=scratch)
    out = np.zeros(32, np.uint32)
    return out, kernel.launch({"out": out}, **{"grid": 1, "block": 64, **options})


@pytest.mark.parametrize(
    ("grid", "block", "checks"), [((3, 2, 5), (32, 4, 2), "bounds"), ((3, 1, 1), (64, 1, 1), "all")]
)
def test_every_field_of_the_dispatch_packet(grid: tuple[int, ...], block: tuple[int, ...], checks: str) -> None:
    """hsa_kernel_dispatch_packet_t of the HSA Runtime Programmer's Reference Manual."""
    out, result = launch(COPY, BOTH, scratch=24, grid=grid, block=block, dynamic_lds=1024, checks=checks)
    fields = struct.unpack("<6H5I4Q", out[:16].tobytes())
    header, setup, x, y, z, _, *items, private, group, kernel_object, kernarg, _, signal = fields
    assert header & 0xFF == 2  # HSA_PACKET_TYPE_KERNEL_DISPATCH
    assert setup & 3 == 3  # dimensions
    assert (x, y, z) == block
    assert items == [groups * size for groups, size in zip(grid, block, strict=True)]
    assert (private, group) == (24, 256 + 1024)
    assert kernarg == int(out[16]) | int(out[17]) << 32
    assert (kernel_object, signal) == (0, 0)
    assert result.findings == ()


def test_the_packet_is_aligned_as_in_a_queue() -> None:
    body = "s_load_dwordx2 s[6:7], s[2:3], 0x0\n v_mov_b32 v1, 0\n v_mov_b32 v2, s0\n s_waitcnt lgkmcnt(0)\n"
    for _ in range(4):
        out, _ = launch(body + "global_store_dword v1, v2, s[6:7]", BOTH)
        assert out[0] % 64 == 0


def test_reading_past_the_packet_is_noticed() -> None:
    _, result = launch("s_load_dword s8, s[0:1], 0x40\n s_waitcnt lgkmcnt(0)", BOTH)
    (finding,) = result.findings
    assert "0 bytes past the end of dispatch packet (64 bytes)" in finding.message


def test_the_packet_cannot_be_written() -> None:
    with pytest.raises(MemoryFaultError, match=r"at byte 4 of dispatch packet \(64 bytes\), which is read-only"):
        launch("v_mov_b32 v1, 0\n v_mov_b32 v2, 0\n global_store_dword v1, v2, s[0:1] offset:4", BOTH)


def test_a_queue_that_is_read_ends_the_run() -> None:
    """Compilers ask for its address and mostly do nothing with it."""
    entry = "queue_ptr kernarg_segment_ptr"
    launch("s_nop 0", entry)
    with pytest.raises(MemoryFaultError, match=r"s_load_dword s8, s\[0:1\].*reads 4 bytes at 0x8:"):
        launch("s_load_dword s8, s[0:1], 0x8\n s_waitcnt lgkmcnt(0)", entry)


def test_dispatches_are_counted_from_0() -> None:
    """One launch is the first packet of its queue; the id comes after the arguments' address."""
    body = "s_load_dwordx2 s[6:7], s[0:1], 0x0\n v_mov_b32 v1, 0\n v_mov_b32 v2, s2\n v_or_b32 v2, s3, v2\n"
    out, _ = launch(
        body + "s_waitcnt lgkmcnt(0)\n v_not_b32 v2, v2\n global_store_dword v1, v2, s[6:7]",
        "kernarg_segment_ptr dispatch_id",
    )
    assert out[0] == 0xFFFFFFFF


@pytest.mark.parametrize("state", ["private_segment_buffer", "flat_scratch_init", "workgroup_info"])
def test_what_there_is_not_is_refused_by_name(state: str) -> None:
    kernel = build("s_nop 0", "out")
    descriptor = type(kernel.info.descriptor)({**kernel.info.descriptor.fields, f"enable_sgpr_{state}": 1})
    kernel.info = dataclasses.replace(kernel.info, descriptor=descriptor)
    with pytest.raises(EmulationError, match=f"entry state sgpr_{state}"):
        kernel.launch({"out": np.zeros(4, np.uint32)}, grid=1, block=64)
