"""Kernels of the operators, loaded at their first call on a device: never at import, never while a graph is traced."""

from __future__ import annotations

import threading
from pathlib import Path

import torch

from asmlaunch.codeobject import CodeObject
from asmlaunch.devices import select
from asmlaunch.errors import ArgumentError
from asmlaunch.module import Kernel, Module, load

_loaded: dict[tuple[Path | int, str], Module] = {}
_lock = threading.Lock()


def device_name(tensors: list[torch.Tensor]) -> str:
    """The device that runs an operator on these tensors: a GPU's own, the emulator for CPU tensors.

    Raises:
        ArgumentError: tensors of several devices, of a kind that is neither, or of a CUDA build of torch.
    """
    devices = {tensor.device for tensor in tensors}
    if len(devices) != 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ArgumentError("tensors of an operator", got=f"devices {names or '(no tensor)'}", need="one device")
    (device,) = devices
    if device.type == "cpu":
        return "emulator"
    if device.type == "cuda" and torch.version.hip:
        return f"hip:{device.index or 0}"
    raise ArgumentError("tensors of an operator", got=f"device {device}", need="a CPU or an AMD GPU")


def kernel_file(path: Path, device: str) -> Kernel:
    """The kernel of a file on a device, loaded once."""
    with _lock:
        if (path, device) not in _loaded:
            _loaded[path, device] = load(path, device=device)
        return _loaded[path, device].kernel


def kernel_of(code_object: CodeObject, name: str, device: str) -> Kernel:
    """A kernel of an object that was read before, on a device; the object must outlive its operators."""
    with _lock:
        key = (id(code_object), device)
        if key not in _loaded:
            _loaded[key] = Module(code_object, select(code_object, device))
        return _loaded[key][name]
