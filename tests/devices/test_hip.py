"""The HIP device: what crosses the C ABI, limits, devices, errors, lifetimes."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import resource
import struct
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
from hip_runtime.standin import StandIn

import asmlaunch
from asmlaunch import codeobject
from asmlaunch.abi.families import family_of
from asmlaunch.devices import hip as hip_package
from asmlaunch.devices.hip import device, open_hip_device
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


def test_a_prepared_launch_passes_the_same_bytes_each_time(recording: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    arguments = {name: DeviceArray(v) if isinstance(v, np.ndarray) else v for name, v in made.arguments.items()}
    kernel.launch(arguments)
    expected = recording.last().bytes
    repeat = kernel.prepare(arguments)
    del arguments
    gc.collect()
    before = recording.launches
    for _ in range(3):
        repeat()
        assert recording.last().bytes == expected
    assert recording.launches == before + 3


def test_a_prepared_launch_with_host_arrays_copies_each_time(hip: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    repeat = kernel.prepare(made.arguments)
    for _ in range(2):
        made.output[:] = 0
        repeat()
        made.compare().require()


def test_a_prepared_launch_runs_on_its_own_device(two_gpus: StandIn, path: Path) -> None:
    two_gpus.emulate(False)
    addresses = dict.fromkeys(("D", "A", "B", "ScaleA", "ScaleB"), 1 << 40)
    strides = {"stride_C0": 128, "stride_A0": 256, "stride_B0": 256, "stride_ScaleA0": 8, "stride_ScaleB0": 8}
    kernel = asmlaunch.load(path, device="hip:1").kernel
    repeat = kernel.prepare(addresses | strides | {"M": 32, "N": 128, "K": 256})
    runtime().call("hipSetDevice", 0)
    repeat()
    assert two_gpus.last().device == 1
    assert runtime().call("hipGetDevice") == 0


def test_a_prepared_empty_grid_launches_nothing(recording: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    arguments = dict.fromkeys(kernel.schema.names, 0)
    before = recording.launches
    kernel.prepare(arguments, grid=(0, 1, 1), check=False)()
    assert recording.launches == before


def test_launching_after_close_is_an_error_and_the_module_is_unloaded(recording: StandIn, path: Path) -> None:
    gc.collect()
    before = recording.live_modules
    with asmlaunch.load(path, device="hip:0") as module:
        kernel = module.kernel
        assert recording.live_modules == before + 1
    assert recording.live_modules == before
    with pytest.raises(LaunchError, match="got a closed module, need an open one; load it again"):
        kernel.launch({})


def test_a_stream_of_another_device_is_refused(two_gpus: StandIn, path: Path) -> None:
    with runtime().current_device(1):
        stream = runtime().call("hipStreamCreate")
    kernel = asmlaunch.load(path, device="hip:0").kernel
    with pytest.raises(ArgumentError, match="stream: got one of hip:1, need one of hip:0"):
        kernel.launch(problem(kernel).arguments, stream=stream)


def test_misaligned_and_freed_pointers(recording: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    arguments = problem(kernel).arguments
    with pytest.raises(ArgumentError, match=r"address of ptr_A: got 0x1002, need a multiple of 4"):
        kernel.launch(arguments | {"A": 0x1002, "M": 32, "K": 256, "stride_A0": 256})
    freed = DeviceArray(arguments["D"])
    freed.memory = 0
    with pytest.raises(ArgumentError, match="array ptr_D: got 8192 bytes at address 0"):
        kernel.launch(arguments | {"D": freed})


def test_a_cooperative_launch_and_one_with_events(recording: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    kernel.launch(made.arguments, cooperative=True)
    plain = recording.last()
    assert plain.entry == b"hipDrvLaunchKernelEx"
    events = runtime().call("hipEventCreate"), runtime().call("hipEventCreate")
    kernel.launch(made.arguments, events=events)
    timed = recording.last()
    assert timed.entry == b"hipExtModuleLaunchKernel"
    assert (
        (tuple(timed.grid), tuple(timed.block)) == (tuple(plain.grid), tuple(plain.block)) == ((1, 1, 1), (256, 1, 1))
    )
    assert len(timed.bytes) == 372


@pytest.mark.parametrize("how", [{"cooperative": True}, {"events": (None, None)}])
def test_failures_of_the_other_launch_calls(
    recording: StandIn, path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, object]
) -> None:
    monkeypatch.setenv("HIP_STANDIN_FAIL", "719")
    kernel = asmlaunch.load(path, device="hip:0").kernel
    with pytest.raises(DeviceError, match="error 719"):
        kernel.launch(problem(kernel).arguments, **how)


def test_a_captured_launch_keeps_its_arguments_and_bytes(hip: StandIn, path: Path) -> None:
    """The graph runs with the bytes of the time of the capture, and with memory that is still there."""
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    arrays = {name: DeviceArray(v) for name, v in made.arguments.items() if isinstance(v, np.ndarray)}
    output = arrays["D"]
    stream = runtime().call("hipStreamCreate")
    runtime().call("hipStreamBeginCapture", stream, runtime().hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal)
    with pytest.raises(ArgumentError, match="a host array while the stream is captured"):
        kernel.launch(made.arguments, stream=stream)
    before = hip.launches
    kernel.launch(arrays, stream=stream)
    assert hip.launches == before
    graph = runtime().call("hipStreamEndCapture", stream)
    alive = weakref.ref(arrays["A"])
    del arrays
    gc.collect()
    assert alive() is not None
    # In the stand-in a graph is its own executable; hip-python's hipGraphInstantiate changed between 7 and 10.
    assert hip.library.hipGraphLaunch(ctypes.c_void_p(int(graph)), ctypes.c_void_p(int(stream))) == 0
    assert hip.launches == before + 1
    made.arguments["D"][:] = output.host()
    made.compare().require()


def test_arguments_live_until_the_stream_has_passed_them(
    recording: StandIn, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    made = problem(kernel)
    on_gpu = DeviceArray(made.arguments["D"])
    alive = weakref.ref(on_gpu)
    monkeypatch.setenv("HIP_STANDIN_HOLD", "1")
    kernel.launch(made.arguments | {"D": on_gpu})
    del on_gpu
    gc.collect()
    assert alive() is not None
    kernel.launch(made.arguments)
    assert alive() is not None
    monkeypatch.setenv("HIP_STANDIN_HOLD", "0")
    kernel.launch(made.arguments)
    gc.collect()
    assert alive() is None


def test_two_streams_and_two_threads(hip: StandIn, path: Path) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    expected = problem(kernel)
    kernel.launch(expected.arguments)
    results: list[np.ndarray] = []

    def work() -> None:
        stream = runtime().call("hipStreamCreate")
        for _ in range(5):
            made = problem(kernel)
            kernel.launch(made.arguments, stream=stream)
            results.append(made.output.copy())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 10
    assert all((result == expected.output).all() for result in results)


def test_an_exception_half_way_frees_what_was_allocated(
    hip: StandIn, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = asmlaunch.load(path, device="hip:0").kernel
    before = len(hip.allocations())
    monkeypatch.setenv("HIP_STANDIN_FAIL", "1")
    with pytest.raises(DeviceError, match=r"error 1 .*check grid, block"):
        kernel.launch(problem(kernel).arguments)
    assert len(hip.allocations()) == before


def test_ten_thousand_loads_do_not_grow_the_process(recording: StandIn, path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    module = asmlaunch.load(path, device="hip:0")
    code_object, device = module.code_object, open_hip_device(0)
    module.close()
    for cycle in range(10_000):
        if cycle == 1000:
            settled = resident()
        asmlaunch.Module(code_object, device).close()
    assert resident() - settled < 2 << 20


def test_a_module_that_cannot_be_unloaded_now_is_unloaded_later(
    recording: StandIn, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    before = recording.live_modules
    module = asmlaunch.load(path, device="hip:0")
    real = runtime().call

    def refuse(function: str, *arguments: object) -> object:
        if function == "hipDeviceSynchronize":
            raise DeviceError("while a stream is captured")
        return real(function, *arguments)

    with monkeypatch.context() as context:
        context.setattr(runtime(), "call", refuse)
        module.close()
        assert recording.live_modules == before + 1
    asmlaunch.load(path, device="hip:0").close()
    assert recording.live_modules == before


def test_all_f4gemm_kernels_through_hip_python(hip: StandIn, f4gemm_folder: Path) -> None:
    """hip-python, C ABI, argument bytes, machine code, numbers: for every kernel, one tile."""
    paths = sorted(f4gemm_folder.glob("*.co"))
    assert len(paths) == 35
    for path in paths:
        kernel = asmlaunch.load(path, device="hip:0").kernel
        made = problem(kernel, *a4w4.tile(kernel.info))
        kernel.launch(made.arguments)
        made.compare().require(path.stem)


@pytest.fixture(scope="module")
def a_kernel_of_each_family(aiter_kernels: Path) -> dict[str, Path]:
    """An object of each declared family, by the family's name: a few of every folder of the wheel are looked at."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(aiter_kernels.rglob("*.co")):
        folders.setdefault(path.parent, []).append(path)
    found: dict[str, Path] = {}
    for paths in folders.values():
        for path in paths[:: max(1, len(paths) // 40)]:
            family = family_of(next(iter(codeobject.read(path).kernels.values())))
            if family is not None:
                found.setdefault(family.name, path)
    return found


def test_bytes_of_every_declared_family(
    recording: StandIn, a_kernel_of_each_family: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each argument gets a number of its own, and is looked for where the object's own metadata puts it."""
    assert len(a_kernel_of_each_family) >= 20
    for name, path in a_kernel_of_each_family.items():
        target = codeobject.read(path).target.processor
        monkeypatch.setenv("HIP_STANDIN_ARCH", f"{target}:sramecc+:xnack-")
        device.opened.clear()
        kernel = asmlaunch.load(path, device="hip:0").kernel
        fields = [kernel.schema[argument] for argument in kernel.schema.names]
        values = {field.name: 1.5 if field.type == "f32" else 4 * (index + 1) for index, field in enumerate(fields)}
        block = kernel.info.required_workgroup_size or (64, 1, 1)
        kernel.launch(values, grid=(3, 2, 1), block=block, check=False)
        launch = recording.last()
        assert tuple(launch.grid) == (3, 2, 1), name
        assert tuple(launch.block) == block, name
        assert launch.kernel.decode() == kernel.name
        expected = {field.offset: values[field.name] for field in fields}
        checked = 0
        for argument in kernel.info.arguments:
            if argument.offset in expected and argument.offset + argument.size <= len(launch.bytes):
                raw = launch.bytes[argument.offset : argument.offset + argument.size]
                value = expected[argument.offset]
                wanted = (
                    struct.pack("<f", value) if isinstance(value, float) else value.to_bytes(argument.size, "little")
                )
                assert raw == wanted, (name, argument.name)
                checked += 1
        assert checked >= len(fields) // 2, name
