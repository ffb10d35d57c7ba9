"""numpy arrays and torch tensors seen as unsigned integers of their element size, and back, without copies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from asmlaunch.errors import LayoutError

if TYPE_CHECKING:
    from asmlaunch.layouts.layout import Layout


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


def as_values(array: Any) -> np.ndarray:
    """A torch tensor in host memory or a numpy array as numpy; bfloat16 of torch becomes float32."""
    if not is_torch(array):
        return np.asarray(array)
    import torch

    return (array.float() if array.dtype == torch.bfloat16 else array).detach().cpu().numpy()


def like(array: Any, result: np.ndarray) -> Any:
    """``result`` (unsigned integers) as the kind and dtype of ``array``."""
    if not is_torch(array):
        return result.view(array.dtype)
    import torch

    return torch.from_numpy(result.view(f"i{result.itemsize}") if result.itemsize > 1 else result).view(array.dtype)


def apply_on_device(layout: Layout, tensor: Any, padded: Sequence[int], pad_value: int) -> Any:
    """:meth:`Layout.apply` on a torch device: in torch operations."""
    unsigned = _device_view(tensor)
    sizes, into_memory = layout.split(padded)
    if tuple(padded) != tuple(tensor.shape):
        filled = unsigned.new_full(tuple(padded), _signed(pad_value, layout.itemsize))
        filled[tuple(slice(size) for size in tensor.shape)] = unsigned
        unsigned = filled
    return unsigned.reshape(sizes).permute(into_memory).contiguous().reshape(tuple(padded)).view(tensor.dtype)


def invert_on_device(layout: Layout, buffer: Any, given: Sequence[int], shape: Sequence[int]) -> Any:
    """:meth:`Layout.invert` on a torch device."""
    unsigned = _device_view(buffer).contiguous().reshape(tuple(given))
    sizes, into_memory = layout.split(given)
    memory = unsigned.reshape([sizes[axis] for axis in into_memory])
    logical = memory.permute([int(i) for i in np.argsort(into_memory)]).reshape(tuple(given))
    return logical[tuple(slice(size) for size in shape)].contiguous().view(buffer.dtype)


def _device_view(tensor: Any) -> Any:
    import torch

    return tensor.detach().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def _signed(value: int, size: int) -> int:
    """torch has no unsigned integers above one byte."""
    return value if size == 1 or value < 256**size // 2 else value - 256**size

