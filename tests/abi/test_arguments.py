"""What a pointer argument may be."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from asmlaunch.abi import Buffer, Field, KernargSchema, bind, resolve
from asmlaunch.abi.schema import extent, stride
from asmlaunch.errors import ArgumentError


def test_numpy_array() -> None:
    array = np.zeros((3, 4), np.float32)
    address, buffer = resolve("x", array)
    assert buffer is not None
    assert address == buffer.address == array.__array_interface__["data"][0]
    assert (buffer.nbytes, buffer.shape, buffer.strides, buffer.dtype) == (48, (3, 4), (16, 4), "float32")
    assert buffer.writable
    assert buffer.owner is array
    array.flags.writeable = False
    read_only = resolve("x", array)[1]
    assert read_only is not None
    assert not read_only.writable


@pytest.mark.parametrize("value", [7, 1.5, b"raw", np.int32(7), np.float16(1.5)])
def test_numbers_stay_as_they_are(value: Any) -> None:
    assert resolve("n", value) == (value, None)


def test_none_is_null_and_a_buffer_is_itself() -> None:
    assert resolve("p", None) == (0, None)
    buffer = Buffer("p", 16, 4, True, None)
    assert resolve("p", buffer) == (16, buffer)


def test_what_only_converts_to_a_number_is_a_number() -> None:
    fraction = Fraction(1, 2)
    assert resolve("n", fraction) == (fraction, None)


@pytest.mark.parametrize("view", [np.zeros((4, 4))[:, :2], np.zeros((4, 4)).T, np.zeros(8)[::2]])
def test_views_that_are_not_contiguous_are_refused(view: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match=r"array x: got shape .* need a C-contiguous array.*ascontiguousarray"):
        resolve("x", view)


def test_other_objects_are_refused() -> None:
    with pytest.raises(ArgumentError, match="argument x: got list"):
        resolve("x", [1, 2])


def interface(**changes: Any) -> dict[str, Any]:
    return {"typestr": "<f4", "shape": (2, 3), "data": (4096, False), "strides": None, "version": 3} | changes


def test_cuda_array_interface() -> None:
    buffer = resolve("x", SimpleNamespace(__cuda_array_interface__=interface()))[1]
    assert buffer is not None
    assert (buffer.address, buffer.nbytes, buffer.on_gpu, buffer.strides) == (4096, 24, True, (12, 4))
    padded = SimpleNamespace(__cuda_array_interface__=interface(strides=(16, 4)))
    with pytest.raises(ArgumentError, match="C-contiguous"):
        resolve("x", padded)
    with pytest.raises(ArgumentError, match="array interface cannot be read"):
        resolve("x", SimpleNamespace(__cuda_array_interface__={"shape": (1,)}))


def test_array_interface() -> None:
    buffer = resolve("x", SimpleNamespace(__array_interface__=interface(data=(64, True), strides=(12, 4))))[1]
    assert buffer is not None
    assert (buffer.on_gpu, buffer.writable) == (False, False)


class OnlyDlpack:
    """An array that shows itself through DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__()


def test_dlpack() -> None:
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    buffer = resolve("x", OnlyDlpack(array))[1]
    assert buffer is not None
    assert buffer.address == array.ctypes.data
    assert (buffer.nbytes, buffer.shape, buffer.dtype, buffer.on_gpu) == (24, (3, 4), "int16", False)
    with pytest.raises(ArgumentError, match="C-contiguous"):
        resolve("x", OnlyDlpack(array[:, ::2]))


class Tensor:
    """What a torch tensor looks like from outside."""

    __module__ = "torch"

    def __init__(self, array: np.ndarray, device: str = "cpu") -> None:
        self.array, self.shape = array, array.shape
        self.dtype, self.device = f"torch.{array.dtype}", SimpleNamespace(type=device)

    def element_size(self) -> int:
        return self.array.itemsize

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def numel(self) -> int:
        return self.array.size

    def item(self) -> Any:
        return self.array.item()


@pytest.mark.parametrize(("device", "on_gpu"), [("cpu", False), ("cuda", True)])
def test_torch_tensor(device: str, on_gpu: bool) -> None:
    tensor = Tensor(np.zeros((2, 8), np.int16), device)
    buffer = resolve("x", tensor)[1]
    assert buffer is not None
    assert (buffer.nbytes, buffer.strides, buffer.dtype, buffer.on_gpu) == (32, (16, 2), "int16", on_gpu)
    with pytest.raises(ArgumentError, match="C-contiguous"):
        resolve("x", Tensor(np.zeros((2, 8))[:, ::2]))


SCHEMA = KernargSchema(
    [
        Field("ptr_A", 0, "pointer", aliases=("A",)),
        Field("ptr_B", 8, "pointer", aliases=("B",)),
        Field("K", 16, "u32", derive=(extent("A", 1, 2), extent("B", 1, 2))),
        Field("stride_A", 20, "u32", derive=(stride("A", 0, 2),)),
        Field("alpha", 24, "f32", default=1.0),
    ],
    28,
    "gemm",
)


def test_bind_reads_extents_and_strides_off_the_arrays() -> None:
    a, b = np.zeros((3, 8), np.uint8), np.zeros((5, 8), np.uint8)
    values, buffers = bind(SCHEMA, {"A": a, "ptr_B": b})
    assert values == {"ptr_A": a.ctypes.data, "ptr_B": b.ctypes.data, "K": 16, "stride_A": 16, "alpha": 1.0}
    assert set(buffers) == {"ptr_A", "ptr_B"}
    assert bind(SCHEMA, {"A": a, "B": b, "K": 10, "alpha": 2})[0]["K"] == 10


def test_bind_does_not_guess() -> None:
    a, b = np.zeros((3, 8), np.uint8), np.zeros((5, 9), np.uint8)
    with pytest.raises(ArgumentError, match=r"cannot be read off the arrays: got 16 by A, 18 by B.*pass K"):
        bind(SCHEMA, {"A": a, "B": b})
    with pytest.raises(
        ArgumentError, match=r"argument 2 of gemm is missing: K.*also missing: stride_A.*A and B as arrays"
    ):
        bind(SCHEMA, {"A": 4096, "B": 8192})
    with pytest.raises(ArgumentError, match="argument 0 of gemm is missing: ptr_A"):
        bind(SCHEMA, {"B": b, "K": 1, "stride_A": 1})


def test_bind_takes_a_scalar_from_an_array_of_one() -> None:
    values, _ = bind(SCHEMA, {"A": 1, "B": 2, "K": 3, "stride_A": 4, "alpha": np.array(0.5)})
    assert values["alpha"] == 0.5
    with pytest.raises(ArgumentError, match=r"got an array of shape \(2,\), need a number"):
        bind(SCHEMA, {"A": 1, "B": 2, "K": 3, "stride_A": 4, "alpha": np.zeros(2)})
