# mypy: disable-error-code="no-untyped-def"
"""The Triton kernel of dense products, ``out[M, N] = alpha * A[M, K] x B[K, N] + beta * C``, in three schedules.

* Data-parallel: program p computes tile p.
* Persistent: as many programs as the processor holds; program p computes tiles p, p + P, p + 2P, ...
* Stream-K: whole waves of tiles as above, then the K-steps of the tiles that are left are shared out evenly. A tile
  whose steps several programs did is finished by the one that did its last step: it waits for the others' sums and adds
  them in a fixed order. Those have lower numbers and store their part before they wait for anything, so programs may
  also run one after the other. With few tiles, where one program would wait for many, each does a part of one tile, and
  the sums are added by ``add_parts`` in a launch of its own, all at once and in a fixed order too.

Source of stream-K: Osama, Merrill, Cecka, Garland, Owens, "Stream-K", PPoPP 2023.
"""

from __future__ import annotations

import triton
import triton.language as tl

from asmlaunch.triton_ref._jit_formats import dot, e4m3, e4m3fnuz, e5m2, narrow, widen


@triton.jit
def decoded(block, FORMAT: tl.constexpr):
    """FP8 bytes as float16, which holds them exactly; all else as it is."""
    if FORMAT == "e4m3":
        return e4m3(block.to(tl.int32))
    elif FORMAT == "e4m3fnuz":
        return e4m3fnuz(block.to(tl.int32))
    elif FORMAT == "e5m2":
        return e5m2(block.to(tl.int32))
    else:
        return block


@triton.jit
def steps_sum(
    a, b, tile_m, tile_n, first, last, m, n, k, a_strides, b_strides, INTEGER: tl.constexpr, FORMAT_A: tl.constexpr,
    FORMAT_B: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    A_TURNED: tl.constexpr, B_TURNED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The sum of K-steps [first, last) of a tile. With TMA, a turned operand's descriptor has swapped dimensions."""
    # Where a loop might run no step, ptxas waits for each product of some tiles (C7515).
    tl.assume(last > first)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if INTEGER else tl.float32)
    if TMA:
        for step in range(first, last):
            if A_TURNED:
                left = tl.trans(a.load([step * BLOCK_K, tile_m * BLOCK_M]))
            else:
                left = a.load([tile_m * BLOCK_M, step * BLOCK_K])
            if B_TURNED:
                right = tl.trans(b.load([tile_n * BLOCK_N, step * BLOCK_K]))
            else:
                right = b.load([step * BLOCK_K, tile_n * BLOCK_N])
            acc = dot(left, right, acc)
    else:
        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        # Rows beyond the matrix are read again from its start and never stored.
        row = row % m
        column = column % n
        inner = tl.arange(0, BLOCK_K)
        if WIDE:
            row = row.to(tl.int64)
            column = column.to(tl.int64)
        a += row[:, None] * a_strides[0]
        b += column[None, :] * b_strides[1]
        for step in range(first, last):
            depth = step * BLOCK_K + inner
            inside = depth < k
            if WIDE:
                depth = depth.to(tl.int64)
            left = decoded(tl.load(a + depth[None, :] * a_strides[1], mask=inside[None, :], other=0), FORMAT_A)
            right = decoded(tl.load(b + depth[:, None] * b_strides[0], mask=inside[:, None], other=0), FORMAT_B)
            acc = dot(left, right, acc)
    return acc


@triton.jit
def store_tile(
    out, c, row_scale, column_scale, acc, tile_m, tile_n, m, n, alpha, beta, out_strides, c_strides,
    HAS_C: tl.constexpr, SCALED: tl.constexpr, PLAIN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    TMA_STORE: tl.constexpr,
):  # fmt: skip
    """``row_scale * column_scale * alpha * acc + beta * c``, rounded once; ``PLAIN``: the sum alone."""
    if TMA_STORE:
        out.store([tile_m * BLOCK_M, tile_n * BLOCK_N], narrow(acc, out.dtype))
    else:
        row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        inside = (row < m)[:, None] & (column < n)[None, :]
        place = row.to(tl.int64)[:, None] * out_strides[0] + column.to(tl.int64)[None, :] * out_strides[1]
        if PLAIN:
            if acc.dtype == tl.int32:
                tl.store(out + place, acc.to(out.dtype.element_ty), mask=inside)
            else:
                tl.store(out + place, narrow(acc, out.dtype.element_ty), mask=inside)
        else:
            result = acc.to(tl.float32)
            if SCALED:
                result = result * tl.load(row_scale + row, mask=row < m, other=0)[:, None]
                result = result * tl.load(column_scale + column, mask=column < n, other=0)[None, :]
            result = result * alpha
            if HAS_C:
                there = row.to(tl.int64)[:, None] * c_strides[0] + column.to(tl.int64)[None, :] * c_strides[1]
                result += beta * widen(tl.load(c + there, mask=inside, other=0))
            tl.store(out + place, narrow(result, out.dtype.element_ty), mask=inside)


