"""Tensors that carry their layout, with numpy."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from asmlaunch import layouts
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import SCALES_32X8, Layout, Tag, require, tile, wrap

SCALES = np.random.default_rng(0).integers(0, 256, (3, 70, 20), dtype=np.uint8)


@pytest.fixture
def tiled():
    return tile(SCALES, "scales_32x8", element="e8m0", rounding="RoundUp")


def test_what_it_holds(tiled):
    assert tiled.shape == SCALES.shape
    assert tiled.layout is SCALES_32X8
    assert np.array_equal(tiled.logical(), SCALES)
    assert np.array_equal(tiled.plain(), SCALES_32X8.apply(SCALES))
    assert tiled.tag.pad_value == 0
    assert repr(tiled) == "<Tiled scales_32x8 of (3, 70, 20) (padded to (3, 96, 24), pad 0x00, e8m0, RoundUp)>"


@pytest.mark.parametrize(
    "again", [lambda t: t.copy(), copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_copies_keep_the_tag(tiled, again):
    other = again(tiled)
    assert other.tag == tiled.tag
    assert np.array_equal(other.logical(), SCALES)


@pytest.mark.parametrize(
    ("index", "logical"),
    [
        (1, SCALES[1]),
        (slice(1, None), SCALES[1:]),
        ((slice(None), slice(32, 64)), SCALES[:, 32:64]),
        ((2, slice(64, 96)), SCALES[2, 64:]),
        ((0, slice(None), slice(None)), SCALES[0]),
    ],
)
def test_whole_tiles_can_be_sliced(tiled, index, logical):
    part = tiled[index]
    assert part.shape == logical.shape
    assert np.array_equal(part.logical(), logical)
    assert np.shares_memory(part.plain(), tiled.plain())


@pytest.mark.parametrize(
    "index",
    [
        (0, slice(0, 16)),
        (0, 3),
        (0, slice(None), slice(0, 8)),
        (0, slice(None, None, 2)),
        (0, 0, 0, 0),
        None,
        [0, 1],
        slice(None, None, -1),
    ],
)
def test_other_indices_are_refused(tiled, index):
    with pytest.raises(LayoutError, match="whole tiles of 32 rows"):
        tiled[index]


def test_layouts_whose_tiles_are_not_in_order_are_not_sliced():
    planes = tile(SCALES[0], "scales_gfx1250_mx32")
    with pytest.raises(LayoutError, match="scales_gfx1250_mx32"):
        planes[0:32]


def test_it_becomes_no_plain_array_by_itself(tiled):
    with pytest.raises(LayoutError, match=r"\.plain\(\)"):
        np.asarray(tiled)
    assert np.shares_memory(np.from_dlpack(tiled), tiled.plain())


def test_require_names_both_layouts(tiled):
    assert require(tiled, "scales_32x8") is tiled.plain()
    with pytest.raises(LayoutError, match="ScaleA: got layout scales_32x8, need layout scales_128x4"):
        require(tiled, layouts.SCALES_128X4, "ScaleA")
    with pytest.raises(LayoutError, match=r"plain ndarray of shape \(3, 70, 20\).*scales_32x8"):
        require(SCALES, SCALES_32X8)
    same = Layout("(a b c) (d e f) -> a d f c e b", {"b": 2, "c": 16, "e": 2, "f": 4})
    assert require(tiled, same) is tiled.plain()


def test_wrap_takes_a_buffer_as_it_is():
    buffer = SCALES_32X8.apply(SCALES[0])
    wrapped = wrap(buffer.reshape(-1), "scales_32x8", (70, 20))
    assert np.shares_memory(wrapped.plain(), buffer)
    assert np.array_equal(wrapped.logical(), SCALES[0])
    big = wrap(SCALES_32X8.apply(SCALES[0], padded=(256, 24)), SCALES_32X8, (70, 20))
    assert big.tag.padded == (256, 24)
    with pytest.raises(LayoutError, match=r"\(96, 24\)"):
        wrap(buffer, SCALES_32X8, (97, 20))
    with pytest.raises(LayoutError, match="contiguous"):
        wrap(np.zeros((24, 96), np.uint8).T, SCALES_32X8, (70, 20))
    with pytest.raises(LayoutError, match="numpy array or a torch tensor"):
        wrap([1, 2], SCALES_32X8, (70, 20))


def test_tags_as_plain_types():
    nameless = Tag(Layout("(a b) c -> a c b", {"b": 2}), (3, 4), (4, 4), 7)
    for tag in (tile(SCALES, "scales_32x8").tag, nameless):
        assert Tag.from_dict(tag.as_dict()) == tag
    assert str(nameless) == "(a b) c -> a c b of (3, 4) (padded to (4, 4), pad 0x07)"


def test_layouts_are_pickled():
    for name in layouts.names():
        again = pickle.loads(pickle.dumps(layouts.get(name)))
        assert again == layouts.get(name)
        assert again.aliases == layouts.get(name).aliases
