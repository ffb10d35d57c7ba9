"""Layout as a value: addresses, application and inversion against plain index arithmetic and stated byte positions."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import LAYOUTS, SCALES_32X8, WEIGHTS_16X16, Layout, _jit


def golden(rows: int, columns: int) -> np.ndarray:
    """The byte v[i] = i * 2654435761 mod 256, row-major."""
    i = np.arange(rows * columns, dtype=np.uint64)
    return (i * 2654435761 % 256).astype(np.uint8).reshape(rows, columns)


def sha256(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def scale_address(x, y, columns):
    """The 32x8 scale tiling in closed form, as published."""
    return x // 32 * columns * 32 + y // 8 * 256 + y % 4 * 64 + x % 16 * 4 + y % 8 // 4 * 2 + x % 32 // 16


def weight_address(n, b, row_bytes):
    """The (16,16) pre-shuffle in closed form, as published."""
    return n // 16 * row_bytes * 16 + b // 32 * 512 + b % 32 // 16 * 256 + n % 16 * 16 + b % 16


@pytest.mark.parametrize(
    ("layout", "shape", "digest"),
    [
        (SCALES_32X8, (256, 64), "6dbb67e8d95bbf690184c7896b31c1c8e02d964d87f3ca8550cec8410018fab5"),
        (WEIGHTS_16X16, (64, 128), "9c11e2a9b266791419824d0420ddf00756e82d597325fab9851fde2c9371304d"),
    ],
)
def test_golden_hashes(layout, shape, digest):
    assert sha256(layout.apply(golden(*shape))) == digest


def test_one_scale_tile():
    tile = SCALES_32X8.apply(np.arange(256, dtype=np.uint8).reshape(32, 8))
    assert tile.ravel()[:10].tolist() == [0, 128, 4, 132, 8, 136, 12, 140, 16, 144]
    assert sha256(tile) == "e4dee11ab1add2d63aa49e42c584995cfbec757fed7592495d023b175e6213fe"


@pytest.mark.parametrize(
    ("layout", "shape", "index", "address"),
    [
        (SCALES_32X8, (64, 56), (16, 0), 1),
        (SCALES_32X8, (64, 56), (0, 4), 2),
        (SCALES_32X8, (64, 56), (1, 0), 4),
        (SCALES_32X8, (64, 56), (0, 1), 64),
        (SCALES_32X8, (64, 56), (31, 7), 255),
        # K = 1664: 52 scale columns are valid, 56 are there, and row 32 starts after 32 * 56 bytes.
        (SCALES_32X8, (64, 52), (32, 0), 1792),
        (WEIGHTS_16X16, (32, 128), (1, 0), 16),
        (WEIGHTS_16X16, (32, 128), (0, 16), 256),
        (WEIGHTS_16X16, (32, 128), (0, 32), 512),
        (WEIGHTS_16X16, (32, 128), (16, 0), 2048),
        (WEIGHTS_16X16, (32, 128), (15, 127), 2047),
    ],
)
def test_known_addresses(layout, shape, index, address):
    assert layout.address(index, shape) == address
    assert layout.element(address, shape) == index


@pytest.mark.parametrize(
    ("layout", "closed_form"),
    [(SCALES_32X8, scale_address), (WEIGHTS_16X16, weight_address)],
    ids=lambda v: str(v)[:30],
)
def test_the_closed_form_is_the_published_one(layout, closed_form):
    rows, columns = 96, 96
    x, y = np.indices((rows, columns))
    assert np.array_equal(layout.address((x, y), (rows, columns)), closed_form(x, y, columns))


@st.composite
def layouts_and_shapes(draw):
    """A layout and a shape in its domain: any extents, but multiples where the end cannot be padded."""
    layout = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]
    shape = [
        draw(st.integers(0, 2)) * tile if group[0] in layout.sizes else draw(st.integers(1, 70))
        for group, tile in zip(layout.groups, layout.tile, strict=True)
    ]
    return layout, (*draw(st.sampled_from([(), (1,), (3,)])), *shape)


@settings(max_examples=150, deadline=None)
@given(layout_and_shape=layouts_and_shapes(), pad=st.integers(0, 255), seed=st.integers(0, 2**31))
def test_apply_puts_every_element_at_its_address_and_invert_takes_it_back(layout_and_shape, pad, seed):
    layout, shape = layout_and_shape
    x = np.random.default_rng(seed).integers(0, 256, shape, dtype=f"u{layout.itemsize}")
    out = layout.apply(x, pad_value=pad)
    padded = layout.padded_shape(shape)
    assert out.shape == padded
    assert out.flags.c_contiguous
    batch, dims = shape[: -layout.rank], shape[-layout.rank :]
    count = math.prod(padded[-layout.rank :])
    expected = np.full((*batch, count), pad, x.dtype)
    expected[..., layout.address(tuple(np.indices(dims)), dims)] = x
    assert np.array_equal(out.reshape(expected.shape), expected)
    assert np.array_equal(layout.invert(out, shape), x)
    assert np.array_equal(layout.invert(out.reshape(-1), shape), x)
    addresses = np.arange(count)
    assert np.array_equal(layout.address(layout.element(addresses, dims), padded), addresses)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_large_tensors_with_edges(name, compiled, monkeypatch):
    """Sizes at which the compiled copy and its threads work, and at which numpy does without llvmlite."""
    if not compiled:
        monkeypatch.setattr(_jit, "available", lambda: False)
    layout = LAYOUTS[name]
    dims = [
        tile * 6 if group[0] in layout.sizes else -(-700 // tile) * tile - (3 if tile > 3 else 0)
        for group, tile in zip(layout.groups, layout.tile, strict=True)
    ]
    x = np.random.default_rng(1).integers(0, 256, dims, dtype=f"u{layout.itemsize}")
    out = layout.apply(x, pad_value=77)
    expected = np.full(math.prod(layout.padded_shape(dims)), 77, x.dtype)
    expected[layout.address(tuple(np.indices(dims)), dims)] = x
    assert np.array_equal(out.ravel(), expected)
    assert np.array_equal(layout.invert(out, dims), x)
    assert np.array_equal(layout.invert(out), layout.invert(out, out.shape))


def test_rows_of_1_to_65_and_tails_of_k():
    for rows in range(1, 66):
        for columns in (1, 4, 7, 8, 9, 52, 57):
            x = golden(rows, columns)
            out = SCALES_32X8.apply(x)
            expected = np.zeros(out.size, np.uint8)
            expected[scale_address(*np.indices(x.shape), out.shape[1])] = x
            assert np.array_equal(out.ravel(), expected)
            assert np.array_equal(SCALES_32X8.invert(out, x.shape), x)


def test_results_in_given_memory():
    x = golden(40, 9)
    out = np.full((64, 16), 99, np.uint8)
    assert SCALES_32X8.apply(x, out=out) is out
    assert np.array_equal(out, SCALES_32X8.apply(x))
    back = np.empty_like(x)
    assert SCALES_32X8.invert(out, x.shape, out=back) is back
    assert np.array_equal(back, x)
    read_only = np.zeros((64, 16), np.uint8)
    read_only.flags.writeable = False
    for bad in (np.zeros((32, 16), np.uint8), np.zeros((64, 16), np.int8), np.zeros((16, 64), np.uint8).T, read_only):
        with pytest.raises(LayoutError, match=r"contiguous uint8 of shape \(64, 16\)"):
            SCALES_32X8.apply(x, out=bad)


def test_more_than_two_to_the_31_elements():
    shape = (1 << 26, 100)
    for index in ((0, 99), ((1 << 26) - 1, 99), (12345678, 57)):
        address = SCALES_32X8.address(index, shape)
        assert address == scale_address(*index, 104)
        assert SCALES_32X8.element(address, shape) == index
    rows = np.array([(1 << 26) - 1], np.int32)
    assert SCALES_32X8.address((rows, np.int32(7)), shape).tolist() == [scale_address((1 << 26) - 1, 7, 104)]


def test_small_index_types_do_not_overflow():
    index = (np.array([255], np.uint8), np.array([7], np.uint8))
    assert SCALES_32X8.address(index, (256, 64)).tolist() == [scale_address(255, 7, 64)]


def test_more_padding_than_needed_is_left_out():
    x = golden(40, 9)
    big = SCALES_32X8.apply(np.pad(x, ((0, 216), (0, 23)), constant_values=9))
    assert np.array_equal(SCALES_32X8.invert(big, x.shape), x)


def test_any_strides_are_taken():
    x = golden(64, 64)
    assert np.array_equal(SCALES_32X8.apply(x.T), SCALES_32X8.apply(np.ascontiguousarray(x.T)))
    wide = np.repeat(x, 2, axis=1)[:, ::2]
    assert np.array_equal(SCALES_32X8.apply(wide), SCALES_32X8.apply(x))


def test_empty_tensors():
    assert SCALES_32X8.apply(np.empty((0, 8), np.uint8)).shape == (0, 8)
    assert SCALES_32X8.invert(np.empty((0, 8), np.uint8)).shape == (0, 8)


def test_axes_have_sizes_and_strides():
    axes = SCALES_32X8.axes((64, 56))
    assert [(a.name, a.size, a.stride) for a in axes] == [
        ("t", 2, 1792),
        ("c", 7, 256),
        ("k", 4, 64),
        ("l", 16, 4),
        ("kh", 2, 2),
        ("rh", 2, 1),
    ]


def test_equality_is_that_of_the_permutation():
    other = Layout("(a two b) (z p q) -> a z q b p two", {"two": 2, "b": 16, "p": 2, "q": 4})
    assert other == SCALES_32X8
    assert hash(other) == hash(SCALES_32X8)
    split = Layout("(n i one) (k g j jj) -> n k g one i j jj", {"i": 16, "one": 1, "g": 2, "j": 4, "jj": 4})
    assert split == WEIGHTS_16X16
    assert Layout("(a b) c -> a b c", {"b": 4}) == Layout("r c -> r c")
    swapped = Layout("(t rh l) (c kh k) -> t c k l rh kh", {"rh": 2, "l": 16, "kh": 2, "k": 4})
    assert swapped != SCALES_32X8
    assert SCALES_32X8 != "scales_32x8"
    assert "scales_32x8" in repr(SCALES_32X8)


@pytest.mark.parametrize(
    ("pattern", "sizes", "message"),
    [
        ("(a b) c", {"b": 2}, "->"),
        ("(a b) c -> a c", {"b": 2}, "each axis once"),
        ("(a b) a -> a b", {"b": 2}, "each axis once"),
        ("(a b) c -> a (b c)", {"b": 2}, "plain axis names"),
        ("((a) b) c -> a b c", {"b": 2}, "names and"),
        ("(a b) c -> c b a", {}, "exactly one"),
        ("(a b) c -> c b a", {"a": 2, "b": 2}, "exactly one"),
        ("(a b) c -> c b a", {"b": 0}, "positive"),
        ("(a b) c -> c b a", {"b": 2, "z": 2}, "'z'"),
    ],
)
def test_bad_patterns(pattern, sizes, message):
    with pytest.raises(LayoutError, match=message):
        Layout(pattern, sizes)


def test_bad_tensors():
    with pytest.raises(LayoutError, match="rank 1"):
        SCALES_32X8.apply(np.zeros(8, np.uint8))
    with pytest.raises(LayoutError, match="4 bytes"):
        SCALES_32X8.apply(np.zeros((32, 8), np.float32))
    with pytest.raises(LayoutError, match=r"\(16, 32\).*pad_value"):
        WEIGHTS_16X16.apply(np.zeros((10, 20), np.uint8))
    with pytest.raises(LayoutError, match=r"0\.\.255"):
        WEIGHTS_16X16.apply(np.zeros((10, 20), np.uint8), pad_value=256)
    with pytest.raises(LayoutError, match=r"\(32, 8\)"):
        SCALES_32X8.invert(np.zeros((32, 7), np.uint8), (32, 7))
    with pytest.raises(LayoutError, match=r"\(64, 8\)"):
        SCALES_32X8.invert(np.zeros((32, 8), np.uint8), (33, 8))
    with pytest.raises(LayoutError, match=r"0\.\.63"):
        SCALES_32X8.address((64, 0), (64, 8))
    with pytest.raises(LayoutError, match="2"):
        SCALES_32X8.address((1,), (64, 8))
    with pytest.raises(LayoutError, match=r"0\.\.511"):
        SCALES_32X8.element(512, (64, 8))


def test_a_dimension_whose_slowest_axis_is_fixed_cannot_be_padded():
    gate_up = Layout("(g t l) c -> t g l c", {"g": 2, "l": 16}, pad_value=0)
    assert gate_up.apply(golden(64, 3)).shape == (64, 3)
    with pytest.raises(LayoutError, match="'g' is its slowest axis"):
        gate_up.apply(golden(60, 3))
