"""What the operators compute when no kernel is used."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from asmlaunch import layouts, validate


def gemm_a4w4(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    *,
    prepared: bool,
    shuffled: bool,
) -> torch.Tensor:
    """``a x b^T``: float64 on the CPU, Triton on a GPU (:func:`on_gpu`), rounded to bfloat16.

    Args:
        a, b, a_scale, b_scale: bytes, as for :func:`asmlaunch.ops.gemm_a4w4`.
        prepared: whether the scales are tiled.
        shuffled: whether prepared weights are shuffled.
    """
    if prepared:
        columns = -(-a.shape[1] // 16)
        a_scale = layouts.untile_scales(a_scale, (a.shape[0], columns))
        b_scale = layouts.untile_scales(b_scale, (b.shape[0], columns))
        b = layouts.unshuffle_weights(b) if shuffled else b
    if a.device.type == "cpu":
        numpy = (operand.contiguous().numpy() for operand in (a, b, a_scale, b_scale))
        return torch.from_numpy(validate.gemm_a4w4(*numpy).value).to(torch.bfloat16)
    return on_gpu(a, b, a_scale, b_scale)


def on_gpu(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
    """``a x b^T`` of operands in logical order: the Triton reference, or torch in float32 where Triton is missing."""
    if importlib.util.find_spec("triton") is not None:
        from asmlaunch import triton_ref

        return triton_ref.gemm_a4w4(a, b, a_scale, b_scale)
    pairs: tuple[tuple[Any, Any], ...] = ((a, a_scale), (b, b_scale))
    left, right = (layouts.dequantize_mxfp4(codes, scales) for codes, scales in pairs)
    return (left @ right.T).to(torch.bfloat16)
