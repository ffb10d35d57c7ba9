"""f4gemm: the A4W4 problems of ``validate.a4w4``, with the sizes at which its kernels differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi.families.base import round_up
from asmlaunch.abi.families.f4gemm import FAMILY, masks_columns, splits_k, uses_alpha
from asmlaunch.layouts.named import SCALES_32X8, WEIGHTS_16X16
from asmlaunch.validate import a4w4
from asmlaunch.validate.compare import BF16_GEMM
from asmlaunch.validate.model import Inputs, Model, Operand
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference, gemm_a4w4, gemm_a4w4_split_k
from asmlaunch.validate.references import triton_a4w4


@dataclass(frozen=True)
class Sizes(Case):
    """``D[m, n] = A[m, k] x B[n, k]^T``.

    Attributes:
        m, n, k: sizes.
        split_k: log2 of the parts of K.
        pad: columns of D between its rows.
        alpha: factor of the product, in 128ths: products with few bits are exact in f32, near ties are not.
    """

    m: int
    n: int
    k: int
    split_k: int = 0
    pad: int = 0
    alpha: int = 128


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    columns = round_up(-(-case.k // 32), 8)
    block = 64 if p["shuffle"] == "BpreShuffle" else 1  # columns of shuffled weights go in blocks
    return {
        "alpha": case.alpha / 128,
        "M": case.m, "N": case.n, "K": case.k, "log2_k_split": case.split_k, "stride_C0": case.n + case.pad,
        "stride_A0": case.k, "stride_B0": round_up(case.k, block), "stride_ScaleA0": columns, "stride_ScaleB0": columns,
    }  # fmt: skip


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    made = a4w4.make(p, a4w4.Case(case.m, case.n, case.k, case.split_k, case.seed))
    # A kernel without a row mask may write the rest of its last tile.
    rows = case.m if p["shuffle"] == "BpreShuffle" else round_up(case.m, p["tile_m"])
    d = Canvas(rows, case.n, np.uint16, more_rows=p["tile_m"], more_columns=case.pad)
    if case.split_k:
        d.zeroed()
    bound = a4w4.SPLIT_K_BOUND if case.split_k else BF16_GEMM

    part = a4w4.k_per_split(made.case) if case.split_k else 0

    def evaluate(given: Inputs) -> Reference:
        a, b, scale_a, scale_b = (given.values[name] for name in ("A", "B", "ScaleA", "ScaleB"))
        if part:
            return gemm_a4w4_split_k(a, b, scale_a, scale_b, k_per_split=part, alpha=given.factors["alpha"])
        return gemm_a4w4(a, b, scale_a, scale_b, alpha=given.factors["alpha"])

    def triton() -> np.ndarray:
        return triton_a4w4(made.a, made.b, made.scale_a, made.scale_b, alpha=case.alpha / 128)

    # Parts of K that are rounded to bfloat16 before they are added are the kernels' own way.
    weights = WEIGHTS_16X16 if p["shuffle"] == "BpreShuffle" else None
    model = Model(
        {
            "A": Operand(made.a, ("m", "k"), "mxfp4"),
            "B": Operand(made.b, ("n", "k"), "mxfp4", weights),
            "ScaleA": _scales(made.scale_a, "m", made.arguments["ScaleA"], made.amax[0]),
            "ScaleB": _scales(made.scale_b, "n", made.arguments["ScaleB"], made.amax[1]),
        },
        evaluate,
        {"alpha": case.alpha / 128},
        {"alpha": 1.0},
        parts=part,
    )
    output = Output("D", d.inside[: case.m], model.reference, bound, d, None if case.split_k else triton, model=model)
    return Problem(({**made.arguments, "D": d.whole},), (output,))


def _scales(values: np.ndarray, rows: str, tiled: np.ndarray, amax: np.ndarray) -> Operand:
    """E8M0 scales; byte 127 is 1."""
    return Operand(values, (rows, "k"), "e8m0", SCALES_32X8, tiled.shape, neutral=127, amax=amax)


def cases(p: Parameters) -> Sequence[Sizes]:
    """A partial tile along M, N and K, D's rows apart; one row and one step; the least K; alpha; the splits of K."""
    rows, columns = p["tile_m"], p["tile_n"]
    masked = masks_columns(p["shuffle"], rows, columns)
    first = Sizes(m=rows + 7, n=columns + 32 if masked else 2 * columns, k=416, pad=32)
    found = [first, Sizes(m=1, n=32 if masked else columns, k=256), Sizes(m=rows - 1, n=columns, k=32)]
    if uses_alpha(p["shuffle"], rows, columns):
        found.append(dataclasses.replace(first, alpha=-47))
    if splits_k(p["shuffle"], rows, columns):
        found += [dataclasses.replace(first, k=1024, split_k=1), Sizes(m=rows, n=columns, k=1792, split_k=3)]
    return found


DEFINITION = Definition(FAMILY, "f4gemm_*.co", Sizes, sizes, build, cases)
