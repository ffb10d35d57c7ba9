"""The HIP runtime: initialised once a process, every error code turned into a DeviceError with a next step."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asmlaunch.devices.hip import library
from asmlaunch.errors import DeviceError

_NO_GPU = "no such AMD GPU is visible here (HIP_VISIBLE_DEVICES, /dev/kfd); device='emulator' runs without one"

# What usually is behind a code, for those whose own text does not help. Numbers: hipError_t of hip_runtime_api.h.
HINTS = {
    1: "an argument of the call is out of range: check grid, block and the size of the argument segment",
    2: "free memory on the device, or use smaller inputs",
    98: "the function belongs to a module of another device, or the module was unloaded",
    100: _NO_GPU,
    101: _NO_GPU,
    209: "the object has no code for this device's target id; asmlaunch inspect shows what it is for",
    303: "the runtime was not initialised, the object has no AMDGPU metadata note, or it is for another target",
    400: "the stream, event or module was destroyed, or belongs to another process",
    500: "no function of that name in the module; asmlaunch inspect lists the names there are",
    700: "the kernel touched memory it may not; run the same launch on device='emulator' to see which argument",
    701: "too many registers or too much LDS for this block size",
    719: "the kernel failed (an abort, a fault or a timeout); the process has to be restarted to use the GPU again",
    720: "a cooperative launch must fit on the device at once: use a smaller grid",
    900: "this call is not allowed while a stream is being captured into a graph",
    901: "the capture was invalidated by an earlier error",
}


class Runtime:
    """The HIP runtime of this process.

    Attributes:
        hip: hip-python's module.
        pid: the process that initialised the runtime; a child made by fork cannot use it.
    """

    def __init__(self) -> None:
        self.hip = library.bind()
        self.pid = os.getpid()
        self._fills_structures = "prop" in inspect.signature(self.hip.hipGetDeviceProperties).parameters
        self._or_no_gpu("hipInit", 0)
        library.refuse_two()

    def call(self, function: str, *args: Any) -> Any:
        """Call ``function`` of hip-python and return its result without the error code (None, one value, a tuple).

        Raises:
            DeviceError: the call failed; the runtime's sticky error is cleared, so that no later caller meets it.
        """
        code, *results = getattr(self.hip, function)(*args)
        if code:
            raise self.failed(function, code)
        return results[0] if len(results) == 1 else tuple(results) or None

    def device_count(self) -> int:
        """Number of devices.

        Raises:
            NoGpuError: there is none.
        """
        count: int = self._or_no_gpu("hipGetDeviceCount")
        return count

    def _or_no_gpu(self, function: str, *args: Any) -> Any:
        """:meth:`call` for the functions that fail where there is no device."""
        try:
            return self.call(function, *args)
        except DeviceError as error:
            raise library.NoGpuError(error.what, got=error.got, hint=error.hint) from error

    def failed(self, function: str, code: Any) -> DeviceError:
        """The error for a code that ``function`` returned; the runtime's sticky error is cleared."""
        self.hip.hipGetLastError()
        return DeviceError(function, got=f"error {code.value} ({code.name})", hint=HINTS.get(code.value))

    def read(self, function: str, structure: str, *args: Any) -> Any:
        """Call a function whose C form fills a structure: hip-python 7.x takes that structure, 10 returns one.

        Raises:
            DeviceError: as :meth:`call`.
        """
        if self._fills_structures:
            filled = getattr(self.hip, structure)()
            self.call(function, filled, *args)
            return filled
        return self.call(function, *args)

    @contextmanager
    def current_device(self, ordinal: int) -> Iterator[None]:
        """Context in which ``ordinal`` is the current device; afterwards the one before is again."""
        before = self.call("hipGetDevice")
        if before == ordinal:
            yield
            return
        self.call("hipSetDevice", ordinal)
        try:
            yield
        finally:
            self.call("hipSetDevice", before)


_lock = threading.Lock()
_runtime: Runtime | None = None


def runtime() -> Runtime:
    """The process's HIP runtime, initialised on the first call.

    Raises:
        DeviceError: hip-python, the library or a device is missing; or the runtime was initialised before a fork.
    """
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime()
    if _runtime.pid != os.getpid():
        raise DeviceError(
            "HIP in a forked process",
            got=f"a runtime that process {_runtime.pid} initialised before the fork",
            need="a runtime initialised in this process",
            hint="fork before the first use of the GPU, or start the process with multiprocessing's 'spawn'",
        )
    return _runtime
