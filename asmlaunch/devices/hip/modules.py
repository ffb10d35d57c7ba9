"""A code object loaded on one GPU."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.errors import DeviceError, KernelNotFoundError

if TYPE_CHECKING:
    from asmlaunch.codeobject import CodeObject, KernelInfo

_NOT_FOUND = 500  # hipErrorNotFound

# Modules that could not be unloaded when their last user went (a stream was being captured): tried again later.
_waiting: list[tuple[int, Any]] = []


class LoadedModule:
    """A module of one device. It is unloaded, after the device's work is done, when its last user lets go of it.

    A function handle is valid on the device of its module only, which is why there is one module a device.
    """

    def __init__(self, ordinal: int, code_object: CodeObject) -> None:
        hip = runtime()
        _unload_waiting()
        with hip.current_device(ordinal):
            # The runtime may go on reading the image, so the bytes live as long as the module.
            self._image = code_object.data
            self._module = hip.call("hipModuleLoadData", self._image)
        self._names = tuple(code_object.kernels)
        self._functions: dict[str, Any] = {}
        self._lock = threading.Lock()
        self.captured: list[object] = []  # memory that launches captured into graphs use
        self._finalizer = weakref.finalize(self, _unload, os.getpid(), ordinal, self._module)
        # At exit the runtime may be gone before Python's finalizers run, and the process's end frees all anyway.
        self._finalizer.atexit = False

    def function(self, kernel: KernelInfo) -> Any:
        """Handle of a kernel's function.

        Raises:
            KernelNotFoundError: the module has none of that name; the message lists the names there are.
        """
        with self._lock:
            if kernel.name not in self._functions:
                try:
                    found = runtime().call("hipModuleGetFunction", self._module, kernel.name.encode())
                except DeviceError as error:
                    if f"error {_NOT_FOUND} " not in str(error.got):
                        raise
                    raise KernelNotFoundError(
                        "function in the loaded module", got=repr(kernel.name), need=f"one of {', '.join(self._names)}"
                    ) from error
                self._functions[kernel.name] = found
            return self._functions[kernel.name]


def _unload(pid: int, ordinal: int, module: Any) -> None:
    """Wait for the device and unload; in a forked child the module is the parent's and is left alone."""
    if pid != os.getpid():
        return
    hip = runtime()
    try:
        with hip.current_device(ordinal):
            hip.call("hipDeviceSynchronize")
            hip.call("hipModuleUnload", module)
    except DeviceError:
        _waiting.append((ordinal, module))


def _unload_waiting() -> None:
    """Try again what could not be unloaded when it was due."""
    pending = _waiting.copy()
    _waiting.clear()
    for ordinal, module in pending:
        _unload(os.getpid(), ordinal, module)
