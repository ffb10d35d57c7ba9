"""Tensors of attention: heads of rows by their strides, for sequences of one length (batch) or one each (group)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asmlaunch.validate.compare import EXACT, Bound
from asmlaunch.validate.problems.base import Canvas, Case, Output, Parameters
from asmlaunch.validate.reference import Reference

#: Rows between the sequences of a group, which are in memory and belong to none.
ROWS_BETWEEN = 3


@dataclass(frozen=True)
class Span:
    """Where the rows of one sequence are: in which entry of the batch, and from which row on."""

    entry: int
    first: int
    rows: int


@dataclass(frozen=True)
class Spans:
    """The sequences of one tensor.

    Attributes:
        each: of each sequence.
        entries, rows: what a tensor that holds them has, entries of the batch and rows of each.
    """

    each: tuple[Span, ...]
    entries: int
    rows: int

    @property
    def cumulative(self) -> np.ndarray:
        """int32 ``[sequences + 1]``: rows before each sequence, not counting those between."""
        return np.cumsum([0, *(span.rows for span in self.each)]).astype(np.int32)

    @property
    def first_rows(self) -> np.ndarray:
        """int32 ``[sequences + 1]``: first row of each sequence, and the row after the last."""
        return np.array([*(span.first for span in self.each), self.rows], np.int32)

    @property
    def longest(self) -> int:
        """Rows of the longest sequence."""
        return max(span.rows for span in self.each)


def batch(count: int, rows: int) -> Spans:
    """Sequences of one length, each an entry of its own."""
    return Spans(tuple(Span(entry, 0, rows) for entry in range(count)), count, rows)


def group(lengths: Sequence[int]) -> Spans:
    """Sequences one after the other in one entry, with rows before and between that belong to none."""
    firsts = np.cumsum([ROWS_BETWEEN, *(length + ROWS_BETWEEN for length in lengths)])
    each = tuple(Span(0, int(first), length) for first, length in zip(firsts, lengths, strict=False))
    return Spans(each, 1, int(firsts[-1]))


@dataclass(frozen=True)
class Lengths(Case):
    """Sizes that the forward and the backward pass add their own to.

    Attributes:
        batch: sequences of ``rows`` rows of Q and ``keys`` rows of K and V.
        rows, keys: rows of Q, and of K and V.
        more: further sequences of group kernels, "1/33 0/7" for 1 row and 33 keys, none and 7.
        heads, key_heads: of Q, and of K and V.
    """

    batch: int
    rows: int
    keys: int
    more: str = ""
    heads: int = 2
    key_heads: int = 1


def sequences_of(case: Lengths, p: Parameters) -> tuple[Spans, Spans]:
    """The sequences of Q, and of K.

    Raises:
        ValueError: further sequences for kernels that take one length, or not in the form "rows/keys".
    """
    further = [tuple(int(length) for length in pair.split("/")) for pair in case.more.split()]
    if p["group"]:
        lengths = [(case.rows, case.keys)] * case.batch + further
        return group([rows for rows, _ in lengths]), group([keys for _, keys in lengths])
    if further:
        raise ValueError("one length for all sequences")
    return batch(case.batch, case.rows), batch(case.batch, case.keys)


@dataclass(frozen=True)
class Layout:
    """Where the elements of a tensor ``[entries, heads, rows, width]`` are.

    Attributes:
        spans: its sequences.
        itemsize: bytes of an element.
        heads_outside: rows of a head follow each other; else the heads of a row do.
        pad: elements to spare after each row of all heads, or with ``heads_outside`` after each head.
    """

    spans: Spans
    heads: int
    width: int
    itemsize: int = 2
    heads_outside: bool = False
    pad: int = 0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.spans.entries, self.heads, self.spans.rows, self.width

    @property
    def row(self) -> int:
        """Bytes from row to row."""
        return self.itemsize * (self.width if self.heads_outside else self.heads * self.width + self.pad)

    @property
    def head(self) -> int:
        """Bytes from head to head."""
        return self.itemsize * (self.spans.rows * self.width + self.pad if self.heads_outside else self.width)

    @property
    def entry(self) -> int:
        """Bytes from one entry of the batch to the next."""
        return self.heads * self.head if self.heads_outside else self.spans.rows * self.row


class Heads(Canvas):
    """A tensor in memory that is NaN at first.

    Attributes:
        whole: the memory, one-dimensional.
        inside: ``[entries, heads, rows, width]``, a view.
        each: of each sequence ``[heads, rows, width]``, views; other rows must keep their value.
    """

    def __init__(self, layout: Layout, dtype: Any) -> None:
        self.layout = layout
        self.whole = np.full(layout.spans.entries * layout.entry, 0xFF, np.uint8).view(dtype)
        self.inside = self._view(self.whole)
        self.each = self._each(self.inside)

    def _view(self, memory: np.ndarray) -> np.ndarray:
        """The tensor's elements in an array that has one element for each of ``whole``."""
        of = self.layout
        steps = [step // of.itemsize * memory.itemsize for step in (of.entry, of.head, of.row, of.itemsize)]
        return np.lib.stride_tricks.as_strided(memory, of.shape, steps)

    def _each(self, inside: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(inside[span.entry, :, span.first : span.first + span.rows] for span in self.layout.spans.each)

    def filled(self, parts: Sequence[np.ndarray]) -> Heads:
        """Itself, with the sequences' rows set to ``parts``."""
        for view, part in zip(self.each, parts, strict=True):
            view[...] = part
        return self

    def outputs(self, name: str, reference: Callable[[int], Reference], bound: Bound) -> tuple[Output, ...]:
        """What to compare: each sequence that has rows, with ``reference`` of its index."""
        made = [
            Output(f"{name} {index}" if len(self.each) > 1 else name, view, partial(reference, index), bound)
            for index, view in enumerate(self.each)
            if view.size
        ]
        # The memory around is looked at once.
        return dataclasses.replace(made[0], around=self), *made[1:]

    def untouched(self, name: str) -> Output:
        """That nobody wrote here."""
        bits = self.whole.view(np.int16)
        return Output(name, bits, lambda: Reference(np.full(bits.shape, -1.0), np.zeros(())), EXACT)

    def spilled(self, before: np.ndarray) -> int:
        """Elements outside the sequences that are no longer what they were in ``before``, a copy of ``whole``."""
        changed = (self.whole.view(np.uint8) != before.view(np.uint8)).reshape(len(self.whole), -1).any(axis=1)
        for view in self._each(self._view(changed)):
            view[...] = False
        return int(changed.sum())
