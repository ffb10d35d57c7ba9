"""float64 references of kernels, written without any code of asmlaunch.layouts or of the emulator.

The bytes are decoded here once more, from the text of the OCP Microscaling specification, so that a mistake in the code
that prepares a kernel's operands cannot hide in what its result is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.validate.bfloat16 import round_bfloat16

_E2M1_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True)
class Reference:
    """What a kernel should compute.

    Attributes:
        value: float64, the result before any rounding.
        magnitude: float64, for each element the sum of the magnitudes of the products it is the sum of: what f32
            accumulation loses under cancellation is a fraction of this.
        slack: float64, by how much an element may be off besides what a bound allows: roundings inside the kernel that
            fall on another side of a boundary than those of the reference.
    """

    value: np.ndarray
    magnitude: np.ndarray
    slack: np.ndarray | float = 0.0


def decode_mxfp4(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float64 ``[rows, K]`` of packed E2M1 ``[rows, K/2]`` and one E8M0 byte a 32 elements, ``[rows, ceil(K/32)]``.

    Raises:
        LayoutError: arrays that are not bytes, or whose shapes do not belong together.
    """
    packed, scales = np.asarray(packed), np.asarray(scales)
    _check_matrix(packed, scales)
    rows, k = packed.shape[0], 2 * packed.shape[1]
    pairs = np.array([[_nibble(byte % 16), _nibble(byte // 16)] for byte in range(256)])
    powers = np.array([2.0 ** (byte - 127) for byte in range(255)] + [np.nan])
    values = pairs[packed.view(np.uint8)].reshape(rows, k)
    factors = powers[scales.view(np.uint8)]
    for block in range(factors.shape[1]):
        values[:, 32 * block : 32 * block + 32] *= factors[:, block : block + 1]
    return values


def _nibble(code: int) -> float:
    return _E2M1_MAGNITUDES[code % 8] * (-1.0 if code >= 8 else 1.0)


def gemm_a4w4(
    a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray, *, alpha: float = 1.0
) -> Reference:
    """``alpha * A x B^T`` of MXFP4 matrices in logical order (nothing tiled, nothing shuffled).

    Args:
        a: bytes ``[M, K/2]``, element 2i of K in the low nibble.
        b: bytes ``[N, K/2]``.
        scale_a: bytes ``[M, ceil(K/32)]``.
        scale_b: bytes ``[N, ceil(K/32)]``.
        alpha: factor on the result.

    Returns:
        float64 arrays ``[M, N]``.

    Raises:
        LayoutError: arrays that are not bytes, or whose shapes do not belong together.
    """
    _check_operands(a, b, scale_a, scale_b)
    right = decode_mxfp4(b, scale_b)
    value, magnitude = (np.empty((len(a), len(b))) for _ in range(2))
    right_magnitude = np.abs(right)
    for rows in _row_chunks(len(a), right.shape[1]):
        left = decode_mxfp4(a[rows], scale_a[rows])
        # A NaN scale poisons every product of its row, zeros included, and BLAS keeps that.
        with np.errstate(invalid="ignore", over="ignore"):
            value[rows] = alpha * (left @ right.T)
            magnitude[rows] = abs(alpha) * (np.abs(left) @ right_magnitude.T)
    return Reference(value, magnitude)


def gemm_a4w4_split_k(
    a: np.ndarray,
    b: np.ndarray,
    scale_a: np.ndarray,
    scale_b: np.ndarray,
    *,
    k_per_split: int,
    alpha: float = 1.0,
) -> Reference:
    """The model of a split-K GEMM that adds bf16 partial sums into D, one K range after the other.

    Each partial sum over ``k_per_split`` elements of K is rounded to bf16; starting from D = 0 they are added in order
    of K, and D is rounded to bf16 after each addition. ``value`` holds the resulting bf16 numbers.

    Args:
        a, b, scale_a, scale_b, alpha: as for :func:`gemm_a4w4`.
        k_per_split: elements of K a split, a multiple of 32.

    Raises:
        LayoutError: as :func:`gemm_a4w4`, or a ``k_per_split`` that is not a positive multiple of 32.
    """
    if k_per_split <= 0 or k_per_split % 32:
        raise LayoutError("k_per_split", got=k_per_split, need="a positive multiple of 32")
    _check_operands(a, b, scale_a, scale_b)
    total = np.zeros((len(a), len(b)))
    magnitude = np.zeros((len(a), len(b)))
    for start in range(0, 2 * a.shape[1], k_per_split):
        byte, block = slice(start // 2, (start + k_per_split) // 2), slice(start // 32, (start + k_per_split) // 32)
        partial = gemm_a4w4(a[:, byte], b[:, byte], scale_a[:, block], scale_b[:, block], alpha=alpha)
        # The sum of two bf16 numbers is exact in float64 unless one is too small to matter.
        total = round_bfloat16(total + round_bfloat16(partial.value))
        magnitude += partial.magnitude
    return Reference(total, magnitude)


def _check_matrix(packed: np.ndarray, scales: np.ndarray) -> None:
    for what, array in (("packed FP4", packed), ("scales", scales)):
        if array.dtype.itemsize != 1 or array.ndim != 2:
            raise LayoutError(what, got=f"{array.dtype} of shape {array.shape}", need="bytes in two dimensions")
    k = 2 * packed.shape[1]
    need = (packed.shape[0], -(-k // 32))
    if scales.shape != need:
        raise LayoutError("scales in logical order", got=f"shape {scales.shape}", need=f"{need} for K={k}")


def _check_operands(a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray) -> None:
    _check_matrix(a, scale_a)
    _check_matrix(b, scale_b)
    if a.shape[1] != b.shape[1]:
        raise LayoutError("operands of a GEMM", got=f"A {a.shape}, B {b.shape}", need="[M, K/2] and [N, K/2] bytes")


def _row_chunks(rows: int, k: int) -> Iterator[slice]:
    """Slices of rows whose float64 values stay within a fixed amount of memory."""
    step = max(1, _CHUNK_BYTES // (8 * max(k, 1)))
    return (slice(start, start + step) for start in range(0, rows, step))
