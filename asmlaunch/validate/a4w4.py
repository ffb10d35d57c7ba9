"""A4W4 problems: quantised operands, the launch arguments of an f4gemm kernel made from them, and the reference.

``D[M, N] = A[M, K] x B[N, K]^T`` with A and B in MXFP4 and D in bf16. Operands are prepared as the kernels need them
(scales tiled and padded with 0, weights shuffled where the kernel wants it); the reference sees them in logical order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch import layouts
from asmlaunch.abi.families.base import Family, round_up
from asmlaunch.abi.families.f4gemm import FAMILY
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import KernelNotFoundError
from asmlaunch.validate.compare import BF16_GEMM, Bound, Comparison, compare
from asmlaunch.validate.reference import Reference, gemm_a4w4, gemm_a4w4_split_k

# Run in order, split K equals its model but for partial sums that lie halfway between two bf16 numbers: such an element
# is off by one step of bf16 in one addition, and no partial sum is much larger than the largest result.
SPLIT_K_BOUND = Bound(relative=2.0**-8, cancellation=0.0, of_max=2.0**-8)

_UNWRITTEN = 0xFFFF  # a bf16 NaN: an element that the kernel does not write fails the comparison


@dataclass(frozen=True)
class Case:
    """The size of a problem: rows M, columns N, depth K, K in at most ``2^split_k`` parts, and the seed of its data."""

    m: int
    n: int
    k: int
    split_k: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Problem:
    """Operands in logical order and everything that follows from them.

    Attributes:
        case: its size.
        a, b: packed FP4 bytes, ``[M, K/2]`` and ``[N, K/2]``.
        scale_a, scale_b: E8M0 bytes, ``[M, ceil(K/32)]`` and ``[N, ceil(K/32)]``.
        arguments: what ``Kernel.launch`` takes; the arrays in it are prepared copies of the operands.
        output: the result after a launch, bf16 bits ``[M, N]``, a view of the D array in ``arguments``.
        amax: the largest magnitudes of the blocks of A and of B before they were quantised, as the scales.
    """

    case: Case
    a: np.ndarray
    b: np.ndarray
    scale_a: np.ndarray
    scale_b: np.ndarray
    arguments: dict[str, Any]
    output: np.ndarray
    amax: tuple[np.ndarray, np.ndarray]

    def reference(self) -> Reference:
        """The result in float64; with split K, the model that adds bf16 partial sums in order of K."""
        operands = (self.a, self.b, self.scale_a, self.scale_b)
        if not self.case.split_k:
            return gemm_a4w4(*operands)
        return gemm_a4w4_split_k(*operands, k_per_split=k_per_split(self.case))

    def compare(self) -> Comparison:
        """The output against the reference."""
        return compare(self.output, self.reference(), SPLIT_K_BOUND if self.case.split_k else BF16_GEMM)


def tile(kernel: KernelInfo) -> tuple[int, int]:
    """Rows and columns of D that one workgroup of the kernel computes.

    Raises:
        KernelNotFoundError: a kernel of another family.
    """
    parameters = _parameters(kernel)
    return parameters["tile_m"], parameters["tile_n"]


def k_per_split(case: Case) -> int:
    """Elements of K that one workgroup along z takes: the kernels step by 256."""
    return round_up(case.k >> case.split_k, 256)


def build(kernel: KernelInfo, case: Case) -> Problem:
    """A problem with normally distributed operands, quantised with RoundUp scales, and its launch arguments.

    Raises:
        KernelNotFoundError: a kernel that is not of the f4gemm family. LayoutError: a K that is not even.
    """
    return make(_parameters(kernel), case)


def make(parameters: Mapping[str, Any], case: Case) -> Problem:
    """:func:`build` for a kernel of these parameters (``shuffle``, ``tile_m``, ``tile_n``)."""
    random = np.random.default_rng(case.seed)
    left, right = (random.standard_normal((rows, case.k), np.float32) for rows in (case.m, case.n))
    a, scale_a = layouts.quantize_mxfp4(left)
    b, scale_b = layouts.quantize_mxfp4(right)
    shuffled = parameters["shuffle"] == "BpreShuffle"
    # Kernels without a row mask write whole tiles, so D has room for them.
    d = np.full((round_up(case.m, parameters["tile_m"]), case.n), _UNWRITTEN, np.uint16)
    arguments = {
        "D": d,
        "A": a,
        "B": _shuffled(b) if shuffled else b,
        "ScaleA": layouts.tile_scales(scale_a),
        "ScaleB": layouts.tile_scales(scale_b),
        "log2_k_split": case.split_k,
        "K": case.k,  # padded weights are wider
    }
    amax = _amax(left), _amax(right)
    return Problem(case, a, b, scale_a, scale_b, arguments, d[: case.m], amax)


def _amax(values: np.ndarray) -> np.ndarray:
    """The largest magnitude of each block of 32, the last of which may be shorter."""
    return np.maximum.reduceat(np.abs(values), np.arange(0, values.shape[1], 32), axis=1)


def _shuffled(b: np.ndarray) -> np.ndarray:
    """Shuffled weights, padded to whole blocks of 32 bytes: the zero scales of the padding make it harmless."""
    return layouts.shuffle_weights(np.pad(b, ((0, 0), (0, -b.shape[1] % 32))))


def _parameters(kernel: KernelInfo, family: Family = FAMILY) -> dict[str, Any]:
    parameters = family.parameters(kernel)
    if parameters is None:
        raise KernelNotFoundError(f"kernel {kernel.name}", got="another family", need=f"a kernel of {family.name}")
    return parameters
