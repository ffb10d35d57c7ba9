"""Running a captured launch again, on the captured memory, and comparing what it leaves with what the GPU left."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asmlaunch.abi.arguments import Buffer
from asmlaunch.capture.model import CapturedLaunch, Memory
from asmlaunch.devices import Device, select
from asmlaunch.errors import DumpError


@dataclass(frozen=True)
class Replay:
    """How a replay compares with what was captured.

    Attributes:
        device: where it ran.
        compared: bytes compared.
        different: bytes that differ.
        written: bytes that the captured launch changed.
        first: address and offset, in its allocation, of the first difference; None without one.
        findings: what the device noticed.
        left: what each allocation holds now, in the capture's order.
    """

    device: str
    compared: int
    different: int
    written: int
    first: tuple[int, int] | None
    findings: tuple[str, ...]
    left: tuple[np.ndarray, ...] = field(default=(), repr=False, compare=False)

    @property
    def equal(self) -> bool:
        """Whether every byte of the captured memory is as the GPU left it."""
        return self.compared > 0 and not self.different


def replay(launch: CapturedLaunch, device: str | Device | None = None, **options: Any) -> Replay:
    """Run a captured launch on copies of its memory.

    Pointers in the argument bytes that lie in a captured allocation are moved to its copy; every other byte is passed
    as it was captured.

    Args:
        device: as for :func:`asmlaunch.load`; a GPU must be able to use host memory by its address.
        options: launch options of the device.

    Raises:
        DumpError: no code object, argument bytes or memory in the capture, or only a part of an allocation.
    """
    if launch.kernarg is None:
        raise DumpError(
            f"launch of {launch.kernel or 'an unknown kernel'}", got="no argument bytes: their sizes were not known"
        )
    if not launch.memory:
        raise DumpError(
            f"launch of {launch.kernel or 'an unknown kernel'}",
            got="no memory in the capture",
            hint="capture with --memory to replay it",
        )
    copies = [_copy(memory) for memory in launch.memory]
    buffers = [
        Buffer(f"allocation {index}", copy.ctypes.data, copy.nbytes, True, copy) for index, copy in enumerate(copies)
    ]
    chosen = select(launch.code_object, device)
    result = chosen.launch(
        launch.info,
        launch.code_object,
        _moved(launch.kernarg, launch.memory, copies),
        grid=launch.grid,
        block=launch.block,
        dynamic_lds=launch.dynamic_lds,
        buffers=buffers,
        **options,
    )
    compared = different = written = 0
    first = None
    for memory, copy in zip(launch.memory, copies, strict=True):
        if memory.after is None or memory.before is None:
            continue
        after, before = (np.frombuffer(data, np.uint8) for data in (memory.after, memory.before))
        unequal = np.flatnonzero(copy != after)
        compared += after.size
        written += int(np.count_nonzero(after != before))
        different += unequal.size
        if unequal.size and first is None:
            first = memory.address, int(unequal[0])
    return Replay(result.device, compared, different, written, first, tuple(map(str, result.findings)), tuple(copies))


def _copy(memory: Memory) -> np.ndarray:
    if memory.before is None or len(memory.before) < memory.size:
        held = 0 if memory.before is None else len(memory.before)
        raise DumpError(
            f"allocation at {memory.address:#x}",
            got=f"{held} of {memory.size} bytes",
            hint="capture with a larger --memory",
        )
    # Allocations of a GPU are aligned to far more than numpy's arrays: kernels may count on it.
    room = np.zeros(memory.size + 256, np.uint8)
    start = -room.ctypes.data % 256
    copy = room[start : start + memory.size]
    copy[:] = np.frombuffer(memory.before, np.uint8)
    return copy


def _moved(kernarg: bytes, memory: tuple[Memory, ...], copies: list[np.ndarray]) -> bytes:
    """Argument bytes whose pointers into captured allocations point into the copies."""
    moved = bytearray(kernarg)
    offset = 0
    while offset + 8 <= len(kernarg):
        (address,) = struct.unpack_from("<Q", kernarg, offset)
        found = next((i for i, m in enumerate(memory) if m.address <= address < m.address + m.size), None)
        if found is None:
            offset += 4
            continue
        struct.pack_into("<Q", moved, offset, address - memory[found].address + copies[found].ctypes.data)
        offset += 8
    return bytes(moved)
