"""topksoftmax: indices are compared exactly, weights within what f32 arithmetic without a maximum allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi.families.topksoftmax import FAMILY
from asmlaunch.validate.compare import EXACT, Bound
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference
from asmlaunch.validate.rows import top_k_softmax


@dataclass(frozen=True)
class Sizes(Case):
    """The k largest of the softmax of each row of ``batch`` rows of logits.

    Attributes:
        batch: rows.
        levels: different logits in a row, the number of experts or fewer; equal ones go to the lower index first.
        spread: logits lie between minus this and this (the sum of their exponentials has to stay below e^87).
        shift: added to every logit.
        renormalize: 1 to divide the weights by their sum.
        pad: columns between rows of the results.
    """

    batch: int
    levels: int
    spread: int = 8
    shift: int = 0
    renormalize: int = 0
    pad: int = 0


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    return {
        "batch": case.batch, "expert": p["experts"], "topk": p["k"], "renormalize": case.renormalize,
        "out_stride": 4 * (p["k"] + case.pad),
    }  # fmt: skip


def build(case: Sizes, p: Parameters) -> Problem:
    """Logits on a grid, so that which is larger does not depend on rounding, in another order in each row."""
    random = np.random.default_rng(case.seed)
    experts, k = p["experts"], p["k"]
    grid = np.linspace(-case.spread, case.spread, max(case.levels, 1))[np.arange(experts) % max(case.levels, 1)]
    logits = np.array([random.permutation(grid) for _ in range(case.batch)], np.float32) + np.float32(case.shift)
    indices, weights = (
        Canvas(case.batch, k, dtype, more_rows=p["rows"], more_columns=case.pad) for dtype in (np.int32, np.float32)
    )
    largest = case.spread + abs(case.shift)
    # exp(x) is computed as 2^(x * log2 e): the product, the constant and the function's result are each rounded to f32,
    # of which the first two count as many times as the exponent is large; then sums of the experts and of the k
    # weights in f32, two reciprocals and two products.
    steps = 2 * (2 * largest * math.log2(math.e) + 2) + math.log2(experts) + p["k"] + 8
    bound = Bound(0.0, steps * F32_STEP, 0.0)

    def reference(which: int) -> Reference:
        found = top_k_softmax(logits, k, renormalize=bool(case.renormalize))[which].astype(np.float64)
        return Reference(found, found)

    outputs = (
        Output("T", indices.inside, lambda: reference(0), EXACT, indices),
        Output("W", weights.inside, lambda: reference(1), bound, weights),
    )
    return Problem(({"T": indices.whole, "W": weights.whole, "A": logits},), outputs)


def cases(p: Parameters) -> Sequence[Sizes]:
    """A partial workgroup, results apart; renormalised; ties; one row; logits far from zero on either side."""
    rows, experts = p["rows"], p["experts"]
    return (
        Sizes(batch=2 * rows + 1, levels=experts, pad=3),
        Sizes(batch=rows + 3, levels=experts, renormalize=1),
        Sizes(batch=rows, levels=experts // 16, renormalize=1, pad=1),
        Sizes(batch=1, levels=2),
        Sizes(batch=rows, levels=experts, shift=70),
        Sizes(batch=rows, levels=experts, shift=-70),
    )


DEFINITION = Definition(FAMILY, "topksoftmax_*.co", Sizes, sizes, build, cases)
