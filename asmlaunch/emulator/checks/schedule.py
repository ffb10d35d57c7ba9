"""Results that depend on the schedule: a launch under several of them, each from the same memory."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from asmlaunch.abi.arguments import Buffer
from asmlaunch.devices.base import Finding, LaunchResult
from asmlaunch.errors import EmulationError


def compared(
    name: str, schedules: Sequence[str], buffers: Sequence[Buffer], launch: Callable[[str], LaunchResult]
) -> LaunchResult:
    """Launch under each schedule; what differs is a finding "schedule", one for each buffer and schedule.

    Args:
        name: the kernel's, for the findings.
        schedules: the first is what the others are compared with.
        buffers: the memory that the launches share. It ends as the first schedule that runs to its end leaves it.
        launch: runs the kernel once.

    Raises:
        EmulationError: no schedule runs to its end.
    """
    memory = [_bytes(buffer) for buffer in buffers if buffer.writable]
    written = [buffer for buffer in buffers if buffer.writable]
    before = [array.copy() for array in memory]
    results: dict[str, LaunchResult] = {}
    after: dict[str, list[NDArray[np.uint8]]] = {}
    failed: dict[str, EmulationError] = {}
    for schedule in schedules:
        _restore(memory, before)
        try:
            results[schedule] = launch(schedule)
        except EmulationError as error:
            failed[schedule] = error
        else:
            after[schedule] = [array.copy() for array in memory]
    if not results:
        raise failed[schedules[0]]
    usual = next(iter(results))
    _restore(memory, after[usual])
    findings = [
        Finding("schedule", f"kernel {name} does not run to its end under {schedule}, but under {usual}: {error}",
                "error", name)
        for schedule, error in failed.items()
    ]  # fmt: skip
    for schedule, arrays in after.items():
        for buffer, one, other in zip(written, after[usual], arrays, strict=True):
            finding = _difference(name, buffer, (usual, one), (schedule, other))
            findings += [finding] if finding else []
    first = results[usual]
    return dataclasses.replace(first, findings=(*first.findings, *findings))


def _bytes(buffer: Buffer) -> NDArray[np.uint8]:
    """The memory of a buffer itself."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * buffer.nbytes).from_address(buffer.address))


def _restore(memory: Sequence[NDArray[np.uint8]], contents: Sequence[NDArray[np.uint8]]) -> None:
    for array, content in zip(memory, contents, strict=True):
        array[:] = content


def _difference(
    name: str, buffer: Buffer, usual: tuple[str, NDArray[np.uint8]], other: tuple[str, NDArray[np.uint8]]
) -> Finding | None:
    """What differs in one buffer; None: nothing."""
    size = buffer.strides[-1] if buffer.strides and buffer.strides[-1] else 1
    if buffer.nbytes % size:
        size = 1
    one, two = (array.reshape(-1, size) for _, array in (usual, other))
    differ = np.flatnonzero((one != two).any(axis=1))
    if not differ.size:
        return None
    at = int(differ[0])
    place = f"element {at}" if size > 1 else f"byte {at}"
    if len(buffer.shape) > 1 and int(np.prod(buffer.shape)) == len(one):
        place = f"element {tuple(int(index) for index in np.unravel_index(at, buffer.shape))}"
    values = [f"0x{part[at].tobytes()[::-1].hex()}" for part in (one, two)]
    what = "elements" if size > 1 else "bytes"
    message = (
        f"kernel {name}: the result depends on the schedule: {buffer.name} differs in {differ.size:,} of {len(one):,} "
        f"{what}, first in {place}: {values[0]} under {usual[0]}, {values[1]} under {other[0]}"
    )
    return Finding("schedule", message, "error", name, argument=buffer.name, count=int(differ.size))
