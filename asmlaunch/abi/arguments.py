"""Argument values: an array, a tensor or a number becomes what the kernarg segment holds, an address or a number."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asmlaunch.errors import ArgumentError


@dataclass(frozen=True)
class Buffer:
    """The memory a pointer argument refers to.

    Attributes:
        name: the argument's name.
        address, nbytes: where it is, in bytes.
        writable: whether a kernel may write it.
        owner: the array; holding it keeps the memory alive.
        shape: extents, outermost first; () when unknown.
        strides: bytes between neighbours along each axis.
        dtype: name of the element type, such as ``"uint8"`` or ``"bfloat16"``; "" when unknown.
        on_gpu: whether the address is in a GPU's memory.
    """

    name: str
    address: int
    nbytes: int
    writable: bool
    owner: object = field(repr=False)
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dtype: str = ""
    on_gpu: bool = False


def resolve(name: str, value: Any) -> tuple[Any, Buffer | None]:
    """The number to pack for an argument, and the buffer behind it when it is an array.

    Takes numpy arrays, torch tensors, anything with ``__cuda_array_interface__``, ``__array_interface__`` or DLPack,
    and as they are: numbers, bytes, and None (a null pointer, 0).

    Raises:
        ArgumentError: an array that is not C-contiguous, or a value of another kind.
    """
    if value is None:
        return 0, None
    if isinstance(value, Buffer):
        return value.address, value
    # A 0-d array is a scalar only when it is numpy's scalar type: np.array(3) has memory, np.int32(3) has none to keep.
    if isinstance(value, (int, float, bytes, np.generic)):
        return value, None
    buffer = _buffer(name, value)
    if buffer is not None:
        return buffer.address, buffer
    if hasattr(value, "__index__") or hasattr(value, "__float__"):
        return value, None
    raise ArgumentError(
        f"argument {name}",
        got=type(value).__name__,
        need="a number, an address, None, or an array (numpy, torch, __cuda_array_interface__ or DLPack)",
    )


def _buffer(name: str, value: Any) -> Buffer | None:
    if isinstance(value, np.ndarray):
        return _from_numpy(name, value, value)
    if _is_torch(value):
        return _from_torch(name, value)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(name, value, value.__cuda_array_interface__, on_gpu=True)
    if hasattr(value, "__array_interface__"):
        return _from_interface(name, value, value.__array_interface__, on_gpu=False)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(name, value)
    return None


def _from_numpy(name: str, array: np.ndarray, owner: object) -> Buffer:
    if not array.flags.c_contiguous:
        raise _not_contiguous(name, array.shape, array.strides)
    return Buffer(
        name,
        array.ctypes.data,
        array.nbytes,
        array.flags.writeable,
        owner,
        array.shape,
        array.strides,
        array.dtype.name,
    )


def _is_torch(value: Any) -> bool:
    # No import: a value cannot be a tensor unless its class comes from torch.
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(value).__mro__)


def _from_torch(name: str, tensor: Any) -> Buffer:
    itemsize = tensor.element_size()
    strides = tuple(step * itemsize for step in tensor.stride())
    if not tensor.is_contiguous():
        raise _not_contiguous(name, tuple(tensor.shape), strides)
    return Buffer(
        name,
        tensor.data_ptr(),
        tensor.numel() * itemsize,
        True,
        tensor,
        tuple(tensor.shape),
        strides,
        str(tensor.dtype).removeprefix("torch."),
        tensor.device.type != "cpu",
    )


def _from_interface(name: str, owner: Any, interface: Any, *, on_gpu: bool) -> Buffer:
    try:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(int(n) for n in interface["shape"])
        address, read_only = interface["data"]
        given = interface.get("strides")
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"argument {name}: its array interface cannot be read ({error})") from error
    packed = _packed_strides(shape, dtype.itemsize)
    strides = packed if given is None else tuple(int(step) for step in given)
    if not _same_strides(shape, strides, packed):
        raise _not_contiguous(name, shape, strides)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return Buffer(name, int(address or 0), nbytes, not read_only, owner, shape, packed, dtype.name, on_gpu)


class _DLTensor(ctypes.Structure):
    """DLPack's DLTensor, from its C header (dlpack.h, ABI version 0, which every producer still gives by default)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DL_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_DL_CPU = 1


def _from_dlpack(name: str, value: Any) -> Buffer:
    capsule = value.__dlpack__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        tensor = ctypes.cast(get_pointer(capsule, b"dltensor"), ctypes.POINTER(_DLTensor)).contents
    except ValueError as error:
        raise ArgumentError(f"argument {name}: its DLPack capsule cannot be read ({error})") from error
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    packed = _packed_strides(shape, itemsize)
    strides = tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim)) if tensor.strides else packed
    if not _same_strides(shape, strides, packed):
        raise _not_contiguous(name, shape, strides)
    nbytes = int(np.prod(shape, dtype=np.int64)) * itemsize
    dtype = f"{_DL_KINDS.get(tensor.code, f'dlpack{tensor.code}_')}{tensor.bits}"
    address = (tensor.data or 0) + tensor.byte_offset
    # The capsule owns the tensor's description and, for some producers, the memory.
    return Buffer(name, address, nbytes, True, (value, capsule), shape, packed, dtype, tensor.device_type != _DL_CPU)


def _packed_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def _same_strides(shape: tuple[int, ...], strides: tuple[int, ...], packed: tuple[int, ...]) -> bool:
    return 0 in shape or all(n == 1 or a == b for n, a, b in zip(shape, strides, packed, strict=True))


def _not_contiguous(name: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> ArgumentError:
    return ArgumentError(
        f"array {name}",
        got=f"shape {tuple(shape)} with strides {tuple(strides)} bytes",
        need="a C-contiguous array",
        hint="copy it (numpy.ascontiguousarray, tensor.contiguous()), or pass what it is a view of, and the strides",
    )
