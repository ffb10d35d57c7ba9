"""Running a grid of workgroups: their state at entry, the schedule, the threads, and what is reported afterwards."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.abi.arguments import Buffer
from asmlaunch.codeobject import KernelInfo
from asmlaunch.devices.base import Dim3, Finding
from asmlaunch.emulator.checks.monitor import Monitor
from asmlaunch.emulator.debug import Stepper
from asmlaunch.emulator.decode import EXEC
from asmlaunch.emulator.native.waves import run_grid
from asmlaunch.emulator.prepare import CompiledKernel
from asmlaunch.emulator.report import explain
from asmlaunch.emulator.schedule import Schedule
from asmlaunch.emulator.state import ENTRY_BYTES, GROUP, LANES, RECORD, REGION, WAVE, WORKER, Pool, Status, aligned
from asmlaunch.errors import EmulationError, InstructionBudgetError, LaunchError

#: Wave-instructions a wave may execute before the run is called endless; the longest real kernels need a few million.
MAX_INSTRUCTIONS = 1_000_000_000


@dataclass(frozen=True)
class Run:
    """What a finished run gives.

    Attributes:
        instructions: wave-instructions executed.
        findings: what was noticed.
        counts: how often each block of the program ran.
    """

    instructions: int
    findings: tuple[Finding, ...]
    counts: NDArray[np.uint64]


@dataclass
class Job:
    """What all workers of a run share."""

    compiled: CompiledKernel
    schedule: Schedule
    grid: Dim3
    block: Dim3
    lds_size: int
    kernarg: NDArray[np.uint8]
    packet: NDArray[np.void]
    regions: NDArray[np.void]
    budget: int
    stop: NDArray[np.int32]
    next_group: NDArray[np.int64]
    resident: int
    monitor: Monitor | None
    stepper: Stepper | None


def run(
    compiled: CompiledKernel,
    kernarg: bytes,
    *,
    grid: Dim3,
    block: Dim3,
    dynamic_lds: int,
    buffers: Sequence[Buffer],
    schedule: Schedule,
    max_instructions: int = MAX_INSTRUCTIONS,
    threads: int | None = None,
    resident: int = 1,
    outputs: Collection[str] = (),
    unset: Sequence[tuple[int, int]] = (),
    stepper: Stepper | None = None,
    noticed: Sequence[Finding] = (),
) -> Run:
    """Execute every workgroup of ``grid``; their numbers count x fastest.

    Args:
        schedule: their order, and how waves take turns.
        threads: workgroups in flight; None takes one a core, or one in all where the kernel has memory atomics or the
            schedule is random, so that results do not depend on timing.
        resident: workgroups alive at once on a thread, taking turns: kernels that wait for other workgroups need them.
        outputs: names of buffers that hold nothing yet, for the check "uninitialised".
        unset: ranges of argument bytes that the caller has not set, for the check "kernarg".
        stepper: what is wanted of a run step by step (``emulator.debug``): one workgroup after the other.
        noticed: findings from before the run, which come last.

    Raises:
        EmulationError: a write outside the buffers, a wild read, an instruction budget used up; with the findings.
    """
    memory = aligned(max(len(kernarg), 1))
    memory[: len(kernarg)] = np.frombuffer(kernarg, np.uint8)
    kernarg_buffer = Buffer("kernarg", memory.ctypes.data, len(kernarg), False, memory)
    packet = dispatch_packet(compiled.kernel, memory, grid, block, dynamic_lds)
    packet_buffer = Buffer("dispatch packet", packet.ctypes.data, packet.nbytes, False, packet)
    asked = compiled.kernel.descriptor.enable_sgpr_dispatch_ptr
    known = (*buffers, *((packet_buffer,) if asked else ()), kernarg_buffer)
    monitor = _monitor(compiled, known, memory, grid, outputs, unset)
    job = Job(
        compiled, schedule, grid, block, compiled.kernel.lds_size + dynamic_lds, memory, packet, _regions(known),
        max_instructions, np.zeros(1, np.int32), np.zeros(1, np.int64), 1 if stepper else resident,
        monitor, stepper,
    )  # fmt: skip
    if stepper:
        threads = 1
    elif threads is None:
        # The shadow of memory is one for all threads, and nothing orders their accesses to it.
        threads = 1 if compiled.atomics or monitor or schedule.random else cores()
    workers = [Worker(job) for _ in range(min(threads, max(1, grid[0] * grid[1] * grid[2])))]
    _run_all(workers, job)
    try:
        failures = _failures(workers, job)
    finally:
        for worker in workers:
            worker.release()
    counts = np.array([worker.counts for worker in workers]).sum(axis=0, dtype=np.uint64)
    findings, faults = explain(compiled, [worker.records for worker in workers], known)
    if monitor:
        findings += monitor.findings([worker.shadow for worker in workers if worker.shadow])
    failures += faults
    findings += [Finding("fault", str(failure), "error", compiled.kernel.name) for failure in failures[1:]]
    findings += noticed
    if failures:
        failures[0].findings = tuple(findings)
        raise failures[0]
    return Run(sum(worker.executed for worker in workers), tuple(findings), counts)


def _monitor(
    compiled: CompiledKernel, known: Sequence[Buffer], kernarg: NDArray[np.uint8], grid: Dim3, outputs: Collection[str],
    unset: Sequence[tuple[int, int]],
) -> Monitor | None:  # fmt: skip
    """What the checks keep of the run; None without any."""
    if compiled.plan is None:
        return None
    kernel = compiled.kernel
    first = kernel.descriptor.user_sgpr_count
    last = first + sum(register >= 0 for register in entry_group_sgprs(kernel).values())
    return Monitor(
        compiled.plan, kernel, known, outputs=outputs, unset=unset, grid=grid,
        user_sgprs=len(entry_sgprs(kernel, kernarg, kernarg)), group_sgprs=(first, last),
    )  # fmt: skip


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _regions(buffers: Sequence[Buffer]) -> NDArray[np.void]:
    regions = np.zeros(max(1, len(buffers)), REGION)
    for region, buffer in zip(regions, buffers, strict=False):
        region["start"], region["end"] = buffer.address, buffer.address + buffer.nbytes
        region["writable"] = buffer.writable
    return regions


def _run_all(workers: Sequence[Worker], job: Job) -> None:
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


def _failures(workers: Sequence[Worker], job: Job) -> list[EmulationError]:
    """Why workers stopped before their end, but for what is in their records of memory.

    Raises:
        What a worker has raised.
    """
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    name, found = job.compiled.kernel.name, list[EmulationError]()
    for worker in workers:
        if worker.status == Status.LOST:
            wave = next(wave for wave in worker.waves if wave["status"] == Status.LOST)
            jump = job.compiled.program.blocks[int(wave["block"])].instructions[-1]
            what = (
                f"kernel {name} at {jump.address:#x} `{jump.text}`: wave {wave['id']} of workgroup "
                f"{tuple(map(int, wave['group_id']))} jumps to where no code is known"
            )
            hint = "the emulator follows calls whose addresses are made from s_getpc_b64 and constants"
            found.append(EmulationError(what, hint=hint))
        if worker.status == Status.BUDGET:
            wave = next(wave for wave in worker.waves if wave["status"] == Status.BUDGET)
            address = job.compiled.program.blocks[int(wave["block"])].address
            group = tuple(map(int, wave["group_id"]))
            what = f"kernel {name}: wave {wave['id']} of workgroup {group} near {address:#x}"
            hint = "most likely an endless loop: check the sizes it was given, or raise max_instructions"
            found.append(InstructionBudgetError(what, got=f"more than {job.budget:,} instructions", hint=hint))
    return found


#: The part of a wave that is set at entry: all but the VGPRs, and v0.
_ENTRY = np.dtype([*(field for field in WAVE.descr if field[0] != "vgpr"), ("v0", "u4", LANES)])

#: Waves and LDS of workers, between launches.
_POOL = Pool(keep=2 * cores())


class Worker:
    """One thread: it takes workgroups one after the other and runs them to their end."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.executed = 0
        self.status = Status.ENDED
        self.error: BaseException | None = None
        group_waves = -(-job.block[0] * job.block[1] * job.block[2] // LANES)
        count = job.resident * group_waves
        self._lds_stride = -(-(job.lds_size + 64) // 64) * 64
        lds_bytes = job.resident * self._lds_stride
        self._memory = _POOL.take(count * WAVE.itemsize + lds_bytes)
        self.waves = self._memory[: count * WAVE.itemsize].view(WAVE)
        self._lds = self._memory[count * WAVE.itemsize :]
        self._scratch = np.zeros((count, LANES * job.compiled.kernel.scratch_size), np.uint8)
        self.records = np.zeros(max(1, len(job.compiled.program.accesses)), RECORD)
        self.counts = np.zeros(len(job.compiled.program.blocks), np.uint64)
        self._groups = np.zeros(job.resident, GROUP)
        self._pointers = self.waves.ctypes.data + np.arange(count, dtype=np.uint64) * WAVE.itemsize
        self.shadow = job.monitor.worker(job.resident, group_waves, job.lds_size) if job.monitor else None
        self._entry = self._entry_states(group_waves)

    def release(self) -> None:
        """Give the memory back; the waves are gone then."""
        _POOL.give(self._memory)

    def work(self) -> None:
        """Thread body."""
        try:
            self._work()
        except BaseException as error:  # handed to the thread that waits
            self.error = error
            self._job.stop[0] = 1

    def enter(self, group: Dim3) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Put the waves of the first resident workgroup into their state at entry, as workgroup ``group``.

        Returns:
            The waves, and the workgroup's record.
        """
        count = len(self.waves) // self._job.resident
        waves, entry = self.waves[:count], self._entry[: count * ENTRY_BYTES].reshape(count, ENTRY_BYTES)
        waves.view(np.uint8).reshape(count, WAVE.itemsize)[:, ENTRY_BYTES:] = 0
        waves.view(np.uint8).reshape(count, WAVE.itemsize)[:, :ENTRY_BYTES] = entry
        self._lds[: self._lds_stride] = 0
        self._scratch[:count] = 0
        self._groups[0] = (0, count)
        waves["group_id"] = group
        for axis, register in enumerate(entry_group_sgprs(self._job.compiled.kernel).values()):
            if register >= 0:
                waves["sgpr"][:, register] = group[axis]
        return waves, self._groups[:1]

    @property
    def lds(self) -> NDArray[np.uint8]:
        """The first resident workgroup's LDS."""
        return self._lds[: self._job.lds_size]

    def _work(self) -> None:
        job, program = self._job, self._job.compiled.program
        if job.stepper is not None:
            self.status = job.stepper.run(self, job)
            self.executed = job.stepper.executed
            return
        state = np.zeros(1, WORKER)
        state["next"], state["total"] = job.next_group.ctypes.data, job.grid[0] * job.grid[1] * job.grid[2]
        state["waves"], state["entry"] = self._pointers.ctypes.data, self._entry.ctypes.data
        state["groups"], state["table"] = self._groups.ctypes.data, job.compiled.table.ctypes.data
        state["lds"], state["lds_stride"] = self._lds.ctypes.data, self._lds_stride
        state["stop"] = job.stop.ctypes.data
        state["resident"], state["group_waves"] = job.resident, len(self.waves) // job.resident
        state["quantum"], state["random"] = job.schedule.quantum, job.schedule.random
        state["first"], state["step"] = job.schedule.order(int(state["total"][0]))
        state["grid_x"], state["grid_y"] = job.grid[:2]
        state["vgprs"], state["agprs"] = program.vgprs, program.agprs
        for axis, register in entry_group_sgprs(job.compiled.kernel).items():
            state[f"sgpr_{axis}"] = register
        native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(run_grid())
        self.status = Status(native(state.ctypes.data))
        self.executed = int(state["executed"][0])
        if self.status is not Status.ENDED:
            job.stop[0] = 1

    def _entry_states(self, group_waves: int) -> NDArray[np.uint8]:
        """The state of all waves at entry, but for the workgroup's number (LLVM AMDGPU usage, "Initial Kernel Execution
        State").
        """
        job = self._job
        states = aligned(len(self.waves) * ENTRY_BYTES)
        waves = states.view(_ENTRY)
        slot, member = np.divmod(np.arange(len(waves)), group_waves)
        if job.schedule.backwards:
            member = group_waves - 1 - member
        waves["budget"] = job.budget
        waves["group"] = self._groups.ctypes.data + slot * GROUP.itemsize
        waves["lds"], waves["lds_size"] = self._lds.ctypes.data + slot * self._lds_stride, job.lds_size
        waves["regions"], waves["region_count"] = job.regions.ctypes.data, len(job.regions)
        waves["records"] = self.records.ctypes.data
        waves["counts"] = self.counts.ctypes.data
        waves["scratch"] = self._scratch.ctypes.data + np.arange(len(waves)) * self._scratch.strides[0]
        waves["scratch_size"] = job.compiled.kernel.scratch_size
        waves["stop"] = job.stop.ctypes.data
        if self.shadow:
            waves["shadow"] = self.shadow.pointers
        waves["id"] = member
        for number, value in enumerate(entry_sgprs(job.compiled.kernel, job.kernarg, job.packet)):
            waves["sgpr"][:, number] = value
        items = (member[:, None] * LANES + np.arange(LANES)).astype(np.uint32)
        size_x, size_y, size_z = job.block
        x, y, z = items % size_x, items // size_x % size_y, items // (size_x * size_y)
        waves["v0"] = x | y << 10 | z << 20
        active = items < size_x * size_y * size_z
        waves["sgpr"][:, EXEC : EXEC + 2] = np.packbits(active, axis=1, bitorder="little").view(np.uint32)
        return states


#: A dispatch packet (HSA Platform System Architecture Specification, "Kernel dispatch packet").
PACKET = np.dtype(
    [
        ("header", "u2"), ("dimensions", "u2"), ("block", "u2", 3), ("reserved", "u2"), ("work_items", "u4", 3),
        ("private_size", "u4"), ("group_size", "u4"), ("kernel", "u8"), ("kernarg", "u8"), ("more", "u8", 2),
    ]
)  # fmt: skip
_KERNEL_DISPATCH = 2


def dispatch_packet(
    kernel: KernelInfo, kernarg: NDArray[np.uint8], grid: Dim3, block: Dim3, dynamic_lds: int
) -> NDArray[np.void]:
    """The packet of a launch, aligned as in a queue, for kernels that look at it; no kernel object and no signal."""
    packet = aligned(PACKET.itemsize).view(PACKET)
    packet["header"], packet["dimensions"], packet["block"] = _KERNEL_DISPATCH, 3, block
    packet["work_items"] = [groups * size for groups, size in zip(grid, block, strict=True)]
    packet["private_size"], packet["group_size"] = kernel.scratch_size, kernel.lds_size + dynamic_lds
    packet["kernarg"] = kernarg.ctypes.data
    return packet


def entry_sgprs(kernel: KernelInfo, kernarg: NDArray[np.uint8], packet: NDArray[Any]) -> list[int]:
    """User SGPRs at entry, in order (LLVM AMDGPU usage, "Initial Kernel Execution State").

    There is no queue, so its address is 0: a kernel that reads it is stopped there.

    Raises:
        EmulationError: the kernel asks for state that the emulator does not provide.
    """
    descriptor = kernel.descriptor
    for flag in (
        "enable_sgpr_private_segment_buffer",
        "enable_sgpr_flat_scratch_init",
        "enable_sgpr_workgroup_info",
    ):
        if getattr(descriptor, flag):
            raise EmulationError(
                f"kernel {kernel.name}: entry state {flag.removeprefix('enable_')}",
                hint="the emulator does not provide it; run the kernel on a GPU",
            )
    values: list[int] = []
    for flag, number in (
        ("dispatch_ptr", packet.ctypes.data), ("queue_ptr", 0), ("kernarg_segment_ptr", kernarg.ctypes.data),
        ("dispatch_id", 0),
    ):  # fmt: skip
        if getattr(descriptor, f"enable_sgpr_{flag}"):
            values += [number & 0xFFFFFFFF, number >> 32]
    if descriptor.enable_sgpr_private_segment_size:
        values.append(kernel.scratch_size)
    first = 4 * descriptor.kernarg_preload_spec_offset
    preloaded = kernarg[first : first + 4 * descriptor.kernarg_preload_spec_length].tobytes()
    values += np.frombuffer(preloaded + bytes(-len(preloaded) % 4), np.uint32).tolist()
    if len(values) > descriptor.user_sgpr_count:
        raise EmulationError(
            f"user SGPRs of kernel {kernel.name}", got=descriptor.user_sgpr_count, need=f"at least {len(values)}"
        )
    return values


def entry_group_sgprs(kernel: KernelInfo) -> dict[str, int]:
    """The SGPRs that hold the workgroup's number along x, y and z at entry; -1 where the kernel does not ask for it."""
    number, registers = kernel.descriptor.user_sgpr_count, {}
    for axis in "xyz":
        wanted = getattr(kernel.descriptor, f"enable_sgpr_workgroup_id_{axis}")
        registers[axis] = number if wanted else -1
        number += bool(wanted)
    return registers


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
