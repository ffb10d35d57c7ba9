# mypy: disable-error-code="no-untyped-def"
"""The Triton kernel that copies two matrices to rows that descriptors can address; ``descriptors`` launches it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_tile(source, target, tile, rows, columns, source_strides, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One tile of a matrix of any strides to rows of ``width`` elements."""
    across = tl.cdiv(columns, COLUMNS)
    row = (tile // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = (tile % across * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    there = row[:, None] * source_strides[0] + column[None, :] * source_strides[1]
    tl.store(target + row[:, None] * width + column[None, :], tl.load(source + there, mask=inside), mask=inside)


@triton.jit
def copy_rows(
    a, a_target, a_tiles, a_rows, a_columns, a_strides, a_width, b, b_target, b_rows, b_columns, b_strides, b_width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Program p copies tile p of a; those from ``a_tiles`` on copy tiles of b."""
    tile = tl.program_id(0)
    if tile < a_tiles:
        copy_tile(a, a_target, tile, a_rows, a_columns, a_strides, a_width, ROWS, COLUMNS)
    else:
        copy_tile(b, b_target, tile - a_tiles, b_rows, b_columns, b_strides, b_width, ROWS, COLUMNS)
