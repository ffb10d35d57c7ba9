"""What a device is: something that takes a kernel, its kernarg bytes, a grid and a block, and runs it.

A device also decides where the memory of a launch lives. :meth:`Device.staged` turns the arguments' buffers into the
addresses the kernel will see: the caller's own memory for the emulator, device memory for a GPU.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from asmlaunch.errors import ArgumentError, LaunchError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from asmlaunch.abi.arguments import Buffer
    from asmlaunch.codeobject import CodeObject, KernelInfo
    from asmlaunch.emulator.fidelity import Fidelity
    from asmlaunch.emulator.trace import Profile

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """One thing a device noticed during a launch that did not stop it, such as a read past a buffer.

    Attributes:
        kind: short class name of the finding, e.g. ``"over-read"``.
        message: one line that names the instruction, the buffer and the distance.
        severity: ``"error"`` where the result cannot be trusted, else ``"warning"``.
        kernel, address, text: the instruction; "" and None where there is none.
        workgroup, wave, lanes: who did it first.
        argument: the buffer or argument concerned, "" where none is.
        count: how often it happened.
    """

    kind: str
    message: str
    severity: str = "warning"
    kernel: str = ""
    address: int | None = None
    text: str = ""
    workgroup: Dim3 | None = None
    wave: int | None = None
    lanes: tuple[int, ...] = ()
    argument: str = ""
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """The finding as plain lists and dictionaries."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True)
class LaunchResult:
    """What is known after a launch.

    Attributes:
        seconds: wall time of the launch call; on a GPU that is the time to enqueue, not to finish.
        device: name of the device, e.g. ``"emulator"`` or ``"hip:0"``.
        findings: what the device noticed; empty on devices that cannot look.
        instructions: wave-instructions executed, or None where the device does not count.
        fidelity: what the emulator executed exactly, what not, and what its checks were; None on a GPU.
        profile: how often each instruction ran; None on a GPU.
    """

    seconds: float
    device: str
    findings: tuple[Finding, ...] = ()
    instructions: int | None = None
    fidelity: Fidelity | None = None
    profile: Profile | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The result as plain lists and dictionaries."""
        return {
            "seconds": self.seconds,
            "device": self.device,
            "findings": [finding.to_json() for finding in self.findings],
            "instructions": self.instructions,
            "fidelity": self.fidelity.to_json() if self.fidelity else None,
        }


@runtime_checkable
class Device(Protocol):
    """A place where a kernel of a code object can run."""

    name: str
    """``"emulator"`` or ``"hip:0"``; what ``load(device=...)`` takes and reports."""

    def supports(self, code_object: CodeObject) -> bool:
        """Whether the object's target id can run here."""
        ...

    def describe(self) -> str:
        """The targets this device runs, for error messages: ``"gfx950:sramecc+:xnack-"``."""
        ...

    def open(self, code_object: CodeObject) -> Any:
        """Get the object ready here; what is returned is kept while kernels of the object can be launched.

        Raises:
            DeviceError: the device's runtime refuses the object. UnsupportedInstructionError: from the emulator.
        """
        ...

    def staged(
        self, buffers: Sequence[Buffer], zero: Sequence[str], **options: Any
    ) -> AbstractContextManager[Mapping[str, int]]:
        """Context in which every buffer is where the kernel can reach it: argument name -> address.

        Args:
            buffers: the launch's buffers, named after the arguments that point to them.
            zero: names of the buffers to fill with zero bytes before the launch.
            options: the launch's options (a stream, on a GPU).

        Raises:
            ArgumentError: memory that this device cannot use, or a buffer to zero that is read-only.
        """
        ...

    def launch(
        self,
        kernel: KernelInfo,
        code_object: CodeObject,
        kernarg: bytes,
        *,
        grid: Dim3,
        block: Dim3,
        dynamic_lds: int = 0,
        buffers: Sequence[Buffer] = (),
        **options: Any,
    ) -> LaunchResult:
        """Run one grid of workgroups.

        Args:
            kernarg: the packed argument segment; pointers in it are those that :meth:`staged` gave.
            grid: workgroups in x, y, z.
            block: work-items of a workgroup in x, y, z.
            dynamic_lds: bytes of LDS beyond the kernel's static ones.
            buffers: the memory the kernel may touch.

        Raises:
            LaunchError: limits exceeded. DeviceError: an error of the device's runtime.
        """
        ...


@runtime_checkable
class QuickDevice(Protocol):
    """A device on which a launch can be made ready once and then be repeated at little cost."""

    def ready(
        self,
        kernel: KernelInfo,
        code_object: CodeObject,
        kernarg: bytes,
        *,
        grid: Dim3,
        block: Dim3,
        dynamic_lds: int = 0,
        **options: Any,
    ) -> Callable[[], None]:
        """The launch as a function: as :meth:`Device.launch`, with memory the caller keeps alive."""
        ...


@contextmanager
def host_memory(buffers: Sequence[Buffer], zero: Sequence[str], **_options: Any) -> Iterator[Mapping[str, int]]:
    """:meth:`Device.staged` of a device that works on the caller's own host memory."""
    by_name = {buffer.name: buffer for buffer in buffers}
    for name in zero:
        require_writable(by_name[name])
        ctypes.memset(by_name[name].address, 0, by_name[name].nbytes)
    yield {buffer.name: buffer.address for buffer in buffers}


def require_writable(buffer: Buffer) -> None:
    """Check that a buffer can be zeroed.

    Raises:
        ArgumentError: the buffer is read-only.
    """
    if not buffer.writable:
        raise ArgumentError(f"argument {buffer.name}", got="a read-only array", need="a writable one: it is zeroed")


def refuse_options(device: str, unknown: Mapping[str, Any], need: str) -> None:
    """Refuse launch options that a device does not know: a mistyped one must not be ignored.

    Raises:
        LaunchError: naming the options found and the ones there are (``need``).
    """
    if unknown:
        raise LaunchError(f"launch option on {device}", got=", ".join(unknown), need=need)
