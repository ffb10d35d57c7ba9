"""What the HIP device does beside torch's ROCm build, shown with a torch of a few lines: no such build runs here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hip_runtime.standin import StandIn

import asmlaunch
from asmlaunch.devices.hip import library
from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.errors import ArgumentError
from asmlaunch.validate import a4w4


class Tensor:
    """As much of torch.Tensor as an argument needs."""

    def __init__(self, array: np.ndarray, device: str = "cuda") -> None:
        self.array, self.device = array, SimpleNamespace(type=device, index=0)
        self.shape, self.dtype = array.shape, f"torch.{array.dtype.name}"
        self.address = int(runtime().call("hipMalloc", array.nbytes)) if device == "cuda" else array.ctypes.data
        self.recorded: list[int] = []

    def element_size(self) -> int:
        return self.array.itemsize

    def numel(self) -> int:
        return self.array.size

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def is_contiguous(self) -> bool:
        return True

    def data_ptr(self) -> int:
        return self.address

    def record_stream(self, stream: SimpleNamespace) -> None:
        self.recorded.append(stream.cuda_stream)


Tensor.__module__ = "torch"


@pytest.fixture
def torch(hip: StandIn, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A torch whose ROCm build is in use, with a current stream of its own."""
    hip.emulate(False)
    current = SimpleNamespace(cuda_stream=int(runtime().call("hipStreamCreate")), device_index=0)
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        current_stream=lambda ordinal: current,
        ExternalStream=lambda handle, device: SimpleNamespace(cuda_stream=handle, device_index=device),
    )
    module = SimpleNamespace(version=SimpleNamespace(hip="7.2"), cuda=cuda, Tensor=Tensor, current=current)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def kernel(torch: SimpleNamespace, f4gemm_folder: Path) -> asmlaunch.Kernel:
    return asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="hip:0").kernel


def tensors(kernel: asmlaunch.Kernel) -> dict[str, Tensor]:
    problem = a4w4.build(kernel.info, a4w4.Case(32, 128, 256))
    return {name: Tensor(value) for name, value in problem.arguments.items() if isinstance(value, np.ndarray)}


def test_the_current_stream_of_torch_is_used(kernel: asmlaunch.Kernel, torch: SimpleNamespace, hip: StandIn) -> None:
    arguments = tensors(kernel)
    kernel.launch(arguments)
    assert hip.last().stream == torch.current.cuda_stream
    # Torch's allocator reuses memory in the order of that stream, so there is nothing to tell it.
    assert not any(tensor.recorded for tensor in arguments.values())


def test_memory_used_on_another_stream_is_recorded_there(
    kernel: asmlaunch.Kernel, torch: SimpleNamespace, hip: StandIn
) -> None:
    arguments = tensors(kernel)
    stream = int(runtime().call("hipStreamCreate"))
    kernel.launch(arguments, stream=stream)
    assert hip.last().stream == stream
    assert all(tensor.recorded == [stream] for tensor in arguments.values())


def test_a_torch_stream_is_taken_and_its_device_checked(kernel: asmlaunch.Kernel, hip: StandIn) -> None:
    handle = int(runtime().call("hipStreamCreate"))
    kernel.launch(tensors(kernel), stream=SimpleNamespace(cuda_stream=handle, device_index=0))
    assert hip.last().stream == handle
    with pytest.raises(ArgumentError, match="stream: got one of hip:1, need one of hip:0"):
        kernel.launch(tensors(kernel), stream=SimpleNamespace(cuda_stream=handle, device_index=1))


def test_a_cpu_tensor_is_refused(kernel: asmlaunch.Kernel) -> None:
    arguments = tensors(kernel)
    arguments["A"] = Tensor(arguments["A"].array, device="cpu")
    with pytest.raises(ArgumentError, match=r"argument ptr_A: got a CPU tensor, need one on hip:0; move it with \.to"):
        kernel.launch(arguments)


def test_torchs_own_runtime_comes_before_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch is imported: the library it will load is the one to use."""
    own = tmp_path / "torch" / "lib" / "libamdhip64.so"
    own.parent.mkdir(parents=True)
    own.touch()
    found = importlib.util.find_spec
    spec = SimpleNamespace(origin=str(tmp_path / "torch" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "torch" else found(name))
    monkeypatch.setattr(library, "mapped_runtimes", lambda: ())
    candidates = list(library._candidates())
    assert candidates[0] == str(own)
    assert "libamdhip64.so" in candidates[1]
