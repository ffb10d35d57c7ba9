"""Where the wrong elements of a result are: the simplest set of rows, columns, tiles or labels that they fill.

Candidates are intervals, residues of powers of two and of the tile's sizes, and short lists, of one axis or of rows and
columns together. The best has the largest overlap with the wrong elements (intersection over union), where every part
of a description has a small price: of two sets that fit as well the simpler one is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

_PRICE = 0.02  # of a part of a description, as a fraction of the overlap
_LISTED = 4  # runs, tiles or elements that are still worth listing
_CHUNK = 1 << 24  # elements of a mask unpacked at once


@dataclass(frozen=True)
class Structure:
    """Where the wrong elements are.

    Attributes:
        where: in words, "rows 32..63" for example; "no pattern" where no set fits better than all elements.
        axes: what the set is made of: "row", "column", "tile", "element" or names of labels; empty for no pattern.
        explained: fraction of the wrong elements that are in the set.
        density: fraction of the set's elements that are wrong.
        wrong, elements: how many there are.
    """

    where: str
    axes: tuple[str, ...]
    explained: float
    density: float
    wrong: int
    elements: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        if not self.axes:
            return f"{self.where}: {self.wrong} of {self.elements} elements ({self.density:.1%}) are wrong, all over"
        return f"{self.where}: {self.explained:.1%} of the wrong elements; {self.density:.1%} of those there are wrong"


class Mask:
    """Which elements of a result are wrong, a bit each; leading dimensions are taken together as rows.

    Args:
        shape: of the result.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.columns = shape[-1] if shape else 1
        self.rows = int(np.prod(shape[:-1], dtype=np.int64))
        self._bits = np.zeros((self.rows, -(-self.columns // 8)), np.uint8)

    def set(self, first: int, wrong: np.ndarray) -> None:
        """Booleans of the result's shape but for the first dimension, which starts at ``first``
        (of one dimension a multiple of 8)."""
        if len(self.shape) < 2:
            packed = np.packbits(wrong)
            self._bits[0, first // 8 : first // 8 + len(packed)] = packed
            return
        start = first * (self.rows // max(self.shape[0], 1))
        packed = np.packbits(wrong.reshape(-1, self.columns), axis=1)
        self._bits[start : start + len(packed)] = packed

    def chunks(self, step: int = 1) -> Iterator[tuple[int, np.ndarray]]:
        """The number of the first row and booleans, some rows at a time; all but the last a multiple of ``step``."""
        size = max(1, _CHUNK // max(self.columns, 1) // step) * step
        for first in range(0, self.rows, size):
            part = self._bits[first : first + size]
            yield first, np.unpackbits(part, axis=1, count=self.columns).astype(np.bool_)

    def by_row(self) -> np.ndarray:
        """Wrong elements of each row."""
        return np.concatenate([np.count_nonzero(part, axis=1) for _, part in self.chunks()] or [np.zeros(0, int)])

    def by_column(self, rows: np.ndarray) -> np.ndarray:
        """Wrong elements of each column, in the chosen rows (booleans)."""
        found = np.zeros(self.columns, np.int64)
        for first, part in self.chunks():
            found += np.count_nonzero(part[rows[first : first + len(part)]], axis=0)
        return found

    def by_tile(self, tile: tuple[int, int]) -> np.ndarray:
        """Wrong elements of each tile, ``[tiles of rows, tiles of columns]``."""
        found = []
        for _, part in self.chunks(tile[0]):
            across = np.add.reduceat(part.astype(np.int64), np.arange(0, part.shape[1], tile[1]), axis=1)
            found.append(np.add.reduceat(across, np.arange(0, len(part), tile[0]), axis=0))
        return np.concatenate(found)

    def by_label(self, labels: np.ndarray, count: int) -> np.ndarray:
        """Wrong elements of each label 0..count-1 (integers of the result's shape; negative: no label)."""
        found, flat = np.zeros(count, np.int64), labels.reshape(self.rows, self.columns)
        for first, part in self.chunks():
            chosen = flat[first : first + len(part)][part]
            found += np.bincount(chosen[chosen >= 0], minlength=count)
        return found

    def elements(self, most: int) -> list[tuple[int, ...]]:
        """Indices of the first wrong elements."""
        found: list[tuple[int, ...]] = []
        for first, part in self.chunks():
            for row, column in np.argwhere(part)[: most - len(found)]:
                flat = (first + int(row)) * self.columns + int(column)
                found.append(tuple(int(i) for i in np.unravel_index(flat, self.shape)))
            if len(found) >= most:
                break
        return found


@dataclass(frozen=True)
class _Set:
    """A candidate of one axis: its members, what it is called, and how many parts that takes."""

    members: np.ndarray
    text: str
    parts: int


@dataclass(frozen=True)
class _Fit:
    text: str
    axes: tuple[str, ...]
    inside: int  # wrong elements in the set
    size: int
    parts: int

    def score(self, wrong: int) -> float:
        return self.inside / (wrong + self.size - self.inside) * (1 - _PRICE * self.parts)


def find(
    mask: Mask, *, tile: tuple[int, int] | None = None, labels: Mapping[str, np.ndarray] | None = None
) -> Structure | None:
    """The simplest set that explains where ``mask`` is set; None where it is not set at all.

    Args:
        tile: rows and columns that a workgroup computes.
        labels: further axes, integers of the result's shape from 0 on, such as the lane that wrote each element.
    """
    by_row = mask.by_row()
    wrong, elements = int(by_row.sum()), mask.rows * mask.columns
    if not wrong:
        return None
    fits = [_Fit("no pattern", (), wrong, elements, 0)]
    fits += _rows_and_columns(mask, by_row, tile)
    if tile is not None:
        fits += _tiles(mask, tile)
    for name, values in (labels or {}).items():
        fits += _label(mask, name, values)
    if wrong <= _LISTED:
        listed = ", ".join(str(one) for one in mask.elements(_LISTED))
        fits.append(_Fit(f"element{'s' if wrong > 1 else ''} {listed}", ("element",), wrong, wrong, 3))
    best = max(fits, key=lambda fit: fit.score(wrong))
    return Structure(best.text, best.axes, best.inside / wrong, best.inside / best.size, wrong, elements)


def _rows_and_columns(mask: Mask, by_row: np.ndarray, tile: tuple[int, int] | None) -> Iterator[_Fit]:
    """Sets of rows, of columns, and of rows and columns together."""
    everything = np.ones(mask.rows, np.bool_)
    row_sets = [_Set(everything, "", 0), *_sets(by_row, mask.columns, "row", tile and tile[0])]
    noun = "column" if mask.rows > 1 else "element"
    for rows in row_sets:
        height = int(np.count_nonzero(rows.members))
        by_column = mask.by_column(rows.members)
        whole = _Set(np.ones(mask.columns, np.bool_), "", 0)
        for columns in [whole, *_sets(by_column, height, noun, tile and tile[1])]:
            text = ", ".join(filter(None, (rows.text, columns.text)))
            if text:
                axes = tuple(name for name, one in (("row", rows), (noun, columns)) if one.text)
                size = height * int(np.count_nonzero(columns.members))
                parts = rows.parts + columns.parts
                yield _Fit(text, axes, int(by_column[columns.members].sum()), size, parts)


def _tiles(mask: Mask, tile: tuple[int, int]) -> Iterator[_Fit]:
    counts = mask.by_tile(tile)
    heights = np.minimum(tile[0], mask.rows - tile[0] * np.arange(counts.shape[0]))
    widths = np.minimum(tile[1], mask.columns - tile[1] * np.arange(counts.shape[1]))
    sizes = np.outer(heights, widths)
    chosen = _dense(counts, sizes)
    listed = [tuple(int(i) for i in one) for one in np.argwhere(chosen)]
    if counts.size > 1 and not chosen.all():
        many = f"{len(listed)} of {counts.size} tiles of {tile[0]}x{tile[1]}"
        shown = ", ".join(map(str, listed[:_LISTED])) + (", ..." if len(listed) > _LISTED else "")
        yield _Fit(f"{many}: {shown}", ("tile",), int(counts[chosen].sum()), int(sizes[chosen].sum()), 2 + len(listed))


def _label(mask: Mask, name: str, values: np.ndarray) -> Iterator[_Fit]:
    count = int(values.max(initial=-1)) + 1
    if count < 2:
        return
    counts, sizes = mask.by_label(values, count), np.bincount(values[values >= 0].ravel(), minlength=count)
    for one in _sets(counts, sizes, name, None):
        inside, size = int(counts[one.members].sum()), int(sizes[one.members].sum())
        yield _Fit(one.text, (name,), inside, size, one.parts)


def _dense(counts: np.ndarray, sizes: np.ndarray | int) -> np.ndarray:
    """Which members have more than half of the largest density."""
    density = counts / np.maximum(sizes, 1)
    return np.asarray(density > density.max(initial=0.0) / 2)


def _sets(counts: np.ndarray, sizes: np.ndarray | int, noun: str, tile: int | None) -> list[_Set]:
    """Candidate sets of one axis, all but the whole axis.

    Args:
        counts: wrong elements of each position on the axis.
        sizes: elements of each.
        tile: a further period, beside the powers of two.
    """
    n = len(counts)
    if n < 2 or not counts.any():
        return []
    sizes = np.broadcast_to(sizes, counts.shape)
    found = [_interval(counts, sizes, noun)]
    periods = {1 << power for power in range(1, n.bit_length())} | ({tile} if tile and tile > 1 else set())
    for period in sorted(p for p in periods if 2 * p <= n):
        padding = -n % period
        of_residue = [np.pad(one, (0, padding)).reshape(-1, period).sum(axis=0) for one in (counts, sizes)]
        residues = _dense(*of_residue)
        runs = _runs(residues)
        if len(runs) <= _LISTED and not residues.all():
            members = np.resize(residues, n)
            found.append(_Set(members, _residue_text(runs, period, noun), 1 + len(runs)))
    chosen = _dense(counts, sizes)
    runs = _runs(chosen)
    if 1 < len(runs) <= _LISTED:
        found.append(_Set(chosen, f"{noun}s {', '.join(_run(*run) for run in runs)}", 1 + len(runs)))
    return [one for one in found if not one.members.all()]


def _interval(counts: np.ndarray, sizes: np.ndarray, noun: str) -> _Set:
    """The run of positions with the largest sum of (wrong elements - half of the largest density)."""
    half = (counts / np.maximum(sizes, 1)).max() / 2
    sums = np.concatenate([[0.0], np.cumsum(counts - half * sizes)])
    lowest = np.minimum.accumulate(sums)
    stop = int(np.argmax(sums - lowest))
    start = int(np.argmin(sums[: stop + 1]))
    members = np.zeros(len(counts), np.bool_)
    members[start:stop] = True
    return _Set(members, f"{noun}{'s' if stop - start > 1 else ''} {_run(start, stop)}", 1)


def _runs(members: np.ndarray) -> list[tuple[int, int]]:
    """Start and end (not included) of each run of members."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], members.astype(np.int8), [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


def _run(start: int, stop: int) -> str:
    return str(start) if stop - start == 1 else f"{start}..{stop - 1}"


def _residue_text(runs: list[tuple[int, int]], period: int, noun: str) -> str:
    start, stop = runs[0]
    if len(runs) == 1 and 2 * (stop - start) == period and start % (period // 2) == 0 and period > 2:
        return f"every second group of {period // 2} {noun}s, the {'odd' if start else 'even'} ones"
    if len(runs) == 1 and stop - start == 1:
        return f"{noun}s = {start} mod {period}"
    return f"{noun}s {', '.join(_run(*run) for run in runs)} of every {period}"
