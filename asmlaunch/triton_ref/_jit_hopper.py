# mypy: disable-error-code="no-untyped-def"
"""MXFP4 by MXFP4 with few rows on NVIDIA Hopper, in Gluon (Triton's language with explicit layouts).

``few_rows``: FP4 is made FP8 (E4M3), and the tensor cores multiply and add within a block of 32 alone. Such a sum is a
whole multiple of its smallest product, 2^13 of them at most, hence exact, and takes B's scale once, not 32 times; A's
scales are in its FP8 already, relative to the largest of a row. What does not fit (the range of FP8, or scales so far
from 1 that float32 might not do) is added once more in float64 with both scales, for that part of K.

D^T = B x A^T: B (many rows) goes through a ring of shared memory to registers and is read once; A (few rows) waits
decoded in shared memory. A is asked for first, then the scales, then B step by step: what is asked for late waits
behind all that was asked for before. Parts of K are added in order of K by the program that comes last, so every run
gives the same bits.

``one_row``: A has one row; integer products without tensor cores, and B goes straight to registers.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from asmlaunch.triton_ref._jit_formats import e8m0_float64
from asmlaunch.triton_ref._jit_mx import store_result

# Triton 3.7 or later has other names for what is used here of Gluon.
RENAMED = gl.constexpr(hasattr(async_copy, "async_load"))
load_async = getattr(async_copy, "async_load", async_copy.async_copy_global_to_shared)
barrier = getattr(gl, "thread_barrier", None) or gl.barrier

STEP = gl.constexpr(256)
"""Elements of K of a step: 128 bytes of FP4, 8 scales."""

PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
FLAT_MEMORY = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def e4m3_halves(code):
    """E4M3 of the low and the high elements of FP4 bytes, times 2^-6: the same exponent and fraction bits, moved."""
    return gl.inline_asm_elementwise(
        """
        {
        .reg .b32 s, t;
        shr.b32 t, $2, 2;
        and.b32 t, t, 0x1C1C1C1C;
        lop3.b32 $1, $2, 0x80808080, t, 0xEA;
        shl.b32 s, $2, 4;
        shl.b32 t, $2, 2;
        and.b32 t, t, 0x1C1C1C1C;
        lop3.b32 $0, s, 0x80808080, t, 0xEA;
        }
        """,
        "=r,=r,r",
        [code],
        dtype=(gl.uint8, gl.uint8),
        is_pure=True,
        pack=4,
    )


@gluon.jit
def halves(x):
    """[rows, columns] as two of half the columns."""
    ROWS: gl.constexpr = x.shape[0]
    HALF: gl.constexpr = x.shape[1] // 2
    return gl.split(gl.permute(gl.reshape(x, (ROWS, 2, HALF)), (0, 2, 1)))


@gluon.jit
def block_sums(code, a_tile, block, ACC: gl.constexpr):
    """Start the products of one block: bytes [rows, 16] by the block's A. Its low elements come first, in both."""
    LINES: gl.constexpr = code.shape[0]
    ROWS: gl.constexpr = a_tile.shape[1]
    even, odd = e4m3_halves(code)
    left = gl.reshape(gl.permute(gl.join(even, odd), (0, 2, 1)), (LINES, 32)).to(gl.float8e4nv, bitcast=True)
    return warpgroup_mma(
        gl.convert_layout(left, gl.DotOperandLayout(0, ACC, 4)),
        a_tile.index(block).permute((1, 0)),
        gl.zeros((LINES, ROWS), gl.float32, ACC),
        use_acc=False,
        is_async=True,
    )


@gluon.jit
def add_scaled(acc, sums, word, a_scales, last, block, BYTE: gl.constexpr, ACC: gl.constexpr):
    """``acc`` plus the block's sums times B's scales, byte ``BYTE`` of ``word`` [rows]; in float64 also times A's.

    ``a_scales`` point at the first block's [rows of A]; the ``last`` of K stands for those beyond, whose sums are 0.
    """
    moved = word << (23 - 8 * BYTE) if BYTE < 3 else word >> 1
    bits = gl.convert_layout(moved & 0x7F800000, gl.SliceLayout(1, ACC))
    if acc.dtype == gl.float64:
        a_byte = gl.load(a_scales + gl.minimum(block, last)).to(gl.int32)
        factor = gl.expand_dims(e8m0_float64(bits >> 23), 1) * gl.expand_dims(e8m0_float64(a_byte), 0)
        return acc + sums.to(gl.float64) * factor
    else:
        return acc + sums * gl.expand_dims(bits.to(gl.float32, bitcast=True), 1)


