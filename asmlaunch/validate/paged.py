"""Paged caches of keys and values: which page holds which tokens, as kernels want to know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pages:
    """The pages of some sequences, in no order.

    Page 0 belongs to no sequence, but kernels read it for tokens past the end of one: it must hold numbers. Neither do
    the spare pages, and nobody reads them.

    Attributes:
        size: tokens of a page.
        lengths: tokens of each sequence.
        count: pages of the cache.
        of: of each sequence, its pages in order of tokens.
        spare: pages that nobody may read.
    """

    size: int
    lengths: tuple[int, ...]
    count: int
    of: tuple[np.ndarray, ...]
    spare: np.ndarray

    def table(self, more: int = 1) -> np.ndarray:
        """Block table, int32 ``[sequences, most pages + more]``; entries past a sequence's end name a spare page."""
        width = max(len(pages) for pages in self.of) + more
        filled = np.full((len(self.of), width), self.spare[0], np.int32)
        for row, pages in zip(filled, self.of, strict=True):
            row[: len(pages)] = pages
        return filled

    def first(self) -> np.ndarray:
        """int32 ``[sequences + 1]``: where in :meth:`listed` each sequence's pages begin, and the end of the last."""
        return cumulative([len(pages) for pages in self.of])

    def listed(self, more: int = 1) -> np.ndarray:
        """int32: the pages of all sequences one after the other, then ``more`` spare ones."""
        return np.concatenate([*self.of, np.full(more, self.spare[0])]).astype(np.int32)

    def places(self, sequence: int) -> tuple[np.ndarray, np.ndarray]:
        """Page, and token within it, of each token of a sequence."""
        token = np.arange(self.lengths[sequence])
        return self.of[sequence][token // self.size], token % self.size


def numbers(text: str, count: int | None = None) -> tuple[int, ...]:
    """The numbers of ``"1 17 700"``; with a ``count`` repeated from the start until there are so many."""
    given = [int(word) for word in text.split()]
    return tuple(given[index % len(given)] for index in range(len(given) if count is None else count))


def cumulative(counts: Sequence[int]) -> np.ndarray:
    """int32 ``[n + 1]``: the sum of the counts before each, and of all."""
    return np.cumsum([0, *counts]).astype(np.int32)


def shuffled_pages(random: np.random.Generator, lengths: Sequence[int], size: int, spare: int = 2) -> Pages:
    """Pages for sequences of ``lengths`` tokens, at random places of a cache with ``spare`` further ones."""
    needed = [-(-length // size) for length in lengths]
    ends = np.cumsum(needed)
    pages = 1 + random.permutation(int(ends[-1]) + spare)
    of = tuple(pages[end - count : end] for end, count in zip(ends, needed, strict=True))
    return Pages(size, tuple(lengths), len(pages) + 1, of, pages[ends[-1] :])
