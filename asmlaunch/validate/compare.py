"""Compare a kernel's result with its reference, element by element, against a stated bound."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from asmlaunch.errors import ArgumentError, MismatchError
from asmlaunch.validate.bfloat16 import is_bfloat16, round_bfloat16, round_integer, to_float64
from asmlaunch.validate.minifloat import round_to
from asmlaunch.validate.reference import Reference
from asmlaunch.validate.structure import Mask, Structure, find


@dataclass(frozen=True)
class Bound:
    """What a result must keep to pass.

    Attributes:
        equal_fraction: at least this fraction of elements equals the reference rounded to the output type.
        relative: an element may be off by this fraction of the reference's magnitude,
        cancellation: plus this fraction of the sum of its products' magnitudes,
        of_max: plus this fraction of the largest magnitude in the reference,
        absolute: plus this.
        rounding: how the kernel converts to the output type (``bfloat16.ROUNDINGS``); floats of 32
            bits and more only to nearest.
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
    """How far a result is from its reference; true if it passed.

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
        ulps: pairs (steps, count): so many elements are at most that many steps of the output type away from the
            rounded reference, and more than the pair before; NaN left out.
        unwritten: elements beyond the bound that still hold what they held before the launch, all bits set.
        stale: those that still hold something else; 0 where that is not known.
        nan, zero: of the others, those that are NaN, and those that are 0.
        structure: where the elements beyond the bound are (or, with none, those that are not equal); None if it passed.
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
    ulps: tuple[tuple[int, int], ...] = ()
    unwritten: int = 0
    stale: int = 0
    nan: int = 0
    zero: int = 0
    structure: Structure | None = None

    def __bool__(self) -> bool:
        return self.passed

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
            if kinds := self.kinds:
                text += f" ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
        if self.non_finite:
            text += f", {self.non_finite} not finite"
        if self.unequal_nan:
            text += f", {self.unequal_nan} NaN in only one"
        return text + (f"; {self.structure}" if self.structure else "")

    @property
    def kinds(self) -> dict[str, int]:
        """The elements beyond the bound that hold no value of their own, by what they hold."""
        counts = {"unwritten": self.unwritten, "stale": self.stale, "NaN": self.nan, "zero": self.zero}
        return {kind: count for kind, count in counts.items() if count}


Rows = Callable[[slice], "Reference | np.ndarray"]
"""A reference that is computed for some of its first dimension at a time."""


def compare(
    result: Any,
    reference: Reference | Rows | Any,
    bound: Bound = BF16_GEMM,
    *,
    before: Any = None,
    tile: tuple[int, int] | None = None,
    labels: Mapping[str, np.ndarray] | None = None,
) -> Comparison:
    """Compare ``result`` with ``reference``.

    Both are gone through some rows (of the first dimension) at a time, with a progress bar on a terminal where it takes
    long; a ``np.memmap`` or a tensor on a GPU is never copied as a whole.

    Args:
        result: bfloat16 (uint16 bit patterns or ml_dtypes.bfloat16), float16, float32, float64 or a signed integer; the
            reference is rounded to its type. numpy, or torch on any device.
        reference: a :class:`Reference`; its value alone (numpy or torch) where the bound has no cancellation term; or
            a function from a slice of the first dimension to either of them.
        bound: what the result must keep.
        before: what the result's memory held before the launch, to tell elements that were not written.
        tile: rows and columns of a workgroup's tile, for the structure of the errors.
        labels: further axes for it, as ``structure.find`` takes them.

    Raises:
        MismatchError: shapes that differ, a cancellation bound without the magnitudes it needs, or a reference of NaNs
            alone, with which nothing can be compared.
        ArgumentError: a bound that zeros, or the negated reference, would keep too.
        LayoutError: a result that is no float, integer or bfloat16.
    """
    rows = _Rows(reference, bound)
    shape = tuple(result.shape) if hasattr(result, "shape") else np.shape(result)
    rows.require_shape(shape)
    if before is not None and tuple(before.shape) != shape:
        raise MismatchError("what was there before", got=f"shape {tuple(before.shape)}", need=f"the result's {shape}")
    flat = shape or (1,)
    step = max(1, _CHUNK // max(1, math.prod(flat[1:])))
    parts = [slice(first, min(first + step, flat[0])) for first in range(0, flat[0], step)]
    tally = _Tally(bound, flat)
    with _progress(len(parts)) as advance:
        if bound.of_max:
            for part in parts:
                tally.see(rows.at(part, shape))
        for part in parts:
            one, old = (None if array is None else host_rows(array, part, shape) for array in (result, before))
            assert one is not None
            tally.add(part.start, one, rows.at(part, shape), old)
            advance()
    return tally.done(shape, tile, labels)


_CHUNK = 1 << 22  # elements at a time: some ten float64 arrays of them are alive
_LONG = 16  # chunks from which on a progress bar is worth it


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[], Any]]:
    """What to call after each of ``steps``."""
    if steps < _LONG or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("comparing", total=steps)
        yield lambda: progress.advance(task)


class _Rows:
    """The reference, some rows at a time."""

    def __init__(self, reference: Any, bound: Bound) -> None:
        self._given, self._bound = reference, bound
        self._computed = callable(reference) and not hasattr(reference, "shape")

    def require_shape(self, shape: tuple[int, ...]) -> None:
        if not self._computed:
            value = self._given.value if isinstance(self._given, Reference) else self._given
            self._same(tuple(value.shape) if hasattr(value, "shape") else np.shape(value), shape)

    def _same(self, found: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if found != shape:
            raise MismatchError("result", got=f"shape {shape}", need=f"the reference's {found}")

    def at(self, part: slice, shape: tuple[int, ...]) -> Reference:
        """The rows of ``part``; a scalar is one row."""
        given, inner = self._given, part
        if self._computed:
            given = given(part)
            inner = slice(None)
            value = given.value if isinstance(given, Reference) else given
            self._same((part.start, *np.shape(value)), (part.start, part.stop - part.start, *shape[1:]))
        if isinstance(given, Reference):
            full = tuple(np.shape(given.value))
            rest = (
                host_rows(one if tuple(np.shape(one)) == full else np.broadcast_to(one, full), inner, shape)
                for one in (given.magnitude, given.slack)
            )
            return Reference(host_rows(given.value, inner, shape), *rest)
        if self._bound.cancellation:
            raise MismatchError(
                "reference",
                got="values only",
                need="a Reference with the products' magnitudes",
                hint="or a Bound(cancellation=0)",
            )
        value = to_float64(host_rows(given, inner, shape))
        return Reference(value, np.zeros(value.shape))


def host_rows(array: Any, part: slice, shape: tuple[int, ...]) -> np.ndarray:
    """``array[part]`` in host memory, bfloat16 as uint16 bits; of a scalar an array of one."""
    taken = array[part] if shape else array
    if hasattr(taken, "detach"):  # a torch tensor
        import torch

        taken = taken.detach()
        taken = taken.view(torch.int16).cpu().numpy().view(np.uint16) if taken.dtype == torch.bfloat16 else taken.cpu()
    host = np.asarray(taken)
    return host if shape else host.reshape(1)


class _Tally:
    """The figures, added up chunk by chunk."""

    def __init__(self, bound: Bound, shape: tuple[int, ...]) -> None:
        self.bound = bound
        self.largest = 0.0  # reference, in magnitude, where it is finite
        self.counts: Counter[str] = Counter()
        self.ulps: Counter[int] = Counter()
        self.max_abs = self.max_rel = self.error_squares = self.value_squares = 0.0
        self.worst: tuple[float, float, tuple[int, ...], float, float] | None = None
        self.unequal, self.beyond = Mask(shape), Mask(shape)

    def see(self, reference: Reference) -> None:
        scale = np.abs(reference.value)
        self.largest = max(self.largest, float(scale[np.isfinite(scale)].max(initial=0.0)))

    def add(self, first: int, result: np.ndarray, reference: Reference, before: np.ndarray | None) -> None:
        """Rows from ``first`` on."""
        value = reference.value
        got = to_float64(result)
        rounded = _round_like(value, result, self.bound.rounding)
        equal, error, allowed, beyond = _judge(got, rounded, reference, self.bound, self.largest)
        finite = np.isfinite(got) & np.isfinite(rounded)
        got_nan, want_nan = np.isnan(got), np.isnan(rounded)
        self.counts.update(
            elements=value.size,
            equal=int(equal.sum()),
            beyond=int(beyond.sum()),
            non_finite=int(np.count_nonzero(~np.isfinite(got))),
            unequal_nan=int(np.count_nonzero(got_nan != want_nan)),
            reference_nan=int(np.count_nonzero(want_nan)),
            nonzero=int(np.count_nonzero(rounded) - np.count_nonzero(want_nan)),
        )
        self._wrong_guesses(rounded, value, allowed)
        self._sort_out(result, got, beyond, before)
        self.ulps[-1] += int(np.count_nonzero(equal & ~got_nan))
        self._steps(result, rounded, ~(equal | got_nan | want_nan))
        scale = np.abs(value)
        finite_error, nonzero = error[finite], finite & (scale > 0)
        with np.errstate(over="ignore", divide="ignore"):
            self.max_abs = max(self.max_abs, float(finite_error.max(initial=0.0)))
            self.max_rel = max(self.max_rel, float((error[nonzero] / scale[nonzero]).max(initial=0.0)))
            self.error_squares += float(np.square(finite_error).sum())
            self.value_squares += float(np.square(value[finite]).sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.where(equal, 0.0, error / allowed)
        self._find_worst(first, np.where(np.isnan(excess), np.inf, excess), error, got, value)
        self.unequal.set(first, ~equal)
        self.beyond.set(first, beyond)

    def _wrong_guesses(self, rounded: np.ndarray, value: np.ndarray, allowed: np.ndarray) -> None:
        """How zeros and the negated reference would fare as results, until each is beyond the bound somewhere."""
        for name in ("zeros", "negated"):
            if self.counts[f"{name}_beyond"]:
                continue  # the bound tells it from the reference already
            unequal = (rounded != 0) & ~np.isnan(rounded)
            with np.errstate(invalid="ignore", over="ignore"):
                error = np.abs(value) if name == "zeros" else np.abs(rounded + value)
                self.counts[f"{name}_beyond"] += int(np.count_nonzero(unequal & ~(error <= allowed)))
            self.counts[f"{name}_equal"] += int(unequal.size - np.count_nonzero(unequal))

    def _sort_out(self, result: np.ndarray, got: np.ndarray, beyond: np.ndarray, before: np.ndarray | None) -> None:
        """Elements beyond the bound that hold no value of their own."""
        if not beyond.any():
            return
        held = _bytes(result[beyond])
        untouched = (held == 0xFF).all(axis=-1)
        stale = np.zeros(len(held), np.bool_)
        values = got[beyond]
        if before is not None:
            same = (held == _bytes(before[beyond])).all(axis=-1)
            stale = same & ~untouched & (values != 0)
            untouched &= same
        left = ~(untouched | stale)
        self.counts.update(
            unwritten=int(untouched.sum()),
            stale=int(stale.sum()),
            nan=int((left & np.isnan(values)).sum()),
            zero=int((left & (values == 0)).sum()),
        )

    def _steps(self, result: np.ndarray, rounded: np.ndarray, unequal: np.ndarray) -> None:
        """Count the numbers that are not equal by their distance in steps of the output type, in powers of two."""
        distance = _distance(result[unequal], rounded[unequal])
        power = np.ceil(np.log2(np.maximum(distance, 1))).astype(np.int64)
        for number, count in zip(*np.unique(power, return_counts=True), strict=True):
            self.ulps[int(number)] += int(count)

    def _find_worst(
        self, first: int, excess: np.ndarray, error: np.ndarray, got: np.ndarray, value: np.ndarray
    ) -> None:
        """Keep the element with the largest excess; among elements within the bound, the one with the largest error."""
        if not value.size:
            return
        at = np.unravel_index(int(np.argmax(excess)) if excess.any() else int(np.argmax(error)), value.shape)
        key = float(excess[at]), float(error[at])
        if self.worst is None or key > self.worst[:2]:
            index = (first + int(at[0]), *(int(i) for i in at[1:]))
            self.worst = (*key, index, float(got[at]), float(value[at]))

    def done(
        self, shape: tuple[int, ...], tile: tuple[int, int] | None, labels: Mapping[str, np.ndarray] | None
    ) -> Comparison:
        """The comparison.

        Raises:
            MismatchError: the reference has no number. ArgumentError: a bound that says nothing.
        """
        counts, elements = self.counts, self.counts["elements"]
        if elements and counts["reference_nan"] == elements:
            raise MismatchError("reference", got=f"nothing but {elements} NaNs", need="numbers to compare with")
        self._require_a_bound()
        fraction = counts["equal"] / elements if elements else 0.0
        passed = elements > 0 and fraction >= self.bound.equal_fraction and not counts["beyond"]
        wrong = self.beyond if counts["beyond"] else self.unequal
        worst = self.worst or (0.0, 0.0, None, math.nan, math.nan)
        norm = math.sqrt(self.value_squares)
        error_norm = math.sqrt(self.error_squares)
        return Comparison(
            elements=elements,
            equal_fraction=fraction,
            max_abs_error=self.max_abs,
            max_rel_error=self.max_rel,
            norm_error=error_norm / norm if norm else float(error_norm > 0),
            worst=worst[2] if shape or worst[2] is None else (),
            worst_result=worst[3],
            worst_reference=worst[4],
            non_finite=counts["non_finite"],
            unequal_nan=counts["unequal_nan"],
            beyond=counts["beyond"],
            bound=self.bound,
            passed=passed,
            ulps=tuple((0 if power < 0 else 1 << power, count) for power, count in sorted(self.ulps.items()) if count),
            unwritten=counts["unwritten"],
            stale=counts["stale"],
            nan=counts["nan"],
            zero=counts["zero"],
            structure=None if passed else find(wrong, tile=tile, labels=labels),
        )

    def _require_a_bound(self) -> None:
        counts, elements = self.counts, self.counts["elements"]
        if not counts["nonzero"]:
            return  # zeros are right
        for name in ("zeros", "negated"):
            fraction = counts[f"{name}_equal"] / elements
            if fraction >= self.bound.equal_fraction and not counts[f"{name}_beyond"]:
                kept = {"zeros": "a result of zeros", "negated": "the reference with its sign changed"}[name]
                raise ArgumentError(
                    "bound", got=f"{self.bound}, which {kept} keeps too", need="one that tells it from the reference"
                )


def _judge(
    got: np.ndarray, rounded: np.ndarray, reference: Reference, bound: Bound, largest: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Which elements are equal, their errors, what is allowed, and which are beyond that."""
    value = reference.value
    equal = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    finite = np.isfinite(got) & np.isfinite(rounded)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where(finite, np.abs(got - value), np.where(equal, 0.0, np.inf))
        allowed = bound.relative * np.abs(value) + bound.cancellation * reference.magnitude
        allowed = allowed + (bound.of_max * largest + bound.absolute) + reference.slack
        # Rounding to the output type is not an error: it is what the reference would show too.
        return equal, error, allowed, ~equal & ~(error <= allowed)


