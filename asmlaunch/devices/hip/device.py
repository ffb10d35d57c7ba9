"""An AMD GPU: checks limits, loads modules, places memory and launches."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from asmlaunch.codeobject import parse_target
from asmlaunch.devices.base import Dim3, LaunchResult, refuse_options, require_writable
from asmlaunch.devices.hip.limits import Limits
from asmlaunch.devices.hip.modules import LoadedModule
from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.devices.hip.targets import runs_on
from asmlaunch.errors import ArgumentError, DeviceError

if TYPE_CHECKING:
    from asmlaunch.abi.arguments import Buffer
    from asmlaunch.codeobject import CodeObject, KernelInfo, TargetId

# Keys of the `extra` array of hipModuleLaunchKernel: HIP_LAUNCH_PARAM_* of hip_runtime_api.h.
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3


def device_count() -> int:
    """Number of AMD GPUs this process sees.

    Raises:
        DeviceError: hip-python or the HIP runtime is missing, or it finds no device.
    """
    count: int = runtime().call("hipGetDeviceCount")
    return count


@cache
def open_hip_device(ordinal: int) -> HipDevice:
    """GPU number ``ordinal``; one object a GPU.

    Raises:
        DeviceError: there is no such device, or no HIP runtime.
    """
    count = device_count()
    if ordinal >= count:
        raise DeviceError("device", got=f"hip:{ordinal}", need=f"hip:0 to hip:{count - 1}")
    return HipDevice(ordinal)


class HipDevice:
    """One AMD GPU; see :class:`asmlaunch.devices.base.Device`.

    Attributes:
        name: ``"hip:0"`` and so on, in HIP's numbering (HIP_VISIBLE_DEVICES applies).
        ordinal: the number in it.
    """

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self.name = f"hip:{ordinal}"
        self._modules: weakref.WeakValueDictionary[bytes, LoadedModule] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    @cached_property
    def limits(self) -> Limits:
        """What the device can take and which target it is."""
        return Limits.of(self.ordinal)

    @property
    def target(self) -> TargetId:
        """Target id, from the device's ``gcnArchName``."""
        return parse_target(self.limits.arch)

    def supports(self, code_object: CodeObject) -> bool:
        return runs_on(code_object.target, self.target)

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
        hip = runtime()
        handle = stream_handle(stream, self.ordinal)
        addresses: dict[str, int] = {}
        copies: list[tuple[Buffer, Any]] = []
        with hip.current_device(self.ordinal):
            try:
                for buffer in buffers:
                    if is_host(buffer, self.ordinal):
                        memory = hip.call("hipMalloc", max(buffer.nbytes, 1))
                        copies.append((buffer, memory))
                        addresses[buffer.name] = int(memory)
                        _copy(hip, int(memory), buffer.address, buffer.nbytes, "hipMemcpyHostToDevice", handle)
                    else:
                        addresses[buffer.name] = buffer.address
                    if buffer.name in zero:
                        require_writable(buffer)
                        hip.call("hipMemsetAsync", addresses[buffer.name], 0, buffer.nbytes, handle)
                yield addresses
                for buffer, memory in copies:
                    if buffer.writable:
                        _copy(hip, buffer.address, int(memory), buffer.nbytes, "hipMemcpyDeviceToHost", handle)
            finally:
                if copies:
                    hip.call("hipStreamSynchronize", handle)
                for _, memory in copies:
                    hip.call("hipFree", memory)

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
        **unknown: Any,
    ) -> LaunchResult:
        """Enqueue the kernel on ``stream`` (a handle, a torch stream, or None: torch's current one where torch runs
        on this GPU, else the default stream). The argument bytes are copied by the runtime during the call."""
        refuse_options(self.name, unknown, need="stream")
        self.limits.check(kernel, grid, block, dynamic_lds)
        start = time.perf_counter()
        if 0 not in grid:
            hip = runtime()
            loaded = self.open(code_object)
            function = loaded.function(kernel)
            with hip.current_device(self.ordinal):
                segment = Segment(kernarg)
                handle = stream_handle(stream, self.ordinal)
                hip.call(
                    "hipModuleLaunchKernel", function, *grid, *block, dynamic_lds, handle, None, segment.extra_address
                )
        return LaunchResult(time.perf_counter() - start, self.name)

    def __repr__(self) -> str:
        return f"<HipDevice {self.name}>"


class Segment:
    """Argument bytes in the form the launch calls take: the five words {1, buffer, 2, address of the size, 3}.

    hip-python can pack arguments itself, by an alignment rule its own source calls unconfirmed; so it gets the
    address of these words instead.

    Attributes:
        extra_address: address of the words; valid while this object lives.
    """

    def __init__(self, kernarg: bytes) -> None:
        self._bytes = ctypes.create_string_buffer(kernarg, len(kernarg))
        self._size = ctypes.c_size_t(len(kernarg))
        self._words = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(self._bytes), _BUFFER_SIZE, ctypes.addressof(self._size), _END
        )
        self.extra_address = ctypes.addressof(self._words)


def stream_handle(stream: Any, ordinal: int) -> int | None:
    """The raw stream handle to launch on; None is the default stream.

    Args:
        stream: a handle, a torch stream (``cuda_stream``), hip-python's stream object, or None for torch's current
            stream when torch's ROCm build is in use, else the default stream.

    Raises:
        ArgumentError: a stream of another device.
    """
    if stream is None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.version.hip or not torch.cuda.is_initialized():
            return None
        stream = torch.cuda.current_stream(ordinal)
    if hasattr(stream, "cuda_stream"):
        if stream.device_index != ordinal:
            raise ArgumentError("stream", got=f"one of device {stream.device_index}", need=f"one of device {ordinal}")
        stream = stream.cuda_stream
    return int(stream) or None


def is_host(buffer: Buffer, ordinal: int) -> bool:
    """Whether the buffer is host memory that is to be copied; False for memory of GPU ``ordinal``.

    Raises:
        ArgumentError: memory of another GPU, or a CPU tensor (a copy behind torch's back would hide a mistake).
        DeviceError: memory the runtime does not know, such as a tensor that was freed.
    """
    if buffer.on_gpu:
        owner = memory_device(buffer.address)
        if owner != ordinal:
            raise ArgumentError(f"argument {buffer.name}", got=f"memory of hip:{owner}", need=f"hip:{ordinal}")
        return False
    if type(buffer.owner).__module__.partition(".")[0] == "torch":
        raise ArgumentError(
            f"argument {buffer.name}", got="a CPU tensor", need=f"one on hip:{ordinal}", hint="move it with .to()"
        )
    return True


def memory_device(address: int) -> int:
    """Number of the GPU whose memory is at ``address``.

    Raises:
        DeviceError: no memory the runtime knows.
    """
    device: int = runtime().read("hipPointerGetAttributes", "hipPointerAttribute_t", address).device
    return device


def _copy(hip: Any, to: int, source: int, nbytes: int, kind: str, stream: int | None) -> None:
    if nbytes:
        hip.call("hipMemcpyAsync", to, source, nbytes, getattr(hip.hip.hipMemcpyKind, kind), stream)
