"""Copy an array into another of the same shape and other strides, fast: the one thing all layouts do.

Moving single bytes is what numpy is slowest at. The small axes of the tilings in use are powers of two, so a tiling is
a permutation of address bits, and there is a block of a few dozen bytes that is whole in both orders: it is loaded in
runs of the source, shuffled in registers and stored in runs of the destination. The block is compiled once a kind; the
loops around it take sizes and strides as arguments. Without llvmlite numpy does the same, with elements as wide as both
sides allow.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from asmlaunch.layouts import _jit

MAX_RUN = 16  # bytes of one load or store
MIN_RUN = 4  # below this numpy is as good
MAX_BLOCK = 256  # bytes in registers
LOOPS = 6
MIN_ODD = 9  # tiles side by side from which on an odd number is split


class Step(NamedTuple):
    """A loop, or one bit of an address: ``size`` steps of so many bytes in the source and in the destination."""

    size: int
    source: int
    destination: int


def copy(source: np.ndarray, destination: np.ndarray, *, tiled: str = "destination") -> None:
    """Copy ``source`` to ``destination``: same shape and element size, distinct memory, any strides.

    ``tiled`` names the side that is tiled; memory is walked through in its order.
    """
    if source.size == 0:
        return
    source, destination = _widen(source, destination)
    axis = _odd_axis(source if tiled == "destination" else destination)
    if axis is not None:
        # All but the last of an odd number of tiles side by side can be taken two at a time.
        for part in (slice(0, -1), slice(-1, None)):
            index = (*[slice(None)] * axis, part)
            copy(source[index], destination[index], tiled=tiled)
        return
    if not (_jit.available() and _copy_compiled(source, destination, tiled)):
        np.copyto(destination, source)


def _widen(source: np.ndarray, destination: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same arrays with their common innermost run as one element of up to 16 bytes."""
    run = source.dtype.itemsize
    while source.ndim and source.strides[-1] == destination.strides[-1] == run and source.shape[-1] > 1:
        factor = next((f for f in (16, 8, 4, 2) if source.shape[-1] % f == 0 and run * f <= MAX_RUN), 1)
        if factor == 1:
            break
        run *= factor
        source, destination = source.view(f"V{run}"), destination.view(f"V{run}")
        while source.ndim and source.shape[-1] == 1:
            source, destination = source[..., 0], destination[..., 0]
    return source, destination


def _odd_axis(rows: np.ndarray) -> int | None:
    """The axis of odd extent that would make a run of the untiled side longer if it were even, or None."""
    run = rows.dtype.itemsize
    for stride, size, axis in sorted(zip(rows.strides, rows.shape, range(rows.ndim), strict=True)):
        if size == 1 or stride != run:
            continue
        if run >= MAX_RUN or size & 1:
            return axis if run < MAX_RUN and size >= MIN_ODD else None
        run *= size
    return None


def _copy_compiled(source: np.ndarray, destination: np.ndarray, tiled: str) -> bool:
    itemsize = source.dtype.itemsize
    if itemsize & (itemsize - 1) or itemsize > MAX_RUN:
        return False
    bits, loops = _steps(source, destination)
    loads, stores = (_run_bits(bits, side) for side in (1, 2))
    block = sorted({*loads, *stores}, key=lambda step: step.source)
    load_run, store_run = 1 << len(loads), 1 << len(stores)
    if (
        min(load_run, store_run) < MIN_RUN
        or 1 << len(block) > MAX_BLOCK
        or load_run == store_run == itemsize == MAX_RUN
    ):
        return False
    order = 2 if tiled == "destination" else 1
    outside = _merge(sorted([bit for bit in bits if bit not in block] + loops, key=lambda step: -step[order]))
    if len(outside) > LOOPS:
        return False
    stored = sorted(block, key=lambda step: step.destination)
    shuffle = tuple(
        sum(1 << block.index(step) for i, step in enumerate(stored) if place >> i & 1)
        for place in range(1 << len(block))
    )
    kernel = _kernel(load_run, store_run, shuffle)
    offsets = [
        np.array(
            [sum(s[side] for i, s in enumerate(order_) if n >> i & 1) for n in range(0, 1 << len(block), run)], np.int64
        )
        for side, order_, run in ((1, block, load_run), (2, stored, store_run))
    ]
    outside = [Step(1, 0, 0)] * (LOOPS - len(outside)) + outside
    first = next((i for i, step in enumerate(outside) if step.size > 1), LOOPS - 1)

    def run(start: int, stop: int) -> None:
        part = [*outside]
        part[first] = outside[first]._replace(size=stop - start)
        steps = np.array(part, np.int64)  # named: it must live until the call is over
        kernel(
            source.ctypes.data + start * outside[first].source,
            destination.ctypes.data + start * outside[first].destination,
            offsets[0].ctypes.data,
            offsets[1].ctypes.data,
            steps.ctypes.data,
        )

    _jit.share(outside[first].size, source.nbytes, run)
    return True


