"""all_reduce and its fused forms: eight ranks as eight launches at the same time, on memory that all of them see.

The addresses of the ranks' buffers are themselves in memory, where the emulator does not look for arrays: a table and
everything it points to are one array, with gaps that must not be written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asmlaunch.abi.families import all_reduce
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.compare import EXACT, Bound
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import GAP, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.problems.layer_norm import EPSILON, WIDTH, make_norm
from asmlaunch.validate.reference import Reference

RANKS = 8
_GAP = 4096
_TABLE = 4096
_SIGNAL_BYTES = 4096  # of each rank: two counters for each workgroup of each rank

#: The rank waits for the others, so all of its workgroups are resident; a rank that waits in vain ends as an error.
_TOGETHER = {"schedule": "lockstep", "threads": 1, "max_instructions": 20_000_000}

#: Seven additions in f32, then one rounding to bf16, halves away from zero. Sums of a few bf16 numbers are exact in f32
#: but for rare ones.
SUM = Bound(1 - 2 * RANKS * 2.0**-16, 2.0**-8, (RANKS - 1) * F32_STEP, rounding="half_away")


class Arena:
    """A table of addresses and the arrays it names, in one block of memory with gaps between them.

    Args:
        stacks: arrays ``[RANKS, ...]``; the table names all of the first, then all of the second, and so on.

    Attributes:
        memory: the block, table first.
        stacks: the arrays in it.
        gaps: the bytes after each array, ``[RANKS, gap]`` of int8 for each stack: -1 unless somebody wrote there.
    """

    def __init__(self, stacks: Sequence[np.ndarray]) -> None:
        sizes = [stack[0].nbytes for stack in stacks]
        steps = [-(-size // 256) * 256 + _GAP for size in sizes]
        self.memory = np.full(_TABLE + RANKS * sum(steps), 0xFF, np.uint8)
        table = self.memory[: 8 * RANKS * len(stacks)].view(np.uint64)
        self.stacks: list[np.ndarray] = []
        self.gaps: list[np.ndarray] = []
        place = _TABLE
        for index, (stack, size, step) in enumerate(zip(stacks, sizes, steps, strict=True)):
            region = self.memory[place : place + RANKS * step].reshape(RANKS, step)
            table[RANKS * index : RANKS * (index + 1)] = region.ctypes.data + step * np.arange(RANKS, dtype=np.uint64)
            view = region[:, :size].view(stack.dtype).reshape(stack.shape)
            view[...] = stack
            self.stacks.append(view)
            self.gaps.append(region[:, size:].view(np.int8))
            place += RANKS * step

    def untouched(self) -> tuple[Output, ...]:
        """That nothing was written between the arrays."""
        return tuple(
            Output(f"{GAP} {index}", gap, partial(_all, gap, -1), EXACT) for index, gap in enumerate(self.gaps)
        )


@dataclass(frozen=True)
class Message(Case):
    """bf16 numbers summed in place; the kernel is right for 2 MiB and no other size.

    Attributes:
        kib: size in KiB.
    """

    kib: int = 2048


@dataclass(frozen=True)
class Rows(Case):
    """Rows of 8192.

    Attributes:
        m: rows, a multiple of 8, at most 512.
        mean: mean of each rank's inputs, in hundredths.
    """

    m: int
    mean: int = 0


def _all(array: np.ndarray, value: int) -> Reference:
    """Every element of ``array`` should be this."""
    return Reference(np.full(array.shape, float(value)), np.zeros(array.shape))


def _signals() -> tuple[dict[str, np.ndarray], Output]:
    """The ranks' counters: zero before the launch and after it."""
    counters = np.zeros((RANKS, _SIGNAL_BYTES // 4), np.int32)
    zero = Output("signals", counters, partial(_all, counters, 0), EXACT)
    return {f"ptr_Signal{rank}": counters[rank] for rank in range(RANKS)}, zero


def _message_sizes(case: Message, _: Parameters) -> Mapping[str, Any]:
    stride = case.kib * 1024 // RANKS
    return {"rank": 0, "stride_gpu": stride, "stride_tg": stride // 64, "stride_wave": stride // 64 // 4}


def _message(case: Message, _: Parameters) -> Problem:
    random = np.random.default_rng(case.seed)
    given = operands.bfloat16(random, RANKS, case.kib * 512)
    arena = Arena([given])
    signals, zero = _signals()
    terms = to_float64(given)

    def reference() -> Reference:
        total = np.broadcast_to(terms.sum(axis=0), terms.shape)
        return Reference(total, np.broadcast_to(np.abs(terms).sum(axis=0), terms.shape))

    launches = tuple({"ptr_Data": arena.memory, **signals, "rank": rank} for rank in range(RANKS))
    outputs = (Output("data", arena.stacks[0], reference, SUM), zero, *arena.untouched())
    return Problem(launches, outputs, {**_TOGETHER, "resident": 64})


def _rows_sizes(case: Rows, _: Parameters) -> Mapping[str, Any]:
    return {
        "rank": 0, "N": WIDTH, "epsilon": EPSILON, "workgroups": case.m // RANKS,
        "stride_gpu": case.m // RANKS * WIDTH * 2,
    }  # fmt: skip


def _rows(case: Rows, p: Parameters) -> Problem:
    random = np.random.default_rng(case.seed)
    given = operands.bfloat16(random, RANKS, case.m, WIDTH, mean=case.mean / 100)
    residual = operands.bfloat16(random, case.m, WIDTH)
    norm = make_norm(random)
    quantised = p["form"].endswith("qnt")
    out = np.full(given.shape, -1, np.int8 if quantised else np.int16).view(np.int8 if quantised else np.uint16)
    arena = Arena([given, out, np.full_like(given, 0xFFFF), np.full((RANKS, case.m), np.nan, np.float32)])
    _, out, out_residual, scale = arena.stacks
    signals, zero = _signals()
    arguments = {
        "ptr_Data": arena.memory, **signals, "ptr_Residual": residual, "ptr_Weight": norm.weight, "ptr_Bias": norm.bias,
    }  # fmt: skip
    results = {"residual": out_residual, "quantised" if quantised else "out": out}
    if quantised:
        arguments["ptr_XScale"] = norm.x_scale
        results["scale"] = scale
    launches = tuple({**arguments, "rank": rank} for rank in range(RANKS))
    outputs = (*norm.outputs([*given, residual], results, {}), zero, *arena.untouched())
    return Problem(launches, outputs, {**_TOGETHER, "resident": case.m // RANKS})


def _rows_cases(_: Parameters) -> Sequence[Rows]:
    return Rows(m=16, mean=20), Rows(m=8)


MESSAGE = Definition(all_reduce.ALL_REDUCE, "all_reduce.co", Message, _message_sizes, _message, lambda _: (Message(),))
FUSED = Definition(
    all_reduce.FUSED, "allreduce_*.co", Rows, _rows_sizes, _rows, _rows_cases,
    # The layer norm's machine code is the RMS norm's.
    told_apart=lambda p: {"quantised": p["form"].endswith("qnt")},
)  # fmt: skip
