"""Scratch memory of the kernels: one set a device and stream, made at first use, grown when needed, left zero.

Launches on one stream run one after the other, so they may share memory; launches on two streams may not. Nothing is
made at import, and a forked child starts with none: its parent's tensors belong to the parent's GPU context.

While a graph is captured, memory that is there is used, and then kept for the graph even when a later launch needs
more; what is not there comes from the graph's own pool, lives as long as the graph, and is zeroed by each replay where
it has to be. A graph must not be replayed on one stream while launches run on the one that it was captured on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch


@dataclass
class _Workspace:
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


_workspaces: dict[tuple[int, str, int], _Workspace] = {}
_lock = threading.Lock()


def _key(device: torch.device) -> tuple[int, str, int]:
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    return os.getpid(), str(device), stream


@contextmanager
def use(device: torch.device) -> Iterator[Scratch]:
    """The scratch memory of a device and its current stream, for the launches made inside.

    Threads that share a stream take turns. If the body raises, a kernel may have stopped half way and left flags set:
    the memory is given up and the next use makes new.
    """
    key = _key(device)
    with _lock:
        if key not in _workspaces and os.getpid() not in {pid for pid, _, _ in _workspaces}:
            _workspaces.clear()
        workspace = _workspaces.setdefault(key, _Workspace())
    with workspace.lock:
        try:
            yield Scratch(device, workspace)
        except BaseException:
            with _lock:
                _workspaces[key] = _Workspace(captured=workspace.captured)
            raise


def release() -> None:
    """Give all scratch memory back, of all devices and streams. Graphs captured with it must not be replayed after."""
    with _lock:
        _workspaces.clear()


def flags_left() -> int:
    """How many flags of all workspaces are not zero: 0 after any run that ended (it waits for the devices)."""
    with _lock:
        flags = [w.buffers["flags"] for w in _workspaces.values() if "flags" in w.buffers]
    return sum(int(torch.count_nonzero(f)) for f in flags)


class Scratch:
    """Named pieces of memory; a piece is valid until the ``use`` that gave it ends."""

    def __init__(self, device: torch.device, workspace: _Workspace) -> None:
        self._device = device
        self._workspace = workspace

    def get(self, name: str, count: int, dtype: torch.dtype) -> torch.Tensor:
        """``count`` elements of a type, of any content."""
        return self._piece(name, count * dtype.itemsize, zero=False).view(dtype)[:count]

    def flags(self, count: int) -> torch.Tensor:
        """``count`` int32 that are zero; the kernel that sets them must clear them."""
        return self._piece("flags", count * 4, zero=True).view(torch.int32)[:count]

    def _piece(self, name: str, nbytes: int, *, zero: bool) -> torch.Tensor:
        capturing = _capturing(self._device)
        buffer = self._workspace.buffers.get(name)
        if buffer is None or buffer.numel() < nbytes:
            size = 1 << max(nbytes - 1, 255).bit_length()
            make = torch.zeros if zero else torch.empty
            buffer = make(size, dtype=torch.uint8, device=self._device)
            if not capturing:
                self._workspace.buffers[name] = buffer
        elif capturing:
            self._workspace.captured[buffer.data_ptr()] = buffer
        return buffer


def _capturing(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
