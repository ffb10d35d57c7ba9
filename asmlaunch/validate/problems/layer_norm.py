"""layer_norm and layer_norm_qnt: residual add, RMS norm with bias, results cut off to bf16 or int8."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from asmlaunch.abi.families.layer_norm import FAMILY
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.compare import Bound
from asmlaunch.validate.matrix import F32_STEP, sum_bound
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference
from asmlaunch.validate.rows import Normed, rms_norm

WIDTH = 8192
EPSILON = 1e-5
_ROUNDINGS = 8  # to f32, beside the sum of squares: epsilon, the root, scales, bias


def bound_of_sum(terms: int) -> Bound:
    """``terms`` bf16 numbers added in f32 and cut off to bf16: up to a whole step, 2^-7, is lost."""
    return dataclasses.replace(sum_bound(terms, "bfloat16", rounding="toward_zero"), relative=2.0**-7)


#: The sum of squares is off by as many f32 steps as it has terms at most, and its root by half of that.
VALUE = dataclasses.replace(
    sum_bound(WIDTH, "bfloat16", rounding="toward_zero"),
    relative=2.0**-7,
    cancellation=(WIDTH / 2 + _ROUNDINGS) * F32_STEP,
)

#: Cut off to an integer: up to 1 is lost. An f32 error of a number up to 127 moves it over an integer as often as it
#: is large.
QUANTISED = Bound(
    1 - 2 * math.sqrt(WIDTH) * 127 * F32_STEP, 0.0, VALUE.cancellation, absolute=1.0, rounding="toward_zero"
)

SCALE = Bound(0.0, VALUE.cancellation, 0.0)


@dataclass(frozen=True)
class Sizes(Case):
    """Rows of 8192.

    Attributes:
        m: rows.
        mean: mean of the inputs, in hundredths: not subtracted, in spite of the kernels' name.
    """

    m: int
    mean: int = 0


@dataclass(frozen=True)
class Norm:
    """Weights of a norm, and the outputs that it should give."""

    weight: np.ndarray
    bias: np.ndarray
    x_scale: np.ndarray

    def outputs(
        self, terms: Sequence[np.ndarray], results: Mapping[str, np.ndarray], around: Mapping[str, Canvas]
    ) -> tuple[Output, ...]:
        """What to compare.

        Args:
            terms: bf16 bits ``[M, 8192]`` of what is added.
            results: arrays named "residual", "out", "quantised" and "scale"; with one more axis in front, every rank's.
            around: the canvases some of them are in.
        """

        @cache
        def normed() -> Normed:
            weight, bias = to_float64(self.weight), to_float64(self.bias)
            x_scale = self.x_scale if "quantised" in results else None
            return rms_norm([to_float64(one) for one in terms], weight, bias, EPSILON, x_scale)

        def reference(name: str, shape: tuple[int, ...]) -> Reference:
            one = {
                "residual": normed().residual, "out": normed().value, "quantised": normed().quantised,
                "scale": normed().scale,
            }[name]  # fmt: skip
            return Reference(np.broadcast_to(one.value, shape), np.broadcast_to(one.magnitude, shape))

        bounds = {"residual": bound_of_sum(len(terms)), "out": VALUE, "quantised": QUANTISED, "scale": SCALE}
        return tuple(
            Output(name, array, partial(reference, name, array.shape), bounds[name], around.get(name))
            for name, array in results.items()
        )


def make_norm(random: np.random.Generator) -> Norm:
    """Weights around 1, biases around 0, column scales around 1."""
    return Norm(
        operands.bfloat16(random, WIDTH, scale=0.25, mean=1.0),
        operands.bfloat16(random, WIDTH, scale=0.5),
        operands.positive(random, WIDTH),
    )


def sizes(case: Sizes, _: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    return {"M": case.m, "N": WIDTH, "epsilon": EPSILON}


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    random = np.random.default_rng(case.seed)
    given, residual = (operands.bfloat16(random, case.m, WIDTH, mean=case.mean / 100) for _ in range(2))
    norm = make_norm(random)
    quantised = p["form"] == "qnt"
    out = Canvas(case.m, WIDTH, np.int8 if quantised else np.uint16, more_rows=2)
    out_residual = Canvas(case.m, WIDTH, np.uint16, more_rows=2)
    arguments = {
        "Out": out.whole, "In": given, "Weight": norm.weight, "Bias": norm.bias,
        "OutResidual": out_residual.whole, "InResidual": residual,
    }  # fmt: skip
    results = {"residual": out_residual.inside, "quantised" if quantised else "out": out.inside}
    around = {"residual": out_residual, "quantised" if quantised else "out": out}
    if quantised:
        scale = Canvas(1, case.m, np.float32, more_columns=2)
        arguments |= {"OutYScale": scale.whole, "XScale": norm.x_scale}
        results["scale"] = scale.inside[0]
        around["scale"] = scale
    outputs = norm.outputs([given, residual], results, around)
    # Partial sums of the second row go where slower waves may still read those of the first.
    return Problem((arguments,), outputs, {"schedule": "lockstep"})


def cases(_: Parameters) -> Sequence[Sizes]:
    """Two workgroups; a mean that a layer norm would subtract."""
    return Sizes(m=4), Sizes(m=2, mean=200)


DEFINITION = Definition(FAMILY, "layer_norm*.co", Sizes, sizes, build, cases)
