"""f8_block_scale and flatmm: fp8 products with one scale for each row of A and 128 of K, and each 128x128 of B.

Products are summed in f32 a block, and each block's sum is multiplied by its scales and added in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi.families import flatmm, fp8_block_scale
from asmlaunch.layouts import Layout
from asmlaunch.layouts.named import WEIGHTS_16X16
from asmlaunch.validate.matrix import gemm_block_scaled, sum_bound
from asmlaunch.validate.model import Model, Operand
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem

_BLOCK = 128
_SCALE_ROUNDINGS = 2  # the product of the two scales, and the multiplication by it


@dataclass(frozen=True)
class Sizes(Case):
    """``D[m, n] = sum over blocks of (A[m, block] x B[n, block]^T) * xs[m, block] * ws[n/128, block]``.

    Attributes:
        m, n, k: sizes.
        pad: bytes between rows of A, elements between rows of D (f8_block_scale only).
        splits: log2 of the parts of K (f8_block_scale only, and wrong there unless 0).
    """

    m: int
    n: int
    k: int
    pad: int = 0
    splits: int = 0


@dataclass(frozen=True)
class _Made:
    """Operands in the kernel's layout, and the result's reference."""

    a: np.ndarray
    b: np.ndarray
    scale_a: np.ndarray  # [blocks of K, M]
    scale_b: np.ndarray  # [blocks of N, blocks of K]
    output: Callable[[Canvas, str], Output]


_TRANSPOSED = Layout("r c -> c r", itemsize=4, name="transposed")


def _make(case: Sizes, form: str, scale_b_layout: Layout | None) -> _Made:
    random = np.random.default_rng(case.seed)
    a, b = (operands.e4m3(random, rows, case.k, form=form) for rows in (case.m, case.n))
    steps = operands.blocks(case.k)
    scale_a = operands.positive(random, case.m, steps)
    scale_b = operands.positive(random, operands.blocks(case.n), steps)
    spaced = np.zeros((case.m, case.k + case.pad), np.uint8)
    spaced[:, : case.k] = a

    model = Model(
        {
            "A": Operand(a, ("m", "k"), form, room=spaced.shape),
            "B": Operand(b, ("n", "k"), form, WEIGHTS_16X16),
            "ScaleA": Operand(scale_a, ("m", "k"), "float32", _TRANSPOSED, neutral=1.0),
            "ScaleB": Operand(scale_b, ("n", "k"), "float32", scale_b_layout, neutral=1.0),
        },
        lambda given: gemm_block_scaled(
            given.decoded("A"), given.decoded("B"), given.decoded("ScaleA"), given.decoded("ScaleB")
        ),
    )

    def output(d: Canvas, dtype: str) -> Output:
        bound = sum_bound(case.k + steps, dtype, more=_SCALE_ROUNDINGS)
        return Output("D", d.inside, model.reference, bound, d, model=model)

    return _Made(spaced, operands.shuffle_16(b), np.ascontiguousarray(scale_a.T), scale_b, output)


def _cases(rows: int) -> tuple[Sizes, ...]:
    """A partial row tile and several column tiles; one row and one block of K; a longer sum."""
    return (Sizes(m=rows + 5, n=512, k=384), Sizes(m=1, n=256, k=128), Sizes(m=rows, n=256, k=1024))


def _mi350_sizes(case: Sizes, _: Parameters) -> Mapping[str, Any]:
    return {
        "M": case.m, "N": case.n, "K": case.k, "splitk": case.splits,
        "stride_A": case.k + case.pad, "stride_B": case.k, "stride_D": 2 * (case.n + case.pad),
    }  # fmt: skip


def _mi350(case: Sizes, p: Parameters) -> Problem:
    made = _make(case, "e4m3fn", None)
    d = Canvas(case.m, case.n, np.uint16, more_rows=p["tile_m"] << case.splits, more_columns=case.pad)
    arguments = {"D": d.whole, "A": made.a, "B": made.b, "ScaleA": made.scale_a, "ScaleB": made.scale_b}
    # After the last step LDS is used again without a barrier: waves have to advance together.
    return Problem((arguments,), (made.output(d, "bfloat16"),), {"schedule": "lockstep"})


def _flatmm_sizes(case: Sizes, _: Parameters) -> Mapping[str, Any]:
    return {"M": case.m, "N": case.n, "K": case.k}


def _flatmm(case: Sizes, p: Parameters) -> Problem:
    made = _make(case, "e4m3fnuz", _TRANSPOSED)
    d = Canvas(case.m, case.n, np.float16, more_rows=p["tile_m"])
    scale_b = np.ascontiguousarray(made.scale_b.T)
    arguments = {"D": d.whole, "A": made.a, "B": made.b, "ScaleA": made.scale_a, "ScaleB": scale_b}
    return Problem((arguments,), (made.output(d, "float16"),))


def _mi350_cases(p: Parameters) -> Sequence[Sizes]:
    first, *others = _cases(p["tile_m"])
    return (Sizes(first.m, first.n, first.k, pad=32), *others)


MI350 = Definition(fp8_block_scale.FAMILY, "f8_block_scale_*.co", Sizes, _mi350_sizes, _mi350, _mi350_cases)
FLATMM = Definition(flatmm.FAMILY, "flatmm_*.co", Sizes, _flatmm_sizes, _flatmm, lambda p: _cases(p["tile_m"]))
