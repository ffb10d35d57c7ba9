"""Paged caches: every token has one place, and the forms that kernels take agree about it."""

from __future__ import annotations

import numpy as np
import pytest

from asmlaunch.validate.paged import cumulative, numbers, shuffled_pages
from asmlaunch.validate.problems.elements import ELEMENTS

LENGTHS = (1, 16, 17, 40)


@pytest.mark.parametrize("size", [1, 16])
def test_pages_are_disjoint_shuffled_and_enough(size: int) -> None:
    pages = shuffled_pages(np.random.default_rng(3), LENGTHS, size)
    used = np.concatenate([*pages.of, pages.spare])
    assert sorted(used) == list(range(1, pages.count))  # page 0 is nobody's
    assert [len(of) for of in pages.of] == [-(-length // size) for length in LENGTHS]
    assert not np.array_equal(used, np.sort(used))


@pytest.mark.parametrize("size", [1, 16])
def test_table_and_list_name_the_places_of_tokens(size: int) -> None:
    pages = shuffled_pages(np.random.default_rng(3), LENGTHS, size)
    table, first, listed = pages.table(), pages.first(), pages.listed()
    assert table.dtype == first.dtype == listed.dtype == np.int32
    for sequence, length in enumerate(LENGTHS):
        page, token = pages.places(sequence)
        for index in range(length):
            assert page[index] == table[sequence, index // size] == listed[first[sequence] + index // size]
            assert token[index] == index % size
        beyond = table[sequence, -(-length // size) :]
        assert len(beyond) > 0
        assert set(beyond) <= set(pages.spare)
    assert listed[first[-1]] in pages.spare


def test_numbers_and_sums() -> None:
    assert numbers("1 17 700") == (1, 17, 700)
    assert numbers("4 3", 5) == (4, 3, 4, 3, 4)
    assert cumulative([2, 0, 5]).tolist() == [0, 2, 2, 7]


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_are_numbers_and_their_marks_show(name: str) -> None:
    element = ELEMENTS[name]
    made = element.make(np.random.default_rng(0), 40, 50)
    values = element.decode(made)
    assert np.isfinite(values).all()
    assert np.unique(values).size > 50
    made[:] = element.nan
    assert np.isnan(element.decode(made)).all() or (element.decode(made) == 127).all()
