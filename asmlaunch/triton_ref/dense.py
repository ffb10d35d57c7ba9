"""Launching the dense kernel: strides, descriptors, scratch memory, schedule."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from asmlaunch.triton_ref import _jit_gemm, tiles, workspace
from asmlaunch.triton_ref.descriptors import aligned, described, descriptor, lined
from asmlaunch.triton_ref.hardware import Hardware, hardware_of
from asmlaunch.triton_ref.tiles import Config, Kind

FP8 = {
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.float8_e4m3fnuz: "e4m3fnuz",
}
"""The FP8 types and their names in the kernels."""

_WIDE_FROM = 2**31
_SLICES = (512, 256, 128)
"""Elements of the result that a program adds the parts of, 4 a thread (16 bytes of each part); the first of which there
are two for each unit."""


def kind_of(a: torch.Tensor, b: torch.Tensor, hardware: Hardware) -> Kind:
    """The resources that products of these operands take."""
    size = max(a.element_size(), b.element_size())
    lines = lined(a) and lined(b)
    if a.dtype in FP8 or b.dtype in FP8:
        return Kind(size, 2, 0.7, False, lines)
    if size == 4:
        return Kind(4, 4, 0.05, False, lines)
    return Kind(size, size, 2.0 if size == 1 else 1.0, hardware.tma and size == 2, lines)


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    *,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    row_scale: torch.Tensor | None = None,
    column_scale: torch.Tensor | None = None,
    schedule: str | None = None,
    config: Config | None = None,
    use_tma: bool = True,
    flatten: bool = True,
) -> Config:
    """``out = row_scale * column_scale * alpha * (a x b) + beta * c`` of checked, not empty operands.

    Args:
        a, b, out: ``[M, K]``, ``[K, N]``, ``[M, N]``, any strides.
        c: ``[M, N]``, any strides, 0 included.
        row_scale, column_scale: float32 ``[M]`` and ``[N]``, contiguous; both or neither.
        schedule, config: what to use instead of the model's choice.
        use_tma: load by descriptor where operands allow it, or where copies of them pay that do.
        flatten: let the pipeline run across tiles.

    Returns:
        The configuration that ran.
    """
    (m, k), n = a.shape, b.shape[1]
    hardware = hardware_of(a.device)
    with ExitStack() as stack:
        loose = sum(t.numel() * t.element_size() for t in (a, b) if not described(t))
        if use_tma and loose and tiles.copies_pay(m, n, k, loose, kind_of(a, b, hardware), hardware):
            a, b = aligned(a, b, stack.enter_context(workspace.use(a.device)))
        kind = kind_of(a, b, hardware)
        tma = use_tma and kind.tma and described(a) and described(b)
        kind = replace(kind, tma=tma)
        if config is None:
            config = tiles.choose(m, n, k, kind, hardware, schedule)
        else:
            tiles.require(config, kind, hardware)
        programs, whole = tiles.programs(config, m, n, k, hardware)
        format_a, format_b = (FP8.get(t.dtype, "") for t in (a, b))
        a, b = (t.view(torch.uint8) if t.dtype in FP8 else t for t in (a, b))
        plain = c is None and row_scale is None and alpha == 1
        tma_store = tma and plain and out.stride(1) == 1 and described(out)
        block = (config.block_m, config.block_n, config.block_k)
        left, right, target = _arguments(a, b, out, block, tma, tma_store)
        stream_k = whole != config.tiles(m, n)
        partials = flags = out
        if stream_k:
            scratch = stack.enter_context(workspace.use(a.device))
            partials = scratch.get("partials", programs * config.block_m * config.block_n, torch.float32)
            if not config.parts:
                flags = scratch.flags(programs)
        addend = out if c is None else c
        scales = (out if row_scale is None else row_scale, out if column_scale is None else column_scale)
        strides = (0, 0) if c is None else c.stride(), out.stride()
        shared = {
            "INTEGER": a.dtype == torch.int8, "HAS_C": c is not None, "SCALED": row_scale is not None, "PLAIN": plain,
            "BLOCK_M": config.block_m, "BLOCK_N": config.block_n, "GROUP": config.group,
        }  # fmt: skip
        _jit_gemm.gemm[(programs,)](
            left, right, addend, target, *scales, partials, flags, m, n, k, whole, config.tiles(m, n), programs, alpha,
            beta, a.stride(), b.stride(), *strides, FORMAT_A=format_a, FORMAT_B=format_b, BLOCK_K=config.block_k,
            PERSISTENT=config.schedule != "data_parallel", STREAM_K=stream_k and not config.parts,
            SPLIT=config.parts > 0, TMA=tma, TMA_STORE=tma_store, A_TURNED=tma and a.stride(1) != 1,
            B_TURNED=tma and b.stride(1) != 1, WIDE=_wide(a, b), FLATTEN=flatten, num_warps=config.warps,
            num_stages=config.stages, **shared,
        )  # fmt: skip
        if config.parts:
            area, count = config.block_m * config.block_n, config.tiles(m, n)
            fitting = (s for s in _SLICES if s <= area and count * area >= 2 * hardware.units * s)
            size = next(fitting, _SLICES[-1])
            columns = min(config.block_n, size)
            _jit_gemm.add_parts[(count * area // size,)](
                addend, out, *scales, partials, m, n, programs // count, alpha, beta, *strides,
                ROWS=size // columns, COLUMNS=columns, num_warps=size // 128, **shared,
            )  # fmt: skip
    return config


def _arguments(a: Any, b: Any, out: Any, block: tuple[int, int, int], tma: bool, tma_store: bool) -> tuple[Any, ...]:
    """The operands as the kernel takes them: descriptors, or the tensors themselves."""
    block_m, block_n, block_k = block
    if tma:
        a = descriptor(a, [block_m, block_k])
        b = descriptor(b, [block_k, block_n])
    return a, b, descriptor(out, [block_m, block_n]) if tma_store else out


def _wide(*tensors: torch.Tensor) -> bool:
    """Whether an offset within one of these needs 64 bits."""
    return any(
        sum((size - 1) * abs(stride) for size, stride in zip(t.shape, t.stride(), strict=True)) >= _WIDE_FROM
        for t in tensors
    )