@triton.jit
def tile_place(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile: groups of ``GROUP`` rows of tiles, down the rows within a group, so that programs that
    run at the same time share operands in the cache."""
    down = tl.cdiv(m, BLOCK_M)
    across = tl.cdiv(n, BLOCK_N)
    group = tile // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    within = tile % (GROUP * across)
    return group * GROUP + within % height, within // height


@triton.jit(do_not_specialize=["whole_tiles", "all_tiles", "programs"])
def gemm(
    a, b, c, out, row_scale, column_scale, partials, flags, m, n, k, whole_tiles, all_tiles, programs, alpha, beta,
    a_strides, b_strides, c_strides, out_strides, INTEGER: tl.constexpr, FORMAT_A: tl.constexpr, FORMAT_B: tl.constexpr,
    HAS_C: tl.constexpr, SCALED: tl.constexpr, PLAIN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP: tl.constexpr, PERSISTENT: tl.constexpr, STREAM_K: tl.constexpr, SPLIT: tl.constexpr,
    TMA: tl.constexpr, TMA_STORE: tl.constexpr, A_TURNED: tl.constexpr, B_TURNED: tl.constexpr, WIDE: tl.constexpr,
    FLATTEN: tl.constexpr,
):  # fmt: skip
    """``whole_tiles`` of ``all_tiles`` are computed whole by ``programs`` programs; with stream-K these share the rest.

    ``flags`` ([programs], zero) say which ``partials`` ([programs, BLOCK_M * BLOCK_N]) are there; they are left zero.
    Split, program p stores the sum of part ``p % parts`` of tile ``p // parts`` in partials, and nothing else.
    """
    program = tl.program_id(0)
    steps = tl.cdiv(k, BLOCK_K)
    if SPLIT:
        parts = programs // all_tiles
        tile_m, tile_n = tile_place(program // parts, m, n, BLOCK_M, BLOCK_N, GROUP)
        part = (program % parts).to(tl.int64)
        acc = steps_sum(
            a, b, tile_m, tile_n, (part * steps // parts).to(tl.int32), ((part + 1) * steps // parts).to(tl.int32), m,
            n, k, a_strides, b_strides, INTEGER, FORMAT_A, FORMAT_B, BLOCK_M, BLOCK_N, BLOCK_K, TMA, A_TURNED,
            B_TURNED, WIDE,
        )  # fmt: skip
        inner = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        tl.store(partials + program.to(tl.int64) * (BLOCK_M * BLOCK_N) + inner, acc.to(tl.float32, bitcast=True))
    elif not PERSISTENT:
        tile_m, tile_n = tile_place(program, m, n, BLOCK_M, BLOCK_N, GROUP)
        acc = steps_sum(
            a, b, tile_m, tile_n, 0, steps, m, n, k, a_strides, b_strides, INTEGER, FORMAT_A, FORMAT_B, BLOCK_M,
            BLOCK_N, BLOCK_K, TMA, A_TURNED, B_TURNED, WIDE,
        )  # fmt: skip
        store_tile(
            out, c, row_scale, column_scale, acc, tile_m, tile_n, m, n, alpha, beta, out_strides, c_strides, HAS_C,
            SCALED, PLAIN, BLOCK_M, BLOCK_N, TMA_STORE,
        )  # fmt: skip
    else:
        for tile in tl.range(program, whole_tiles, programs, flatten=FLATTEN):
            tile_m, tile_n = tile_place(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
            acc = steps_sum(
                a, b, tile_m, tile_n, 0, steps, m, n, k, a_strides, b_strides, INTEGER, FORMAT_A, FORMAT_B, BLOCK_M,
                BLOCK_N, BLOCK_K, TMA, A_TURNED, B_TURNED, WIDE,
            )  # fmt: skip
            store_tile(
                out, c, row_scale, column_scale, acc, tile_m, tile_n, m, n, alpha, beta, out_strides, c_strides, HAS_C,
                SCALED, PLAIN, BLOCK_M, BLOCK_N, TMA_STORE,
            )  # fmt: skip
    if STREAM_K:
        AREA: tl.constexpr = BLOCK_M * BLOCK_N
        flat = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        total = (all_tiles - whole_tiles).to(tl.int64) * steps
        begin = (program * total // programs).to(tl.int32)
        end = ((program + 1) * total // programs).to(tl.int32)
        # From the last step to the first: the part of a tile that another program finishes comes before any waiting.
        while end > begin:
            tile = (end - 1) // steps
            tile_begin = tile * steps
            start = tl.maximum(begin, tile_begin)
            tile_m, tile_n = tile_place(whole_tiles + tile, m, n, BLOCK_M, BLOCK_N, GROUP)
            acc = steps_sum(
                a, b, tile_m, tile_n, start - tile_begin, end - tile_begin, m, n, k, a_strides, b_strides, INTEGER,
                FORMAT_A, FORMAT_B, BLOCK_M, BLOCK_N, BLOCK_K, TMA, A_TURNED, B_TURNED, WIDE,
            )  # fmt: skip
            if end < tile_begin + steps:
                there = partials + program.to(tl.int64) * AREA + flat
                tl.store(there, acc.to(tl.float32, bitcast=True), cache_modifier=".cg")
                tl.debug_barrier()
                tl.atomic_xchg(flags + program, 1, sem="release", scope="gpu")
            else:
                other = program
                have = start
                while have > tile_begin:
                    other -= 1
                    have = (other * total // programs).to(tl.int32)
                    while tl.atomic_cas(flags + other, 1, 0, sem="acquire", scope="gpu") == 0:
                        pass
                    tl.debug_barrier()
                    part = tl.load(partials + other.to(tl.int64) * AREA + flat, cache_modifier=".cg")
                    acc += part.to(acc.dtype, bitcast=True)
                store_tile(
                    out, c, row_scale, column_scale, acc, tile_m, tile_n, m, n, alpha, beta, out_strides, c_strides,
                    HAS_C, SCALED, PLAIN, BLOCK_M, BLOCK_N, TMA_STORE,
                )  # fmt: skip
            end = start


@triton.jit(do_not_specialize=["parts"])
def add_parts(
    c, out, row_scale, column_scale, partials, m, n, parts, alpha, beta, c_strides, out_strides, INTEGER: tl.constexpr,
    HAS_C: tl.constexpr, SCALED: tl.constexpr, PLAIN: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add the ``parts`` sums of each tile that ``gemm`` left in partials, a piece of a tile a program."""
    DOWN: tl.constexpr = BLOCK_M // ROWS
    ACROSS: tl.constexpr = BLOCK_N // COLUMNS
    AREA: tl.constexpr = BLOCK_M * BLOCK_N
    tile = tl.program_id(0) // (DOWN * ACROSS)
    piece = tl.program_id(0) % (DOWN * ACROSS)
    row, column = piece // ACROSS, piece % ACROSS
    tile_m, tile_n = tile_place(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
    inner = (row * ROWS + tl.arange(0, ROWS))[:, None] * BLOCK_N + (column * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    there = partials + tile.to(tl.int64) * parts * AREA + inner
    dtype: tl.constexpr = tl.int32 if INTEGER else tl.float32
    acc = tl.zeros((ROWS, COLUMNS), dtype)
    count = tl.full((ROWS, COLUMNS), parts, tl.int32)
    for first in range(0, parts, 8):
        # Unrolled, so that eight loads of each thread are under way at a time. As one tensor of three dimensions they
        # would be spread over warps and added through shared memory.
        for part in tl.static_range(8):
            one = tl.load(there + part * AREA, mask=first + part < count, other=0)
            acc += one.to(dtype, bitcast=True)
        there += 8 * AREA
    store_tile(
        out, c, row_scale, column_scale, acc, tile_m * DOWN + row, tile_n * ACROSS + column, m, n, alpha, beta,
        out_strides, c_strides, HAS_C, SCALED, PLAIN, ROWS, COLUMNS, False,
    )  # fmt: skip
