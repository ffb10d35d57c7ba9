"""numpy arrays and torch tensors seen as unsigned integers of their element size, and back, without copies."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from asmlaunch.errors import LayoutError

if TYPE_CHECKING:
    from asmlaunch.layouts.layout import Layout

Function = TypeVar("Function", bound=Callable[..., Any])


def is_torch(array: Any) -> bool:
    """True for a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def on_device(array: Any) -> bool:
    """True for a torch tensor whose memory numpy cannot see."""
    return is_torch(array) and array.device.type != "cpu"


def itemsize(array: Any) -> int:
    """Bytes of one element.

    Raises:
        LayoutError: neither a numpy array nor a torch tensor.
    """
    if is_torch(array):
        return array.element_size()
    if not isinstance(array, np.ndarray):
        raise LayoutError("tensor", got=type(array).__name__, need="a numpy array or a torch tensor")
    return array.dtype.itemsize


def as_unsigned(array: Any) -> np.ndarray:
    """A view of an array in host memory as unsigned integers (numpy) of its element size, strides kept."""
    if is_torch(array):
        import torch

        signed = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[array.element_size()]
        array = array.detach().view(signed).numpy()
    return array.view(f"u{array.dtype.itemsize}")


def byte_view(array: Any, what: str) -> Any:
    """A numpy array or torch tensor of a one-byte type as uint8, of the same kind and on the same device.

    Raises:
        LayoutError: elements of another size.
    """
    if is_torch(array):
        import torch

        if array.element_size() == 1:
            return array.detach().view(torch.uint8)
    else:
        array = np.asarray(array)
        if array.dtype.itemsize == 1:
            return array.view(np.uint8)
    raise LayoutError(what, got=f"dtype {array.dtype}", need="one byte an element")


def accepts_torch(function: Function) -> Function:
    """Let a function of numpy arrays take torch tensors too and give torch tensors back, on the same device.

    One-byte types (float8_e8m0fnu, float4_e2m1fn_x2, ...) arrive as their bytes; tensors on a device go through host
    memory.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        device = next((a.device for a in (*args, *kwargs.values()) if is_torch(a)), None)
        if device is None:
            return function(*args, **kwargs)
        import torch

        def back(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return torch.from_numpy(np.ascontiguousarray(value)).to(device)
            return tuple(map(back, value)) if isinstance(value, tuple) else value

        return back(function(*map(_to_numpy, args), **{name: _to_numpy(value) for name, value in kwargs.items()}))

    return cast(Function, wrapper)


def _to_numpy(value: Any) -> Any:
    if not is_torch(value):
        return value
    import torch

    value = value.detach().cpu()
    if value.element_size() == 1 and value.dtype != torch.int8:
        return value.view(torch.uint8).numpy()
    if value.dtype != torch.bfloat16:
        return value.numpy()
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return value.float().numpy()
    return value.view(torch.int16).numpy().view(bfloat16)


def like(array: Any, result: np.ndarray) -> Any:
    """``result`` (unsigned integers) as the kind and dtype of ``array``."""
    if not is_torch(array):
        return result.view(array.dtype)
    import torch

    return torch.from_numpy(result.view(f"i{result.itemsize}") if result.itemsize > 1 else result).view(array.dtype)


def check_out(out: Any, array: Any, shape: Sequence[int]) -> None:
    """Refuse memory that a result for ``array`` of ``shape`` cannot be written to.

    Raises:
        LayoutError: another kind, device, shape or dtype, or strided memory.
    """
    kind = "a torch tensor" if is_torch(array) else "a numpy array"
    if is_torch(out) != is_torch(array):
        raise LayoutError("out", got=type(out).__name__, need=f"{kind}, as the input")
    contiguous = out.is_contiguous() if is_torch(out) else out.flags.c_contiguous and out.flags.writeable
    placed = not is_torch(out) or out.device == array.device
    if tuple(out.shape) != tuple(shape) or out.dtype != array.dtype or not contiguous or not placed:
        where = f" on {array.device}" if is_torch(array) else ""
        raise LayoutError(
            "out",
            got=f"{out.dtype} of shape {tuple(out.shape)}{'' if contiguous else ', strided or read-only'}",
            need=f"contiguous {array.dtype} of shape {tuple(shape)}{where}",
        )


def apply_on_device(layout: Layout, tensor: Any, padded: Sequence[int], pad_value: int, out: Any | None = None) -> Any:
    """:meth:`Layout.apply` on a torch device: one Triton kernel where Triton can run, torch operations otherwise."""
    unsigned = _device_view(tensor)
    if triton_runs(tensor):
        from asmlaunch.layouts import triton_kernels

        memory = None if out is None else _device_view(out)
        return triton_kernels.apply(layout, unsigned, padded, pad_value, memory).view(tensor.dtype)
    sizes, into_memory = layout.split(padded)
    if tuple(padded) != tuple(tensor.shape):
        filled = unsigned.new_full(tuple(padded), _signed(pad_value, layout.itemsize))
        filled[tuple(slice(size) for size in tensor.shape)] = unsigned
        unsigned = filled
    memory = unsigned.reshape(sizes).permute(into_memory)
    if out is None:
        return memory.contiguous().reshape(tuple(padded)).view(tensor.dtype)
    _device_view(out).view(memory.shape).copy_(memory)
    return out


def invert_on_device(
    layout: Layout, buffer: Any, given: Sequence[int], shape: Sequence[int], out: Any | None = None
) -> Any:
    """:meth:`Layout.invert` on a torch device."""
    unsigned = _device_view(buffer).contiguous().reshape(tuple(given))
    if triton_runs(buffer):
        from asmlaunch.layouts import triton_kernels

        result = None if out is None else _device_view(out)
        return triton_kernels.invert(layout, unsigned, shape, result).view(buffer.dtype)
    sizes, into_memory = layout.split(given)
    memory = unsigned.reshape([sizes[axis] for axis in into_memory])
    logical = memory.permute([int(i) for i in np.argsort(into_memory)]).reshape(tuple(given))
    logical = logical[tuple(slice(size) for size in shape)]
    if out is None:
        return logical.contiguous().view(buffer.dtype)
    _device_view(out).copy_(logical)
    return out


def _device_view(tensor: Any) -> Any:
    import torch

    return tensor.detach().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def _signed(value: int, size: int) -> int:
    """torch has no unsigned integers above one byte."""
    return value if size == 1 or value < 256**size // 2 else value - 256**size


def triton_runs(tensor: Any) -> bool:
    """True if Triton is installed and compiles for the tensor's device."""
    if tensor.device.type != "cuda":
        return False
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
