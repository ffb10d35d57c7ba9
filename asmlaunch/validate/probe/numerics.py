"""How a kernel adds, rounds, and treats subnormals, NaN and infinity: sums of a few crafted terms.

Each row of the left operand is one experiment: a few terms, +-2^e, at chosen places of K; the right operand is ones.
The exponents come from the operand with the widest range (E8M0 or f32 scales, bf16 elements), which is written in the
layout that a layout probe has found. Results are bits, so a table from the emulator and one from a GPU can be compared
line by line.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from asmlaunch.errors import ArgumentError
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import is_bfloat16, to_float64
from asmlaunch.validate.probe.contraction import Codes, contraction_of
from asmlaunch.validate.probe.layout import probe_layout
from asmlaunch.validate.probe.rig import Rig, declared

#: Exponent of the big term: a term of 1 is lost beside it in f32, and in twice as many bits.
_BIG = 60

#: Places of K that the order of additions is told by.
_PLACES = 16


@dataclass(frozen=True)
class Term:
    """``sign * 2^exponent`` at one place of K.

    Attributes:
        place: entry of the operand along K.
        more: half as much again.
        raw: a code instead of a power of two.
        times_zero: the factor of it is 0 instead of 1.
    """

    place: int
    exponent: int = 0
    sign: int = 1
    more: bool = False
    raw: int | None = None
    times_zero: bool = False


@dataclass(frozen=True)
class Line:
    """One experiment.

    Attributes:
        name: what it asks.
        terms: its input, in words.
        bits: the result's bits, as hexadecimal digits.
        value: the result.
        meaning: what it says.
    """

    name: str
    terms: str
    bits: str
    value: float
    meaning: str


@dataclass(frozen=True)
class NumericsProbe:
    """What a numerics probe found.

    Attributes:
        kernel, device: what ran where.
        operand, depth: the operand whose entries are the terms, and the elements of K that one covers.
        lines: the experiments.
        groups: places of K (entries) whose products are added at once, in order of K.
        order: how the groups are added: ``"in order of K"``, ``"in reverse"``, ``"otherwise"``, or ``""`` where
            there are too few to tell.
        launches, seconds: what it took.
    """

    kernel: str
    device: str
    operand: str
    depth: int
    lines: tuple[Line, ...]
    groups: tuple[tuple[int, ...], ...]
    order: str
    launches: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; NaN and infinities as text."""
        lines = [{**vars(one), "value": one.value if np.isfinite(one.value) else str(one.value)} for one in self.lines]
        return {**vars(self), "lines": lines, "groups": [list(one) for one in self.groups]}


