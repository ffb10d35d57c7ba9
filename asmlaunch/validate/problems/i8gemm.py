"""i8gemm and gemm_a8w8_m128: an exact integer product, three roundings to f32, one to bf16.

With K split, each part is rounded to bf16 and added to D in bf16 by workgroups that have zeroed the rows themselves: a
part that is added before the last has zeroed is lost, so the parts of a tile have to be resident together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi.families.base import round_up
from asmlaunch.abi.families.i8gemm import I8GEMM, M128
from asmlaunch.layouts.named import WEIGHTS_32X16
from asmlaunch.validate.compare import Bound
from asmlaunch.validate.matrix import F32_STEP, added_bound, gemm_scaled, split_sum
from asmlaunch.validate.model import Inputs, Model, Operand
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference

_TILE_K = 128

#: The integer sum, two products with scales and the addition of the bias are each rounded to f32, then one rounding to
#: bf16 follows, halves away from zero. The f32 errors move a result over a boundary in about 4 * 2^-24 / 2^-8 of cases.
_BOUND = Bound(1 - 4 * 2.0**-15, 2.0**-8, 4 * F32_STEP, rounding="half_away")


@dataclass(frozen=True)
class Sizes(Case):
    """``C[m, n] = (A[m, k] x B[n, k]^T) * sa[m] * sb[n] + bias[n]``.

    Attributes:
        m, n, k: sizes.
        splits: parts of K that run as workgroups of their own.
        pad: columns between rows, of A (bytes) and of C (elements).
    """

    m: int
    n: int
    k: int
    splits: int = 1
    pad: int = 0


def _parts(case: Sizes, p: Parameters) -> list[slice]:
    """The ranges of K that the splits take."""
    step = case.k // max(case.splits, 1)
    if "tile_m" in p:
        step = round_up(step, _TILE_K)
    ends = [*(step * index for index in range(1, case.splits)), case.k]
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments; ``splits`` is passed as its logarithm where the kernel takes that."""
    logarithm = max(case.splits, 1).bit_length() - 1
    return {
        "m": case.m, "n": case.n, "k": case.k, "ks": case.splits if "tile_m" in p else logarithm,
        "lda": case.k + case.pad, "ldb": case.k, "ldc": 2 * (case.n + case.pad),
    }  # fmt: skip


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    random = np.random.default_rng(case.seed)
    a, b = operands.int8(random, case.m, case.k), operands.int8(random, case.n, case.k)
    spaced = np.zeros((case.m, case.k + case.pad), np.int8)
    spaced[:, : case.k] = a
    scale_a = operands.positive(random, case.m) / np.float32(case.k)
    scale_b = operands.positive(random, case.n)
    bias = random.standard_normal(case.n).astype(np.float32)
    c = Canvas(case.m, case.n, np.uint16, more_rows=3, more_columns=case.pad)
    arguments = {
        "C": c.whole, "A": spaced, "B": operands.shuffle_32(b), "ScaleA": scale_a, "ScaleB": scale_b, "bias": bias,
    }  # fmt: skip

    def evaluate(given: Inputs) -> Reference:
        left, right = given.decoded("A"), given.decoded("B")
        scales, added = (given.decoded("ScaleA"), given.decoded("ScaleB")), given.decoded("bias")
        if case.splits == 1:
            return gemm_scaled(left, right, *scales, added)
        return split_sum(
            [
                gemm_scaled(left[:, part], right[:, part], *scales, None if index else added)
                for index, part in enumerate(_parts(case, p))
            ]
        )

    model = Model(
        {
            "A": Operand(a, ("m", "k"), "int8", room=spaced.shape),
            "B": Operand(b, ("n", "k"), "int8", WEIGHTS_32X16),
            "ScaleA": Operand(scale_a, ("m",), "float32", neutral=1.0),
            "ScaleB": Operand(scale_b, ("n",), "float32", neutral=1.0),
            "bias": Operand(bias, ("n",), "float32", neutral=0.0),
        },
        evaluate,
        parts=_parts(case, p)[0].stop if case.splits > 1 else 0,
    )
    # Kernels that split K add with atomics even when they are told to make one part of it.
    together = {"schedule": "lockstep", "resident": case.splits, "threads": 1} if case.splits > 1 else {}
    bound = added_bound(case.splits) if case.splits > 1 else _BOUND
    return Problem((arguments,), (Output("C", c.inside, model.reference, bound, c, model=model),), together)


def cases(p: Parameters) -> Sequence[Sizes]:
    """A partial row tile with rows apart, one row, and where K can be split, even and uneven parts."""
    rows = p.get("tile_m", 128)
    plain = (Sizes(m=rows + 7, n=256, k=384, pad=64), Sizes(m=1, n=128, k=512))
    if "tile_m" in p:
        return (*plain, Sizes(m=rows + 7, n=128, k=512, splits=2, pad=16), Sizes(m=rows, n=256, k=896, splits=3))
    if p["splits"]:
        return (*plain, *(Sizes(m=rows + 7, n=256, k=512, splits=splits, pad=16) for splits in (2, 4)))
    return plain


I8 = Definition(I8GEMM, "I8gemm_*.co", Sizes, sizes, build, cases)
M128_SPLIT_OR_NOT = Definition(M128, "gemm_a8w8_m128_*.co", Sizes, sizes, build, cases)
