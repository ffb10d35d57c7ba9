"""Mutated machine code and arguments: every run must end with a result or a named error, in time, inside its arrays.

    python tests/corpus/emulator_fuzz.py [runs] [seed] [--checks]

Flips bits at random places of our own kernels' machine code, and replaces argument bytes. Arrays lie between pages that
may not be touched, so an access outside of them ends this process. Prints how the runs ended.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import mmap
import os
import sys
import time
from collections import Counter
from pathlib import Path

# Thousands of kernels that nobody wants again.
os.environ["ASMLAUNCH_CACHE"] = ""

import numpy as np

import asmlaunch
from asmlaunch.errors import AsmlaunchError

FOLDER = Path(__file__).parents[2] / "fixtures" / "kernels"

#: File, kernel, elements of its arrays in order of its pointers, other arguments, grid, block.
KERNELS = (
    ("vector_add", "vector_add", (256, 256, 256), {"count": 200}, (1, 1, 1), (256, 1, 1)),
    ("reductions", "reduce_dpp", (2, 512), {}, (2, 1, 1), (256, 1, 1)),
    ("reductions", "reduce_lds", (2, 512), {}, (2, 1, 1), (256, 1, 1)),
    ("control", "collatz", (64, 64), {}, (1, 1, 1), (64, 1, 1)),
    ("control", "histogram", (16, 512), {}, (2, 1, 1), (256, 1, 1)),
    ("sgemm", "asmlaunch_sgemm", (512, 512, 512),
     {"alpha": 1.0, "beta": 1.0, "M": 16, "N": 16, "K": 16, "lda": 16, "ldb": 16, "ldc": 16}, (1, 4, 1), (256, 1, 1)),
)  # fmt: skip

#: Seconds a run may take, and the instructions of a wave, which are far fewer than that.
LIMIT, BUDGET = 10.0, 200_000


def guarded(elements: int) -> np.ndarray:
    """A u32 array that ends at a page nobody may touch, and starts after one (after a margin that is checked)."""
    page = mmap.PAGESIZE
    nbytes = 4 * elements
    inner = -(-nbytes // page) * page
    memory = mmap.mmap(-1, inner + 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for start in (address, address + page + inner):
        if protect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    return np.frombuffer(memory, np.uint32, elements, page + inner - nbytes)


def main(runs: int = 10_000, seed: int = 0, checks: str = "bounds") -> int:
    random = np.random.default_rng(seed)
    loaded = []
    for file, name, elements, scalars, grid, block in KERNELS:
        kernel = asmlaunch.load(FOLDER / f"{file}.gfx950.co", device="emulator")[name]
        pointers = [field.name for field in kernel.schema.fields if field.is_pointer]
        arrays = {pointer: guarded(count) for pointer, count in zip(pointers, elements, strict=True)}
        loaded.append((kernel, arrays, scalars, {"grid": grid, "block": block}))
        # What all kernels share is compiled once a process.
        kernel.launch({**arrays, **scalars}, grid=grid, block=block, check=False, checks=checks)
    ends: Counter[str] = Counter()
    slowest = 0.0
    for run in range(runs):
        kernel, arrays, scalars, shape = loaded[run % len(loaded)]
        for array in arrays.values():
            array[:] = random.integers(1, 100, array.size)
        changed = copy.copy(kernel)
        arguments = {**arrays, **scalars}
        if run // len(loaded) % 3:
            changed.info = flipped(kernel.info, random)
        else:
            arguments = garbled(arguments, random)
        changed.device = type(kernel.device)()  # nothing prepared is kept
        start = time.perf_counter()
        try:
            changed.launch(arguments, **shape, check=False, max_instructions=BUDGET, checks=checks)
            end = "result"
        except AsmlaunchError as error:
            end = type(error).__name__
        seconds = time.perf_counter() - start
        slowest = max(slowest, seconds)
        ends[end] += 1
        if seconds > LIMIT:
            print(f"run {run} of seed {seed} took {seconds:.1f} s")
            return 1
    print(f"{runs} runs, the slowest {slowest:.2f} s: " + ", ".join(f"{n} {end}" for end, n in ends.most_common()))
    return 0


def flipped(info: asmlaunch.codeobject.KernelInfo, random: np.random.Generator) -> asmlaunch.codeobject.KernelInfo:
    """The kernel with one bit of its machine code flipped."""
    text = bytearray(info.text)
    first = info.code_address - info.text_address
    text[first + random.integers(len(info.code))] ^= 1 << random.integers(8)
    return dataclasses.replace(info, text=bytes(text), code=bytes(text[first : first + len(info.code)]))


def garbled(arguments: dict[str, object], random: np.random.Generator) -> dict[str, object]:
    """One argument replaced: by 0, all ones, garbage, or a pointer into another array or past the end of its own."""
    name = list(arguments)[random.integers(len(arguments))]
    value = arguments[name]
    if isinstance(value, np.ndarray):
        ways = (0, (1 << 64) - 1, int(random.integers(1 << 48)), value.ctypes.data + 4 * value.size - 8,
                value.ctypes.data - 4, value.ctypes.data + 2)  # fmt: skip
    elif isinstance(value, float):
        ways = (0.0, float("nan"), float("inf"), -1e30)
    else:
        ways = (0, (1 << 32) - 1, int(random.integers(1 << 32)), int(random.integers(1 << 12)))
    return {**arguments, name: ways[random.integers(len(ways))]}


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    sys.exit(main(*numbers, **({"checks": "all"} if "--checks" in sys.argv else {})))
