# mypy: disable-error-code="no-untyped-def"
"""The Triton kernels of the layouts and of MXFP4; ``triton_kernels`` chooses and launches them.

* ``permute_tiles`` moves whole tiles: words are loaded along the rows of the tensor, permuted, stored along memory.
* ``exchange_bytes`` does so for the 32x8 scale tiles, which scatter single bytes: the four bytes of a word go to four
  words. Four words are loaded, bytes exchanged in registers and words stored: no access is narrower than four bytes.
* ``gather`` and ``scatter`` take any layout, any alignment and any padding, an element at a time, by the closed form.
* ``quantize`` makes MXFP4 and its tiled scales in one pass over the input.
"""

from __future__ import annotations

import triton
import triton.language as tl

if not hasattr(tl.constexpr, "__len__"):
    # Before Triton 3.7 a tuple that is a constexpr can be iterated but has no length, which tl.permute asks for.
    tl.constexpr.__len__ = lambda self: len(self.value)


@triton.jit
def permute_tiles(
    logical,
    memory,
    rows,
    pad,
    row_words,  # words from a row of the tensor to the next
    tile_words,  # words of memory from a row of tiles to the next
    column_tiles,
    batch_logical,
    batch_memory,
    TILE_ROWS: tl.constexpr,
    TILE_WORDS: tl.constexpr,  # words of a row of a tile
    TILES: tl.constexpr,  # tiles side by side in one program
    SPLIT: tl.constexpr,  # the block [rows, words] split into axes
    ORDER: tl.constexpr,  # their order in memory
    SPLIT_BACK: tl.constexpr,
    ORDER_BACK: tl.constexpr,
    INVERT: tl.constexpr,
):
    across = tl.cdiv(column_tiles, TILES)
    t = (tl.program_id(0) // across).to(tl.int64)
    c = (tl.program_id(0) % across).to(tl.int64) * TILES
    logical += tl.program_id(1).to(tl.int64) * batch_logical
    memory += tl.program_id(1).to(tl.int64) * batch_memory
    row = t * TILE_ROWS + tl.arange(0, TILE_ROWS)
    word = tl.arange(0, TILES * TILE_WORDS)
    inside = (row < rows)[:, None] & (c * TILE_WORDS + word < column_tiles * TILE_WORDS)[None, :]
    there = logical + row[:, None] * row_words + (c * TILE_WORDS + word)[None, :]
    flat = tl.arange(0, TILE_ROWS * TILES * TILE_WORDS)
    here = memory + t * tile_words + c * (TILE_ROWS * TILE_WORDS) + flat
    present = c * (TILE_ROWS * TILE_WORDS) + flat < column_tiles * (TILE_ROWS * TILE_WORDS)
    if INVERT:
        block = tl.load(here, mask=present)
        block = tl.reshape(tl.permute(tl.reshape(block, SPLIT_BACK), ORDER_BACK), (TILE_ROWS, TILES * TILE_WORDS))
        tl.store(there, block, mask=inside)
    else:
        block = tl.load(there, mask=inside, other=pad)
        block = tl.reshape(tl.permute(tl.reshape(block, SPLIT), ORDER), (TILE_ROWS * TILES * TILE_WORDS,))
        tl.store(here, block, mask=present)


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
def exchange_bytes(
    logical,  # 64-bit words: the eight K-blocks of a row of a tile
    memory,  # 32-bit words
    rows,
    pad,
    row_words,
    tile_rows,  # rows of the tensor from a tile to the next below
    half_rows,  # rows of the tensor from the first half of a tile to its second
    column_tiles,
    batch_logical,
    batch_memory,
    TILES: tl.constexpr,
    INVERT: tl.constexpr,
):
    across = tl.cdiv(column_tiles, TILES)
    t = (tl.program_id(0) // across).to(tl.int64)
    c = (tl.program_id(0) % across).to(tl.int64) * TILES
    logical += tl.program_id(1).to(tl.int64) * batch_logical
    memory += tl.program_id(1).to(tl.int64) * batch_memory
    row = t * tile_rows + tl.arange(0, 16)
    column = c + tl.arange(0, TILES)
    wide = (column < column_tiles)[None, :]
    first = logical + row[:, None] * row_words + column[None, :]
    first_inside = (row < rows)[:, None] & wide
    second = first + half_rows * row_words
    second_inside = (row + half_rows < rows)[:, None] & wide
    flat = tl.arange(0, TILES * 64)
    here = memory + (t * column_tiles + c) * 64 + flat
    present = c * 64 + flat < column_tiles * 64
    if INVERT:
        words = tl.permute(tl.reshape(tl.load(here, mask=present), (TILES, 2, 2, 16)), (3, 0, 2, 1))
        even, odd = tl.split(words)  # k in (0, 1) and (2, 3)
        k0, k1 = tl.split(even)
        k2, k3 = tl.split(odd)
        a, b, c_, d = _exchange(
            k0.to(tl.uint32, bitcast=True),
            k1.to(tl.uint32, bitcast=True),
            k2.to(tl.uint32, bitcast=True),
            k3.to(tl.uint32, bitcast=True),
        )
        tl.store(first, (a.to(tl.uint64) | c_.to(tl.uint64) << 32).to(tl.int64, bitcast=True), mask=first_inside)
        tl.store(second, (b.to(tl.uint64) | d.to(tl.uint64) << 32).to(tl.int64, bitcast=True), mask=second_inside)
    else:
        upper = tl.load(first, mask=first_inside, other=pad).to(tl.uint64, bitcast=True)
        lower = tl.load(second, mask=second_inside, other=pad).to(tl.uint64, bitcast=True)
        k0, k1, k2, k3 = _exchange(
            upper.to(tl.uint32), lower.to(tl.uint32), (upper >> 32).to(tl.uint32), (lower >> 32).to(tl.uint32)
        )
        words = tl.join(tl.join(k0, k1), tl.join(k2, k3))  # [16, TILES, k % 2, k / 2]
        words = tl.reshape(tl.permute(words, (1, 3, 2, 0)), (TILES * 64,))
        tl.store(here, words.to(tl.int32, bitcast=True), mask=present)


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
def _rounded_bits(values, factor):
    """Magnitudes below 8 rounded to FP4: bits 0 to 3 count the steps of a binade, bits 22 to 24 are 2, 4 or 6 where a
    step is 0.5, 1 or 2.

    Adding 2^22 times the binade rounds to its steps, ties to even.
    """
    scaled = tl.abs(values) * factor
    binade = (scaled.to(tl.uint32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    total = scaled + tl.maximum(binade * 4194304.0, 4194304.0)
    return total.to(tl.uint32, bitcast=True) & 0x01C0000F


@triton.jit
def quantize(
    x,
    packed,
    scales,
    rows,
    k,
    row_step,
    packed_columns,  # k / 2: an argument of its own, so that its divisibility is known
    scale_columns,
    CARRY: tl.constexpr,  # what is added to the bits of the largest magnitude before its exponent is taken
    TOP: tl.constexpr,  # the byte of a finite magnitude that carries out of the largest exponent
    BLOCKS: tl.constexpr,  # blocks of 32 elements of K in one program
):
    # One dimension of the grid: the others end at 65535 programs.
    across = scale_columns // BLOCKS
    t = (tl.program_id(0) // across).to(tl.int64)
    b = (tl.program_id(0) % across).to(tl.int64) * BLOCKS
    row = t * 32 + tl.arange(0, 32)
    block = b + tl.arange(0, BLOCKS)
    column = b * 32 + tl.arange(0, BLOCKS * 32)
    inside = (row < rows)[:, None] & (column < k)[None, :]
    values = tl.load(x + row[:, None] * row_step + column[None, :], mask=inside, other=0).to(tl.float32)
    even, odd = tl.split(tl.reshape(values, (32, BLOCKS, 16, 2)))
    largest = tl.maximum(tl.abs(even), tl.abs(odd), propagate_nan=tl.PropagateNan.ALL)
    # As integers, so that NaN stays above infinity and that above all numbers.
    amax = tl.max(largest.to(tl.uint32, bitcast=True), axis=2)
    power = ((amax + CARRY) >> 23).to(tl.int32)
    byte = tl.minimum(tl.maximum(power - 2, 0), 254)
    byte = tl.where(power >= 255, TOP, byte)
    byte = tl.where(amax < 0x7F800000, byte, 255)
    # 2^(127 - byte) as f32 bits; byte 254 needs the subnormal 2^-127.
    factor = tl.where(byte < 254, (254 - byte) << 23, 0x00400000).to(tl.float32, bitcast=True)[:, :, None]
    # Both nibbles of a byte at once: what was rounded off is in the low bits, which binade it was in bits 22 to 24.
    rounded = _rounded_bits(even, factor) | _rounded_bits(odd, factor) << 4
    code = (rounded & 0xFF) + ((rounded >> 22) & 0x77) - 0x22
    code -= (code >> 3) & 0x11  # above 6 is 6
    code = tl.where((byte < 255)[:, :, None], code, 0x77)
    code |= (even.to(tl.uint32, bitcast=True) >> 28) & 0x08
    code |= (odd.to(tl.uint32, bitcast=True) >> 24) & 0x80
    byte_column = b * 16 + tl.arange(0, BLOCKS * 16)
    tl.store(
        packed + row[:, None] * packed_columns + byte_column[None, :],
        tl.reshape(code.to(tl.uint8), (32, BLOCKS * 16)),
        mask=(row < rows)[:, None] & (byte_column < packed_columns)[None, :],
    )
    place = t * 32 * scale_columns + (row % 16 * 4 + row % 32 // 16)[:, None]
    place += (block // 8 * 256 + block % 4 * 64 + block % 8 // 4 * 2)[None, :]
    # Rows and blocks outside the tensor were loaded as zeros, whose scale byte is the pad value 0.
    tl.store(scales + place, byte.to(tl.uint8), mask=(block < scale_columns)[None, :] & (row >= 0)[:, None])
