"""Compare a kernel's result with its reference, element by element, against a stated bound."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asmlaunch.errors import MismatchError
from asmlaunch.validate.bfloat16 import is_bfloat16, round_bfloat16, round_integer, to_float64
from asmlaunch.validate.reference import Reference


@dataclass(frozen=True)
class Bound:
    """What a result must keep to pass.

    Attributes:
        equal_fraction: at least this fraction of elements equals the reference rounded to the output type.
        relative: an element may be off by this fraction of the reference's magnitude,
        cancellation: plus this fraction of the sum of its products' magnitudes,
        of_max: plus this fraction of the largest magnitude in the reference,
        absolute: plus this.
        rounding: how the kernel converts to the output type (``bfloat16.ROUNDINGS``); floats other than bfloat16 only
            to nearest.
    """

    equal_fraction: float = 0.9998
    relative: float = 2.0**-8
    cancellation: float = 2.0**-20
    of_max: float = 0.0
    absolute: float = 0.0
    rounding: str = "nearest"

    def __str__(self) -> str:
        terms = [
            f"{factor:.3g} of {what}"
            for factor, what in (
                (self.relative, "the reference"),
                (self.cancellation, "the products' magnitudes"),
                (self.of_max, "the largest reference"),
            )
            if factor
        ]
        if self.absolute:
            terms.append(f"{self.absolute:.3g}")
        # Rounded down: 99.996 % is not all of them.
        equal = f"at least {math.floor(self.equal_fraction * 1e4) / 1e4:.2%} equal, " if self.equal_fraction else ""
        return f"{equal}error at most {' plus '.join(terms) or '0'}"


BF16_GEMM = Bound()
"""One rounding to bf16 (half of its step is at most 2^-8 of the value) of a sum accumulated in f32."""

EXACT = Bound(equal_fraction=1.0, relative=0.0, cancellation=0.0)
"""Every element equal to the reference rounded to the output type."""


@dataclass(frozen=True)
class Comparison:
    """How far a result is from its reference.

    Attributes:
        elements: number of elements compared.
        equal_fraction: fraction equal to the reference rounded to the output type (NaN equals NaN, -0 equals 0).
        max_abs_error: largest difference from the unrounded reference, over elements where both are finite.
        max_rel_error: largest difference as a fraction of the reference's magnitude, where that is not 0.
        norm_error: Frobenius norm of the difference over that of the reference.
        worst: index of the element furthest beyond (or nearest to) its bound, None for an empty result.
        worst_result, worst_reference: the values there.
        non_finite: elements of the result that are NaN or infinite.
        unequal_nan: elements that are NaN in only one of the two.
        beyond: elements whose error is above the bound.
        bound: the bound.
        passed: equal_fraction and every element within the bound, and not empty.
    """

    elements: int
    equal_fraction: float
    max_abs_error: float
    max_rel_error: float
    norm_error: float
    worst: tuple[int, ...] | None
    worst_result: float
    worst_reference: float
    non_finite: int
    unequal_nan: int
    beyond: int
    bound: Bound
    passed: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def require(self, what: str = "result") -> Comparison:
        """Itself, if it passed.

        Raises:
            MismatchError: it did not; the message says where and by how much.
        """
        if not self.passed:
            raise MismatchError(f"{what} against its reference", got=str(self), need=str(self.bound))
        return self

    def __str__(self) -> str:
        text = (
            f"{self.equal_fraction:.4%} of {self.elements} equal, max abs error {self.max_abs_error:.4g}, "
            f"max rel error {self.max_rel_error:.4g}, norm error {self.norm_error:.4g}"
        )
        if self.worst is not None:
            text += f", worst at {self.worst}: {self.worst_result:.6g} for {self.worst_reference:.6g}"
        if self.beyond:
            text += f", {self.beyond} beyond the bound"
        if self.non_finite:
            text += f", {self.non_finite} not finite"
        if self.unequal_nan:
            text += f", {self.unequal_nan} NaN in only one"
        return text


def compare(result: np.ndarray, reference: Reference | np.ndarray, bound: Bound = BF16_GEMM) -> Comparison:
    """Compare ``result`` with ``reference``.

    Args:
        result: bfloat16 (uint16 bit patterns or ml_dtypes.bfloat16), float16, float32, float64 or a signed integer; the
            reference is rounded to its type.
        reference: a :class:`Reference`, or its value alone where the bound has no cancellation term.
        bound: what the result must keep.

    Raises:
        MismatchError: shapes that differ, or a cancellation bound without the magnitudes it needs.
        LayoutError: a result that is no float, integer or bfloat16.
    """
    if isinstance(reference, Reference):
        value, magnitude, slack = reference.value, reference.magnitude, reference.slack
    elif bound.cancellation:
        raise MismatchError(
            "reference",
            got="values only",
            need="a Reference with the products' magnitudes",
            hint="or a Bound(cancellation=0)",
        )
    else:
        value, magnitude, slack = np.asarray(reference, np.float64), np.zeros(()), 0.0
    result = np.asarray(result)
    if result.shape != value.shape:
        raise MismatchError("result", got=f"shape {result.shape}", need=f"the reference's {value.shape}")
    got = to_float64(result)
    rounded = _round_like(value, result, bound.rounding)
    got_nan, want_nan = np.isnan(got), np.isnan(rounded)
    equal = (got == rounded) | (got_nan & want_nan)
    finite = np.isfinite(got) & np.isfinite(rounded)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        error = np.where(finite, np.abs(got - value), np.where(equal, 0.0, np.inf))
        scale = np.abs(value)
        largest = scale[np.isfinite(scale)].max(initial=0.0)
        allowed = bound.relative * scale + bound.cancellation * magnitude + bound.of_max * largest
        allowed = allowed + bound.absolute + slack
        # Rounding to the output type is not an error: it is what the reference would show too.
        beyond = ~equal & ~(error <= allowed)
        excess = np.where(equal, 0.0, error / allowed)
    excess = np.where(np.isnan(excess), np.inf, excess)
    finite_error = error[finite]
    nonzero = finite & (scale > 0)
    norm = np.linalg.norm(value[finite])
    worst = tuple(int(i) for i in np.unravel_index(_worst(excess, error), value.shape)) if value.size else None
    fraction = float(equal.mean()) if value.size else 0.0
    return Comparison(
        elements=int(value.size),
        equal_fraction=fraction,
        max_abs_error=float(finite_error.max(initial=0.0)),
        max_rel_error=float((error[nonzero] / scale[nonzero]).max(initial=0.0)),
        norm_error=float(np.linalg.norm(got[finite] - value[finite]) / norm) if norm else float(finite_error.any()),
        worst=worst,
        worst_result=float(got[worst]) if worst is not None else float("nan"),
        worst_reference=float(value[worst]) if worst is not None else float("nan"),
        non_finite=int(np.count_nonzero(~np.isfinite(got))),
        unequal_nan=int(np.count_nonzero(got_nan != want_nan)),
        beyond=int(np.count_nonzero(beyond)),
        bound=bound,
        passed=value.size > 0 and fraction >= bound.equal_fraction and not beyond.any(),
    )


def _round_like(value: np.ndarray, result: np.ndarray, rounding: str) -> np.ndarray:
    """``value`` rounded to the type of ``result``."""
    if is_bfloat16(result):
        return round_bfloat16(value, rounding)
    if result.dtype.kind == "i":
        return round_integer(value, rounding)
    if rounding != "nearest":
        raise MismatchError("rounding of a bound", got=rounding, need=f"nearest for {result.dtype}")
    with np.errstate(over="ignore"):
        return value.astype(result.dtype).astype(np.float64)


def _worst(excess: np.ndarray, error: np.ndarray) -> int:
    """Flat position of the largest excess; among elements within the bound, of the largest error."""
    return int(np.argmax(excess)) if excess.any() else int(np.argmax(error))
