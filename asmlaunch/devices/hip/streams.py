"""Streams: which one a launch goes to, and keeping its arguments alive until the stream has passed it."""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from asmlaunch.devices.hip.runtime import Runtime, runtime
from asmlaunch.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable


def active_torch() -> Any | None:
    """Torch, when its ROCm build is in use in this process; it is never imported or initialised here."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.version.hip and torch.cuda.is_initialized() else None


def stream_handle(stream: Any, ordinal: int) -> int | None:
    """The raw stream handle to launch on; None is the default stream.

    Args:
        stream: a handle, a torch stream (``cuda_stream``), hip-python's stream object, or None for torch's current
            stream on this GPU when torch's ROCm build is in use, else the default stream.
        ordinal: the GPU.

    Raises:
        ArgumentError: a stream of another device. DeviceError: a stream that was destroyed.
    """
    if stream is None:
        torch = active_torch()
        return None if torch is None else int(torch.cuda.current_stream(ordinal).cuda_stream) or None
    handle = int(getattr(stream, "cuda_stream", stream))
    if handle == 0:
        return None
    owner = getattr(stream, "device_index", None)
    if owner is None:
        owner = runtime().call("hipStreamGetDevice", handle)
    if owner != ordinal:
        raise ArgumentError("stream", got=f"one of hip:{owner}", need=f"one of hip:{ordinal}")
    return handle


def is_capturing(hip: Runtime, stream: int | None) -> bool:
    """Whether work given to the stream is recorded into a graph instead of run."""
    return stream is not None and bool(hip.call("hipStreamIsCapturing", stream))


class InFlight:
    """Arguments of launches that the GPU may not have run yet.

    An event is recorded behind each launch; what it covers is let go when a later launch finds that it has happened.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, object]] = deque()
        self._idle: list[Any] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def hold(self, stream: int | None, owners: Iterable[object]) -> None:
        """Keep ``owners`` alive until the stream has passed this point; let go of what has been passed."""
        hip = runtime()
        kept = tuple(owners)
        with self._lock:
            self._release(hip)
            if kept:
                event = self._idle.pop() if self._idle else hip.call("hipEventCreate")
                hip.call("hipEventRecord", event, stream)
                self._waiting.append((event, kept))

    def _release(self, hip: Runtime) -> None:
        while self._waiting:
            code = hip.hip.hipEventQuery(self._waiting[0][0])[0]
            if code == hip.hip.hipError_t.hipErrorNotReady:
                hip.hip.hipGetLastError()  # not an error, but some runtimes keep it as the last one
                return
            event, _ = self._waiting.popleft()
            if code:
                raise hip.failed("hipEventQuery", code)
            self._idle.append(event)


def outlives_by_itself(owner: object, stream: int | None, ordinal: int) -> bool:
    """Whether the owner's memory is safe without being held: torch's allocator is told of the stream instead.

    Its memory is reused in the order of the stream it was allocated on; another stream has to be recorded.
    """
    torch = active_torch()
    if torch is None or not isinstance(owner, torch.Tensor):
        return False
    if stream != (int(torch.cuda.current_stream(ordinal).cuda_stream) or None):
        owner.record_stream(torch.cuda.ExternalStream(stream or 0, device=ordinal))
    return True