def _steps(source: np.ndarray, destination: np.ndarray) -> tuple[list[Step], list[Step]]:
    """Every factor of two of the axes (and of the element) as a bit of the address, and what is left as loops."""
    bits = [Step(2, 1 << i, 1 << i) for i in range(source.dtype.itemsize.bit_length() - 1)]
    loops = []
    for size, s, d in zip(source.shape, source.strides, destination.strides, strict=True):
        twos = size & -size
        bits += [Step(2, s << i, d << i) for i in range(twos.bit_length() - 1)]
        if size > twos:
            loops.append(Step(size // twos, s * twos, d * twos))
    return bits, loops


def _run_bits(bits: Sequence[Step], side: int) -> list[Step]:
    """The address bits that make a contiguous run of up to 16 bytes on one side."""
    found: list[Step] = []
    by_stride = {bit[side]: bit for bit in bits}
    while (1 << len(found)) < MAX_RUN and (1 << len(found)) in by_stride:
        found.append(by_stride[1 << len(found)])
    return found


def _merge(steps: Sequence[Step]) -> list[Step]:
    """Neighbouring loops that are one loop on both sides joined; slowest first."""
    merged: list[Step] = []
    for step in steps:
        if merged and merged[-1][1:] == (step.source * step.size, step.destination * step.size):
            step = Step(merged.pop().size * step.size, step.source, step.destination)
        merged.append(step)
    return merged


@cache
def _kernel(load_run: int, store_run: int, shuffle: tuple[int, ...]) -> Callable[..., None]:
    return _jit.compile_ir(_kernel_ir(load_run, store_run, shuffle), "copy_blocks", [ctypes.c_void_p] * 5)


def _kernel_ir(load_run: int, store_run: int, shuffle: tuple[int, ...]) -> str:
    """IR of ``copy_blocks(source, destination, load_offsets, store_offsets, loops)``."""
    size = len(shuffle)
    lines = [
        "define void @copy_blocks(ptr noalias %s0, ptr noalias %d0, ptr noalias %loads, ptr noalias %stores,"
        " ptr noalias %loops) {",
        "entry:",
    ]
    for name, count in (("loads", size // load_run), ("stores", size // store_run)):
        for i in range(count):
            lines += [f"  %p{name}{i} = getelementptr i64, ptr %{name}, i64 {i}"]
            lines += [f"  %{name}{i} = load i64, ptr %p{name}{i}"]
    for level in range(1, LOOPS + 1):
        for i, name in enumerate(("n", "ss", "ds")):
            lines += [f"  %p{name}{level} = getelementptr i64, ptr %loops, i64 {3 * (level - 1) + i}"]
            lines += [f"  %{name}{level} = load i64, ptr %p{name}{level}"]
    lines += ["  br label %loop1"]
    for level in range(1, LOOPS + 1):
        before = "entry" if level == 1 else f"loop{level - 1}"
        lines += [
            f"loop{level}:",
            f"  %i{level} = phi i64 [ 0, %{before} ], [ %j{level}, %end{level} ]",
            f"  %s{level} = phi ptr [ %s{level - 1}, %{before} ], [ %t{level}, %end{level} ]",
            f"  %d{level} = phi ptr [ %d{level - 1}, %{before} ], [ %e{level}, %end{level} ]",
            f"  br label %{'body' if level == LOOPS else f'loop{level + 1}'}",
        ]
    lines += ["body:"]
    vector, count = "zeroinitializer", size // load_run
    for i in range(count):
        lines += [
            f"  %from{i} = getelementptr i8, ptr %s{LOOPS}, i64 %loads{i}",
            f"  %in{i} = load i{8 * load_run}, ptr %from{i}, align 1",
            f"  %all{i} = insertelement <{count} x i{8 * load_run}> {vector}, i{8 * load_run} %in{i}, i32 {i}",
        ]
        vector = f"%all{i}"
    lines += [f"  %bytes = bitcast <{count} x i{8 * load_run}> {vector} to <{size} x i8>"]
    for i in range(size // store_run):
        mask = ", ".join(f"i32 {p}" for p in shuffle[i * store_run : (i + 1) * store_run])
        lines += [
            f"  %out{i} = shufflevector <{size} x i8> %bytes, <{size} x i8> poison, <{store_run} x i32> <{mask}>",
            f"  %to{i} = getelementptr i8, ptr %d{LOOPS}, i64 %stores{i}",
            f"  store <{store_run} x i8> %out{i}, ptr %to{i}, align 1",
        ]
    lines += [f"  br label %end{LOOPS}"]
    for level in range(LOOPS, 0, -1):
        lines += [
            f"end{level}:",
            f"  %j{level} = add i64 %i{level}, 1",
            f"  %t{level} = getelementptr i8, ptr %s{level}, i64 %ss{level}",
            f"  %e{level} = getelementptr i8, ptr %d{level}, i64 %ds{level}",
            f"  %c{level} = icmp slt i64 %j{level}, %n{level}",
            f"  br i1 %c{level}, label %loop{level}, label %{f'end{level - 1}' if level > 1 else 'exit'}",
        ]
    lines += ["exit:", "  ret void", "}"]
    return "\n".join(lines)
