"""float64 references of matrix products of decoded operands in logical order, and what their number formats allow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from asmlaunch.validate.compare import Bound
from asmlaunch.validate.reference import Reference

F32_STEP = 2.0**-24  # one rounding to f32, as a fraction of the value


def gemm(a: np.ndarray, b: np.ndarray) -> Reference:
    """``A[M, K] x B[N, K]^T``."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return Reference(a @ b.T, np.abs(a) @ np.abs(b).T)


def gemm_scaled(
    a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray, bias: np.ndarray | None = None
) -> Reference:
    """``(A[M, K] x B[N, K]^T) * scale_a[m] * scale_b[n] + bias[n]``.

    ``magnitude`` is that of the two terms: the kernels add integers exactly, so products cancel without loss.
    """
    product = np.asarray(a, np.float64) @ np.asarray(b, np.float64).T
    product *= np.asarray(scale_a, np.float64)[:, None] * np.asarray(scale_b, np.float64)
    added = np.zeros(len(b)) if bias is None else np.asarray(bias, np.float64)
    return Reference(product + added, np.abs(product) + np.abs(added))


def gemm_block_scaled(
    a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray, block: int = 128
) -> Reference:
    """``A[M, K] x B[N, K]^T`` with a scale for each row of A and ``block`` of K, and for each ``block x block`` of B.

    Args:
        scale_a: ``[M, ceil(K / block)]``.
        scale_b: ``[ceil(N / block), ceil(K / block)]``.
    """
    a, b = np.array(a, np.float64), np.array(b, np.float64)
    k = a.shape[1]
    a *= np.repeat(np.asarray(scale_a, np.float64), block, axis=1)[:, :k]
    b *= np.repeat(np.repeat(np.asarray(scale_b, np.float64), block, axis=0)[: len(b)], block, axis=1)[:, :k]
    return gemm(a, b)


def split_sum(parts: list[Reference]) -> Reference:
    """The sum of parts that are rounded before they are added: ``magnitude`` is the sum of the parts' own."""
    return Reference(
        np.sum([part.value for part in parts], axis=0), np.sum([np.abs(part.value) for part in parts], axis=0)
    )


def sum_bound(terms: int, dtype: Any, *, rounding: str = "nearest", more: int = 0) -> Bound:
    """What a sum of ``terms`` products added in f32 in any order and rounded once to ``dtype`` keeps.

    Each of the additions loses at most half a step of f32 (2^-24) of a partial sum, which is no larger than the
    products' magnitudes together; rounding to a type of p bits loses 2^-p of the value. An f32 error moves a result
    over a rounding boundary in about (f32 error) / (step of the type) of all cases; the error of a sum of n terms grows
    like sqrt(n) steps, and twice that is allowed.

    Args:
        terms: products added.
        dtype: of the result, "bfloat16", "float16" or "float32".
        more: further roundings to f32, of scales for example.
    """
    bits = {"bfloat16": 8, "float16": 11, "float32": 24}[dtype]
    moved = min(1.0, 2 * math.sqrt(terms) * 2.0 ** (bits - 24))
    smallest = {"float16": 2.0**-25}.get(dtype, 0.0)  # half a step of f16's denormals
    return Bound(1.0 - moved, 2.0**-bits, (terms + more) * F32_STEP, absolute=smallest, rounding=rounding)


def added_bound(parts: int, dtype: str = "bfloat16", *, rounding: str = "nearest") -> Bound:
    """What ``parts`` sums keep that are each rounded to ``dtype`` and then added in it in any order.

    Each part, and each partial sum but the first, loses at most 2^-p of the parts' magnitudes together (and a little
    of that again), p being the bits of the type; a part that is rounded toward zero twice of that. References come from
    :func:`split_sum`.

    Args:
        dtype: "bfloat16" or "float16".
        rounding: of the parts; sums are rounded to nearest.
    """
    step, smallest = {"bfloat16": (2.0**-8, 0.0), "float16": (2.0**-11, 2.0**-25)}[dtype]
    first = 2 if rounding == "toward_zero" else 1
    steps = first + parts - 1
    return Bound(0.0, 0.0, steps * step * (1 + 2.0**-6), absolute=2 * parts * smallest)
