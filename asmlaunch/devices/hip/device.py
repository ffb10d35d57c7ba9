"""An AMD GPU: loads modules, checks limits, launches."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from asmlaunch.codeobject import compatible, parse_target
from asmlaunch.devices.base import Dim3, LaunchResult, refuse_options
from asmlaunch.devices.hip import memory
from asmlaunch.devices.hip.calls import Call, Segment
from asmlaunch.devices.hip.limits import Limits
from asmlaunch.devices.hip.modules import LoadedModule
from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.devices.hip.streams import InFlight, is_capturing, outlives_by_itself, stream_handle
from asmlaunch.errors import DeviceError

if TYPE_CHECKING:
    from asmlaunch.abi.arguments import Buffer
    from asmlaunch.codeobject import CodeObject, KernelInfo, TargetId


def device_count() -> int:
    """Number of AMD GPUs this process sees.

    Raises:
        NoGpuError: hip-python or the HIP runtime is missing, or it finds no device. DeviceError: HIP cannot be used in
            this process (two runtimes, a fork).
    """
    return runtime().device_count()


opened: dict[int, HipDevice] = {}
_opened_lock = threading.Lock()


def open_hip_device(ordinal: int) -> HipDevice:
    """GPU number ``ordinal``; one object a GPU.

    Raises:
        DeviceError: there is no such device, or no HIP runtime.
    """
    with _opened_lock:
        if ordinal not in opened:
            count = device_count()
            if ordinal >= count:
                raise DeviceError("device", got=f"hip:{ordinal}", need=f"hip:0 to hip:{count - 1}")
            opened[ordinal] = HipDevice(ordinal, only=count == 1)
        return opened[ordinal]


class HipDevice:
    """One AMD GPU; see :class:`asmlaunch.devices.base.Device`.

    Options of :meth:`launch`:
        stream: a raw handle, hip-python's stream or a torch stream; by default torch's current stream on this GPU where
            torch's ROCm build is in use, else the default stream.
        cooperative: all workgroups have to be resident together, as kernels that wait for one another need.
        events: a start and a stop event to record around the kernel.

    Attributes:
        name: ``"hip:0"`` and so on, in HIP's numbering (HIP_VISIBLE_DEVICES applies).
        ordinal: the number in it.
    """

    def __init__(self, ordinal: int, only: bool = False) -> None:
        self.ordinal = ordinal
        self.name = f"hip:{ordinal}"
        self._only = only  # there is no other device that could be the current one
        self._modules: weakref.WeakValueDictionary[bytes, LoadedModule] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        self._in_flight = InFlight()

    @cached_property
    def limits(self) -> Limits:
        """What the device can take and which target it is."""
        return Limits.of(self.ordinal)

    @property
    def target(self) -> TargetId:
        """Target id, from the device's ``gcnArchName``."""
        return parse_target(self.limits.arch)

    def supports(self, code_object: CodeObject) -> bool:
        return compatible(code_object.target, self.target)

    def describe(self) -> str:
        return str(self.target)

    def open(self, code_object: CodeObject) -> LoadedModule:
        """The object's module on this device, loaded at the first call and shared by later ones while one is alive.

        Raises:
            DeviceError: the runtime refuses the object.
        """
        with self._lock:
            loaded = self._modules.get(code_object.data)
            if loaded is None:
                loaded = LoadedModule(self.ordinal, code_object)
                self._modules[code_object.data] = loaded
            return loaded

    @contextmanager
    def staged(
        self, buffers: Sequence[Buffer], zero: Sequence[str], *, stream: Any = None, **_options: Any
    ) -> Iterator[Mapping[str, int]]:
        """Addresses on this GPU. A numpy array is copied to the GPU and, where it can be written, back after the
        launch, which then waits for the stream; memory of this GPU is used as it is."""
        with runtime().current_device(self.ordinal):
            handle = stream_handle(stream, self.ordinal)
            with memory.on_gpu(buffers, zero, self.ordinal, handle) as addresses:
                yield addresses

    def ready(
        self,
        kernel: KernelInfo,
        code_object: CodeObject,
        kernarg: bytes,
        *,
        grid: Dim3,
        block: Dim3,
        dynamic_lds: int = 0,
        stream: Any = None,
        cooperative: bool = False,
        events: tuple[Any, Any] | None = None,
        **unknown: Any,
    ) -> Callable[[], None]:
        """The launch as a function that makes it, any number of times, with these argument bytes.

        Raises:
            LaunchError: limits exceeded, or an unknown option. DeviceError: the object cannot be loaded.
        """
        refuse_options(self.name, unknown, need="stream, cooperative, events")
        self.limits.check(kernel, grid, block, dynamic_lds)
        if 0 in grid:
            return lambda: None
        hip = runtime()
        loaded = self.open(code_object)
        handle = stream_handle(stream, self.ordinal)
        call = Call(
            hip,
            loaded.function(kernel),
            grid,
            block,
            dynamic_lds,
            handle,
            loaded,
            Segment(kernarg),
            cooperative,
            events,
        ).prepare()
        # A stream names its device; so does the default one where there is a single device.
        if handle is not None or self._only:
            return call

        def guarded() -> None:
            with hip.current_device(self.ordinal):
                call()

        return guarded

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
        stream: Any = None,
        **options: Any,
    ) -> LaunchResult:
        """Enqueue the kernel. The runtime copies the argument bytes during the call; buffers are kept alive until the
        stream has passed the kernel, or, while the stream is captured into a graph, as long as the module is loaded."""
        start = time.perf_counter()
        call = self.ready(
            kernel,
            code_object,
            kernarg,
            grid=grid,
            block=block,
            dynamic_lds=dynamic_lds,
            stream=stream,
            **options,
        )
        with runtime().current_device(self.ordinal):
            call()
            self._keep(code_object, buffers, stream_handle(stream, self.ordinal))
        return LaunchResult(time.perf_counter() - start, self.name)

    def _keep(self, code_object: CodeObject, buffers: Sequence[Buffer], stream: int | None) -> None:
        """Keep what the launch uses alive for as long as the GPU may use it; host arrays were copied."""
        owners = [buffer.owner for buffer in buffers if buffer.on_gpu]
        if is_capturing(runtime(), stream):
            self.open(code_object).captured.extend(owners)
            return
        self._in_flight.hold(stream, (o for o in owners if not outlives_by_itself(o, stream, self.ordinal)))

    def __repr__(self) -> str:
        return f"<HipDevice {self.name}>"