def fits(result: np.ndarray, reference: Reference, bound: Bound) -> tuple[np.ndarray, bool]:
    """Which elements of ``result`` keep the bound, and whether the result as a whole would pass: :func:`compare`
    without figures, for references by the hundred.

    A reference that allows as much as it says (most elements are smaller than their bounds) explains nothing: no
    element keeps that. Of few elements the fraction that is equal varies: three times its deviation, and three, are
    allowed.

    Raises:
        MismatchError: shapes that differ. LayoutError: as :func:`compare`.
    """
    if result.shape != reference.value.shape:
        raise MismatchError("result", got=f"shape {result.shape}", need=f"the reference's {reference.value.shape}")
    rounded = _round_like(reference.value, result, bound.rounding)
    scale = np.abs(reference.value)
    largest = float(scale[np.isfinite(scale)].max(initial=0.0))
    equal, _, allowed, beyond = _judge(to_float64(result), rounded, reference, bound, largest)
    if np.count_nonzero(scale <= allowed) > result.size / 2 and rounded.any():
        return np.zeros(result.shape, np.bool_), False
    expected = (1 - bound.equal_fraction) * result.size
    unequal = result.size - np.count_nonzero(equal)
    return ~beyond, bool(result.size and not beyond.any() and unequal <= expected + 3 * math.sqrt(expected) + 3)


