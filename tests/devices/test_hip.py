"""The HIP device: what crosses the C ABI, limits, devices, errors, lifetimes."""

from __future__ import annotations

import ctypes
import gc
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from hip_runtime.standin import StandIn

import asmlaunch
from asmlaunch.devices import hip as hip_package
from asmlaunch.devices.hip import open_hip_device
from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.errors import ArgumentError, DeviceError, KernelNotFoundError, LaunchError, TargetError
from asmlaunch.validate import a4w4

NAME = "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128"


@pytest.fixture
def path(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / f"{NAME}.co"


@pytest.fixture
def recording(hip: StandIn) -> StandIn:
    """The stand-in with launches recorded only."""
    hip.emulate(False)
    return hip


def problem(kernel: asmlaunch.Kernel, m: int = 32, n: int = 128, k: int = 256) -> a4w4.Problem:
    return a4w4.build(kernel.info, a4w4.Case(m, n, k))


def test_a_gpu_that_can_run_the_object_is_chosen(recording: StandIn, path: Path) -> None:
    module = asmlaunch.load(path)
    assert module.device.name == "hip:0"
    assert "on hip:0" in repr(module)


def test_an_object_for_another_gpu_runs_in_the_emulator(
    recording: StandIn, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_STANDIN_ARCH", "gfx942:sramecc+:xnack-")
    assert asmlaunch.load(path).device.name == "emulator"
    with pytest.raises(TargetError, match=r"gfx950.*gfx942:sramecc\+:xnack-"):
        asmlaunch.load(path, device="hip:0")


def test_bytes_grid_block_and_stream_that_cross_the_c_abi(recording: StandIn, path: Path) -> None:
    """Memory given as addresses, so that every byte of the segment is known beforehand."""
    kernel = asmlaunch.load(path, device="hip:0").kernel
    stream = runtime().call("hipStreamCreate")
    kernel.launch(
        {"D": 0x7F00_0000_1000, "A": 0x7F00_0000_2000, "B": 0x7F00_0000_3000, "ScaleA": 0x7F00_0000_4000}
        | {"ScaleB": 0x7F00_0000_5000, "M": 300, "N": 2048, "K": 1024, "stride_C0": 2048, "stride_A0": 1024}
        | {"stride_B0": 1024, "stride_ScaleA0": 32, "stride_ScaleB0": 32},
        stream=stream,
    )
    launch = recording.last()
    expected = bytearray(372)
    for offset, code, value in (
        (0, "Q", 0x7F00_0000_1000),
        (32, "Q", 0x7F00_0000_2000),
        (48, "Q", 0x7F00_0000_3000),
        (64, "f", 1.0),
        (128, "I", 2048),
        (160, "I", 1024),
        (192, "I", 1024),
        (224, "I", 300),
        (240, "I", 2048),
        (256, "I", 1024),
        (272, "Q", 0x7F00_0000_4000),
        (288, "Q", 0x7F00_0000_5000),
        (304, "I", 32),
        (336, "I", 32),
    ):
        struct.pack_into("<" + code, expected, offset, value)
    assert launch.bytes == bytes(expected)
    assert tuple(launch.grid) == (16, 10, 1)
    assert tuple(launch.block) == (256, 1, 1)
    assert (launch.lds, launch.device, launch.stream) == (0, 0, int(stream))
    assert launch.entry == b"hipModuleLaunchKernel"
    assert launch.kernel.decode() == kernel.name


def test_numpy_arrays_are_copied_in_and_out(hip: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    before = len(hip.allocations())
    assert kernel.launch(made.arguments).device == "hip:0"
    made.compare().require()
    assert len(hip.allocations()) == before


def test_device_memory_is_used_as_it_is(hip: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    output = DeviceArray(made.arguments["D"])
    kernel.launch(made.arguments | {"D": output})
    made.arguments["D"][:] = output.host()
    made.compare().require()


class DeviceArray:
    """Device memory as other libraries hand it over."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype, self.nbytes = array.shape, array.dtype, array.nbytes
        self.memory = runtime().call("hipMalloc", array.nbytes)
        ctypes.memmove(int(self.memory), array.ctypes.data, array.nbytes)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (int(self.memory), False), "version": 3}

    def host(self) -> np.ndarray:
        return np.frombuffer(ctypes.string_at(int(self.memory), self.nbytes), self.dtype).reshape(self.shape)


def test_memory_of_another_gpu_is_refused(two_gpus: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    with runtime().current_device(1):
        elsewhere = DeviceArray(made.arguments["D"])
    with pytest.raises(ArgumentError, match="ptr_D: got memory of hip:1, need hip:0"):
        kernel.launch(made.arguments | {"D": elsewhere})


def test_freed_memory_is_refused(hip: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    freed = DeviceArray(made.arguments["D"])
    runtime().call("hipFree", freed.memory)
    with pytest.raises(DeviceError, match="hipPointerGetAttributes"):
        kernel.launch(made.arguments | {"D": freed})
    assert runtime().hip.hipPeekAtLastError()[0].value == 0


def test_one_module_a_device_and_the_current_device_is_restored(two_gpus: StandIn, path: Path) -> None:
    two_gpus.emulate(False)
    runtime().call("hipSetDevice", 0)
    for ordinal in (1, 0, 1):
        kernel = asmlaunch.load(path, device=f"hip:{ordinal}").kernel
        kernel.launch(problem(kernel).arguments)
        assert two_gpus.last().device == ordinal
        assert runtime().call("hipGetDevice") == 0


def test_the_current_device_is_restored_after_an_error(two_gpus: StandIn, path: Path) -> None:
    runtime().call("hipSetDevice", 0)
    kernel = asmlaunch.load(path, device="hip:1").kernel
    stream = runtime().call("hipStreamCreate")
    runtime().call("hipStreamDestroy", stream)
    with pytest.raises(DeviceError, match=r"error 400 .*the stream, event or module was destroyed"):
        kernel.launch(problem(kernel).arguments, stream=stream)
    assert runtime().call("hipGetDevice") == 0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"block": (512, 1, 1)}, r"block of .*512 work-items, need 1 to 256"),
        ({"grid": (1 << 24, 1, 1)}, r"grid x of .*= 4294967296 work-items, need fewer than 2\^32"),
        ({"dynamic_lds": 1}, r"LDS of .*163840 static \+ 1 dynamic = 163841 bytes, need at most 163840"),
    ],
)
def test_limits_are_checked_before_the_call(
    recording: StandIn, path: Path, how: dict[str, object], message: str
) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    before = recording.launches
    with pytest.raises(LaunchError, match=message):
        kernel.launch(problem(kernel).arguments, check=False, **how)
    assert recording.launches == before


def test_a_grid_of_no_workgroups_launches_nothing(recording: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    before = recording.launches
    kernel.launch(problem(kernel).arguments, grid=(0, 1, 1), check=False)
    assert recording.launches == before


def test_an_unknown_option_is_refused(recording: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    with pytest.raises(LaunchError, match="option on hip:0: got strem, need stream"):
        kernel.launch(problem(kernel).arguments, strem=None)


def test_a_kernel_failure_names_the_code_and_the_next_step(
    hip: StandIn, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_STANDIN_FAIL", "719")
    kernel = asmlaunch.load(path, device="hip:0").kernel
    with pytest.raises(DeviceError, match=r"hipModuleLaunchKernel: got error 719 \(hipErrorLaunchFailure\); .*restart"):
        kernel.launch(problem(kernel).arguments)
    assert runtime().hip.hipPeekAtLastError()[0].value == 0


def test_a_name_that_the_module_lacks(recording: StandIn, path: Path) -> None:
    import dataclasses

    module = asmlaunch.load(path, device="hip:0")
    other = dataclasses.replace(module.kernel.info, name="nothing")
    with pytest.raises(KernelNotFoundError, match=f"'nothing'.*{NAME}"):
        open_hip_device(0).open(module.code_object).function(other)
    assert runtime().hip.hipPeekAtLastError()[0].value == 0


def test_no_such_device(recording: StandIn, path: Path) -> None:
    with pytest.raises(DeviceError, match="got hip:3, need hip:0 to hip:0"):
        asmlaunch.load(path, device="hip:3")


def test_modules_are_unloaded_with_their_last_user(recording: StandIn, path: Path) -> None:
    gc.collect()
    before = recording.live_modules
    first, second = asmlaunch.load(path, device="hip:0"), asmlaunch.load(path, device="hip:0")
    assert recording.live_modules == before + 1
    del first
    gc.collect()
    assert recording.live_modules == before + 1
    del second
    gc.collect()
    assert recording.live_modules == before


def test_threads_share_one_module(recording: StandIn, path: Path) -> None:
    gc.collect()
    before = recording.live_modules
    modules: list[asmlaunch.Module] = []
    threads = [threading.Thread(target=lambda: modules.append(asmlaunch.load(path, device="hip:0"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(modules) == 8
    assert recording.live_modules == before + 1


def test_no_device_at_all(monkeypatch: pytest.MonkeyPatch, path: Path, hip: StandIn) -> None:
    monkeypatch.setenv("HIP_STANDIN_DEVICES", "0")
    with pytest.raises(DeviceError, match="hipErrorNoDevice"):
        hip_package.device_count()
    assert asmlaunch.load(path).device.name == "emulator"
