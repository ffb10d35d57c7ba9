"""Compile the kernels of a call for a processor that is not here, and keep them instead of running them.

::

    with offline("gfx950") as compiled:
        matmul(a, b)          # CPU tensors stand for the processor's
    compiled[0].binary        # the code object

What is recorded is what a call on such a device would launch: the same choice of tiles, the same specialisation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget

from asmlaunch.errors import ArgumentError
from asmlaunch.triton_ref import hardware

TARGETS = {
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "sm90": GPUTarget("cuda", 90, 32),
}
"""What can be compiled for, by the names of ``hardware.KNOWN``."""


@dataclass(frozen=True)
class Compiled:
    """A kernel that a call would have launched.

    Attributes:
        name: of the kernel.
        grid: programs along x, y, z.
        warps: of a program.
        shared: bytes of shared memory.
        registers, spills: 32-bit registers of a thread and those that did not fit, as the assembly states them; None
            for PTX, which does not.
        arguments: the arguments of the call that are no constants, in order.
        assembly: AMD assembly or PTX.
        binary: the code object or cubin.
    """

    name: str
    grid: tuple[int, ...]
    warps: int
    shared: int
    registers: int | None
    spills: int | None
    arguments: tuple[Any, ...]
    assembly: str
    binary: bytes


@contextmanager
def offline(target: str) -> Iterator[list[Compiled]]:
    """Record what calls on CPU tensors would launch on a processor of :data:`TARGETS`.

    Results of the calls are not computed. Not for several threads: Triton has one active driver.

    Raises:
        ArgumentError: an unknown target, or Triton's interpreter, which compiles nothing.
    """
    if target not in TARGETS:
        raise ArgumentError("target", got=repr(target), need=f"one of {', '.join(TARGETS)}")
    if triton.knobs.runtime.interpret:
        raise ArgumentError("offline compilation", got="TRITON_INTERPRET=1", need="a process without it")
    compiled: list[Compiled] = []
    backend = TARGETS[target].backend
    run = triton.JITFunction.run

    def record(self: Any, *arguments: Any, grid: tuple[int, ...], warmup: bool, **options: Any) -> Any:
        kernel = run(self, *arguments, grid=grid, warmup=True, **options)
        text = kernel.asm["amdgcn" if backend == "hip" else "ptx"]
        compiled.append(
            Compiled(
                kernel.metadata.name, (*grid, 1, 1)[:3], kernel.metadata.num_warps, kernel.metadata.shared,
                _stated(text, "vgpr_count"), _stated(text, "vgpr_spill_count"), arguments, text,
                kernel.asm["hsaco" if backend == "hip" else "cubin"],
            )
        )  # fmt: skip
        return kernel

    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(_Driver(target))
    triton.JITFunction.run = record
    token = hardware.pretended.set(hardware.KNOWN[target])
    try:
        yield compiled
    finally:
        hardware.pretended.reset(token)
        triton.JITFunction.run = run
        triton.runtime.driver._active = before


class _Driver:
    """What Triton asks of a driver before it compiles."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get_current_target(self) -> GPUTarget:
        return TARGETS[self._name]

    def get_current_device(self) -> str:
        # Triton keys what it compiled by this: kernels of one target are no other's.
        return f"offline {self._name}"

    def get_current_stream(self, device: str) -> int:
        return 0


def _stated(assembly: str, what: str) -> int | None:
    match = re.search(rf"\.{what}:\s*(\d+)", assembly)
    return int(match[1]) if match else None