@gluon.jit
def add_two(acc, code0, code1, word, a_tile, a_scales, last, block, BYTE: gl.constexpr, ACC: gl.constexpr):
    """``acc`` plus two blocks, both under way at a time."""
    sums0 = block_sums(code0, a_tile, block, ACC)
    sums1 = block_sums(code1, a_tile, block + 1, ACC)
    sums0 = warpgroup_mma_wait(1, [sums0])
    acc = add_scaled(acc, sums0, word, a_scales, last, block, BYTE, ACC)
    sums1 = warpgroup_mma_wait(0, [sums1])
    return add_scaled(acc, sums1, word, a_scales, last, block + 1, BYTE + 1, ACC)


@gluon.jit
def add_blocks(acc, code, word, a_tile, a_scales, last, block, ACC: gl.constexpr):
    """``acc`` plus four blocks: bytes [rows, 64], and a word of four scales [rows]."""
    first, second = halves(code)
    code0, code1 = halves(first)
    code2, code3 = halves(second)
    if a_tile.shape[1] <= 16:
        sums0 = block_sums(code0, a_tile, block, ACC)
        sums1 = block_sums(code1, a_tile, block + 1, ACC)
        sums2 = block_sums(code2, a_tile, block + 2, ACC)
        sums3 = block_sums(code3, a_tile, block + 3, ACC)
        sums0 = warpgroup_mma_wait(3, [sums0])
        acc = add_scaled(acc, sums0, word, a_scales, last, block, 0, ACC)
        sums1 = warpgroup_mma_wait(2, [sums1])
        acc = add_scaled(acc, sums1, word, a_scales, last, block + 1, 1, ACC)
        sums2 = warpgroup_mma_wait(1, [sums2])
        acc = add_scaled(acc, sums2, word, a_scales, last, block + 2, 2, ACC)
        sums3 = warpgroup_mma_wait(0, [sums3])
        return add_scaled(acc, sums3, word, a_scales, last, block + 3, 3, ACC)
    else:
        # More sums than that do not fit the registers.
        acc = add_two(acc, code0, code1, word, a_tile, a_scales, last, block, 0, ACC)
        return add_two(acc, code2, code3, word, a_tile, a_scales, last, block + 2, 2, ACC)


@gluon.jit
def viewed(memory, DTYPE: gl.constexpr, SHAPE: gl.constexpr, LAYOUT: gl.constexpr):
    """Shared memory as another type and shape."""
    if RENAMED:
        return memory.reinterpret(DTYPE, SHAPE, LAYOUT)
    else:
        return memory._reinterpret(DTYPE, SHAPE, LAYOUT)


