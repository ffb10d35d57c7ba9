"""The torch operators: ``asmlaunch_triton::addmm`` and ``asmlaunch_triton::gemm_a4w4``, and forms that write ``out``.

Operands were checked when these are called; what is left is the fakes, the gradients and the launch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from asmlaunch.triton_ref import dense, mx
from asmlaunch.triton_ref.tiles import SCHEDULES, Config

NAMESPACE = "asmlaunch_triton"


def encode(config: Config | None) -> list[int]:
    """A configuration as integers, which a schema can carry; none is empty."""
    if config is None:
        return []
    values = dataclasses.astuple(config)
    return [*values[:5], SCHEDULES.index(config.schedule), *values[6:]]


def _decode(values: list[int]) -> Config | None:
    if not values:
        return None
    block_m, block_n, block_k, warps, stages, schedule, *rest = values
    return Config(block_m, block_n, block_k, warps, stages, SCHEDULES[schedule], *rest)


def _run(
    c: torch.Tensor | None,
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor | None,
    column_scale: torch.Tensor | None,
    alpha: float,
    beta: float,
    schedule: str,
    config: list[int],
    out: torch.Tensor,
) -> None:
    m, n = out.shape
    if not out.numel():
        return
    if not a.shape[1]:
        out.zero_()
        if c is not None:
            out.copy_(c.expand(m, n).float() * beta)
        return
    dense.launch(
        a, b, out, c=None if c is None else c.expand(m, n), alpha=alpha, beta=beta, row_scale=row_scale,
        column_scale=column_scale, schedule=schedule or None, config=_decode(config),
    )  # fmt: skip


@torch.library.custom_op(f"{NAMESPACE}::addmm", mutates_args=())
def addmm(
    c: torch.Tensor | None,
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor | None,
    column_scale: torch.Tensor | None,
    alpha: float,
    beta: float,
    out_dtype: torch.dtype,
    schedule: str,
    config: list[int],
) -> torch.Tensor:
    """``row_scale * column_scale * alpha * (a x b) + beta * c``, contiguous."""
    out = a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)
    _run(c, a, b, row_scale, column_scale, alpha, beta, schedule, config, out)
    return out


@addmm.register_fake
def _(
    c: torch.Tensor | None, a: torch.Tensor, b: torch.Tensor, row_scale: Any, column_scale: Any, alpha: float,
    beta: float, out_dtype: torch.dtype, schedule: str, config: list[int],
) -> torch.Tensor:  # fmt: skip
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    c, a, b, row_scale, _, alpha, beta, _, schedule, _config = inputs
    ctx.save_for_backward(a, b)
    ctx.c = None if c is None else (c.shape, c.dtype)
    ctx.scaled = row_scale is not None
    ctx.rest = alpha, beta, schedule


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    a, b = ctx.saved_tensors
    alpha, beta, schedule = ctx.rest
    left = right = added = None

    def product(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        result: torch.Tensor = addmm(None, x.to(y.dtype), y, None, None, alpha, 0.0, dtype, schedule, [])
        return result

    if ctx.needs_input_grad[1]:
        left = product(grad, b.T, a.dtype)
    if ctx.needs_input_grad[2]:
        right = product(grad.T, a, b.dtype).T.contiguous()
    if ctx.c is not None and ctx.needs_input_grad[0]:
        shape, dtype = ctx.c
        added = (grad.float() * beta).sum_to_size(shape).to(dtype)
    return added, left, right, None, None, None, None, None, None, None


addmm.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op(f"{NAMESPACE}::addmm_out", mutates_args=("out",))
def addmm_out(
    c: torch.Tensor | None,
    a: torch.Tensor,
    b: torch.Tensor,
    row_scale: torch.Tensor | None,
    column_scale: torch.Tensor | None,
    alpha: float,
    beta: float,
    schedule: str,
    config: list[int],
    out: torch.Tensor,
) -> None:
    """:func:`addmm` into ``out``."""
    _run(c, a, b, row_scale, column_scale, alpha, beta, schedule, config, out)


@addmm_out.register_fake
def _(*_: Any) -> None:
    return None


@torch.library.custom_op(f"{NAMESPACE}::gemm_a4w4", mutates_args=())
def gemm_a4w4(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    rows: int,
    columns: int,
    alpha: float,
    beta: float,
    out_dtype: torch.dtype,
    layouts: str,
    schedule: str,
    split_k: int,
) -> torch.Tensor:
    """``alpha * a x b^T + beta * c + bias``, contiguous; ``rows`` and ``columns`` of it are not padding."""
    out = a.new_empty((rows, columns), dtype=out_dtype)
    _run_mx(a, b, a_scale, b_scale, bias, c, alpha, beta, layouts, schedule, split_k, out)
    return out


@gemm_a4w4.register_fake
def _(
    a: torch.Tensor, b: torch.Tensor, a_scale: Any, b_scale: Any, bias: Any, c: Any, rows: int, columns: int,
    alpha: float, beta: float, out_dtype: torch.dtype, layouts: str, schedule: str, split_k: int,
) -> torch.Tensor:  # fmt: skip
    return a.new_empty((rows, columns), dtype=out_dtype)


@torch.library.custom_op(f"{NAMESPACE}::gemm_a4w4_out", mutates_args=("out",))
def gemm_a4w4_out(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    layouts: str,
    schedule: str,
    split_k: int,
    out: torch.Tensor,
) -> None:
    """:func:`gemm_a4w4` into ``out``."""
    _run_mx(a, b, a_scale, b_scale, bias, c, alpha, beta, layouts, schedule, split_k, out)


@gemm_a4w4_out.register_fake
def _(*_: Any) -> None:
    return None


def _run_mx(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    layouts: str,
    schedule: str,
    split_k: int,
    out: torch.Tensor,
) -> None:
    a_at, b_at, a_scale_at, b_scale_at = layouts.split("|")
    left = mx.operand("a", a, a_scale, a_at, a_scale_at, rows=out.shape[0])
    right = mx.operand("b", b, b_scale, b_at, b_scale_at, rows=out.shape[1])
    mx.check(left, right)
    expanded = None if c is None else c.expand(out.shape)
    mx.run(left, right, out, bias=bias, alpha=alpha, beta=beta, c=expanded, schedule=schedule, split_k=split_k)