def _bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of each element of a one-dimensional array."""
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)


def _distance(result: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """Steps of the output type between the result and the rounded reference, as floats."""
    if result.dtype.kind == "i":
        return np.abs(result - rounded)
    if is_bfloat16(result):
        with np.errstate(over="ignore"):
            wanted = (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
        got = result.view(np.int16)
    else:
        kind = f"i{result.dtype.itemsize}"
        with np.errstate(over="ignore"):
            wanted, got = rounded.astype(result.dtype).view(kind), result.view(kind)
    ordered = [np.where(bits < 0, np.iinfo(bits.dtype).min - bits, bits).astype(np.int64) for bits in (got, wanted)]
    larger, smaller = np.maximum(*ordered), np.minimum(*ordered)
    return (larger.astype(np.uint64) - smaller.astype(np.uint64)).astype(np.float64)


def _round_like(value: np.ndarray, result: np.ndarray, rounding: str) -> np.ndarray:
    """``value`` rounded to the type of ``result``."""
    if is_bfloat16(result):
        return round_bfloat16(value, rounding)
    if result.dtype.kind == "i":
        return round_integer(value, rounding)
    if result.dtype == np.float16 and rounding != "nearest":
        return round_to(value, 11, -14, rounding)
    if rounding != "nearest":
        raise MismatchError("rounding of a bound", got=rounding, need=f"nearest for {result.dtype}")
    with np.errstate(over="ignore"):
        return value.astype(result.dtype).astype(np.float64)
