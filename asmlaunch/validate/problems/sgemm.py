"""sgemm: f32 sums, with alpha, beta and leading dimensions larger than the matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi.families.sgemm import FAMILY
from asmlaunch.validate.compare import Bound
from asmlaunch.validate.model import Inputs, Model, Operand
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference

_STEP = 2.0**-24  # half a step of f32


@dataclass(frozen=True)
class Sizes(Case):
    """``C[m, n] = alpha * A[m, k] x B[k, n] + beta * C``, column major.

    Attributes:
        m, n, k: sizes.
        alpha, beta: factors.
        pad: elements between the columns of each matrix.
    """

    m: int = 128
    n: int = 64
    k: int = 256
    alpha: float = 1.0
    beta: float = 1.0
    pad: int = 0


def sizes(case: Sizes, _: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    return {
        "M": case.m, "N": case.n, "K": case.k, "alpha": case.alpha, "beta": case.beta,
        "lda": case.m + case.pad, "ldb": case.k + case.pad, "ldc": case.m + case.pad,
    }  # fmt: skip


def build(case: Sizes, _: Parameters) -> Problem:
    """Operands, arguments and reference; numpy's rows are the matrices' columns."""
    random = np.random.default_rng(case.seed)
    a = random.standard_normal((case.k, case.m + case.pad), np.float32)
    b = random.standard_normal((case.n, case.k + case.pad), np.float32)
    c = Canvas(case.n, case.m, np.float32, more_columns=case.pad)
    if case.beta:
        c.inside[...] = random.standard_normal(c.inside.shape, np.float32)
    start = np.nan_to_num(c.inside)

    def evaluate(given: Inputs) -> Reference:
        left, right, added = (given.decoded(name) for name in ("A", "B", "C"))
        alpha, beta = given.factors["alpha"], given.factors["beta"]
        product, magnitude = right @ left, np.abs(right) @ np.abs(left)
        return Reference(alpha * product + beta * added, abs(alpha) * magnitude + np.abs(beta * added))

    model = Model(
        {
            "A": Operand(a[:, : case.m], ("k", "m"), "float32", room=a.shape),
            "B": Operand(b[:, : case.k], ("n", "k"), "float32", room=b.shape),
            "C": Operand(start, ("n", "m"), "float32", room=c.whole.shape),
        },
        evaluate,
        {"alpha": case.alpha, "beta": case.beta},
        {"alpha": 1.0, "beta": 0.0},
        axes=("n", "m"),
    )
    # k products in sums of at most k / 4 + 3 terms, two additions of sums, and the two factors.
    bound = Bound(equal_fraction=0.0, relative=4 * _STEP, cancellation=(case.k / 4 + 6) * _STEP)
    output = Output("C", c.inside, model.reference, bound, c, model=model)
    return Problem(({"C": c.whole, "A": a, "B": b},), (output,))


def cases(_: Parameters) -> Sequence[Sizes]:
    """Partial tiles and rests of K with columns apart; the usual size; one element."""
    return [Sizes(m=67, n=35, k=37, alpha=0.5, beta=-2.0, pad=3), Sizes(), Sizes(m=1, n=1, k=1, beta=0.0)]


DEFINITION = Definition(FAMILY, "sgemm*.co", Sizes, sizes, build, cases)
