"""Where the memory of a launch lives: used in place when it is this GPU's, copied there and back when it is numpy's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asmlaunch.devices.base import require_writable
from asmlaunch.devices.hip.runtime import Runtime, runtime
from asmlaunch.devices.hip.streams import is_capturing
from asmlaunch.errors import ArgumentError

if TYPE_CHECKING:
    from asmlaunch.abi.arguments import Buffer


@contextmanager
def on_gpu(
    buffers: Sequence[Buffer], zero: Sequence[str], ordinal: int, stream: int | None
) -> Iterator[Mapping[str, int]]:
    """Context in which every buffer has an address on GPU ``ordinal``: argument name -> address.

    Host arrays are copied to the GPU; at the end those that can be written are copied back, and the stream is waited
    for. Buffers named in ``zero`` are filled with zero bytes on the stream.

    Raises:
        ArgumentError: memory of another GPU, a CPU tensor, a host array while the stream is captured into a graph,
            a read-only buffer to zero.
    """
    hip = runtime()
    host = [buffer for buffer in buffers if is_host(buffer, ordinal)]
    if host and is_capturing(hip, stream):
        raise ArgumentError(
            f"argument {host[0].name}",
            got="a host array while the stream is captured into a graph",
            need="memory of the GPU: a copy made now would not be made when the graph runs",
        )
    addresses = {buffer.name: buffer.address for buffer in buffers}
    copies: list[tuple[Buffer, Any]] = []
    try:
        for buffer in host:
            copies.append((buffer, hip.call("hipMalloc", max(buffer.nbytes, 1))))
            addresses[buffer.name] = int(copies[-1][1])
            _copy(hip, addresses[buffer.name], buffer.address, buffer.nbytes, "hipMemcpyHostToDevice", stream)
        for buffer in buffers:
            if buffer.name in zero:
                require_writable(buffer)
                hip.call("hipMemsetAsync", addresses[buffer.name], 0, buffer.nbytes, stream)
        yield addresses
        for buffer, memory in copies:
            if buffer.writable:
                _copy(hip, buffer.address, int(memory), buffer.nbytes, "hipMemcpyDeviceToHost", stream)
    finally:
        if copies:
            hip.call("hipStreamSynchronize", stream)
        for _, memory in copies:
            hip.call("hipFree", memory)


def is_host(buffer: Buffer, ordinal: int) -> bool:
    """Whether the buffer is host memory that is to be copied; False for memory of GPU ``ordinal``.

    Raises:
        ArgumentError: memory of another GPU, or a CPU tensor (a copy behind torch's back would hide a mistake).
        DeviceError: memory the runtime does not know, such as a tensor that was freed.
    """
    if buffer.on_gpu:
        owner = runtime().read("hipPointerGetAttributes", "hipPointerAttribute_t", buffer.address).device
        if owner != ordinal:
            raise ArgumentError(f"argument {buffer.name}", got=f"memory of hip:{owner}", need=f"hip:{ordinal}")
        return False
    if type(buffer.owner).__module__.partition(".")[0] == "torch":
        raise ArgumentError(
            f"argument {buffer.name}", got="a CPU tensor", need=f"one on hip:{ordinal}", hint="move it with .to()"
        )
    return True


def _copy(hip: Runtime, to: int, source: int, nbytes: int, kind: str, stream: int | None) -> None:
    if nbytes:
        hip.call("hipMemcpyAsync", to, source, nbytes, getattr(hip.hip.hipMemcpyKind, kind), stream)
