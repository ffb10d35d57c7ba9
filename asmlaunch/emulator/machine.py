"""Running a grid of workgroups: their state at entry, the schedule, the threads, and what is reported afterwards."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from asmlaunch.abi.arguments import Buffer
from asmlaunch.codeobject import KernelInfo
from asmlaunch.devices.base import Dim3, Finding
from asmlaunch.emulator.compile import CompiledKernel
from asmlaunch.emulator.decode import EXEC
from asmlaunch.emulator.native.waves import run_waves
from asmlaunch.emulator.report import explain
from asmlaunch.emulator.state import GROUP, LANES, RECORD, REGION, WAVE, Status, aligned
from asmlaunch.errors import EmulationError, InstructionBudgetError, LaunchError

#: Wave-instructions a wave may execute before the run is called endless; the longest real kernels need a few million.
MAX_INSTRUCTIONS = 1_000_000_000


@dataclass(frozen=True)
class Schedule:
    """How the waves of a workgroup take turns.

    Attributes:
        waits: whether a wave may stop at ``s_waitcnt`` too, and not only at branches and barriers.
        quantum: blocks a wave runs before the next one's turn.
    """

    waits: bool
    quantum: int


SCHEDULES = {
    "barrier": Schedule(waits=False, quantum=2**31 - 1),  # each wave to its next barrier: fastest
    "lockstep": Schedule(waits=True, quantum=1),  # all waves advance together, as on the hardware
}


@dataclass(frozen=True)
class Run:
    """What a finished run gives: wave-instructions executed, and findings."""

    instructions: int
    findings: tuple[Finding, ...]


@dataclass
class _Job:
    """What all workers of a run share."""

    compiled: CompiledKernel
    schedule: Schedule
    grid: Dim3
    block: Dim3
    lds_size: int
    kernarg: NDArray[np.uint8]
    regions: NDArray[np.void]
    budget: int
    stop: NDArray[np.int32]
    groups: itertools.count[int]


def run(
    compiled: CompiledKernel,
    kernarg: bytes,
    *,
    grid: Dim3,
    block: Dim3,
    dynamic_lds: int,
    buffers: Sequence[Buffer],
    schedule: str,
    max_instructions: int = MAX_INSTRUCTIONS,
    threads: int | None = None,
) -> Run:
    """Execute every workgroup of ``grid``, x fastest.

    Args:
        threads: workgroups in flight; None takes one a core, or one in all where the kernel has memory atomics, so that
            results do not depend on timing.

    Raises:
        EmulationError: a write outside the buffers, a wild read, an instruction budget used up.
    """
    memory = aligned(max(len(kernarg), 1))
    memory[: len(kernarg)] = np.frombuffer(kernarg, np.uint8)
    kernarg_buffer = Buffer("kernarg", memory.ctypes.data, len(kernarg), False, memory)
    known = (*buffers, kernarg_buffer)
    job = _Job(
        compiled, SCHEDULES[schedule], grid, block, compiled.kernel.lds_size + dynamic_lds, memory, _regions(known),
        max_instructions, np.zeros(1, np.int32), itertools.count(),
    )  # fmt: skip
    if threads is None:
        threads = 1 if compiled.atomics else cores()
    workers = [_Worker(job) for _ in range(min(threads, max(1, grid[0] * grid[1] * grid[2])))]
    _run_all(workers, job)
    _raise_failures(workers, job)
    records = [worker.records for worker in workers]
    return Run(sum(worker.executed for worker in workers), explain(compiled, records, known))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _regions(buffers: Sequence[Buffer]) -> NDArray[np.void]:
    regions = np.zeros(max(1, len(buffers)), REGION)
    for region, buffer in zip(regions, buffers, strict=False):
        region["start"], region["end"] = buffer.address, buffer.address + buffer.nbytes
        region["writable"] = buffer.writable
    return regions


def _run_all(workers: Sequence[_Worker], job: _Job) -> None:
    """Run the workers on threads of their own: this one stays free for Ctrl-C."""
    threads = [threading.Thread(target=worker.work, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except BaseException:
        job.stop[0] = 1
        for thread in threads:
            thread.join()
        raise


def _raise_failures(workers: Sequence[_Worker], job: _Job) -> None:
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    name = job.compiled.kernel.name
    for worker in workers:
        if worker.status == Status.BUDGET:
            wave = next(wave for wave in worker.waves if wave["status"] == Status.BUDGET)
            address = job.compiled.program.blocks[int(wave["block"])].address
            raise InstructionBudgetError(
                f"kernel {name}: wave {wave['id']} of workgroup {tuple(map(int, wave['group_id']))} near {address:#x}",
                got=f"more than {job.budget:,} instructions",
                hint="most likely an endless loop: check the sizes it was given, or raise max_instructions",
            )


class _Worker:
    """One thread: it takes workgroups one after the other and runs them to their end."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self.executed = 0
        self.status = Status.ENDED
        self.error: BaseException | None = None
        items = job.block[0] * job.block[1] * job.block[2]
        count = -(-items // LANES)
        self._memory = aligned(count * WAVE.itemsize)
        self.waves = self._memory.view(WAVE)
        self._group = np.zeros(1, GROUP)
        self._lds = aligned(job.lds_size + 64)
        self.records = np.zeros(max(1, len(job.compiled.program.accesses)), RECORD)
        first = self.waves.ctypes.data
        self._pointers = np.array([first + number * WAVE.itemsize for number in range(count)], np.uint64)

    def work(self) -> None:
        """Thread body."""
        try:
            self._work()
        except BaseException as error:  # handed to the thread that waits
            self.error = error
            self._job.stop[0] = 1

    def _work(self) -> None:
        job = self._job
        native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)(
            run_waves()
        )
        x, y, z = job.grid
        for number in job.groups:
            if number >= x * y * z or job.stop[0]:
                return
            self._enter((number % x, number // x % y, number // (x * y)))
            self.status = Status(
                native(
                    self._pointers.ctypes.data,
                    len(self._pointers),
                    job.compiled.table.ctypes.data,
                    job.schedule.quantum,
                )
            )
            self.executed += int(self.waves["executed"].sum())
            if self.status is not Status.ENDED:
                job.stop[0] = 1
                return

    def _enter(self, group: Dim3) -> None:
        """The state of a workgroup's waves at entry (LLVM AMDGPU usage, "Initial Kernel Execution State")."""
        job, waves = self._job, self.waves
        self._memory[:] = 0
        self._lds[:] = 0
        self._group["waiting"], self._group["alive"] = 0, len(waves)
        waves["budget"] = job.budget
        waves["group"] = self._group.ctypes.data
        waves["lds"], waves["lds_size"] = self._lds.ctypes.data, job.lds_size
        waves["regions"], waves["region_count"] = job.regions.ctypes.data, len(job.regions)
        waves["records"] = self.records.ctypes.data
        waves["stop"] = job.stop.ctypes.data
        waves["id"] = np.arange(len(waves))
        waves["group_id"] = group
        for number, value in enumerate(entry_sgprs(job.compiled.kernel, job.kernarg, group)):
            waves["sgpr"][:, number] = value
        items = np.arange(len(waves) * LANES)
        size_x, size_y, size_z = job.block
        x, y, z = items % size_x, items // size_x % size_y, items // (size_x * size_y)
        waves["vgpr"][:, 0] = (x | y << 10 | z << 20).reshape(-1, LANES)
        active = (items < size_x * size_y * size_z).reshape(-1, LANES)
        waves["sgpr"][:, EXEC : EXEC + 2] = np.packbits(active, axis=1, bitorder="little").view(np.uint32)


def entry_sgprs(kernel: KernelInfo, kernarg: NDArray[np.uint8], group: Dim3) -> list[int]:
    """User and system SGPRs at entry, in order.

    Raises:
        EmulationError: the kernel asks for state that the emulator does not provide.
    """
    descriptor = kernel.descriptor
    for flag in (
        "enable_sgpr_private_segment_buffer", "enable_sgpr_dispatch_ptr", "enable_sgpr_queue_ptr",
        "enable_sgpr_dispatch_id", "enable_sgpr_flat_scratch_init", "enable_sgpr_private_segment_size",
        "enable_private_segment", "enable_sgpr_workgroup_info",
    ):  # fmt: skip
        if getattr(descriptor, flag):
            raise EmulationError(
                f"kernel {kernel.name}: entry state {flag.removeprefix('enable_')}",
                hint="the emulator does not provide it; run the kernel on a GPU",
            )
    values: list[int] = []
    if descriptor.enable_sgpr_kernarg_segment_ptr:
        address = kernarg.ctypes.data
        values += [address & 0xFFFFFFFF, address >> 32]
    first = 4 * descriptor.kernarg_preload_spec_offset
    preloaded = kernarg[first : first + 4 * descriptor.kernarg_preload_spec_length].tobytes()
    values += np.frombuffer(preloaded + bytes(-len(preloaded) % 4), np.uint32).tolist()
    if len(values) > descriptor.user_sgpr_count:
        raise EmulationError(
            f"user SGPRs of kernel {kernel.name}", got=descriptor.user_sgpr_count, need=f"at least {len(values)}"
        )
    values += [0] * (descriptor.user_sgpr_count - len(values))
    for axis, number in zip("xyz", group, strict=True):
        if getattr(descriptor, f"enable_sgpr_workgroup_id_{axis}"):
            values.append(number)
    return values


def check_launch(kernel: KernelInfo, grid: Dim3, block: Dim3, dynamic_lds: int, lds_limit: int) -> None:
    """Refuse what no device could launch.

    Raises:
        LaunchError: a dimension that is not positive, a block larger than the kernel allows, too much LDS.
    """
    if min(block) < 1 or min(grid) < 0:
        raise LaunchError("launch size", got=f"grid {grid}, block {block}", need="block at least 1, grid at least 0")
    items = block[0] * block[1] * block[2]
    if items > kernel.max_workgroup_size:
        raise LaunchError(
            f"block of kernel {kernel.name}",
            got=f"{block}: {items} work-items",
            need=f"at most {kernel.max_workgroup_size}",
        )
    if max(block) > 1024:
        raise LaunchError(f"block of kernel {kernel.name}", got=block, need="at most 1024 in each dimension")
    for axis, (groups, size) in enumerate(zip(grid, block, strict=True)):
        if groups * size >= 2**32:
            raise LaunchError(f"grid x block in {'xyz'[axis]}", got=groups * size, need="less than 2^32 work-items")
    total = kernel.lds_size + dynamic_lds
    if dynamic_lds < 0 or total > lds_limit:
        raise LaunchError(
            f"LDS of kernel {kernel.name}", got=f"{kernel.lds_size} static + {dynamic_lds} dynamic bytes",
            need=f"at most {lds_limit} in all on {kernel.target.processor}",
        )  # fmt: skip
