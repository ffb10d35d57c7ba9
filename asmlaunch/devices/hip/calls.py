"""The calls that launch a kernel, all with argument bytes in an ``extra`` array of our own.

Numbers and structures: HIP's public API (hip_runtime_api.h), ROCm 6 and 7.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asmlaunch.devices.base import Dim3
from asmlaunch.devices.hip import library
from asmlaunch.devices.hip.runtime import Runtime
from asmlaunch.errors import DeviceError

_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
_ATTRIBUTE_COOPERATIVE = 2  # hipLaunchAttributeCooperative


class Segment:
    """Argument bytes in the form the launch calls take: the five words {1, buffer, 2, address of the size, 3}.

    hip-python can pack arguments itself, by an alignment rule its own source calls unconfirmed; so it gets these words.

    Attributes:
        words: the array, to be passed as it is; valid while this object lives.
    """

    def __init__(self, kernarg: bytes) -> None:
        self._bytes = ctypes.create_string_buffer(kernarg, len(kernarg))
        self._size = ctypes.c_size_t(len(kernarg))
        self.words = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(self._bytes), _BUFFER_SIZE, ctypes.addressof(self._size), _END
        )


@dataclass(frozen=True)
class Call:
    """One launch, ready to be made any number of times.

    Attributes:
        hip: the runtime.
        function: handle of the kernel.
        grid, block: workgroups and work-items.
        dynamic_lds: bytes.
        stream: raw handle, None for the default stream.
        module: what has to stay loaded as long as the launch can be made.
        segment: the argument bytes; the runtime copies them during the call.
        cooperative: all workgroups must be resident together (``hipDrvLaunchKernelEx``).
        events: start and stop event recorded around the kernel (``hipExtModuleLaunchKernel``).
    """

    hip: Runtime
    function: Any
    grid: Dim3
    block: Dim3
    dynamic_lds: int
    stream: int | None
    module: object
    segment: Segment
    cooperative: bool = False
    events: tuple[Any, Any] | None = None

    def prepare(self) -> Callable[[], None]:
        """The launch as a function without arguments.

        The function raises DeviceError for what the runtime refuses.
        """
        if self.events is not None:
            return self._with_events
        if self.cooperative:
            return self._with_attributes
        # The common case, repeated often: everything is looked up before.
        launch = self.hip.hip.hipModuleLaunchKernel
        arguments = (
            self.function,
            *self.grid,
            *self.block,
            self.dynamic_lds,
            self.stream,
            None,
            self.segment.words,
        )
        failed = self.hip.failed

        def call(_holds: object = (self.segment, self.module)) -> None:
            code = launch(*arguments)[0]
            if code:
                raise failed("hipModuleLaunchKernel", code)

        return call

    def _with_attributes(self) -> None:
        attribute = _Attribute(_ATTRIBUTE_COOPERATIVE, 0, (1,))
        config = _Config(*self.grid, *self.block, self.dynamic_lds, self.stream, ctypes.addressof(attribute), 1)
        self.hip.call("hipDrvLaunchKernelEx", ctypes.addressof(config), self.function, None, self.segment.words)

    def _with_events(self) -> None:
        """hip-python has no binding of this one, so it is called in the library that hip-python uses."""
        start, stop = self.events or (None, None)
        extended = _extended_launch()
        items = tuple(workgroups * size for workgroups, size in zip(self.grid, self.block, strict=True))
        code = extended(
            int(self.function),
            *items,
            *self.block,
            self.dynamic_lds,
            self.stream,
            None,
            ctypes.addressof(self.segment.words),
            _address(start),
            _address(stop),
            0,
        )
        if code:
            raise self.hip.failed("hipExtModuleLaunchKernel", self.hip.hip.hipError_t(code))


class _Attribute(ctypes.Structure):
    """hipLaunchAttribute: an id and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    """HIP_LAUNCH_CONFIG."""

    _fields_ = (
        *((f"{what}{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"),
        ("lds", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


def _extended_launch() -> Any:
    """``hipExtModuleLaunchKernel`` of the process's runtime.

    Raises:
        DeviceError: the runtime has no such function.
    """
    handle = ctypes.CDLL(str(library.mapped_runtimes()[0]))
    try:
        function = handle.hipExtModuleLaunchKernel
    except AttributeError as error:
        raise DeviceError("hipExtModuleLaunchKernel is not in this HIP runtime", hint="leave events= out") from error
    words = [ctypes.c_uint32] * 6
    function.argtypes = [ctypes.c_void_p, *words, ctypes.c_size_t, *[ctypes.c_void_p] * 5, ctypes.c_uint32]
    return function


def _address(event: Any) -> int | None:
    """The raw handle of an event: hip-python's object, torch's, or a number."""
    return None if event is None else int(getattr(event, "cuda_event", event))
