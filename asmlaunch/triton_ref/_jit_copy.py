# mypy: disable-error-code="no-untyped-def"
"""The Triton kernels that copy matrices to rows that descriptors can address; ``descriptors`` launches them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_words(source, target, tile, rows, nbytes, stride, width, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """One tile of rows of ``nbytes`` bytes, ``stride`` bytes apart from any address on, to rows of ``width`` words.

    All loads are of whole words of 8 bytes, two for each that is stored: its bytes begin in one and end in the next.
    Words that hold no byte of the row are not read.
    """
    across = tl.cdiv(nbytes, 8 * WORDS)
    row = (tile // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    word = (tile % across * WORDS + tl.arange(0, WORDS)).to(tl.int64)[None, :]
    address = source.to(tl.int64)
    begin = address % 8 + row * stride
    words = (address - address % 8).to(tl.pointer_type(tl.uint64))
    inside = (row < rows) & (8 * word < nbytes)
    place = begin // 8 + word
    low = tl.load(words + place, mask=inside, other=0)
    high = tl.load(words + place + 1, mask=inside & (8 * (place + 1) < begin + nbytes), other=0)
    shift = (8 * (begin % 8)).to(tl.uint64)
    # In two shifts, because one by 64 has no value.
    tl.store(target + row * width + word, (low >> shift) | (high << 1 << (63 - shift)), mask=inside)


@triton.jit
def copy_elements(source, target, tile, rows, columns, strides, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One tile of a matrix of any strides to rows of ``width`` elements."""
    across = tl.cdiv(columns, COLUMNS)
    row = (tile // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = (tile % across * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    inside = (row < rows) & (column < columns)
    there = source + row * strides[0] + column * strides[1]
    tl.store(target + row * width + column, tl.load(there, mask=inside), mask=inside)


@triton.jit
def copy_tile(
    source, target, tile, rows, columns, strides, width, ELEMENTS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Without ``ELEMENTS`` columns are bytes, next to each other, and the target's words."""
    if ELEMENTS:
        copy_elements(source, target, tile, rows, columns, strides, width, ROWS, COLUMNS)
    else:
        copy_words(source, target, tile, rows, columns, strides[0], width, ROWS, COLUMNS)


# Without a sign that targets are aligned each thread has one element, and those of a warp are next to each other.
@triton.jit(do_not_specialize=["a_target", "a_width", "b_target", "b_width"])
def copy_rows(
    a, a_target, a_tiles, a_rows, a_columns, a_strides, a_width, b, b_target, b_rows, b_columns, b_strides, b_width,
    A_ELEMENTS: tl.constexpr, B_ELEMENTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program p copies tile p of a; those from ``a_tiles`` on copy tiles of b."""
    tile = tl.program_id(0)
    if tile < a_tiles:
        copy_tile(a, a_target, tile, a_rows, a_columns, a_strides, a_width, A_ELEMENTS, ROWS, COLUMNS)
    else:
        copy_tile(b, b_target, tile - a_tiles, b_rows, b_columns, b_strides, b_width, B_ELEMENTS, ROWS, COLUMNS)
