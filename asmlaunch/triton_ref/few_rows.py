"""Products of MXFP4 with few rows on Hopper: which ones ``_jit_hopper`` takes, and how they are cut up."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import triton

from asmlaunch.triton_ref import workspace
from asmlaunch.triton_ref.hardware import Hardware, hardware_of
from asmlaunch.triton_ref.places import plain

if TYPE_CHECKING:
    from asmlaunch.triton_ref.mx import Operand, Problem

_STEP = 256
_CHUNK, _CHUNKS = 1024, 64
_GLUON = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 6)
_PLAIN = plain((1, 1), (1, 1)).axes


@dataclass(frozen=True)
class Cut:
    """How a product is cut up.

    Attributes:
        rows: of A a program has; 8, 16, 32 or 64.
        part: elements of K a program adds, two steps of 256 times a power of two.
        stages: places for steps of B, all but one of which are under way.
    """

    rows: int
    part: int
    stages: int

    @property
    def warps(self) -> int:
        """Of a program, each with 16 rows of B: many, to share the work of decoding A, where registers allow."""
        return 16 if self.rows == 32 else 8

    @property
    def resident(self) -> int:
        """Programs a processor holds."""
        return 2 if self.rows <= 16 else 1

    @property
    def lines(self) -> int:
        """Rows of B a program has."""
        return 16 * self.warps

    @property
    def shared(self) -> int:
        """Bytes of shared memory: B under way, its scales, A decoded, and what reductions take."""
        return self.lines * (self.stages * _STEP // 2 + self.part // 32) + self.rows * self.part + 1024


def fits(a: Operand, b: Operand, hardware: Hardware) -> bool:
    """Whether the kernel takes these: MXFP4 both, in logical order, aligned, K a multiple of 128, and a Hopper."""
    if not _GLUON or hardware.name != "sm90" or not a.format == b.format == "e2m1" or a.k % 128 or a.k == 0:
        return False
    assert a.scales is not None
    assert b.scales is not None
    tensors = (a.values, a.scales, b.values, b.scales)
    placed = (a.values_at, a.scales_at, b.values_at, b.scales_at)
    return (
        all(place.axes == _PLAIN and place.reach < 2**31 for place in placed)
        and all(tensor.stride(1) == 1 for tensor in tensors)
        and b.values.stride(0) % 16 == 0
        and b.values.data_ptr() % 16 == 0
        and b.scales.stride(0) % 4 == 0
        and b.scales.data_ptr() % 4 == 0
    )


@lru_cache(maxsize=1024)
def cut(m: int, n: int, k: int, hardware: Hardware) -> Cut:
    """As many parts of K as there are places for programs; but one, where its programs keep half the processors busy.

    Every part more is another sum to be written, waited for and read, and so is every program beyond the places. More
    steps under way would only make what else is read wait behind them.
    """
    rows = next((r for r in (8, 16, 32) if m <= r), 64)
    stages = 4 if rows == 64 else 3
    found = Cut(rows, 2 * _STEP, 2)
    tiles = -(-m // rows) * -(-n // found.lines)
    for part in (4 * _STEP, 8 * _STEP):
        longer = Cut(rows, part, stages)
        if longer.shared > hardware.shared // longer.resident or part >= 2 * k:
            break
        whole = part >= k and tiles > 0.45 * hardware.units
        if whole or tiles * -(-k // found.part) > longer.resident * hardware.units:
            found = longer
    return found


def layouts(cut: Cut) -> dict[str, Any]:
    """Which thread holds what: of B as the tensor cores take it, so that nothing moves between threads."""
    from triton.experimental.gluon import language as gl

    warps = [[16 << i, 0] for i in range(cut.warps.bit_length() - 1)]
    rows = [[1, 0], [2, 0], [4, 0]]
    words = cut.part // (2 * _STEP) * cut.lines
    # Lanes take what lies together in memory first: words of a row, then rows; 16 bytes each, or 8 if there is less.
    pieces = [[bit, 0] for bit in (cut.lines, 2 * cut.lines) if bit < words]
    pieces += [[1 << i, 0] for i in range(cut.lines.bit_length() - 1)]
    threads = 4 + cut.warps.bit_length()
    pieces = pieces if len(pieces) >= threads else [[0, 2], *pieces]
    return {
        "CODES": gl.DistributedLinearLayout(
            [[0, 1], [0, 2], [0, 16], [0, 32], [0, 64], [8, 0]], [[0, 4], [0, 8], *rows], warps, [],
            [cut.lines, _STEP // 2],
        ),
        "SCALES": gl.DistributedLinearLayout(
            [[0, 1], [0, 2], [8, 0]], [[0, 0], [0, 0], *rows], warps, [], [cut.lines, 4]
        ),
        "ACC": gl.NVMMADistributedLayout([3, 0], [cut.warps, 1], [16, cut.rows, 32]),
        "A_CODES": gl.BlockedLayout([1, 1, 16], [8, 4, 1], [cut.warps, 1, 1], [2, 1, 0]),
        "COPY": gl.BlockedLayout([1, 16], [4, 8], [cut.warps, 1], [1, 0]),
        "COPY_SCALES": gl.DistributedLinearLayout(
            [bit for bit in ([0, 1], [0, 2]) if bit not in pieces] + pieces[threads:], pieces[:5], pieces[5:threads],
            [], [words, 4],
        ),
    }  # fmt: skip


def launch(problem: Problem, how: Cut | None = None) -> None:
    """Run a kernel on a problem that ``fits``.

    ``how``: instead of what ``cut`` says, to be timed.
    """
    if how is None and problem.a.rows == 1 and one_row(problem):
        return
    from asmlaunch.triton_ref import _jit_hopper

    a, b, out = problem.a, problem.b, problem.out
    assert a.scales is not None
    assert b.scales is not None
    m, n, k = a.rows, b.rows, a.k
    hardware = hardware_of(out.device)
    how = how or cut(m, n, k, hardware)
    tiles, parts = -(-m // how.rows) * -(-n // how.lines), -(-k // how.part)
    with workspace.use(out.device) as scratch:
        sums = parts * tiles * how.lines * how.rows
        _jit_hopper.few_rows[(tiles, parts)](
            b.values, a.values, a.scales, b.scales.view(torch.int32), *problem.epilogue,
            scratch.get("partials", sums, torch.float32), scratch.get("wide", sums, torch.float64),
            scratch.get("marks", parts * tiles, torch.int32), scratch.flags(tiles), m, n, k, b.values.stride(0),
            a.values.stride(0), a.scales.stride(0), b.scales.stride(0) // 4, problem.alpha, problem.beta,
            *problem.output_strides, LINES=how.lines, ROWS=how.rows, PART=how.part, PARTS=parts, STAGES=how.stages,
            EVEN=k % how.part == 0, num_warps=how.warps, launch_pdl=True,
            maxnreg=min(255, hardware.registers // (how.resident * how.warps * hardware.warp)), **layouts(how),
            **problem.epilogue_constants,
        )  # fmt: skip


def one_row(problem: Problem) -> bool:
    """Run the kernel for one row of A, if that fits the shared memory."""
    from triton.experimental.gluon import language as gl

    from asmlaunch.triton_ref import _jit_hopper

    a, b, out = problem.a, problem.b, problem.out
    assert a.scales is not None
    assert b.scales is not None
    n, k = b.rows, a.k
    chunks = 1 << (-(-k // _CHUNK) - 1).bit_length()
    if chunks > _CHUNKS or a.values.data_ptr() % 4:
        return False
    # Rows of B a warp: A is read less often for two, but few rows keep more warps busy one by one.
    lines, warps = (2, 8) if n >= 32 * hardware_of(out.device).units else (1, 4)
    _jit_hopper.one_row[(-(-n // (lines * warps)),)](
        a.values.view(torch.int32), b.values.view(torch.int32), a.scales, b.scales, *problem.epilogue, n, k,
        b.values.stride(0) // 4, b.scales.stride(0), problem.alpha, problem.beta, *problem.output_strides,
        LINES=lines * warps, CHUNKS=chunks, EVEN=k == _CHUNK * chunks, num_warps=warps, launch_pdl=True,
        **problem.epilogue_constants,
        WORDS=gl.BlockedLayout([lines, 1, 4], [1, 32, 1], [warps, 1, 1], [2, 1, 0]),
        FLAT=gl.BlockedLayout([lines, 1], [1, 32], [warps, 1], [1, 0]),
        A_WORDS=gl.DistributedLinearLayout(
            [[0, 1], [0, 2], [0, 4]], [[1 << i, 0] for i in range(5)], [[0, 0]] * (warps.bit_length() - 1), [], [32, 8]
        ),
        A_FILL=gl.BlockedLayout([1, 4], [32, 1], [warps, 1], [1, 0]),
    )  # fmt: skip
    return True
