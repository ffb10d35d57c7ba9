"""bf16gemm: sums of exact products in f32; every split of K adds its part to D."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi.families.bf16gemm import FAMILY
from asmlaunch.validate.compare import EXACT
from asmlaunch.validate.matrix import gemm, sum_bound
from asmlaunch.validate.model import Model, Operand
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem


@dataclass(frozen=True)
class Sizes(Case):
    """``D[m, n] = A[m, k] x B[n, k]^T``.

    Attributes:
        m, n, k: sizes.
        splits: parts of K that run as workgroups of their own.
        pad: columns of D between its rows.
        integers: 1 for small integers, whose sums are exact in f32.
    """

    m: int
    n: int
    k: int
    splits: int = 1
    pad: int = 0
    integers: int = 0


def sizes(case: Sizes, _: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    return {
        "M": case.m, "N": case.n, "K": case.k, "splitk": case.splits,
        "stride_A0": 2 * case.k, "stride_B0": 2 * case.k, "stride_C0": 4 * (case.n + case.pad),
    }  # fmt: skip


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    random = np.random.default_rng(case.seed)
    make = operands.bfloat16_integers if case.integers else operands.bfloat16
    a, b = make(random, case.m, case.k), make(random, case.n, case.k)
    d = Canvas(case.m, case.n, np.float32, more_rows=p["tile_m"], more_columns=case.pad)
    if case.splits > 1:
        d.zeroed()
    bound = EXACT if case.integers else sum_bound(case.k + case.splits, "float32")
    model = Model(
        {"A": Operand(a, ("m", "k"), "bfloat16"), "B": Operand(b, ("n", "k"), "bfloat16")},
        lambda given: gemm(given.decoded("A"), given.decoded("B")),
        parts=case.k // 64 // case.splits * 64 if case.splits > 1 else 0,  # the last takes the rest
    )
    output = Output("D", d.inside, model.reference, bound, d, model=model)
    return Problem(({"D": d.whole, "A": a, "B": b},), (output,))


def cases(p: Parameters) -> Sequence[Sizes]:
    """A partial row tile and several column tiles with rows apart; an uneven split; the smallest; exact sums."""
    rows = p["tile_m"]
    return (
        Sizes(m=rows + 5, n=128, k=192, pad=16),
        Sizes(m=rows + 1, n=64, k=64 * 7, splits=3, pad=8),
        Sizes(m=1, n=64, k=64),
        Sizes(m=2 * rows, n=192, k=512, integers=1),
        Sizes(m=rows - 1, n=64, k=1024, splits=16, integers=1),
    )


DEFINITION = Definition(FAMILY, "bf16gemm_*.co", Sizes, sizes, build, cases)
