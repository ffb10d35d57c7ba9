"""Which matrices a tensor descriptor can address, and copies of those that none can.

Source of the limits: CUDA driver API, cuTensorMapEncodeTiled (addresses and strides are multiples of 16 bytes, strides
below 2^40).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from asmlaunch.triton_ref import _jit_copy
from asmlaunch.triton_ref.workspace import Scratch

_LINE = 128
_ROWS, _COLUMNS = 16, 64
_INTEGERS = {4: torch.int32, 2: torch.int16, 1: torch.int8}


def described(tensor: torch.Tensor) -> bool:
    """Whether a descriptor can address a matrix: one dimension contiguous, the other in steps of 16 bytes."""
    strides = tensor.stride()
    if 1 not in strides or tensor.data_ptr() % 16 or min(tensor.shape) < 1:
        return False
    other = strides[0] if strides[1] == 1 else strides[1]
    # A matrix of one row may have any stride; a descriptor may not.
    return other * tensor.element_size() % 16 == 0 and other > 0 and other < 2**39


def lined(tensor: torch.Tensor) -> bool:
    """Whether each row of a matrix (column, where those are contiguous) begins at a line of the cache."""
    other = max(tensor.stride())
    return other * tensor.element_size() % _LINE == 0 and tensor.data_ptr() % _LINE == 0


def descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """The descriptor of a matrix that is ``described``; of its transpose, if its columns are contiguous."""
    if tensor.stride(1) != 1:
        tensor, block = tensor.T, block[::-1]
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block)


def aligned(a: torch.Tensor, b: torch.Tensor, scratch: Scratch) -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices, not empty, of one type; those that no descriptor can address as copies, made by one launch."""
    plans = [None if described(t) else _plan(t, name, scratch) for name, t in (("copy of a", a), ("copy of b", b))]
    there = [plan for plan in plans if plan is not None]
    if there:
        first, last = there[0], there[-1]
        tiles = first.tiles if len(there) == 2 else 0
        _jit_copy.copy_rows[(tiles + last.tiles,)](
            first.source, first.target, tiles, *first.source.shape, first.source.stride(), first.target.stride(0),
            last.source, last.target, *last.source.shape, last.source.stride(), last.target.stride(0),
            A_ELEMENTS=first.elements, B_ELEMENTS=last.elements, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=4,
        )  # fmt: skip
    left, right = (t if plan is None else plan.result for t, plan in zip((a, b), plans, strict=True))
    return left, right


@dataclass(frozen=True)
class _Plan:
    """A copy that is to be made.

    Attributes:
        source: bytes next to each other in rows, or elements, as integers.
        target: rows of words of 8 bytes, or of elements.
        elements: whether source and target are elements.
        result: the target as the matrix that was asked for.
    """

    source: torch.Tensor
    target: torch.Tensor
    elements: bool
    result: torch.Tensor

    @property
    def tiles(self) -> int:
        rows, columns = self.source.shape
        return -(-rows // _ROWS) * -(-columns // (_COLUMNS if self.elements else 8 * _COLUMNS))


def _plan(tensor: torch.Tensor, name: str, scratch: Scratch) -> _Plan:
    # What is contiguous stays so, unless its rows are so short that most of a line would be padding.
    size = tensor.element_size()
    turned = tensor.stride(0) < tensor.stride(1)
    source = tensor.T if turned else tensor
    if source.shape[1] * size < _LINE and source.shape[0] > source.shape[1]:
        source, turned = source.T, not turned
    rows, columns = source.shape
    width = -(-columns * size // _LINE) * _LINE // size
    target = scratch.get(name, rows * width, tensor.dtype).view(rows, width)
    result = target[:, :columns]
    elements = source.stride(1) != 1
    integer = _INTEGERS[size]
    return _Plan(
        source.view(integer if elements else torch.int8), target.view(integer if elements else torch.int64), elements,
        result.T if turned else result,
    )  # fmt: skip
