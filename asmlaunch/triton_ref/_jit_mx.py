# mypy: disable-error-code="no-untyped-def"
"""Triton kernels of products of MX matrices, ``D[M, N] = A[M, K] x B[N, K]^T``; ``mx`` chooses and launches them.

Two ways of adding run through all of them. *Fast*: an element times its scale as bfloat16, products added in float32.
*Exact*: the same in float64. The fast way is right while every scaled element is a normal bfloat16 and no product or
sum of products can leave float32's range; ``in_range`` decides that from the scales that the fast way met, and every
output tile that fails it is computed again the exact way, by the same program or by ``repair``.

Every operand is read through its layout's closed form (``_jit_formats.along``): a product that is right proves the
layout too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from asmlaunch.triton_ref._jit_formats import (
    INTERPRETED,
    along,
    dot,
    e2m1,
    e4m3,
    e5m2,
    e8m0_float32,
    e8m0_float64,
    narrow,
    round_bfloat16,
    widen,
)


@triton.jit
def element_place(column, FORMAT: tl.constexpr):
    return column // 2 if FORMAT == "e2m1" else column


@triton.jit
def load_codes(base, row, column, rows, k, AXES: tl.constexpr, strides, FORMAT: tl.constexpr):
    """Codes [rows, columns] as int32 (bfloat16 as itself); 0 outside the matrix. ``column`` counts elements of K."""
    inside = (row < rows)[:, None] & (column < k)[None, :]
    down = along(row, strides, 0, AXES)
    right = along(element_place(column, FORMAT), strides, 1, AXES)
    codes = tl.load(base + (down[:, None] + right[None, :]), mask=inside, other=0)
    if FORMAT == "e2m1":
        return codes.to(tl.int32) >> (column % 2 * 4).to(tl.int32)[None, :] & 15
    elif FORMAT == "bf16":
        return codes
    else:
        return codes.to(tl.int32)


@triton.jit
def load_scales(base, row, block, rows, blocks, AXES: tl.constexpr, strides):
    """Scale bytes [rows, blocks] as int32; 127 outside the matrix."""
    down = along(row, strides, 0, AXES)
    right = along(block, strides, 1, AXES)
    inside = (row < rows)[:, None] & (block < blocks)[None, :]
    return tl.load(base + (down[:, None] + right[None, :]), mask=inside, other=127).to(tl.int32)


@triton.jit
def decode(codes, FORMAT: tl.constexpr):
    if FORMAT == "e2m1":
        return e2m1(codes)
    elif FORMAT == "e4m3":
        return widen(e4m3(codes))
    elif FORMAT == "e5m2":
        return widen(e5m2(codes))
    else:
        return widen(codes)


@triton.jit
def operand(
    base, scales, row, column, rows, k, AXES: tl.constexpr, strides, SCALE_AXES: tl.constexpr, scale_strides,
    low, high, FORMAT: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Scaled elements [rows, columns], and the lowest and highest scale byte of those that are not zero."""
    codes = load_codes(base, row, column, rows, k, AXES, strides, FORMAT)
    values = decode(codes, FORMAT)
    if FORMAT == "bf16":
        if EXACT:
            return values.to(tl.float64), low, high
        else:
            return codes, low, high
    else:
        byte = load_scales(scales, row, column // 32, rows, tl.cdiv(k, 32), SCALE_AXES, scale_strides)
        if EXACT:
            return values.to(tl.float64) * e8m0_float64(byte), low, high
        else:
            counts = (values != 0) & (byte != 255)
            low = tl.minimum(low, tl.min(tl.where(counts, byte, 256)))
            high = tl.maximum(high, tl.max(tl.where(counts, byte, -1)))
            return round_bfloat16(values * e8m0_float32(byte)), low, high


@triton.jit
def in_range(low_a, high_a, low_b, high_b, k, LIMITS_A: tl.constexpr, LIMITS_B: tl.constexpr):
    """Whether the fast way is right for all elements whose scale bytes lie between these.

    ``LIMITS`` of a format: every element that is not zero has a magnitude of at least 2^first and below 2^second; both
    None for bfloat16, whose range is the caller's business, as in any bfloat16 product.
    """
    fits = k >= 0
    if LIMITS_A is not None:
        fits = fits and low_a - 127 + LIMITS_A[0] >= -126 and high_a - 127 + LIMITS_A[1] <= 128
    if LIMITS_B is not None:
        fits = fits and low_b - 127 + LIMITS_B[0] >= -126 and high_b - 127 + LIMITS_B[1] <= 128
    if LIMITS_A is not None and LIMITS_B is not None:
        # No product is subnormal, and no sum of k of them reaches 2^127.
        fits = fits and low_a + low_b - 254 + LIMITS_A[0] + LIMITS_B[0] >= -126
        room = 127 - LIMITS_A[1] - LIMITS_B[1] - (high_a + high_b - 254)
        fits = fits and room >= 0 and k <= (1 << tl.minimum(tl.maximum(room, 0), 30))
    return fits


@triton.jit
def tile_sum(
    a, b, a_scale, b_scale, row, column, first, last, m, n, k, A_AT: tl.constexpr, B_AT: tl.constexpr,
    A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr, strides, FORMAT_A: tl.constexpr, FORMAT_B: tl.constexpr,
    BLOCK_K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """The sum over K of [first, last) for the rows and columns given, and the scales met on the way."""
    dtype: tl.constexpr = tl.float64 if EXACT else tl.float32
    acc = tl.zeros((row.shape[0], column.shape[0]), dtype)
    low_a = tl.full((), 256, tl.int32)
    low_b = tl.full((), 256, tl.int32)
    high_a = tl.full((), -1, tl.int32)
    high_b = tl.full((), -1, tl.int32)
    for start in range(first, last, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K).to(row.dtype)
        left, low_a, high_a = operand(
            a, a_scale, row, inner, m, k, A_AT, strides[0], A_SCALE_AT, strides[2], low_a, high_a, FORMAT_A, EXACT
        )
        right, low_b, high_b = operand(
            b, b_scale, column, inner, n, k, B_AT, strides[1], B_SCALE_AT, strides[3], low_b, high_b, FORMAT_B, EXACT
        )
        if EXACT:
            # Not every version of Triton compiles a dot of float64.
            acc += tl.sum(left[:, None, :] * right[None, :, :], axis=2)
        else:
            acc = dot(left, tl.trans(right), acc)
    return acc, low_a, high_a, low_b, high_b


@triton.jit
def store_result(
    out, c, bias, acc, row, column, m, n, alpha, beta, out_strides, c_strides, HAS_C: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """``alpha * acc + beta * c + bias`` computed in the type of ``acc`` and rounded once."""
    inside = (row < m)[:, None] & (column < n)[None, :]
    result = acc * alpha
    if HAS_C:
        place = row.to(tl.int64)[:, None] * c_strides[0] + column.to(tl.int64)[None, :] * c_strides[1]
        result += beta * widen(tl.load(c + place, mask=inside, other=0)).to(acc.dtype)
    if HAS_BIAS:
        result += widen(tl.load(bias + column, mask=column < n, other=0)).to(acc.dtype)[None, :]
    place = row.to(tl.int64)[:, None] * out_strides[0] + column.to(tl.int64)[None, :] * out_strides[1]
    tl.store(out + place, narrow(result, out.dtype.element_ty), mask=inside)


@triton.jit
def tile_place(program, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr):
    """Rows and columns of the tile a program computes; tiles go down the rows first."""
    down = tl.cdiv(m, BLOCK_M)
    row = program % down * BLOCK_M + tl.arange(0, BLOCK_M)
    column = program // down * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE:
        return row.to(tl.int64), column.to(tl.int64)
    else:
        return row, column


@triton.jit
def product(
    a, b, a_scale, b_scale, c, bias, out, partials, m, n, k, k_part, alpha, beta, strides, out_strides, c_strides,
    A_AT: tl.constexpr, B_AT: tl.constexpr, A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr, FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr, LIMITS_A: tl.constexpr, LIMITS_B: tl.constexpr, HAS_C: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr, EXACT: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """One tile a program: the fast way, then the exact way if it has to be.

    With ``PARTS`` above 1 program (tile, part) stores the float32 sum over its part of K, and the scales it met, in
    ``partials`` ([tiles, PARTS, BLOCK_M * BLOCK_N + 4]); ``reduce`` adds the parts.
    """
    tile = tl.program_id(0)
    part = tl.program_id(1)
    row, column = tile_place(tile, m, n, BLOCK_M, BLOCK_N, WIDE)
    first = part * k_part
    last = tl.minimum(first + k_part, k)
    exact_tile = tl.full((), 1, tl.int32)
    if not EXACT:
        acc, low_a, high_a, low_b, high_b = tile_sum(
            a, b, a_scale, b_scale, row, column, first, last, m, n, k, A_AT, B_AT, A_SCALE_AT, B_SCALE_AT, strides,
            FORMAT_A, FORMAT_B, BLOCK_K, False,
        )  # fmt: skip
        if PARTS > 1:
            AREA: tl.constexpr = BLOCK_M * BLOCK_N
            slot = partials + (tile.to(tl.int64) * PARTS + part) * (AREA + 4)
            flat = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            tl.store(slot + flat, acc)
            tl.store(slot + AREA, low_a.to(tl.float32))
            tl.store(slot + AREA + 1, high_a.to(tl.float32))
            tl.store(slot + AREA + 2, low_b.to(tl.float32))
            tl.store(slot + AREA + 3, high_b.to(tl.float32))
        else:
            if in_range(low_a, high_a, low_b, high_b, k, LIMITS_A, LIMITS_B):
                store_result(out, c, bias, acc, row, column, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS)
                exact_tile = tl.full((), 0, tl.int32)
    if PARTS == 1 and exact_tile != 0:
        store_exact(
            a, b, a_scale, b_scale, c, bias, out, tile, m, n, k, alpha, beta, strides, out_strides, c_strides,
            A_AT, B_AT, A_SCALE_AT, B_SCALE_AT, FORMAT_A, FORMAT_B, HAS_C, HAS_BIAS, BLOCK_M, BLOCK_N, WIDE,
        )  # fmt: skip


@triton.jit
def store_exact(
    a, b, a_scale, b_scale, c, bias, out, tile, m, n, k, alpha, beta, strides, out_strides, c_strides,
    A_AT: tl.constexpr, B_AT: tl.constexpr, A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr, FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr, HAS_C: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """A tile the exact way, in pieces, so that float64 sums need few registers."""
    BLOCK_K: tl.constexpr = 256 if INTERPRETED else 32
    down = tl.cdiv(m, BLOCK_M)
    PIECE: tl.constexpr = 16
    ACROSS: tl.constexpr = BLOCK_N // PIECE
    for piece in range((BLOCK_M // PIECE) * ACROSS):
        top = tile % down * BLOCK_M + piece // ACROSS * PIECE
        left = tile // down * BLOCK_N + piece % ACROSS * PIECE
        if top < m and left < n:
            row = top + tl.arange(0, PIECE)
            column = left + tl.arange(0, PIECE)
            if WIDE:
                row = row.to(tl.int64)
                column = column.to(tl.int64)
            acc, _, _, _, _ = tile_sum(
                a, b, a_scale, b_scale, row, column, 0, k, m, n, k, A_AT, B_AT, A_SCALE_AT, B_SCALE_AT, strides,
                FORMAT_A, FORMAT_B, BLOCK_K, True,
            )  # fmt: skip
            store_result(out, c, bias, acc, row, column, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS)


@triton.jit
def reduce(
    a, b, a_scale, b_scale, c, bias, out, partials, m, n, k, alpha, beta, strides, out_strides, c_strides,
    A_AT: tl.constexpr, B_AT: tl.constexpr, A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr, FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr, LIMITS_A: tl.constexpr, LIMITS_B: tl.constexpr, HAS_C: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The parts of a tile added in order of K, or the tile the exact way."""
    tile = tl.program_id(0)
    row, column = tile_place(tile, m, n, BLOCK_M, BLOCK_N, WIDE)
    AREA: tl.constexpr = BLOCK_M * BLOCK_N
    flat = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    low_a = tl.full((), 256.0, tl.float32)
    low_b = tl.full((), 256.0, tl.float32)
    high_a = tl.full((), -1.0, tl.float32)
    high_b = tl.full((), -1.0, tl.float32)
    for part in range(PARTS):
        slot = partials + (tile.to(tl.int64) * PARTS + part) * (AREA + 4)
        acc += tl.load(slot + flat)
        low_a = tl.minimum(low_a, tl.load(slot + AREA))
        high_a = tl.maximum(high_a, tl.load(slot + AREA + 1))
        low_b = tl.minimum(low_b, tl.load(slot + AREA + 2))
        high_b = tl.maximum(high_b, tl.load(slot + AREA + 3))
    fits = in_range(
        low_a.to(tl.int32), high_a.to(tl.int32), low_b.to(tl.int32), high_b.to(tl.int32), k, LIMITS_A, LIMITS_B
    )
    if fits:
        store_result(out, c, bias, acc, row, column, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS)
    else:
        store_exact(
            a, b, a_scale, b_scale, c, bias, out, tile, m, n, k, alpha, beta, strides, out_strides, c_strides, A_AT,
            B_AT, A_SCALE_AT, B_SCALE_AT, FORMAT_A, FORMAT_B, HAS_C, HAS_BIAS, BLOCK_M, BLOCK_N, WIDE,
        )  # fmt: skip


def _pairs(lift: bool) -> str:
    """PTX: of four FP4 bytes in $4, times factors in $5 and $6, the low elements to $0 and $1, the high to $2, $3."""
    lines = [".reg .b32 x, y, s, t, u;", "mov.b32 u, 0x7E807E80;"] if lift else [".reg .b32 x, y, s, t;"]
    lines += ["prmt.b32 x, $4, 0, 0x1404;", "prmt.b32 y, $4, 0, 0x3424;"]
    for result, (high, source) in enumerate(((0, "x"), (0, "y"), (1, "x"), (1, "y"))):
        lines += [f"shr.b32 t, {source}, {6 if high else 2};", "and.b32 t, t, 0x01C001C0;"]
        lines += [] if high else [f"shl.b32 s, {source}, 4;"]
        lines += [f"lop3.b32 t, {source if high else 's'}, 0x80008000, t, 0xEA;"]
        lines += ["mul.rn.bf16x2 t, t, u;"] if lift else []
        lines += [f"mul.rn.bf16x2 ${result}, t, ${5 + result % 2};"]
    return "\n".join(("{", *lines, "}"))


PAIRS = tl.constexpr(_pairs(False))
LIFTED_PAIRS = tl.constexpr(_pairs(True))


@triton.jit
def pair(code, factor, LIFT: tl.constexpr, NVIDIA: tl.constexpr):
    """bfloat16 of the low and the high elements of FP4 bytes, times ``factor`` (bfloat16), and 2^-126 without ``LIFT``.

    The four bits land where bfloat16 has its sign, the lowest two bits of its exponent and the highest of its fraction:
    the element times 2^-126, its subnormal 0.5 a subnormal. ``LIFT`` is a product more.
    """
    if NVIDIA:
        return tl.inline_asm_elementwise(
            LIFTED_PAIRS if LIFT else PAIRS,
            "=r,=r,=r,=r,r,r,r",
            [code, factor],
            dtype=(tl.bfloat16, tl.bfloat16),
            is_pure=True,
            pack=4,
        )
    else:
        DOWN: tl.constexpr = 1.0 if LIFT else 2.0**-126
        scale = widen(factor)
        low = e2m1(code.to(tl.int32) & 15) * DOWN
        high = e2m1(code.to(tl.int32) >> 4) * DOWN
        return round_bfloat16(low * scale), round_bfloat16(high * scale)


@triton.jit
def dequantise_load(
    base, scales, row, block, rows, k, AXES: tl.constexpr, strides, SCALE_AXES: tl.constexpr, scale_strides,
    FORMAT: tl.constexpr,
):  # fmt: skip
    """Codes [blocks, rows, bytes of a block] and scale bytes [blocks, rows], the latter as int32; 127 outside.

    Blocks come first: Triton counts the threads of a warp along the first dimension, so that they read neighbours.
    """
    PER_BLOCK: tl.constexpr = 16 if FORMAT == "e2m1" else 32
    unit = block[:, None] * PER_BLOCK + tl.arange(0, PER_BLOCK)[None, :]
    place = along(row, strides, 0, AXES)[None, :, None] + along(unit, strides, 1, AXES)[:, None, :]
    inside = (row < rows)[None, :, None] & (unit < k * PER_BLOCK // 32)[:, None, :]
    codes = tl.load(base + place, mask=inside, other=0)
    place = along(block, scale_strides, 1, SCALE_AXES)[:, None] + along(row, scale_strides, 0, SCALE_AXES)[None, :]
    inside = (block * 32 < k)[:, None] & (row < rows)[None, :]
    return codes, tl.load(scales + place, mask=inside, other=127).to(tl.int32)


@triton.jit
def dequantise_store(out, codes, byte, row, block, rows, k_out, FORMAT: tl.constexpr, NVIDIA: tl.constexpr):
    """Store bfloat16 of what was loaded; scales [blocks, rows], 256 and -1 in the place of those that do not count."""
    BLOCKS: tl.constexpr = byte.shape[0]
    ROWS: tl.constexpr = byte.shape[1]
    if FORMAT == "e2m1":
        factor = tl.where(byte == 255, 0x7FC0, byte << 7).to(tl.int16).to(tl.bfloat16, bitcast=True)
        low, high = pair(codes, tl.broadcast_to(factor[:, :, None], (BLOCKS, ROWS, 16)), True, NVIDIA)
        values = tl.reshape(tl.join(low, high), (BLOCKS, ROWS, 32))
        some = codes & 0x77
    else:
        values = round_bfloat16(decode(codes.to(tl.int32), FORMAT) * e8m0_float32(byte)[:, :, None])
        some = codes & 0x7F
    place = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    inside = (row < rows)[None, :, None] & (place < k_out)[:, None, :]
    tl.store(out + (row.to(tl.int64)[None, :, None] * k_out + place[:, None, :]), values, mask=inside)
    skip = (tl.max(some.to(tl.int32), axis=2) == 0) | (byte == 255)
    return tl.where(skip, 256, byte), tl.where(skip, -1, byte)


@triton.jit
def dequantise_tile(
    base, scales, out, ranges, tile, rows, k, k_out, AXES: tl.constexpr, strides, SCALE_AXES: tl.constexpr,
    scale_strides, FORMAT: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, WIDE: tl.constexpr,
    NVIDIA: tl.constexpr,
):  # fmt: skip
    """bfloat16 of ``ROWS`` rows by ``BLOCKS`` blocks of 32, and the lowest and highest scale in ``ranges``.

    Half of the rows at a time, both halves loaded before either is stored: a thread then holds four bytes of FP4, and
    what a warp stores at once is one run of memory.
    """
    across = tl.cdiv(k, BLOCKS * 32)
    row = tile // across * ROWS + tl.arange(0, ROWS // 2)
    next_row = row + ROWS // 2
    block = tile % across * BLOCKS + tl.arange(0, BLOCKS)
    if WIDE:
        row = row.to(tl.int64)
        next_row = next_row.to(tl.int64)
        block = block.to(tl.int64)
    codes, byte = dequantise_load(base, scales, row, block, rows, k, AXES, strides, SCALE_AXES, scale_strides, FORMAT)
    next_codes, next_byte = dequantise_load(
        base, scales, next_row, block, rows, k, AXES, strides, SCALE_AXES, scale_strides, FORMAT
    )
    low, high = dequantise_store(out, codes, byte, row, block, rows, k_out, FORMAT, NVIDIA)
    next_low, next_high = dequantise_store(out, next_codes, next_byte, next_row, block, rows, k_out, FORMAT, NVIDIA)
    tl.store(ranges + 2 * tile, tl.min(tl.minimum(low, next_low)))
    tl.store(ranges + 2 * tile + 1, tl.max(tl.maximum(high, next_high)))


@triton.jit
def dequantise(
    a, b, a_scale, b_scale, a_out, b_out, ranges, tiles_a, m, n, k, k_out, strides, A_AT: tl.constexpr,
    B_AT: tl.constexpr, A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr, FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, WIDE: tl.constexpr, NVIDIA: tl.constexpr,
):  # fmt: skip
    """Both operands in one launch, tiles of A first (none if A is bfloat16)."""
    tile = tl.program_id(0)
    if tile < tiles_a:
        if FORMAT_A != "bf16":
            dequantise_tile(
                a, a_scale, a_out, ranges, tile, m, k, k_out, A_AT, strides[0], A_SCALE_AT, strides[2], FORMAT_A,
                ROWS, BLOCKS, WIDE, NVIDIA,
            )  # fmt: skip
    else:
        dequantise_tile(
            b, b_scale, b_out, ranges + 2 * tiles_a, tile - tiles_a, n, k, k_out, B_AT, strides[1], B_SCALE_AT,
            strides[3], FORMAT_B, ROWS, BLOCKS, WIDE, NVIDIA,
        )  # fmt: skip


@triton.jit
def range_of(ranges, first, last):
    """Lowest and highest over the entries [first, last)."""
    low = tl.full((), 256, tl.int32)
    high = tl.full((), -1, tl.int32)
    for start in range(first, last, 256):
        place = start + tl.arange(0, 256)
        low = tl.minimum(low, tl.min(tl.load(ranges + 2 * place, mask=place < last, other=256)))
        high = tl.maximum(high, tl.max(tl.load(ranges + 2 * place + 1, mask=place < last, other=-1)))
    return low, high


@triton.jit
def repair(
    a, b, a_scale, b_scale, c, bias, out, ranges, tiles_a, m, n, k, alpha, beta, strides, out_strides, c_strides,
    A_AT: tl.constexpr, B_AT: tl.constexpr, A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr, FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr, LIMITS_A: tl.constexpr, LIMITS_B: tl.constexpr, HAS_C: tl.constexpr, HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Compute a tile the exact way if ``ranges`` (of ``dequantise``) says that the fast product of it may be wrong."""
    tile = tl.program_id(0)
    down = tl.cdiv(m, BLOCK_M)
    across = tl.cdiv(k, BLOCKS * 32)
    low_a = tl.full((), 127, tl.int32)
    high_a = tl.full((), 127, tl.int32)
    if FORMAT_A != "bf16":
        top = tile % down * (BLOCK_M // ROWS)
        low_a, high_a = range_of(ranges, top * across, tl.minimum(top + BLOCK_M // ROWS, tl.cdiv(m, ROWS)) * across)
    left = tile // down * (BLOCK_N // ROWS)
    low_b, high_b = range_of(
        ranges + 2 * tiles_a, left * across, tl.minimum(left + BLOCK_N // ROWS, tl.cdiv(n, ROWS)) * across
    )
    fits = in_range(low_a, high_a, low_b, high_b, k, LIMITS_A, LIMITS_B)
    if not fits:
        store_exact(
            a, b, a_scale, b_scale, c, bias, out, tile, m, n, k, alpha, beta, strides, out_strides, c_strides, A_AT,
            B_AT, A_SCALE_AT, B_SCALE_AT, FORMAT_A, FORMAT_B, HAS_C, HAS_BIAS, BLOCK_M, BLOCK_N, WIDE,
        )  # fmt: skip


@triton.jit
def interleave(tile):
    """Columns [units] in another order, the same for both operands of a product, which does not care.

    A thread of a warp multiplies columns 2t, 2t + 1, 2t + 8 and 2t + 9 of every 16: these come from neighbouring bytes.
    """
    ROWS: tl.constexpr = tile.shape[0]
    UNITS: tl.constexpr = tile.shape[1]
    split = tl.reshape(tile, (ROWS, UNITS // 64, 4, 4, 2, 2))  # 64 bytes: thread, step, half, byte
    return tl.reshape(tl.permute(split, (0, 1, 3, 4, 2, 5)), (ROWS, UNITS))


@triton.jit
def skinny_scales(scales, row, block, k, SCALE_AXES: tl.constexpr, scale_strides, EVEN: tl.constexpr):
    """Scale bytes [rows, blocks]; 127 beyond K."""
    place = along(row, scale_strides, 0, SCALE_AXES)[:, None] + along(block, scale_strides, 1, SCALE_AXES)[None, :]
    if EVEN:
        return tl.load(scales + place)
    else:
        return tl.load(scales + place, mask=(block < k // 32)[None, :], other=127)


@triton.jit
def skinny_operand(
    base, byte, row, unit, k, AXES: tl.constexpr, strides, low, high, SHIFT: tl.constexpr, NVIDIA: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """Low and high elements of bytes [rows, units], times their scale and 2^SHIFT."""
    place = along(row, strides, 0, AXES)[:, None] + along(unit, strides, 1, AXES)[None, :]
    code = tl.load(base + place) if EVEN else tl.load(base + place, mask=(unit < k // 2)[None, :], other=0)
    byte = byte.to(tl.int32)
    low = tl.minimum(low, byte)
    high = tl.maximum(high, tl.where(byte == 255, 127, byte))
    # 2^(byte - 127 + 126 + SHIFT); scales for which that is no bfloat16 are found by their range.
    exponent = tl.minimum(tl.maximum(byte + (126 + SHIFT), 0), 254)
    factor = tl.where(byte == 255, 0x7FC0, exponent << 7).to(tl.int16).to(tl.bfloat16, bitcast=True)
    ROWS: tl.constexpr = place.shape[0]
    BLOCKS: tl.constexpr = byte.shape[1]
    factor = tl.reshape(tl.broadcast_to(factor[:, :, None], (ROWS, BLOCKS, 16)), (ROWS, BLOCKS * 16))
    even, odd = pair(interleave(code), interleave(factor), False, NVIDIA)
    return even, odd, low, high


@triton.jit
def blocks_fit(
    base, scales, row, k, AXES: tl.constexpr, strides, SCALE_AXES: tl.constexpr, scale_strides, BLOCK_K: tl.constexpr
):
    """Whether the scales of all blocks that are not zeros are between 97 and 160 (or NaN)."""
    ROWS: tl.constexpr = row.shape[0]
    BLOCKS: tl.constexpr = BLOCK_K // 32
    wrong = tl.zeros((ROWS, BLOCKS), tl.int32)
    down = along(row, strides, 0, AXES)[:, None]
    scale_down = along(row, scale_strides, 0, SCALE_AXES)[:, None]
    for start in range(0, tl.cdiv(k, 32), BLOCKS):
        unit = start * 16 + tl.arange(0, BLOCKS * 16)
        block = start + tl.arange(0, BLOCKS)
        code = tl.load(base + down + along(unit, strides, 1, AXES)[None, :], mask=(unit < k // 2)[None, :], other=0)
        place = scale_down + along(block, scale_strides, 1, SCALE_AXES)[None, :]
        byte = tl.load(scales + place, mask=(block < k // 32)[None, :], other=127).to(tl.int32)
        some = tl.max(tl.reshape(code.to(tl.int32) & 0x77, (ROWS, BLOCKS, 16)), axis=2) != 0
        outside = (byte < 97) | (byte > 160) & (byte != 255)
        wrong = wrong | (some & outside).to(tl.int32)
    return tl.max(wrong) == 0


@triton.jit
def skinny(
    a, b, a_scale, b_scale, c, bias, out, partials, flags, m, n, k, blocks_part, alpha, beta, strides, out_strides,
    c_strides, A_AT: tl.constexpr, B_AT: tl.constexpr, A_SCALE_AT: tl.constexpr, B_SCALE_AT: tl.constexpr,
    HAS_C: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
    NVIDIA: tl.constexpr, EVEN: tl.constexpr, FORMAT_A: tl.constexpr, FORMAT_B: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """At most 16 rows of MXFP4 by B, whose bytes are read once: D^T = B x A^T, so that B stays in registers.

    Elements are held times 2^-32, where ``pair`` reaches scales from 2^-93 to 2^33. The sums of the first parts of K
    (``blocks_part`` blocks of 32 each) go through ``partials``; the program of the last part waits for them and adds
    them in order of K (see ``_jit_gemm``).
    """
    SHIFT: tl.constexpr = -32
    tiles = tl.num_programs(0)
    tile = tl.program_id(0)
    part = tl.program_id(1)
    column = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    row = tl.arange(0, 16)
    # Rows beyond a matrix are its last one again, and never stored.
    a_row = tl.minimum(row, m - 1)
    b_row = tl.minimum(column, n - 1)
    first = part * blocks_part
    acc = tl.zeros((BLOCK_N, 16), tl.float32)
    low_a = tl.full((16, BLOCK_K // 32), 127, tl.int32)
    low_b = tl.full((BLOCK_N, BLOCK_K // 32), 127, tl.int32)
    high_a = low_a
    high_b = low_b
    BLOCKS: tl.constexpr = BLOCK_K // 32
    # A's scales are single bytes, which the pipeline cannot copy ahead: they are loaded a step ahead by hand.
    a_byte = skinny_scales(a_scale, a_row, first + tl.arange(0, BLOCKS), k, A_SCALE_AT, strides[2], False)
    for start in range(first, tl.minimum(first + blocks_part, tl.cdiv(k, 32)), BLOCKS):
        at = tl.multiple_of(start, BLOCKS)
        unit = at * 16 + tl.arange(0, BLOCKS * 16)
        block = at + tl.arange(0, BLOCKS)
        a_next = skinny_scales(a_scale, a_row, block + BLOCKS, k, A_SCALE_AT, strides[2], False)
        b_byte = skinny_scales(b_scale, b_row, block, k, B_SCALE_AT, strides[3], EVEN)
        b_even, b_odd, low_b, high_b = skinny_operand(
            b, b_byte, b_row, unit, k, B_AT, strides[1], low_b, high_b, SHIFT, NVIDIA, EVEN
        )
        a_even, a_odd, low_a, high_a = skinny_operand(
            a, a_byte, a_row, unit, k, A_AT, strides[0], low_a, high_a, SHIFT, NVIDIA, EVEN
        )
        a_byte = a_next
        acc = dot(b_even, tl.trans(a_even), acc)
        acc = dot(b_odd, tl.trans(a_odd), acc)
    # Between these no product is subnormal and no sum overflows, for any K below 2^30.
    fits = (tl.min(low_b) >= 97) & (tl.max(high_b) <= 160) & (tl.min(low_a) >= 97) & (tl.max(high_a) <= 160)
    AREA: tl.constexpr = BLOCK_N * 16
    flat = tl.arange(0, BLOCK_N)[:, None] * 16 + tl.arange(0, 16)[None, :]
    if PARTS > 1 and part < PARTS - 1:
        slot = part * tiles + tile
        tl.store(partials + slot * AREA + flat, acc, cache_modifier=".cg")
        tl.debug_barrier()
        tl.atomic_xchg(flags + slot, 1 + fits.to(tl.int32), sem="release", scope="gpu")
    if part == PARTS - 1:
        if PARTS > 1:
            total = tl.zeros((BLOCK_N, 16), tl.float32)
            for other in range(PARTS - 1):
                slot = other * tiles + tile
                state = tl.atomic_xchg(flags + slot, 0, sem="acquire", scope="gpu")
                while state == 0:
                    state = tl.atomic_xchg(flags + slot, 0, sem="acquire", scope="gpu")
                fits = fits & (state == 2)
                tl.debug_barrier()
                total += tl.load(partials + slot * AREA + flat, cache_modifier=".cg")
            acc = total + acc
        acc = acc * 2.0 ** (-2 * SHIFT)
        if not fits:
            # Blocks of zeros have scale 0 and do no harm: look again, at elements that are not zero alone.
            fits = blocks_fit(a, a_scale, a_row, k, A_AT, strides[0], A_SCALE_AT, strides[2], BLOCK_K)
            fits = fits & blocks_fit(b, b_scale, b_row, k, B_AT, strides[1], B_SCALE_AT, strides[3], BLOCK_K)
        if fits:
            store_result(
                out, c, bias, tl.trans(acc), row, column, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS
            )
        else:
            store_exact(
                a, b, a_scale, b_scale, c, bias, out, tile, m, n, k, alpha, beta, strides, out_strides, c_strides,
                A_AT, B_AT, A_SCALE_AT, B_SCALE_AT, FORMAT_A, FORMAT_B, HAS_C, HAS_BIAS, 16, BLOCK_N, WIDE,
            )  # fmt: skip
