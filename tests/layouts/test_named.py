"""The named layouts against what their producers do, written here as reshape and transpose or as loops over bytes."""

from __future__ import annotations

import hashlib
import itertools

import einops
import numpy as np
import pytest

from asmlaunch import layouts
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import LAYOUTS, Layout

ROWS, COLUMNS = 256, 256
TENSOR = np.random.default_rng(5).permutation(ROWS * COLUMNS).astype(np.uint16).reshape(ROWS, COLUMNS)


def transposed(*shape_and_order):
    """What a producer does that views a tensor as ``shape`` and permutes it."""
    shape, order = shape_and_order
    return lambda x: x.reshape(shape).transpose(order).ravel()


def pre_swizzle(tile_rows: int, tile_k: int, sub_tile_k: int):
    """The generic pre-swizzle of AMD's MX data generator, by strides: sizes fastest first, then a new order of them."""

    def run(x):
        rows, columns = x.shape
        simds = tile_rows // 16
        simd_block = 4 // simds
        index = min(simds, sub_tile_k)
        sizes = [index, tile_k // simd_block // index, simd_block, columns // tile_k]
        sizes += [16, simds // index, index, rows // tile_rows]
        order = {
            (64, 4): [6, 1, 2, 3, 4, 5, 0, 7],
            (32, 4): [6, 2, 1, 3, 4, 5, 0, 7],
            (32, 2): [1, 2, 0, 3, 4, 5, 6, 7],
        }[tile_rows, sub_tile_k]
        return x.reshape(sizes[::-1]).transpose([7 - d for d in reversed(order)]).ravel()

    return run


def by_address(offset):
    """A layout given as the offset of element (row, column) by its producer's formula."""

    def run(x):
        out = np.empty(x.size, x.dtype)
        for (r, c), value in np.ndenumerate(x):
            out[offset(r, c, x.shape[1])] = value
        return out

    return run


def gate_up_rows(rows_at_once: int, then):
    """The rows of gate (first half) and up (second half) interleaved, then another producer."""
    return lambda x: then(
        np.stack([h.reshape(-1, rows_at_once, x.shape[1]) for h in np.split(x, 2)], axis=1).reshape(x.shape)
    )


R, C = ROWS, COLUMNS
PRODUCERS = {
    "scales_32x8": transposed((R // 32, 2, 16, C // 8, 2, 4), (0, 3, 5, 2, 4, 1)),
    "scales_32x8_gate_up": gate_up_rows(16, transposed((R // 32, 2, 16, C // 8, 2, 4), (0, 3, 5, 2, 4, 1))),
    "scales_n32k4": transposed((R // 32, 32, C // 4, 4), (0, 2, 1, 3)),
    "scales_n32k4_gate_up": gate_up_rows(1, transposed((R // 32, 32, C // 4, 4), (0, 2, 1, 3))),
    "scales_n32k8": transposed((R // 32, 32, C // 8, 8), (0, 2, 1, 3)),
    "scales_n16k4": transposed((R // 16, 16, C // 4, 4), (0, 2, 1, 3)),
    "scales_gfx1250_mx32": by_address(lambda r, c, columns: c // 4 * (R * 4) + r * 4 + c % 4),
    "scales_gfx1250_mx16": by_address(lambda r, c, columns: c // 8 * (R * 8) + r * 8 + c % 8),
    "scales_rocroller_32_8_4": pre_swizzle(32, 8, 4),
    "scales_rocroller_32_8_2": pre_swizzle(32, 8, 2),
    "scales_rocroller_64_4_4": pre_swizzle(64, 4, 4),
    "scales_tensilelite_32_8": transposed((R // 32, 32, C // 8, 8), (0, 2, 3, 1)),
    "scales_128x4": by_address(
        lambda r, c, columns: (r // 128 * (columns // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4
    ),
    "weights_16x16": by_address(
        lambda n, b, row: n // 16 * row * 16 + b // 32 * 512 + b % 32 // 16 * 256 + n % 16 * 16 + b % 16
    ),
    "weights_16x16_16bit": transposed((R // 16, 16, C // 32, 4, 8), (0, 2, 3, 1, 4)),
    "weights_32x16": transposed((R // 32, 32, C // 32, 2, 16), (0, 2, 3, 1, 4)),
    "weights_16x16_int4": transposed((R // 16, 16, C // 32, 1, 32), (0, 2, 3, 1, 4)),
    "weights_mfma_16x128": transposed((R // 16, 16, C // 128, 4, 32), (0, 2, 3, 1, 4)),
    "weights_mfma_32x64": transposed((R // 32, 32, C // 64, 2, 32), (0, 2, 3, 1, 4)),
    "weights_16x16_gate_up": transposed((2, R // 32, 16, C // 64, 4, 16), (1, 0, 3, 4, 2, 5)),
    "weights_gfx1250_16x16": transposed((R // 16, 16, C // 16, 16), (0, 2, 1, 3)),
    "activations_gfx1250_2x128": transposed((R // 2, 2, C // 128, 128), (0, 2, 1, 3)),
    "paged_keys": by_address(lambda t, d, width: d // 16 * (R * 16) + t * 16 + d % 16),
    "paged_values": by_address(lambda t, d, width: t // 16 * (width * 16) + d * 16 + t % 16),
    "paged_keys_16bit": transposed((R, C // 8, 8), (1, 0, 2)),
    "paged_values_16bit": transposed((R // 8, 8, C), (0, 2, 1)),
}


def sized(layout: Layout) -> Layout:
    """The same layout for the two-byte numbers that tell all elements of the test tensor apart."""
    return Layout(layout.pattern, layout.sizes, itemsize=2)


@pytest.mark.parametrize("name", PRODUCERS)
def test_every_named_layout_is_its_producers(name):
    layout = sized(layouts.get(name))
    expected = PRODUCERS[name](TENSOR)
    assert np.array_equal(layout.apply(TENSOR).ravel(), expected)
    assert np.array_equal(layout.invert(expected.reshape(ROWS, COLUMNS)), TENSOR)
    rows, columns = np.indices(TENSOR.shape)
    assert np.array_equal(expected[layout.address((rows, columns), TENSOR.shape)], TENSOR)


def test_all_layouts_of_rank_two_are_tested_here():
    assert set(PRODUCERS) == {name for name in layouts.names() if layouts.get(name).rank == 2}


def test_equality_is_that_of_the_producers_in_both_directions():
    memory = {name: producer(TENSOR) for name, producer in PRODUCERS.items()}
    same = {(a, b): np.array_equal(memory[a], memory[b]) for a, b in itertools.product(memory, repeat=2)}
    for (a, b), equal in same.items():
        first, second = sized(layouts.get(a)), sized(layouts.get(b))
        assert (first == second) == equal, (a, b)
        assert bool(layouts.compare(first, second)) == equal, (a, b)
    others = {pair for pair, equal in same.items() if equal and pair[0] < pair[1]}
    # Pieces of one row that follow each other merge, so only the divisibility of these differs.
    assert others == {
        ("weights_16x16", "weights_gfx1250_16x16"),
        ("weights_16x16_int4", "weights_mfma_16x128"),
        ("paged_keys_16bit", "scales_gfx1250_mx16"),  # of two-byte elements and of bytes
    }


@pytest.mark.parametrize("name", PRODUCERS)
def test_einops_reads_the_same_pattern(name):
    pattern, axes = layouts.get(name).einops(TENSOR.shape)
    assert np.array_equal(einops.rearrange(TENSOR, pattern, **axes).ravel(), PRODUCERS[name](TENSOR))


def test_n32k4_golden_hash():
    i = np.arange(256 * 64, dtype=np.uint64)
    golden = (i * 2654435761 % 256).astype(np.uint8).reshape(256, 64)
    digest = hashlib.sha256(layouts.get("scales_n32k4").apply(golden).tobytes()).hexdigest()
    assert digest == "dfe834f30d217e6709d451d40721b90f03c49443708cc860552e211e855aa6e6"


def test_names_and_aliases():
    assert layouts.get("hipblaslt_gfx950") is layouts.SCALES_32X8
    assert layouts.get("cublas_128x4").name == "scales_128x4"
    assert all(layouts.get(name).source for name in layouts.names())
    with pytest.raises(LayoutError, match="scales_32x8"):
        layouts.get("scale_32x8")
    with pytest.raises(LayoutError, match="weights_16x16"):
        layouts.get("zzz")


def test_compare_names_the_first_element_that_differs():
    difference = layouts.compare(layouts.SCALES_32X8, layouts.SCALES_128X4)
    assert not difference
    assert difference.index == (0, 1)
    assert difference.addresses == (64, 1)
    assert "(0, 1)" in str(difference)
    assert "same permutation" in str(layouts.compare(layouts.SCALES_32X8, layouts.get("triton_gfx950")))
    with pytest.raises(LayoutError, match="rank 1"):
        layouts.compare(layouts.SCALES_32X8, layouts.get("nibbles_ggml"))


def test_nvidia_scales_convert():
    scales = TENSOR.astype(np.uint8)[:100, :50]
    nvidia = layouts.SCALES_128X4.apply(scales)
    amd = layouts.convert(nvidia, layouts.SCALES_128X4, layouts.SCALES_32X8, scales.shape)
    assert np.array_equal(amd, layouts.SCALES_32X8.apply(scales))


def test_ggml_nibbles():
    codes = np.arange(64, dtype=np.uint8) % 16
    packed = layouts.pack_fp4(layouts.get("nibbles_ggml").apply(codes))
    assert packed[:3].tolist() == [codes[0] | codes[16] << 4, codes[1] | codes[17] << 4, codes[2] | codes[18] << 4]
    assert packed[16] == codes[32] | codes[48] << 4


def test_general_weight_layouts():
    assert layouts.weights_mfma(32, 32) == layouts.weights_shuffle(32, 16)
    assert layouts.weights_shuffle(16, 16, itemsize=4).sizes["j"] == 4
    for bad in [lambda: layouts.weights_shuffle(16, 4), lambda: layouts.weights_mfma(24, 64)]:
        with pytest.raises(LayoutError, match="multiple of"):
            bad()


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_formula_is_the_address(name):
    layout = layouts.get(name)
    shape = tuple(3 * tile for tile in layout.tile)
    index = np.indices(shape)
    variables = dict(zip("xyXY", [*index, *shape] if len(shape) == 2 else [index[0], 0, shape[0], 0], strict=True))
    assert np.array_equal(eval(layout.formula(), {}, variables), layout.address(tuple(index), shape))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Layout("(g t l) c -> t g l c", {"g": 2, "l": 16}), layouts.SCALES_32X8),
        (Layout("(g t) c -> t g c", {"g": 2}), layouts.get("scales_n32k4")),
        (layouts.SCALES_32X8, Layout("r c -> r c")),
        (Layout("(t a) c -> t a c", {"a": 4}), layouts.get("scales_n32k8")),
        (Layout("r (c a b) -> r c b a", {"a": 2, "b": 4}), layouts.get("scales_n32k8")),
    ],
)
def test_composition(first, second):
    try:
        both = first.then(second)
    except LayoutError:
        assert first == layouts.SCALES_32X8  # its memory is not a table of rows any more
        return
    x = TENSOR.astype(np.uint8)
    assert np.array_equal(both.apply(x), second.apply(first.apply(x)))
    assert np.array_equal(both.invert(second.apply(first.apply(x))), x)


def test_compositions_that_are_named():
    interleave = Layout("(g t l) c -> t g l c", {"g": 2, "l": 16})
    assert interleave.then(layouts.SCALES_32X8) == layouts.get("scales_32x8_gate_up")
    single = Layout("(g t) c -> t g c", {"g": 2})
    assert single.then(layouts.get("scales_n32k4")) == layouts.get("scales_n32k4_gate_up")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (layouts.SCALES_32X8, layouts.SCALES_32X8, "run of whole axes"),
        (layouts.SCALES_32X8, layouts.get("nibbles_ggml"), "rank 1"),
        (Layout("(t a) c -> t a c", {"a": 3}), Layout("(t a) c -> t a c", {"a": 2}), "divide one another"),
    ],
)
def test_compositions_that_are_none(first, second, message):
    with pytest.raises(LayoutError, match=message):
        first.then(second)
