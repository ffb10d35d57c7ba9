# mypy: disable-error-code="no-untyped-def"
"""The Triton kernels of the layouts and of MXFP4 and MXFP8; ``triton_kernels`` chooses and launches them.

* ``move`` moves whole tiles in vectors of up to 16 bytes, loaded along the rows of the tensor and stored along memory.
  Where less than a vector stays together, a thread loads as many vectors as one has pieces and transposes the pieces.
* ``exchange_bytes`` does so for the 32x8 scale tiles, which scatter single bytes: a thread loads eight vectors, of four
  rows in both halves of a tile, exchanges their bytes and stores vectors of four rows.
* ``gather`` and ``scatter`` take any layout, any alignment and any padding, an element at a time, by the closed form.
* ``quantize`` makes MXFP4 or MXFP8 and its tiled scales in one pass over the input, a block of 32 elements a thread.

All exchanges happen in the registers of one thread, and each thread loads and stores vectors: compiled for sm_90, the
first two have ``ld.global.v4.b32`` and ``st.global.v4.b32`` and no shared memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

if not hasattr(tl.constexpr, "__len__"):
    # Before Triton 3.7 a tuple that is a constexpr can be iterated but has no length, which tl.permute asks for.
    tl.constexpr.__len__ = lambda self: len(self.value)


@triton.jit
def _turn(a, b, c, d, P: tl.constexpr, N: tl.constexpr, VEC: tl.constexpr):
    """Transpose ``P`` vectors of ``P`` pieces: piece q of vector p becomes piece p of vector q."""
    if P == 4:
        a0, a1, a2, a3 = _quarters(a, N)
        b0, b1, b2, b3 = _quarters(b, N)
        c0, c1, c2, c3 = _quarters(c, N)
        d0, d1, d2, d3 = _quarters(d, N)
        a = _joined(a0, b0, c0, d0, N)
        b = _joined(a1, b1, c1, d1, N)
        c = _joined(a2, b2, c2, d2, N)
        d = _joined(a3, b3, c3, d3, N)
    elif P == 2:
        a0, a1 = tl.split(tl.permute(tl.reshape(a, (N, 2, VEC // 2)), (0, 2, 1)))
        b0, b1 = tl.split(tl.permute(tl.reshape(b, (N, 2, VEC // 2)), (0, 2, 1)))
        a = tl.reshape(tl.permute(tl.join(a0, b0), (0, 2, 1)), (N, VEC))
        b = tl.reshape(tl.permute(tl.join(a1, b1), (0, 2, 1)), (N, VEC))
    return a, b, c, d


@triton.jit
def _quarters(x, N: tl.constexpr):
    even, odd = tl.split(tl.reshape(x, (N, 2, 2)))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def _joined(x0, x1, x2, x3, N: tl.constexpr):
    return tl.reshape(tl.join(tl.join(x0, x2), tl.join(x1, x3)), (N, 4))


# A size of 1 would become a plain Python int, which has no `.to`.
@triton.jit(do_not_specialize=["row_vectors", "piece_memory"])
def move(
    logical,  # 32-bit words
    memory,
    rows,
    pad,
    row_vectors,  # vectors from a row of the tensor to the next
    across,  # programs along the free axis of the columns
    counts,  # of the free axes of rows and columns
    free_rows,  # rows, vectors of a row and vectors of memory that a step of each free axis makes
    free_columns,
    free_memory,
    axis_rows,  # the same for the axes within a program
    axis_columns,
    axis_memory,
    piece_row,  # rows, vectors of a row from a vector to the next in memory: what one thread loads
    piece_column,
    piece_memory,  # vectors of memory from a piece of a vector of the tensor to the next: what it stores
    batch_logical,  # vectors
    batch_memory,
    SIZES: tl.constexpr,  # of the axes within a program, the fastest first
    FREE_STEPS: tl.constexpr,  # how far a step of each takes the free axes: (rows', columns')
    BLOCKS: tl.constexpr,  # how many steps of each free axis a program makes
    N: tl.constexpr,  # their product
    P: tl.constexpr,  # pieces of a vector
    VEC: tl.constexpr,  # words of a vector
    INVERT: tl.constexpr,
):
    i0 = (tl.program_id(0) // across).to(tl.int64) * BLOCKS[0]
    i1 = (tl.program_id(0) % across).to(tl.int64) * BLOCKS[1]
    logical += tl.program_id(1).to(tl.int64) * batch_logical * VEC
    memory += tl.program_id(1).to(tl.int64) * batch_memory * VEC
    rest = tl.arange(0, N)
    row = rest * 0
    column = rest * 0
    place = rest * 0
    row_tile = i0 + rest * 0
    column_tile = i1 + rest * 0
    for axis in tl.static_range(len(SIZES)):
        index = rest % SIZES[axis]
        rest = rest // SIZES[axis]
        row += index * axis_rows[axis]
        column += index * axis_columns[axis]
        place += index * axis_memory[axis]
        row_tile += index * FREE_STEPS[axis][0]
        column_tile += index * FREE_STEPS[axis][1]
    row += i0 * free_rows[0] + i1 * free_rows[1]
    word = tl.arange(0, VEC)[None, :]
    start = i0 * free_columns[0] + i1 * free_columns[1] + column
    there = logical + (row * row_vectors + start)[:, None] * VEC + word
    here = memory + (i0 * free_memory[0] + i1 * free_memory[1] + place)[:, None] * VEC + word
    step = (piece_row * row_vectors.to(tl.int64) + piece_column) * VEC
    jump = piece_memory.to(tl.int64) * VEC
    present = ((row_tile < counts[0]) & (column_tile < counts[1]))[:, None]
    here1, here2, here3 = here, here, here
    there1, there2, there3 = there, there, there
    if P > 1:
        here1, there1 = here + jump, there + step
    if P > 2:
        here2, there2 = here + 2 * jump, there + 2 * step
        here3, there3 = here + 3 * jump, there + 3 * step
    in0 = present & (row < rows)[:, None]
    in1 = present & (row + piece_row < rows)[:, None]
    in2 = present & (row + 2 * piece_row < rows)[:, None]
    in3 = present & (row + 3 * piece_row < rows)[:, None]
    if INVERT:
        a = tl.load(here, mask=present)
        b, c, d = a, a, a
        if P > 1:
            b = tl.load(here1, mask=present)
        if P > 2:
            c = tl.load(here2, mask=present)
            d = tl.load(here3, mask=present)
        a, b, c, d = _turn(a, b, c, d, P, N, VEC)
        tl.store(there, a, mask=in0)
        if P > 1:
            tl.store(there1, b, mask=in1)
        if P > 2:
            tl.store(there2, c, mask=in2)
            tl.store(there3, d, mask=in3)
    else:
        a = tl.load(there, mask=in0, other=pad)
        b, c, d = a, a, a
        if P > 1:
            b = tl.load(there1, mask=in1, other=pad)
        if P > 2:
            c = tl.load(there2, mask=in2, other=pad)
            d = tl.load(there3, mask=in3, other=pad)
        a, b, c, d = _turn(a, b, c, d, P, N, VEC)
        tl.store(here, a, mask=present)
        if P > 1:
            tl.store(here1, b, mask=present)
        if P > 2:
            tl.store(here2, c, mask=present)
            tl.store(here3, d, mask=present)


@triton.jit
def _exchange(a, b, c, d):
    """Transpose four words of four bytes: byte i of word j becomes byte j of word i."""
    x = ((a >> 8) ^ b) & 0x00FF00FF
    a = a ^ (x << 8)
    b = b ^ x
    y = ((c >> 8) ^ d) & 0x00FF00FF
    c = c ^ (y << 8)
    d = d ^ y
    x = ((a >> 16) ^ c) & 0x0000FFFF
    a = a ^ (x << 16)
    c = c ^ x
    y = ((b >> 16) ^ d) & 0x0000FFFF
    b = b ^ (y << 16)
    d = d ^ y
    return a, b, c, d


@triton.jit
def _exchanged_row(first, second, inside, pad, row, rows, half_rows, W: tl.constexpr, N: tl.constexpr):
    """One row of the first half of tiles and its fellow of the second: four words, one a K-block of a half, [N, W]."""
    upper = tl.load(first, mask=inside & (row < rows)[:, None], other=pad).to(tl.uint32, bitcast=True)
    lower = tl.load(second, mask=inside & (row + half_rows < rows)[:, None], other=pad).to(tl.uint32, bitcast=True)
    a, c = tl.split(tl.reshape(upper, (N, W, 2)))
    b, d = tl.split(tl.reshape(lower, (N, W, 2)))
    return _exchange(a, b, c, d)


@triton.jit
def _store_rows(here, x0, x1, x2, x3, inside, W: tl.constexpr, N: tl.constexpr):
    """Store the words of four rows, [N, W] each: 16 bytes a tile."""
    words = tl.join(tl.join(x0, x2), tl.join(x1, x3)).to(tl.int32, bitcast=True)
    if W == 2:
        left, right = tl.split(tl.permute(words, (0, 2, 3, 1)))
        tl.store(here, tl.reshape(left, (N, 4)), mask=inside)
        tl.store(here + 64, tl.reshape(right, (N, 4)), mask=inside)
    else:
        tl.store(here, tl.reshape(words, (N, 4)), mask=inside)


@triton.jit
def _load_rows(here, inside, W: tl.constexpr, N: tl.constexpr):
    """The inverse of ``_store_rows``."""
    words = tl.load(here, mask=inside)
    if W == 2:
        words = tl.permute(tl.reshape(tl.join(words, tl.load(here + 64, mask=inside)), (N, 2, 2, 2)), (0, 3, 1, 2))
    words = tl.reshape(words, (N, W, 2, 2)).to(tl.uint32, bitcast=True)
    even, odd = tl.split(words)
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def _store_exchanged(first, second, a, b, c, d, inside, row, rows, half_rows, W: tl.constexpr, N: tl.constexpr):
    """The inverse of ``_exchanged_row``."""
    a, b, c, d = _exchange(a, b, c, d)
    upper = tl.reshape(tl.join(a, c), (N, 2 * W)).to(tl.int32, bitcast=True)
    lower = tl.reshape(tl.join(b, d), (N, 2 * W)).to(tl.int32, bitcast=True)
    tl.store(first, upper, mask=inside & (row < rows)[:, None])
    tl.store(second, lower, mask=inside & (row + half_rows < rows)[:, None])


@triton.jit(do_not_specialize=["row_vectors"])
def exchange_bytes(
    logical,  # 32-bit words
    memory,
    rows,
    pad,
    row_vectors,  # vectors of a row of the tensor: W tiles wide, 8 bytes a tile
    tile_rows,  # rows of the tensor from a tile to the next below
    half_rows,  # rows of the tensor from the first half of a tile to its second
    across,  # programs side by side
    column_vectors,
    batch_logical,  # vectors of the tensor
    batch_memory,  # tiles
    W: tl.constexpr,  # tiles of a vector
    N: tl.constexpr,  # threads' worth of a program: four rows of both halves, one vector wide
    INVERT: tl.constexpr,
):
    t = (tl.program_id(0) // across).to(tl.int64)
    logical += tl.program_id(1).to(tl.int64) * batch_logical * (2 * W)
    memory += tl.program_id(1).to(tl.int64) * batch_memory * 64
    n = tl.arange(0, N)
    quad = n % 4  # four lanes store 64 bytes of a tile
    c = (tl.program_id(0) % across).to(tl.int64) * (N // 4) + n // 4
    inside = (c < column_vectors)[:, None]
    row0 = t * tile_rows + quad * 4
    row1, row2, row3 = row0 + 1, row0 + 2, row0 + 3
    step = row_vectors.to(tl.int64) * (2 * W)
    first0 = logical + (row0 * row_vectors + c)[:, None] * (2 * W) + tl.arange(0, 2 * W)[None, :]
    first1, first2, first3 = first0 + step, first0 + 2 * step, first0 + 3 * step
    half = half_rows * step
    k0 = memory + ((t * column_vectors + c) * (16 * W) + quad)[:, None] * 4 + tl.arange(0, 4)[None, :]
    k1, k2, k3 = k0 + 16, k0 + 32, k0 + 48
    if INVERT:
        a0, a1, a2, a3 = _load_rows(k0, inside, W, N)
        b0, b1, b2, b3 = _load_rows(k1, inside, W, N)
        c0, c1, c2, c3 = _load_rows(k2, inside, W, N)
        d0, d1, d2, d3 = _load_rows(k3, inside, W, N)
        _store_exchanged(first0, first0 + half, a0, b0, c0, d0, inside, row0, rows, half_rows, W, N)
        _store_exchanged(first1, first1 + half, a1, b1, c1, d1, inside, row1, rows, half_rows, W, N)
        _store_exchanged(first2, first2 + half, a2, b2, c2, d2, inside, row2, rows, half_rows, W, N)
        _store_exchanged(first3, first3 + half, a3, b3, c3, d3, inside, row3, rows, half_rows, W, N)
    else:
        a0, b0, c0, d0 = _exchanged_row(first0, first0 + half, inside, pad, row0, rows, half_rows, W, N)
        a1, b1, c1, d1 = _exchanged_row(first1, first1 + half, inside, pad, row1, rows, half_rows, W, N)
        a2, b2, c2, d2 = _exchanged_row(first2, first2 + half, inside, pad, row2, rows, half_rows, W, N)
        a3, b3, c3, d3 = _exchanged_row(first3, first3 + half, inside, pad, row3, rows, half_rows, W, N)
        _store_rows(k0, a0, a1, a2, a3, inside, W, N)
        _store_rows(k1, b0, b1, b2, b3, inside, W, N)
        _store_rows(k2, c0, c1, c2, c3, inside, W, N)
        _store_rows(k3, d0, d1, d2, d3, inside, W, N)


@triton.jit
def gather(
    logical,
    memory,
    count,
    pad,
    extents,  # of the tensor, per dimension
    steps,  # elements of the tensor from an index to the next, per dimension
    batch_logical,
    batch_memory,
    sizes,  # per axis in memory order: its size, what one step adds to the index, and its stride in memory
    adds,
    strides,
    DIMENSIONS: tl.constexpr,
    RANK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    address = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    logical += tl.program_id(1).to(tl.int64) * batch_logical
    memory += tl.program_id(1).to(tl.int64) * batch_memory
    inside = address < count
    offset = address * 0
    for dimension in tl.static_range(RANK):
        index = address * 0
        for axis in tl.static_range(len(DIMENSIONS)):
            if DIMENSIONS[axis] == dimension:
                index += address // strides[axis] % sizes[axis] * adds[axis]
        inside = inside & (index < extents[dimension])
        offset += index * steps[dimension]
    tl.store(memory + address, tl.load(logical + offset, mask=inside, other=pad), mask=address < count)


@triton.jit
def scatter(
    logical,  # contiguous
    memory,
    count,
    extents,
    batch_logical,
    batch_memory,
    sizes,
    adds,
    strides,
    DIMENSIONS: tl.constexpr,
    RANK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    logical += tl.program_id(1).to(tl.int64) * batch_logical
    memory += tl.program_id(1).to(tl.int64) * batch_memory
    rest = position
    address = position * 0
    for reverse in tl.static_range(RANK):
        index = rest % extents[RANK - 1 - reverse]
        rest = rest // extents[RANK - 1 - reverse]
        for axis in tl.static_range(len(DIMENSIONS)):
            if DIMENSIONS[axis] == RANK - 1 - reverse:
                address += index // adds[axis] % sizes[axis] * strides[axis]
    tl.store(logical + position, tl.load(memory + address, mask=position < count), mask=position < count)


@triton.jit
def _steps(value, factor, CLAMP: tl.constexpr):
    """The FP4 code of a magnitude in the low bits of 0x4A800000 (2^22 as f32) + code.

    The code as a function of the scaled magnitude s is the least of 2s, s + 2 and s/2 + 4, rounded to an integer, ties
    to even; adding 2^22, whose steps are 1/2, rounds half of it.
    """
    magnitude = tl.abs(value)
    code = tl.fma(magnitude, factor, 4194304.0)
    code = tl.minimum(code, tl.fma(magnitude, factor * 0.5, 4194305.0))
    code = tl.minimum(code, tl.fma(magnitude, factor * 0.25, 4194306.0))
    if CLAMP:
        code = tl.minimum(code, 4194307.5)
    return code.to(tl.uint32, bitcast=True)


@triton.jit
def _sign(value, PLACE: tl.constexpr):
    return (value.to(tl.uint32, bitcast=True) >> (31 - PLACE)) & (1 << PLACE)


@triton.jit
def _larger(a, b):
    return tl.maximum(tl.abs(a), tl.abs(b), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _single(values):
    """float32 of float32, float16 or bfloat16, NaN with its sign.

    PTX promises nothing of the bits of a converted NaN, and Triton's interpreter loses subnormals of bfloat16.
    """
    if values.dtype == tl.float32:
        bits = values.to(tl.uint32, bitcast=True)
    else:
        bits = values.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
        if values.dtype == tl.float16:
            bits = (bits & 0x80000000) | (values.to(tl.float32).to(tl.uint32, bitcast=True) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _four(pointer, inside, N: tl.constexpr):
    values = _single(tl.load(pointer + tl.arange(0, 4)[None, :], mask=inside, other=0))
    even, odd = tl.split(tl.reshape(values, (N, 2, 2)))
    x0, x2 = tl.split(even)
    x1, x3 = tl.split(odd)
    return x0, x1, x2, x3


@triton.jit
def _eight(pointer, inside, N: tl.constexpr):
    """Eight neighbours of each thread, from loads of 16 bytes, and the largest magnitude of them."""
    if pointer.dtype.element_ty.primitive_bitwidth == 32:
        x0, x1, x2, x3 = _four(pointer, inside, N)
        x4, x5, x6, x7 = _four(pointer + 4, inside, N)
    else:
        values = _single(tl.load(pointer + tl.arange(0, 8)[None, :], mask=inside, other=0))
        even, odd = tl.split(tl.reshape(values, (N, 4, 2)))
        e0, e1 = tl.split(tl.reshape(even, (N, 2, 2)))
        o0, o1 = tl.split(tl.reshape(odd, (N, 2, 2)))
        x0, x4 = tl.split(e0)
        x2, x6 = tl.split(e1)
        x1, x5 = tl.split(o0)
        x3, x7 = tl.split(o1)
    largest = _larger(_larger(_larger(x0, x1), _larger(x2, x3)), _larger(_larger(x4, x5), _larger(x6, x7)))
    return x0, x1, x2, x3, x4, x5, x6, x7, largest


@triton.jit
def _word(x0, x1, x2, x3, x4, x5, x6, x7, factor, finite, CLAMP: tl.constexpr):
    """Eight codes in a word, the first in the low nibble."""
    word = _steps(x7, factor, CLAMP)
    word = (word << 4) + _steps(x6, factor, CLAMP)
    word = (word << 4) + _steps(x5, factor, CLAMP)
    word = (word << 4) + _steps(x4, factor, CLAMP)
    word = (word << 4) + _steps(x3, factor, CLAMP)
    word = (word << 4) + _steps(x2, factor, CLAMP)
    word = (word << 4) + _steps(x1, factor, CLAMP)
    word = (word << 4) + _steps(x0, factor, CLAMP)
    word -= 0x72800000  # the sum of 0x4A800000 << 4i for i = 0..7
    word = tl.where(finite, word, 0x77777777)
    word |= _sign(x0, 3) | _sign(x1, 7) | _sign(x2, 11) | _sign(x3, 15)
    word |= _sign(x4, 19) | _sign(x5, 23) | _sign(x6, 27) | _sign(x7, 31)
    return word.to(tl.int32, bitcast=True)


@triton.jit
def _byte(value, factor, MANTISSA: tl.constexpr, BIAS: tl.constexpr, MAX_CODE: tl.constexpr, CLAMP: tl.constexpr):
    """The FP8 code of a magnitude, 23 - MANTISSA bits to the left.

    Adding 2^(23 - MANTISSA) times the binade of a number rounds it to the steps of the format, ties to even; subnormals
    have the steps of the lowest normal binade. What is left when that is subtracted again, times 2^(BIAS - 127), has
    the code's exponent field as f32, and is subnormal where the code is.
    """
    scaled = tl.abs(value) * factor
    binade = tl.maximum(scaled, 2.0 ** (1 - BIAS)).to(tl.uint32, bitcast=True) & 0x7F800000
    binade = binade.to(tl.float32, bitcast=True)
    rounded = scaled + binade * 2.0 ** (23 - MANTISSA)
    # Not a product of a constant: ptxas (12.8 to 13.4) takes one whose bits move left for a product of integers.
    code = tl.fma(rounded, 2.0 ** (BIAS - 127), binade * -(2.0 ** (BIAS - MANTISSA - 104)))
    code = code.to(tl.uint32, bitcast=True)
    if CLAMP:
        code = tl.minimum(code, MAX_CODE << (23 - MANTISSA))
    return code


@triton.jit
def _word_of_bytes(
    x0, x1, x2, x3, factor, finite,
    MANTISSA: tl.constexpr, BIAS: tl.constexpr, MAX_CODE: tl.constexpr, CLAMP: tl.constexpr,
):  # fmt: skip
    """Four FP8 codes in a word, the first in the low byte."""
    word = _byte(x3, factor, MANTISSA, BIAS, MAX_CODE, CLAMP) << (1 + MANTISSA)
    word += _byte(x2, factor, MANTISSA, BIAS, MAX_CODE, CLAMP) >> (7 - MANTISSA)
    word += _byte(x1, factor, MANTISSA, BIAS, MAX_CODE, CLAMP) >> (15 - MANTISSA)
    word += _byte(x0, factor, MANTISSA, BIAS, MAX_CODE, CLAMP) >> (23 - MANTISSA)
    word = tl.where(finite, word, 0x7F7F7F7F)
    word |= _sign(x0, 7) | _sign(x1, 15) | _sign(x2, 23) | _sign(x3, 31)
    return word.to(tl.int32, bitcast=True)


@triton.jit
def _larger_pair(a, b):
    """The larger magnitudes of two pairs of bfloat16, NaN above all; their signs mean nothing."""
    return tl.inline_asm_elementwise(
        "max.NaN.xorsign.abs.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _eight_pairs(pointer, inside, N: tl.constexpr):
    """As ``_eight``: four pairs of bfloat16, and the larger magnitudes of them."""
    values = tl.load(pointer + tl.arange(0, 4)[None, :], mask=inside, other=0)
    even, odd = tl.split(tl.reshape(values, (N, 2, 2)))
    p0, p2 = tl.split(even)
    p1, p3 = tl.split(odd)
    return p0, p1, p2, p3, _larger_pair(_larger_pair(p0, p1), _larger_pair(p2, p3))


@triton.jit
def _twice(factor):
    """A power of two as a pair of bfloat16."""
    bits = factor.to(tl.int32, bitcast=True)
    return bits | bits >> 16


@triton.jit
def _codes_of_pair(pair, factor, half, quarter):
    """Two codes and their signs in the top byte: the rule of ``_steps`` on 2^6, where bfloat16 has steps of 1/2.

    A pair's codes and signs lie at bits 0, 16, 15 and 31. Multiplied by 2^24 + 2^12 + 1 they meet in the top byte,
    which no other bit reaches once the same multiple of 2^6 (0x42804280) is gone.
    """
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 x, y, z, c0, c1, c2, c3;
        mov.b32 c0, 0x42804280;
        mov.b32 c1, 0x42824282;
        mov.b32 c2, 0x42844284;
        mov.b32 c3, 0x42874287;
        and.b32 x, $1, 0x7FFF7FFF;
        fma.rn.bf16x2 y, x, $2, c0;
        fma.rn.bf16x2 z, x, $3, c1;
        min.bf16x2 y, y, z;
        fma.rn.bf16x2 z, x, $4, c2;
        min.bf16x2 y, y, z;
        min.bf16x2 y, y, c3;
        lop3.b32 y, y, $1, 0x80008000, 0xF8;
        mad.lo.u32 $0, y, 0x01001001, 0x3957BD80;
        }
        """,
        "=r,r,r,r,r",
        [pair, factor, half, quarter],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _word_of_pairs(p0, p1, p2, p3, factor, half, quarter, forced):
    """As ``_word``; ``forced`` are bits that are set."""
    c0 = _codes_of_pair(p0, factor, half, quarter)
    c1 = _codes_of_pair(p1, factor, half, quarter)
    c2 = _codes_of_pair(p2, factor, half, quarter)
    c3 = _codes_of_pair(p3, factor, half, quarter)
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 low, high;
        prmt.b32 low, $1, $2, 0x0073;
        prmt.b32 high, $3, $4, 0x7300;
        prmt.b32 low, low, high, 0x7610;
        or.b32 $0, low, $5;
        }
        """,
        "=r,r,r,r,r,r",
        [c0, c1, c2, c3, forced],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )


# Neither the alignment of an access nor a constant follows from these sizes: one compilation does for all.
@triton.jit(do_not_specialize=["rows", "k", "row_blocks", "scale_columns"])
def quantize(
    x,  # PAIRS: as 32-bit words, and row_step counts those
    codes,  # 32-bit words of eight or four codes
    scales,
    rows,
    k,
    row_step,
    row_blocks,  # k / 32
    scale_columns,
    BITS: tl.constexpr,  # of an element: 4 (E2M1) or 8, whose format the next three describe
    MANTISSA: tl.constexpr,
    BIAS: tl.constexpr,
    MAX_CODE: tl.constexpr,
    CARRY: tl.constexpr,  # what is added to the bits of the largest magnitude before its exponent is taken
    TOP: tl.constexpr,  # the byte of a finite magnitude that carries out of the largest exponent
    CLAMP: tl.constexpr,  # whether a magnitude can round to more than the largest number of the format
    TILES: tl.constexpr,  # tiles of scales, of 32 rows by 8 blocks of 32 elements, in one program
    PAIRS: tl.constexpr,  # two bfloat16 at a time, in instructions of NVIDIA's sm_90
):
    # One dimension of the grid: the others end at 65535 programs.
    BLOCKS: tl.constexpr = 8 * TILES
    N: tl.constexpr = 32 * BLOCKS
    across = tl.cdiv(scale_columns, BLOCKS)
    t = (tl.program_id(0) // across).to(tl.int64)
    b = (tl.program_id(0) % across).to(tl.int64) * BLOCKS
    # The blocks of a row follow each other, so that neighbouring threads read neighbours.
    row = t * 32 + tl.arange(0, N) // BLOCKS
    block = b + tl.arange(0, N) % BLOCKS
    inside = ((block * 32 < k) & (row < rows))[:, None]
    # A thread has the 32 values of a block: v, w, y and z.
    if PAIRS:
        start = x + (block * 16 + row * row_step)[:, None]
        v0, v1, v2, v3, largest_v = _eight_pairs(start, inside, N)
        w0, w1, w2, w3, largest_w = _eight_pairs(start + 4, inside, N)
        y0, y1, y2, y3, largest_y = _eight_pairs(start + 8, inside, N)
        z0, z1, z2, z3, largest_z = _eight_pairs(start + 12, inside, N)
        largest = _larger_pair(_larger_pair(largest_v, largest_w), _larger_pair(largest_y, largest_z))
        amax = tl.maximum(largest & 0x7FFF0000, largest << 16 & 0x7FFF0000).to(tl.uint32, bitcast=True)
    else:
        start = x + (block * 32 + row * row_step)[:, None]
        v0, v1, v2, v3, v4, v5, v6, v7, largest_v = _eight(start, inside, N)
        w0, w1, w2, w3, w4, w5, w6, w7, largest_w = _eight(start + 8, inside, N)
        y0, y1, y2, y3, y4, y5, y6, y7, largest_y = _eight(start + 16, inside, N)
        z0, z1, z2, z3, z4, z5, z6, z7, largest_z = _eight(start + 24, inside, N)
        # As integers, so that NaN stays above infinity and that above all numbers.
        largest = _larger(_larger(largest_v, largest_w), _larger(largest_y, largest_z))
        amax = largest.to(tl.uint32, bitcast=True)
    power = ((amax + CARRY) >> 23).to(tl.int32)
    MAX_POWER: tl.constexpr = (MAX_CODE >> MANTISSA) - BIAS
    byte = tl.minimum(tl.maximum(power - MAX_POWER, 0), 254)
    byte = tl.where(power >= 255, TOP, byte)
    finite = amax < 0x7F800000
    byte = tl.where(finite, byte, 255)
    # 2^(127 - byte) as f32 bits; byte 254 needs the subnormal 2^-127.
    factor = tl.where(byte < 254, (254 - byte) << 23, 0x00400000).to(tl.float32, bitcast=True)
    finite = byte < 255
    if BITS == 8:
        word0 = _word_of_bytes(v0, v1, v2, v3, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word1 = _word_of_bytes(v4, v5, v6, v7, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word2 = _word_of_bytes(w0, w1, w2, w3, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word3 = _word_of_bytes(w4, w5, w6, w7, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word4 = _word_of_bytes(y0, y1, y2, y3, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word5 = _word_of_bytes(y4, y5, y6, y7, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word6 = _word_of_bytes(z0, z1, z2, z3, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        word7 = _word_of_bytes(z4, z5, z6, z7, factor, finite, MANTISSA, BIAS, MAX_CODE, CLAMP)
        even = tl.join(tl.join(word0, word4), tl.join(word2, word6))
        words = tl.join(even, tl.join(tl.join(word1, word5), tl.join(word3, word7)))
    else:
        if PAIRS:
            forced = tl.where(finite, 0, 0x77777777)
            half, quarter = _twice(factor * 0.5), _twice(factor * 0.25)
            factor = _twice(factor)
            word0 = _word_of_pairs(v0, v1, v2, v3, factor, half, quarter, forced)
            word1 = _word_of_pairs(w0, w1, w2, w3, factor, half, quarter, forced)
            word2 = _word_of_pairs(y0, y1, y2, y3, factor, half, quarter, forced)
            word3 = _word_of_pairs(z0, z1, z2, z3, factor, half, quarter, forced)
        else:
            word0 = _word(v0, v1, v2, v3, v4, v5, v6, v7, factor, finite, CLAMP)
            word1 = _word(w0, w1, w2, w3, w4, w5, w6, w7, factor, finite, CLAMP)
            word2 = _word(y0, y1, y2, y3, y4, y5, y6, y7, factor, finite, CLAMP)
            word3 = _word(z0, z1, z2, z3, z4, z5, z6, z7, factor, finite, CLAMP)
        words = tl.join(tl.join(word0, word2), tl.join(word1, word3))
    # A block has as many words as an element has bits: one or two vectors of 16 bytes. Triton lets two neighbouring
    # threads store the two, so that a warp writes whole sectors of 32 bytes.
    target = codes + ((block + row * row_blocks) * BITS)[:, None] + tl.arange(0, BITS)[None, :]
    tl.store(target, tl.reshape(words, (N, BITS)), mask=inside)
    # Rows and blocks outside the tensor were loaded as zeros, whose scale byte is the pad value 0.
    tile = tl.permute(tl.reshape(byte.to(tl.uint8), (2, 16, TILES, 2, 4)), (2, 4, 1, 3, 0))
    place = b * 32 + tl.arange(0, TILES * 256)
    tl.store(scales + t * 32 * scale_columns + place, tl.reshape(tile, (TILES * 256,)), mask=place < 32 * scale_columns)