@gluon.jit
def wait_for_the_kernel_before():
    """Where launches overlap: until all that the kernel before did is done and seen."""
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def let_the_next_kernel_start():
    """Where launches overlap: the next kernel's programs may take places that this kernel's leave, and wait there."""
    gl.inline_asm_elementwise(
        "griddepcontrol.launch_dependents; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def fetch(from_b, left, step, steps, ring, EVEN: gl.constexpr):
    """Ask for the bytes of a step, as a group of copies, an empty one if there is no such step.

    ``from_b`` point at the first step; ``left`` says how many bytes from there are within K.
    """
    if step < steps:
        place = from_b + step * (STEP // 2)
        slot = ring.index(step % ring.shape[0])
        if EVEN:
            load_async(slot, place, eviction_policy="evict_first")
        else:
            load_async(slot, place, mask=left > step * (STEP // 2))
    async_copy.commit_group()


@gluon.jit
def within_k(words, word, k, EVEN: gl.constexpr):
    """Words of four scales, those beyond K as 1."""
    return words if EVEN else gl.where(word * 128 < k, words, 0x7F7F7F7F)


@gluon.jit
def add_step(
    acc, from_b, left, step, steps, ring, word0, word1, a_tile, a_scales, last, CODES: gl.constexpr, ACC: gl.constexpr,
    EVEN: gl.constexpr,
):  # fmt: skip
    """``acc`` plus a step; the slot of the one before is filled anew."""
    STAGES: gl.constexpr = ring.shape[0]
    async_copy.wait_group(STAGES - 2)
    barrier()
    fetch(from_b, left, step + STAGES - 1, steps, ring, EVEN)
    code0, code1 = halves(ring.index(step % STAGES).load(CODES))
    acc = add_blocks(acc, code0, word0, a_tile, a_scales, last, step * 8, ACC)
    return add_blocks(acc, code1, word1, a_tile, a_scales, last, step * 8 + 4, ACC)


@gluon.jit
def part_sum(
    from_b, left, steps, start, k, ring, scales, a_tile, a_scales, last, DTYPE: gl.constexpr, CODES: gl.constexpr,
    SCALES: gl.constexpr, ACC: gl.constexpr, EVEN: gl.constexpr,
):  # fmt: skip
    """The sum [rows of B, rows of A] over a part of K, whose first steps but one a slot have been asked for."""
    LINES: gl.constexpr = ring.shape[1]
    ROWS: gl.constexpr = a_tile.shape[1]
    ROW: gl.constexpr = gl.SliceLayout(1, SCALES)
    by_pair = viewed(scales, gl.int32, [scales.shape[0] // LINES, LINES, 4], PLAIN)
    acc = gl.zeros((LINES, ROWS), DTYPE, ACC)
    # Not a constant: Triton 3.6 aborts on constant places in transposed shared memory.
    for pair in range(gl.cdiv(gl.minimum(steps, gl.cdiv(k - start, STEP)), 2)):
        word = start // 128 + pair * 4 + gl.arange(0, 4, gl.SliceLayout(0, SCALES))
        words = within_k(by_pair.index(pair).load(SCALES), gl.expand_dims(word, 0), k, EVEN)
        even, odd = gl.split(gl.reshape(words, (LINES, 2, 2)))
        word0, word2 = last_halves(even, ROW)
        word1, word3 = last_halves(odd, ROW)
        step = 2 * pair
        acc = add_step(acc, from_b, left, step, steps, ring, word0, word1, a_tile, a_scales, last, CODES, ACC, EVEN)
        step += 1
        acc = add_step(acc, from_b, left, step, steps, ring, word2, word3, a_tile, a_scales, last, CODES, ACC, EVEN)
    return acc


@gluon.jit
def load_part(a, a_scale, top, start, m, k, a_stride, a_scale_stride, BLOCKS: gl.constexpr, ROWS: gl.constexpr,
    A_CODES: gl.constexpr,
):  # fmt: skip
    """A part of A: FP4 bytes [blocks, rows, 16] and scales [blocks, rows], zeros times 1 where there is none."""
    PLANE: gl.constexpr = gl.SliceLayout(2, A_CODES)
    row = top + gl.arange(0, ROWS, gl.SliceLayout(0, PLANE))
    block = start // 32 + gl.arange(0, BLOCKS, gl.SliceLayout(1, PLANE))
    byte = gl.arange(0, 16, gl.SliceLayout(0, gl.SliceLayout(0, A_CODES)))
    inside = gl.expand_dims(block * 32 < k, 1) & gl.expand_dims(row < m, 0)
    place = gl.expand_dims(block * 16, 1) + gl.expand_dims(row * a_stride, 0)
    place = gl.expand_dims(place, 2) + gl.expand_dims(gl.expand_dims(byte, 0), 0)
    code = gl.load(a + place, mask=gl.expand_dims(inside, 2), other=0)
    place = gl.expand_dims(block, 1) + gl.expand_dims(row * a_scale_stride, 0)
    return code, gl.load(a_scale + place, mask=inside, other=127)


@gluon.jit
def scaled_halves(code, low, high):
    """E4M3 of the low and the high elements of FP4 bytes, looked up in tables of eight: ``low`` and ``high``."""
    return gl.inline_asm_elementwise(
        """
        {
        .reg .b32 x, y, z;
        and.b32 y, $2, 0x77777777;
        prmt.b32 x, $3, $7, y;
        shr.b32 y, y, 16;
        prmt.b32 y, $3, $7, y;
        shl.b32 z, $2, 4;
        and.b32 z, z, 0x80808080;
        prmt.b32 $0, x, y, 0x6420;
        or.b32 $0, $0, z;
        prmt.b32 $1, x, y, 0x7531;
        lop3.b32 $1, $2, 0x80808080, $1, 0xEA;
        }
        """,
        "=&r,=&r,r,r,r,r,r,r,r,r,r",
        [code, low, high],
        dtype=(gl.uint8, gl.uint8),
        is_pure=True,
        pack=4,
    )


@gluon.jit
def keep(even, odd, a_tile):
    """Put decoded halves [blocks, rows, 16] where the tensor cores read them."""
    BLOCKS: gl.constexpr = a_tile.shape[0]
    ROWS: gl.constexpr = a_tile.shape[1]
    SWIZZLED: gl.constexpr = a_tile.layout
    values = gl.reshape(gl.permute(gl.join(even, odd), (0, 1, 3, 2)), (BLOCKS * ROWS, 32))
    viewed(a_tile, gl.float8e4nv, [BLOCKS * ROWS, 32], SWIZZLED).store(values.to(gl.float8e4nv, bitcast=True))
    fence_async_shared()
    barrier()


@gluon.jit
def fill_scaled(code, scale, a_tile, largest):
    """Decode A with its scales in it, relative to the ``largest`` of a row; where that does not go, 1.

    E4M3 has room for scales down to 2^-11 of the largest, which must lie between 97 and 160.
    """
    scale = scale.to(gl.int32)
    some = gl.reduce_or(code & 0x77, 2) != 0
    most = gl.max(gl.where(some, scale, 0), 0)
    largest.store(most)
    most = gl.expand_dims(most, 0)
    down = scale - most
    outside = (scale == 255) | some & ((down < -11) | (most < 97) | (most > 160))
    # 0.5 to 6 begin at 0x30; an exponent's unit is 8. Zeros have any exponent.
    up = gl.expand_dims(gl.minimum(gl.maximum(down, -11), 0) + 6, 2)
    low, high = 0x3C383000 + up * 0x08080800, 0x4C484440 + up * 0x08080808
    low, _ = gl.broadcast(low, code)
    high, _ = gl.broadcast(high, code)
    even, odd = scaled_halves(code, low, high)
    keep(even, odd, a_tile)
    return outside.to(gl.int32)


@gluon.jit
def few_rows(
    b, a, a_scale, b_scale, c, bias, out, partials, wide_partials, marks, tickets, m, n, k, b_stride, a_stride,
    a_scale_stride, b_scale_stride, alpha, beta, out_strides, c_strides, HAS_C: gl.constexpr, HAS_BIAS: gl.constexpr,
    LINES: gl.constexpr, ROWS: gl.constexpr, PART: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
    EVEN: gl.constexpr, CODES: gl.constexpr, SCALES: gl.constexpr, ACC: gl.constexpr, A_CODES: gl.constexpr,
    COPY: gl.constexpr, COPY_SCALES: gl.constexpr,
):  # fmt: skip
    """Program (tile, part): ``ROWS`` rows of A by ``LINES`` rows of B, over ``PART`` of K; with ``EVEN`` all within K.

    ``b_scale`` holds words of four scales. ``tickets`` ([tiles], zero, left zero) count the parts that are done;
    ``marks`` say whose sums are in ``wide_partials`` (float64) instead of ``partials`` (both [PARTS, tiles, LINES,
    ROWS]).
    """
    tile = gl.program_id(0)
    part = gl.program_id(1)
    across = gl.cdiv(n, LINES)
    line = tile % across * LINES
    top = tile // across * ROWS
    start = part * PART
    STEPS: gl.constexpr = PART // STEP
    WORDS: gl.constexpr = STEPS // 2 * LINES
    ring = gl.allocate_shared_memory(gl.uint8, [STAGES, LINES, STEP // 2], gl.NVMMASharedLayout(128, 8))
    scales = gl.allocate_shared_memory(gl.int32, [WORDS, 4], PLAIN)
    a_tile = gl.allocate_shared_memory(gl.float8e4nv, [PART // 32, ROWS, 32], gl.NVMMASharedLayout(32, 8))
    largest = gl.allocate_shared_memory(gl.int32, [ROWS], FLAT_MEMORY)
    let_the_next_kernel_start()
    wait_for_the_kernel_before()

    code, scale = load_part(
        a, a_scale, top, start, m, k, a_stride, a_scale_stride, a_tile.shape[0], a_tile.shape[1], A_CODES
    )
    # Rows beyond B are its last one again, and never stored.
    place = gl.arange(0, WORDS, gl.SliceLayout(1, COPY_SCALES))
    word = gl.expand_dims(start // 128 + place // LINES * 4, 1)
    word += gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, COPY_SCALES)), 0)
    from_scale = b_scale + gl.expand_dims(gl.minimum(line + place % LINES, n - 1) * b_scale_stride, 1) + word
    if EVEN:
        load_async(scales, from_scale)
    else:
        load_async(scales, from_scale, mask=word * 128 < k)
    row = gl.minimum(line + gl.arange(0, LINES, gl.SliceLayout(1, COPY)), n - 1) * b_stride
    column = gl.arange(0, STEP // 2, gl.SliceLayout(0, COPY))
    from_b = b + start // 2 + (gl.expand_dims(row, 1) + gl.expand_dims(column, 0))
    # Whole blocks of 16 bytes: K is a multiple of them, and so are copies.
    left = gl.expand_dims((k - start) // 2 - column // 16 * 16, 0)
    steps = STEPS if EVEN else gl.minimum(STEPS, gl.cdiv(k - start, STEP))
    fetch(from_b, left, 0, steps, ring, EVEN)
    outside = fill_scaled(code, scale, a_tile, largest)
    for step in gl.static_range(1, STAGES - 1):
        fetch(from_b, left, step, steps, ring, EVEN)

    async_copy.wait_group(STAGES - 2)
    words = within_k(scales.load(COPY_SCALES), word, k, EVEN)
    # A byte from 64 to 191 has two different bits at its top.
    extreme = ((words ^ (words << 1)) >> 7 & 0x01010101) != 0x01010101
    wide = gl.max(gl.max(extreme.to(gl.int32), 1), 0) | gl.max(gl.max(outside, 0), 0)
    acc = part_sum(
        from_b, left, steps, start, k, ring, scales, a_tile, a_scale, 0, gl.float32, CODES, SCALES, ACC, EVEN
    )
    acc *= gl.expand_dims((largest.load(gl.SliceLayout(0, ACC)) << 23).to(gl.float32, bitcast=True), 0)

    place = gl.expand_dims(gl.arange(0, LINES, gl.SliceLayout(1, ACC)) * ROWS, 1)
    place += gl.expand_dims(gl.arange(0, ROWS, gl.SliceLayout(0, ACC)), 0)
    AREA: gl.constexpr = LINES * ROWS
    tiles = gl.num_programs(0)
    here = part * tiles + tile
    if PARTS > 1:
        gl.store(partials + here * AREA + place, acc, cache_modifier=".cg")
    gl.store(marks + here, wide)
    if wide != 0:
        barrier()
        for step in gl.static_range(STAGES - 1):
            fetch(from_b, left, step, steps, ring, EVEN)
        code, _ = load_part(
            a, a_scale, top, start, m, k, a_stride, a_scale_stride, a_tile.shape[0], a_tile.shape[1], A_CODES
        )
        even, odd = e4m3_halves(code)
        keep(even, odd, a_tile)
        a_row = gl.minimum(top + gl.arange(0, ROWS, gl.SliceLayout(0, ACC)), m - 1)
        a_scales = a_scale + start // 32 + a_row * a_scale_stride
        last = (k - start) // 32 - 1
        acc64 = part_sum(
            from_b, left, steps, start, k, ring, scales, a_tile, a_scales, last, gl.float64, CODES, SCALES, ACC, EVEN
        )
        gl.store(wide_partials + here * AREA + place, acc64 * 4096.0)
    last = part == PARTS - 1
    if PARTS > 1:
        barrier()
        ticket = gl.atomic_add(tickets + tile, 1 + (wide << 16), sem="acq_rel", scope="gpu")
        last = (ticket & 0xFFFF) == PARTS - 1
        wide = wide | (ticket >> 16)
    if last:
        barrier()
        if PARTS > 1:
            gl.atomic_xchg(tickets + tile, 0, sem="relaxed", scope="gpu")
        if wide != 0:
            total64 = gl.zeros((LINES, ROWS), gl.float64, ACC)
            for other in range(PARTS):
                there = other * tiles + tile
                if gl.load(marks + there, cache_modifier=".cg") != 0:
                    total64 += gl.load(wide_partials + there * AREA + place, cache_modifier=".cg")
                else:
                    total64 += gl.load(partials + there * AREA + place, cache_modifier=".cg").to(gl.float64)
            finish(out, c, bias, total64, line, top, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS)
        else:
            total = acc
            if PARTS > 1:
                total = gl.zeros((LINES, ROWS), gl.float32, ACC)
                for other in gl.static_range(PARTS):
                    total += gl.load(partials + (other * tiles + tile) * AREA + place, cache_modifier=".cg")
            finish(out, c, bias, total, line, top, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS)


@gluon.jit
def finish(
    out, c, bias, total, line, top, m, n, alpha, beta, out_strides, c_strides, HAS_C: gl.constexpr,
    HAS_BIAS: gl.constexpr,
):  # fmt: skip
    """Store D of D^T."""
    total = gl.permute(total, (1, 0))
    LAYOUT: gl.constexpr = total.type.layout
    ROWS: gl.constexpr = total.shape[0]
    LINES: gl.constexpr = total.shape[1]
    row = top + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    column = line + gl.arange(0, LINES, gl.SliceLayout(0, LAYOUT))
    store_result(out, c, bias, total, row, column, m, n, alpha, beta, out_strides, c_strides, HAS_C, HAS_BIAS)


@gluon.jit
def dot_eight(positive, negative, word, a_low, a_high, table):
    """Add products of eight FP4 and eight integers, those of positive and of negative FP4 apart.

    prmt looks four values up, doubled, in a table of eight, ``table`` its lower half; codes whose fourth bit is set
    give 0.
    """
    return gl.inline_asm_elementwise(
        """
        {
        .reg .b32 high, other, value;
        mov.b32 high, 0x0C080604;
        xor.b32 other, $4, 0x88888888;
        prmt.b32 value, $7, high, $4;
        dp4a.s32.s32 $0, value, $5, $2;
        prmt.b32 value, $7, high, other;
        dp4a.s32.s32 $1, value, $5, $3;
        shr.b32 value, $4, 16;
        prmt.b32 value, $7, high, value;
        dp4a.s32.s32 $0, value, $6, $0;
        shr.b32 value, other, 16;
        prmt.b32 value, $7, high, value;
        dp4a.s32.s32 $1, value, $6, $1;
        }
        """,
        "=&r,=&r,r,r,r,r,r,r",
        [positive, negative, word, a_low, a_high, table],
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def integers(word):
    """Eight FP4 as bytes of two words, doubled; byte by byte, a positive value less a negative one's magnitude."""
    return gl.inline_asm_elementwise(
        """
        {
        .reg .b32 low, high, other, value;
        mov.b32 low, 0x03020100;
        mov.b32 high, 0x0C080604;
        xor.b32 other, $2, 0x88888888;
        prmt.b32 $0, low, high, $2;
        or.b32 $0, $0, 0x80808080;
        prmt.b32 value, low, high, other;
        sub.u32 $0, $0, value;
        xor.b32 $0, $0, 0x80808080;
        shr.b32 value, $2, 16;
        prmt.b32 $1, low, high, value;
        or.b32 $1, $1, 0x80808080;
        shr.b32 other, other, 16;
        prmt.b32 value, low, high, other;
        sub.u32 $1, $1, value;
        xor.b32 $1, $1, 0x80808080;
        }
        """,
        "=&r,=&r,r",
        [word],
        dtype=(gl.int32, gl.int32),
        is_pure=True,
        pack=1,
    )


@gluon.jit
def last_halves(x, LAYOUT: gl.constexpr):
    """[..., 2] as two."""
    first, second = gl.split(x)
    return gl.convert_layout(first, LAYOUT), gl.convert_layout(second, LAYOUT)


@gluon.jit
def load_chunk(b, b_scale, chunk, k, CHUNKS: gl.constexpr, EVEN: gl.constexpr, WORDS: gl.constexpr, FLAT: gl.constexpr):
    """32 blocks of rows of B: words [rows, blocks, 4] and scales [rows, blocks].

    What lies beyond K is 0 and 127; with ``EVEN``, chunks lie within K, and one beyond it is the last again.
    """
    if EVEN:
        chunk = gl.minimum(chunk, CHUNKS - 1)
    BLOCKS: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, WORDS))
    block = chunk * 32 + gl.expand_dims(gl.expand_dims(gl.arange(0, 32, BLOCKS), 0), 2)
    element = gl.expand_dims(gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, gl.SliceLayout(0, WORDS))), 0), 0)
    row = gl.convert_layout(b, gl.SliceLayout(1, gl.SliceLayout(2, WORDS)))
    words = gl.expand_dims(gl.expand_dims(row, 1), 2) + (block * 4 + element)
    flat = chunk * 32 + gl.expand_dims(gl.arange(0, 32, gl.SliceLayout(0, FLAT)), 0)
    scales = gl.expand_dims(b_scale, 1) + flat
    if EVEN:
        return gl.load(words, eviction_policy="evict_first"), gl.load(scales, eviction_policy="evict_first")
    else:
        return gl.load(words, mask=block * 32 < k, other=0), gl.load(scales, mask=flat * 32 < k, other=127)


@gluon.jit
def row_sum(
    b, b_scale, word, byte, k, a_tile, a_scales, DTYPE: gl.constexpr, EVEN: gl.constexpr, WORDS: gl.constexpr,
    FLAT: gl.constexpr, A_WORDS: gl.constexpr,
):  # fmt: skip
    """Sums [rows of B], and whether a scale was extreme.

    ``b`` and ``b_scale`` point at the rows; ``word`` and ``byte`` are the first chunk.
    """
    LINES: gl.constexpr = b.shape[0]
    CHUNKS: gl.constexpr = a_tile.shape[0]
    A_FLAT: gl.constexpr = gl.SliceLayout(0, FLAT)
    acc = gl.zeros((LINES, 32), DTYPE, FLAT)
    moderate = gl.full((LINES, 32), 0x80, gl.int32, FLAT)
    # 0x03020100, but no constant to the compiler, which would load it anew for each use: scales are not negative.
    table = gl.expand_dims(0x03020100 | a_scales.index(0).load(A_FLAT) >> 31, 0)
    for chunk in range(CHUNKS):
        next_word, next_byte = load_chunk(b, b_scale, chunk + 1, k, CHUNKS, EVEN, WORDS, FLAT)
        even, odd = gl.split(gl.reshape(word, (LINES, 32, 2, 2)))
        word0, word2 = last_halves(even, FLAT)
        word1, word3 = last_halves(odd, FLAT)
        a_even, a_odd = gl.split(gl.reshape(a_tile.index(chunk).load(A_WORDS), (32, 2, 2, 2)))
        a04, a26 = gl.split(a_even)
        a15, a37 = gl.split(a_odd)
        a0, a4 = last_halves(a04, A_FLAT)
        a2, a6 = last_halves(a26, A_FLAT)
        a1, a5 = last_halves(a15, A_FLAT)
        a3, a7 = last_halves(a37, A_FLAT)
        plus = gl.zeros((LINES, 32), gl.int32, FLAT)
        plus, minus = dot_eight(plus, plus, word0, gl.expand_dims(a0, 0), gl.expand_dims(a1, 0), table)
        plus, minus = dot_eight(plus, minus, word1, gl.expand_dims(a2, 0), gl.expand_dims(a3, 0), table)
        plus, minus = dot_eight(plus, minus, word2, gl.expand_dims(a4, 0), gl.expand_dims(a5, 0), table)
        plus, minus = dot_eight(plus, minus, word3, gl.expand_dims(a6, 0), gl.expand_dims(a7, 0), table)
        sums = (plus - minus).to(DTYPE)
        scale = byte.to(gl.int32)
        a_scale = a_scales.index(chunk).load(A_FLAT)
        if acc.dtype == gl.float64:
            factor = e8m0_float64(scale) * gl.expand_dims(e8m0_float64(a_scale >> 23), 0)
        else:
            factor = (scale << 23).to(gl.float32, bitcast=True) * gl.expand_dims(
                a_scale.to(gl.float32, bitcast=True), 0
            )
        acc += sums * factor
        moderate = moderate & (scale ^ (scale << 1))
        word = next_word
        byte = next_byte
    return gl.sum(acc, 1), 1 - gl.min(gl.min(moderate, 1), 0) // 0x80


@gluon.jit
def one_row(
    a, b, a_scale, b_scale, c, bias, out, n, k, b_stride, b_scale_stride, alpha, beta, out_strides, c_strides,
    HAS_C: gl.constexpr, HAS_BIAS: gl.constexpr, LINES: gl.constexpr, CHUNKS: gl.constexpr, EVEN: gl.constexpr,
    WORDS: gl.constexpr, FLAT: gl.constexpr, A_WORDS: gl.constexpr, A_FILL: gl.constexpr,
):  # fmt: skip
    """One row of A by ``LINES`` rows of B, all of K: integer products, a block of B a thread. Words hold eight FP4."""
    line = gl.program_id(0) * LINES
    a_tile = gl.allocate_shared_memory(gl.int32, [CHUNKS, 32, 8], PLAIN)
    a_scales = gl.allocate_shared_memory(gl.int32, [CHUNKS, 32], FLAT_MEMORY)
    wait_for_the_kernel_before()
    block = gl.arange(0, CHUNKS * 32, gl.SliceLayout(1, A_FILL))
    place = gl.expand_dims(block * 4, 1) + gl.expand_dims(gl.arange(0, 4, gl.SliceLayout(0, A_FILL)), 0)
    a_word = gl.load(a + place, mask=gl.expand_dims(block * 32 < k, 1), other=0)
    a_byte = gl.load(a_scale + block, mask=block * 32 < k, other=127).to(gl.int32)
    row = gl.minimum(line + gl.arange(0, LINES, gl.SliceLayout(1, FLAT)), n - 1)
    b += row * b_stride
    b_scale += row * b_scale_stride
    word, byte = load_chunk(b, b_scale, 0, k, CHUNKS, EVEN, WORDS, FLAT)
    low, high = integers(a_word)
    viewed(a_tile, gl.int32, [CHUNKS * 32, 8], PLAIN).store(gl.reshape(gl.join(low, high), (CHUNKS * 32, 8)))
    viewed(a_scales, gl.int32, [CHUNKS * 32], FLAT_MEMORY).store(a_byte << 23)
    barrier()
    total, extreme = row_sum(b, b_scale, word, byte, k, a_tile, a_scales, gl.float32, EVEN, WORDS, FLAT, A_WORDS)
    let_the_next_kernel_start()
    if (extreme | gl.max(((a_byte < 97) | (a_byte > 160)).to(gl.int32), 0)) != 0:
        word, byte = load_chunk(b, b_scale, 0, k, CHUNKS, EVEN, WORDS, FLAT)
        total64, _ = row_sum(b, b_scale, word, byte, k, a_tile, a_scales, gl.float64, EVEN, WORDS, FLAT, A_WORDS)
        finish(
            out, c, bias, gl.expand_dims(total64, 1) * 0.25, line, 0, 1, n, alpha, beta, out_strides, c_strides, HAS_C,
            HAS_BIAS,
        )  # fmt: skip
    else:
        finish(
            out, c, bias, gl.expand_dims(total, 1) * 0.25, line, 0, 1, n, alpha, beta, out_strides, c_strides, HAS_C,
            HAS_BIAS,
        )  # fmt: skip