def differences(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Where two results (:meth:`NumericsProbe.as_dict`) differ: (experiment, bits there, bits here).

    Raises:
        ArgumentError: a dictionary of another kind.
    """
    try:
        tables = [
            {line["name"]: str(line["bits"]) for line in one["lines"]}
            | {"groups": str(one["groups"]), "order": one["order"]}
            for one in (first, second)
        ]
    except (KeyError, TypeError) as error:
        raise ArgumentError("result of a numerics probe", got=f"none ({error!r})", need="what --json prints") from error
    names = [*tables[0], *(name for name in tables[1] if name not in tables[0])]
    pairs = ((name, tables[0].get(name, "-"), tables[1].get(name, "-")) for name in names)
    return [(name, a, b) for name, a, b in pairs if a != b]


def probe_numerics(kernel: Kernel, **options: Any) -> NumericsProbe:
    """Find out how a kernel adds and rounds.

    Args:
        options: launch options of the device.

    Raises:
        KernelNotFoundError: not a matrix product. ArgumentError: one whose operands have no wide range of exponents, or
            in which the place of an operand's entries could not be found.
    """
    start = time.perf_counter()
    bench = _Bench(kernel, options)
    places = bench.places
    first, second, last = places[0], places[len(places) // 2], places[-1]
    asked = list(_experiments(bench, first, second, last))
    pairs = [(i, j, small) for i, j in combinations(places, 2) for small in places if small not in (i, j)]
    rows = [terms for _, terms, _ in asked]
    rows += [[Term(i, _BIG), Term(j, _BIG, -1), Term(small)] for i, j, small in pairs]
    bits = bench.results(rows)
    values = to_float64(bits)
    lines = tuple(
        Line(name, _shown(terms), f"{int(code):0{2 * bits.dtype.itemsize}x}", float(value), explain(float(value)))
        for (name, terms, explain), code, value in zip(asked, bits.view(f"u{bits.itemsize}"), values, strict=False)
    )
    kept = {pair: bool(value) for pair, value in zip(pairs, values[len(asked) :], strict=True)}
    groups = _groups(places, kept)
    return NumericsProbe(
        kernel.name, kernel.device.name, bench.operand, bench.depth, lines, groups, _order(groups, kept),
        bench.launches, time.perf_counter() - start,
    )  # fmt: skip


def _groups(places: Sequence[int], kept: dict[tuple[int, int, int], bool]) -> tuple[tuple[int, ...], ...]:
    """Places whose big terms cancel before anything is lost, wherever the small term is.

    With one addition after the other the first two places look like a group too: nothing is there to be lost before.
    """
    groups: list[list[int]] = []
    for place in places:
        for group in groups:
            head = group[0]
            if all(kept[head, place, small] for small in places if small not in (head, place)):
                group.append(place)
                break
        else:
            groups.append([place])
    if all(len(group) == 1 for group in groups[1:]):
        groups[:1] = [[place] for place in groups[0]]
    return tuple(map(tuple, groups))


def _order(groups: Sequence[Sequence[int]], kept: dict[tuple[int, int, int], bool]) -> str:
    """A small term survives two big ones of other groups just where it is added after both."""
    if len(groups) < 3:
        return ""
    numbers = range(len(groups))
    cases = [(a, b, c) for a, b in combinations(numbers, 2) for c in numbers if c not in (a, b)]
    seen = [kept[groups[a][0], groups[b][0], groups[c][0]] for a, b, c in cases]
    if seen == [c > b for _, b, c in cases]:
        return "in order of K"
    return "in reverse" if seen == [c < a for a, _, c in cases] else "otherwise"


def _experiments(bench: _Bench, first: int, second: int, last: int) -> Iterator[tuple[str, list[Term], Any]]:
    """(question, terms, what a value means)."""
    step = -bench.precision
    half = [Term(first), Term(first + 1, step)]
    if bench.precision < 24:
        down, up = 1.0, 1 + 2.0 ** (1 + step)
        tie = _between(down, up, "to even, or toward zero", "away from zero")
        yield "output: tie above an even number", half, tie
        yield (
            "output: tie above an odd number",
            [*half, Term(second, step + 1)],
            _between(up, 1 + 2.0 ** (2 + step), "toward zero", "to even, or away from zero"),
        )
        yield "output: just above a tie", [*half, Term(second, -20)], _between(down, up, "toward zero", "to nearest")
        yield (
            "output: a negative tie",
            [Term(first, 0, -1), Term(first + 1, step, -1)],
            _between(-down, -up, "to even, or toward zero", "away from zero"),
        )
    ulp = 2.0**-23
    yield (
        "sum: tie in f32 above an even number",
        [Term(first), Term(second, -24), Term(last, 0, -1)],
        _between(0.0, ulp, "to even, or toward zero", "away from zero"),
    )
    yield (
        "sum: tie in f32 above an odd number",
        [Term(first), Term(first + 1, -23), Term(second, -24), Term(last, 0, -1)],
        _between(ulp, 2 * ulp, "toward zero", "to even, or away from zero"),
    )
    yield (
        "sum: just above a tie in f32",
        [Term(first), Term(second, -24, more=True), Term(last, 0, -1)],
        _between(0.0, ulp, "toward zero", "to nearest"),
    )
    yield (
        "sum: just below a tie in f32",
        [Term(first), Term(second, -25, more=True), Term(last, 0, -1)],
        _between(0.0, ulp, "to nearest, or toward zero", "away from zero"),
    )
    for bits in (23, 24, 26, 30, 40, 60):
        terms = [Term(first), Term(first + 1, -bits), Term(first + 2, 0, -1)]
        yield f"neighbours: 1 + 2^-{bits} - 1", terms, _between(0.0, 2.0**-bits, "lost", "kept")
    tiny = bench.subnormal
    if tiny is not None:
        code, value = tiny
        yield "subnormal alone", [Term(first, raw=code)], _between(0.0, value, "flushed to 0", "kept")
        yield (
            "subnormal beside the smallest normal number",
            [Term(first, raw=code), Term(first + 1, -126)],
            _between(2.0**-126, 2.0**-126 + value, "flushed before the sum", "kept in the sum"),
        )
    for name, code in bench.special.items():
        yield f"{name} alone", [Term(first, raw=code)], _special
        if bench.has_factor:
            yield f"{name} times 0", [Term(first, raw=code, times_zero=True)], _special
        if name == "infinity":
            yield "infinity minus infinity", [Term(first, raw=code), Term(last, raw=code, sign=-1)], _special
    yield "2^127 + 2^127", [Term(first, 127), Term(first + 1, 127)], _special


def _between(low: float, high: float, is_low: str, is_high: str) -> Any:
    return lambda value: is_low if value == low else is_high if value == high else "something else"


def _special(value: float) -> str:
    return "NaN" if np.isnan(value) else "infinity" if np.isinf(value) else "a number"


def _shown(terms: Sequence[Term]) -> str:
    def one(term: Term) -> str:
        number = f"{'1.5 * ' if term.more else ''}2^{term.exponent}" if term.raw is None else f"code {term.raw:#x}"
        return f"{'-' if term.sign < 0 else '+'}{number}{' * 0' if term.times_zero else ''} at {term.place}"

    return ", ".join(map(one, terms))


class _Bench:
    """Writes experiments as operands and runs them, one a row."""

    def __init__(self, kernel: Kernel, options: dict[str, Any]) -> None:
        self._kernel, self._contraction, self._options = kernel, contraction_of(kernel), options
        operands = self._contraction.operands
        left = self._contraction.factors[0]
        candidates = [n for n, one in operands.items() if one.rows == 0 and one.depth and one.codes.power]
        if not candidates:
            raise ArgumentError(
                f"numerics of {kernel.name}", got="integers", need="an operand with powers of two over a wide range",
                hint="sums of integers are exact until they are converted",
            )  # fmt: skip
        self.operand = candidates[-1]
        self._left, self._codes = left, operands[self.operand].codes
        self.depth = operands[self.operand].depth
        self._columns = self._contraction.sizes(declared(kernel).parameters(kernel.info))[0][1]
        self._k = max(512, self.depth * 8)
        probes = {name: probe_layout(kernel, name, **options) for name in {self.operand, left} - {"A"}}
        self.launches = sum(probe.launches for probe in probes.values())
        for name, probe in probes.items():
            if not probe:
                raise ArgumentError(
                    f"layout of {name} of {kernel.name}", got="none found", need="one", hint="see probe layout"
                )
        self._layouts = {name: probe.layout for name, probe in probes.items()}
        self.count = self._k // self.depth
        step = max(1, self.count // _PLACES)
        # Neighbours at the start, then evenly spread: groups of any size are met.
        near = [place for place in (0, 1, 2, 3, 4) if place < self.count]
        spread = range(0, self.count, step)
        self.places = sorted({*near, *(range(self.count) if self.count <= _PLACES else list(spread)[::2])})

    @property
    def has_factor(self) -> bool:
        """Whether the terms are scales of other entries, whose sign and value can be chosen too."""
        return self.operand != self._left

    @property
    def precision(self) -> int:
        """Significant bits of the result's type."""
        result = Rig(self._kernel, self._case(1)).problem.outputs[0].result
        return 8 if is_bfloat16(result) else 11 if result.dtype == np.float16 else 24

    @property
    def subnormal(self) -> tuple[int, float] | None:
        """A code of the operand whose value is subnormal in f32, and the value; None where no result could show it."""
        if self.precision == 11:
            return None
        return {1: (0, 2.0**-127), 2: (0x0040, 2.0**-127), 4: (0x0040_0000, 2.0**-127)}[self._itemsize]

    @property
    def special(self) -> dict[str, int]:
        """Codes of NaN and, where there is one, infinity."""
        return {
            1: {"NaN": 0xFF},
            2: {"NaN": 0x7FC0, "infinity": 0x7F80},
            4: {"NaN": 0x7FC0_0000, "infinity": 0x7F80_0000},
        }[self._itemsize]

    @property
    def _itemsize(self) -> int:
        return np.dtype(self._codes.dtype).itemsize

    def _case(self, rows: int) -> Any:
        return declared(self._kernel).case(m=rows, n=self._columns, k=self._k)  # type: ignore[call-arg]

    def results(self, rows: Sequence[Sequence[Term]]) -> np.ndarray:
        """The result of each row, in the output's own type (bfloat16 as uint16)."""
        count = -(-len(rows) // 32) * 32
        rig = Rig(self._kernel, self._case(count), **self._options)
        schema = self._kernel.schema
        arrays = {name: rig.arrays[schema[name].name] for name in self._contraction.operands}
        for name, one in self._contraction.operands.items():
            arrays[name].reshape(-1).view(one.codes.dtype)[:] = one.codes.one
        for name in self._contraction.zeroed:
            rig.arrays[schema[name].name][...] = 0
        left = self._contraction.operands[self._left]
        factor = np.full((count, self._k // left.depth), left.codes.zero, left.codes.dtype)
        powers = np.full((count, self.count), self._codes.one, self._codes.dtype)
        unit = _single(left.codes)
        for row, terms in enumerate(rows):
            for term in terms:
                assert self._codes.power is not None
                code = self._codes.power(term.exponent) if term.raw is None else term.raw
                place = term.place * self.depth // left.depth
                minus = left.codes.minus if term.sign < 0 else 0
                if self.has_factor:
                    powers[row, term.place] = code
                    number = left.codes.more if term.more else unit
                    first = 0x0F if left.depth == 2 else -1  # only the first of two elements
                    factor[row, place] = left.codes.zero if term.times_zero else number ^ (minus & first)
                else:
                    factor[row, place] = (code | (left.codes.more & ~unit if term.more else 0)) ^ minus
        self._write(arrays[self._left], factor, self._left)
        if self.has_factor:
            self._write(arrays[self.operand], powers, self.operand)
        seen = rig.run()
        self.launches += 1
        if seen.error is not None:
            raise ArgumentError(f"numerics of {self._kernel.name}", got=str(seen.error), need="a launch that ends")
        return np.ascontiguousarray(rig.problem.outputs[0].result[: len(rows), 0])

    def _write(self, memory: np.ndarray, logical: np.ndarray, name: str) -> None:
        layout = self._layouts.get(name)
        laid = logical if layout is None else layout.apply(logical, pad_value=0)
        flat = memory.reshape(-1).view(logical.dtype)
        flat[: laid.size] = laid.reshape(-1)


def _single(codes: Codes) -> int:
    """The code of 1 in the first element of an entry, 0 in others."""
    return codes.weights[[codes.unit * 2**i for i in range(len(codes.weights))].index(1.0)]
