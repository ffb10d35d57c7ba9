"""The shadow of one run: laid out before it, read afterwards."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from asmlaunch.abi.arguments import Buffer
from asmlaunch.codeobject import KernelInfo
from asmlaunch.devices.base import Dim3, Finding
from asmlaunch.emulator.checks.explain import explain_found
from asmlaunch.emulator.checks.plan import Plan
from asmlaunch.emulator.checks.state import ALL_LANES, ENTRIES, FOUND, GROUP_SHADOW, REGION_SHADOW, SHADOW, Kind
from asmlaunch.emulator.state import aligned

_ALL_BYTES = 15  # of a dword, in the bits of an entry that say which are undefined


class Monitor:
    """What the workers of a run share: the shadow of the arrays.

    Args:
        plan: what was compiled in.
        buffers: all the memory the kernel may touch; the argument segment is the last.
        outputs: names of buffers that hold nothing yet.
        unset: ranges of argument bytes that the caller has not set.
        user_sgprs: SGPRs that hold arguments or pointers at entry.
        group_sgprs: first SGPR that holds the workgroup's number, and the one after the last.
    """

    def __init__(
        self, plan: Plan, kernel: KernelInfo, buffers: Sequence[Buffer], *, outputs: Collection[str],
        unset: Sequence[tuple[int, int]], grid: Dim3, user_sgprs: int, group_sgprs: tuple[int, int],
    ) -> None:  # fmt: skip
        self.plan, self._kernel, self._buffers, self._grid = plan, kernel, tuple(buffers), grid
        self._user_sgprs, self._group_sgprs = user_sgprs, group_sgprs
        self._entries: list[NDArray[np.void]] = []
        self._constant = _constant(kernel, buffers[-1])
        self.regions = np.zeros(len(buffers), REGION_SHADOW)
        for region, buffer in zip(self.regions, buffers, strict=True):
            region["start"], region["end"] = buffer.address, buffer.address + buffer.nbytes
            entries = self._entries_of(buffer, buffer.name in outputs)
            if buffer is buffers[-1] and unset and plan.definedness:
                entries = self._new_entries(buffer)
                self._mark_unset(entries, buffer, unset)
            if entries is not None:
                self._entries.append(entries)
                region["entries"] = entries.ctypes.data

    def _entries_of(self, buffer: Buffer, empty: bool) -> NDArray[np.void] | None:
        if not buffer.writable or not buffer.nbytes or buffer.address in self._constant:
            return None
        empty = empty and "uninitialised" in self.plan.checks
        if not empty and "races" not in self.plan.checks:
            return None
        entries = self._new_entries(buffer)
        if empty:
            entries["bits"] = _ALL_BYTES
        return entries

    def _new_entries(self, buffer: Buffer) -> NDArray[np.void]:
        first, last = buffer.address // 4, (buffer.address + max(buffer.nbytes, 1) - 1) // 4
        return np.zeros((last - first) // 4 + 1, ENTRIES)

    def _mark_unset(self, entries: NDArray[np.void], buffer: Buffer, unset: Sequence[tuple[int, int]]) -> None:
        shift = buffer.address % 4
        for start, end in unset:
            for byte in range(max(0, start), min(end, buffer.nbytes)):
                dword = (byte + shift) // 4
                entries["bits"][dword // 4, dword % 4] |= 1 << (byte + shift) % 4

    def worker(self, groups: int, group_waves: int, lds_size: int) -> WorkerShadow:
        """The shadow of one thread's waves."""
        return WorkerShadow(self, groups, group_waves, lds_size)

    def fresh_wave(self) -> NDArray[np.void]:
        """A wave's shadow at entry, without its pointers: the registers that the launch sets are defined."""
        wave = np.zeros(1, SHADOW)
        first, last = self._group_sgprs
        wave["sgpr"][0, : self._user_sgprs] = 0xFFFFFFFF
        wave["sgpr"][0, first:last] = 0xFFFFFFFF
        wave["vgpr"][0, 0] = ALL_LANES
        wave["regions"], wave["region_count"] = self.regions.ctypes.data, len(self.regions)
        return wave

    def findings(self, workers: Sequence[WorkerShadow]) -> list[Finding]:
        """What the workers have found, in order of address."""
        return explain_found(self.plan, self._kernel, [worker.found for worker in workers], self._buffers, self._grid)


def _constant(kernel: KernelInfo, kernarg: Buffer) -> set[int]:
    """Addresses of arrays that all the arguments which point to them are declared only to read: no race is in them."""
    data = ctypes.string_at(kernarg.address, kernarg.nbytes)
    constant: set[int] = set()
    written: set[int] = set()
    for argument in kernel.arguments:
        if argument.is_pointer and argument.size == 8:
            address = int.from_bytes(data[argument.offset : argument.offset + 8], "little")
            only_read = argument.is_const or argument.access == "read_only"
            (constant if only_read else written).add(address)
    return constant - written


class WorkerShadow:
    """The shadow of the waves and workgroups that one thread has resident.

    Attributes:
        pointers: the address of each wave's shadow, for the waves' ``shadow`` field.
        found: what was found, one row an instruction and kind.
    """

    def __init__(self, monitor: Monitor, groups: int, group_waves: int, lds_size: int) -> None:
        plan, grid = monitor.plan, monitor._grid
        self.found = np.zeros(max(1, len(plan.instructions)) * len(Kind), FOUND)
        count = groups * group_waves
        self._memory = aligned(2 * count * SHADOW.itemsize)
        waves, fresh = self._memory.view(SHADOW)[:count], self._memory.view(SHADOW)[count:]
        self._lds = np.zeros((groups, lds_size // 16 + 1), ENTRIES)
        self._fresh_lds = np.zeros(lds_size // 16 + 1, ENTRIES)
        if "uninitialised" in plan.checks:
            self._fresh_lds["bits"] = _ALL_BYTES
        self._groups = np.zeros(groups, GROUP_SHADOW)
        self._groups["grid_x"], self._groups["grid_y"] = grid[:2]
        self._groups["fresh"] = self._fresh_lds.ctypes.data
        self._lds[:] = self._fresh_lds
        self._groups["lds"] = self._lds.ctypes.data + np.arange(groups) * self._lds.strides[0]
        fresh[:] = monitor.fresh_wave()
        fresh["found"] = self.found.ctypes.data
        fresh["group"] = self._groups.ctypes.data + np.arange(count) // group_waves * GROUP_SHADOW.itemsize
        fresh["fresh"] = fresh.ctypes.data + np.arange(count) * SHADOW.itemsize
        waves[:] = fresh
        self.pointers = waves.ctypes.data + np.arange(count, dtype=np.uint64) * SHADOW.itemsize
