"""``gemm_a4w4``: MXFP4 matrix multiplication as a torch operator."""

from __future__ import annotations

import os
import warnings
from functools import cache

import torch

from asmlaunch import layouts
from asmlaunch.abi.families.base import round_up
from asmlaunch.choice import choose
from asmlaunch.errors import KernelNotFoundError, LayoutError
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.module import Kernel
from asmlaunch.ops import reference
from asmlaunch.ops.kernels import device_name, kernel_file
from asmlaunch.validate import a4w4 as problems

DISABLE = "ASMLAUNCH_DISABLE"
LAYOUTS = ("logical", "prepared")


def gemm_a4w4(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    *,
    kernel: str | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    split_k: int = 0,
    layout: str = "prepared",
) -> torch.Tensor:
    """``a x b^T`` of MXFP4 matrices: on an AMD GPU by AMD's kernels, on the CPU by the same kernels in the emulator.

    Args:
        a: packed FP4 ``[M, K/2]``, uint8 or float4_e2m1fn_x2, element 2i of K in the low nibble.
        b: packed FP4 ``[N, K/2]``; in the prepared layout shuffled (16, 16) (``layouts.shuffle_weights``), unless
            ``kernel`` names one that takes it as it is.
        a_scale: E8M0 bytes (uint8 or float8_e8m0fnu): ``[M, ceil(K/32)]``, or prepared: ``layouts.tile_scales`` of it.
        b_scale: the same for b.
        kernel: file name of the kernel, or its end; None chooses one (:func:`asmlaunch.choose`).
        out_dtype: type of the result; the kernels compute bfloat16, other types are converted from it.
        split_k: log2 of the parts K is split in; their sums are added in bfloat16, in an order that varies on a GPU.
        layout: ``"prepared"`` or ``"logical"``; logical operands are prepared in the call.

    Returns:
        ``[M, N]``, contiguous.

    Raises:
        LayoutError: operands whose types or shapes do not belong together, or an unknown layout. KernelNotFoundError: a
            kernel that does not exist. DomainError: one that is not right on this problem.

    Without any kernel for the problem, and with ``ASMLAUNCH_DISABLE=1``, the result is a reference's, with one warning.
    """
    result: torch.Tensor = _gemm_a4w4(a, b, a_scale, b_scale, kernel, split_k, layout)
    return result if out_dtype == torch.bfloat16 else result.to(out_dtype)


@torch.library.custom_op("asmlaunch::gemm_a4w4", mutates_args=())
def _gemm_a4w4(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    kernel: str | None,
    split_k: int,
    layout: str,
) -> torch.Tensor:
    operands = a, b, a_scale, b_scale
    _check(operands, layout)
    m, n, k = a.shape[0], b.shape[0], 2 * a.shape[1]
    if 0 in (m, n, k):
        return torch.zeros((m, n), dtype=torch.bfloat16, device=a.device)
    device = device_name(list(operands))
    found = None if os.environ.get(DISABLE) == "1" else _find(kernel, m, n, k, split_k, device)
    # Kernels take the weights shuffled; the one that does not has to be named.
    shuffled = kernel is None or "noBpreShuffle" not in kernel
    a, b, a_scale, b_scale = (operand.view(torch.uint8).contiguous() for operand in operands)
    if found is None:
        return reference.gemm_a4w4(a, b, a_scale, b_scale, prepared=layout == "prepared", shuffled=shuffled)
    if layout == "logical":
        a_scale, b_scale = layouts.tile_scales(a_scale), layouts.tile_scales(b_scale)
        b = layouts.shuffle_weights(b) if shuffled else b
    # A kernel without a row mask writes whole tiles of rows.
    d = torch.empty((round_up(m, problems.tile(found.info)[0]), n), dtype=torch.bfloat16, device=a.device)
    found.launch({"D": d, "A": a, "B": b, "ScaleA": a_scale, "ScaleB": b_scale, "log2_k_split": split_k})
    return d[:m]


@_gemm_a4w4.register_fake
def _(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    kernel: str | None,
    split_k: int,
    layout: str,
) -> torch.Tensor:
    return a.new_empty((a.shape[0], b.shape[0]), dtype=torch.bfloat16)


def _find(name: str | None, m: int, n: int, k: int, split_k: int, device: str) -> Kernel | None:
    """The kernel of that name, or the one chosen for the problem; None, with a warning, where there is none."""
    if name is not None:
        return kernel_file(choose_object(find_objects("f4gemm_*.co"), name), device)
    try:
        return kernel_file(choose("a4w4", m, n, k, device, split_k=split_k).kernel.path, device)
    except KernelNotFoundError as error:
        _warn_once(f"gemm_a4w4 falls back to its reference: {error}")
        return None


@cache
def _warn_once(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)


def _check(operands: tuple[torch.Tensor, ...], layout: str) -> None:
    """Refuse operands that do not belong together, before a kernel reads past one of them."""
    if layout not in LAYOUTS:
        raise LayoutError("layout of gemm_a4w4", got=repr(layout), need=f"one of {', '.join(LAYOUTS)}")
    for name, operand in zip(("a", "b", "a_scale", "b_scale"), operands, strict=True):
        if operand.dim() != 2 or operand.element_size() != 1:
            got = f"{operand.dtype} of shape {tuple(operand.shape)}"
            raise LayoutError(f"operand {name} of gemm_a4w4", got=got, need="a matrix of bytes")
    a, b, a_scale, b_scale = operands
    if a.shape[1] != b.shape[1]:
        raise LayoutError("operands a and b", got=f"K/2 = {a.shape[1]} and {b.shape[1]}", need="the same")
    columns = -(-a.shape[1] // 16)
    for name, operand, scale in (("a", a, a_scale), ("b", b, b_scale)):
        rows = operand.shape[0]
        if layout == "logical":
            need = (rows, columns)
            fits = tuple(scale.shape) == need
            wanted = f"{need}"
        else:
            need = round_up(rows, 32), round_up(columns, 8)
            fits = scale.shape[0] >= need[0] and scale.shape[1] >= need[1] and scale.shape[1] % 8 == 0
            wanted = f"at least {need}, tiled 32x8 (layouts.tile_scales)"
        if not fits:
            raise LayoutError(f"operand {name}_scale in the {layout} layout", got=tuple(scale.shape), need=wanted)
