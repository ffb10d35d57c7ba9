"""Patterns from addresses: every layout there is comes back, and what is no layout is refused."""

from __future__ import annotations

import numpy as np
import pytest

from asmlaunch import layouts
from asmlaunch.layouts.layout import Layout
from asmlaunch.validate.probe.fit import axes, known_as, layout_of

RANK_2 = [name for name in layouts.names() if layouts.get(name).rank == 2 and "gate_up" not in name]


@pytest.mark.parametrize("name", RANK_2)
def test_every_named_layout_is_recognised(name: str) -> None:
    layout = layouts.get(name)
    shape = tuple(2 * tile if tile > 1 else 6 for tile in layout.tile)
    found = layout_of(np.asarray(layout.address(tuple(np.indices(shape)), shape)), layout.itemsize)
    assert found == layout
    assert name in known_as(found)


def test_rows_of_an_odd_number_of_tiles() -> None:
    layout = Layout("(t r) (c k) -> t c r k", {"r": 3, "k": 5})
    shape = (15, 35)
    found = layout_of(np.asarray(layout.address(tuple(np.indices(shape)), shape)))
    assert found == layout
    assert known_as(found) == ()


@pytest.mark.parametrize(("shape", "known"), [((4, 8), ("plain",)), ((1, 8), ("plain",)), ((8, 1), ("plain",))])
def test_plain_rows(shape: tuple[int, int], known: tuple[str, ...]) -> None:
    found = layout_of(np.arange(shape[0] * shape[1]).reshape(shape))
    assert found is not None
    assert known_as(found) == known


def test_what_is_no_layout() -> None:
    random = np.random.default_rng(0)
    assert axes(random.permutation(64).reshape(8, 8)) is None
    plain = np.arange(64).reshape(8, 8)
    swapped = plain.copy()
    swapped[3, 4], swapped[6, 2] = plain[6, 2], plain[3, 4]
    assert layout_of(swapped) is None
    assert layout_of(plain ^ (plain >> 3 & 1)) is None  # an exclusive or of address bits
    assert layout_of(2 * plain) is None  # gaps
    assert layout_of(plain + 1) is None
