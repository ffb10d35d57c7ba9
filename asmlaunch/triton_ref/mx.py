"""Products of MX matrices: which kernels run, with which operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from asmlaunch.errors import ArgumentError, LayoutError
from asmlaunch.triton_ref import _jit_mx, dense, few_rows, workspace
from asmlaunch.triton_ref.hardware import Hardware, hardware_of
from asmlaunch.triton_ref.places import Placed, parse, placed, plain

BLOCK = 32
SCHEDULES = ("direct", "exact", "dequantise", "skinny", "blocks")

FORMATS = {
    torch.uint8: "e2m1",
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.bfloat16: "bf16",
}
"""The element formats by the torch type that holds them; a byte holds two E2M1."""

# Magnitudes of the elements that are not zero: at least 2^first, below 2^second (OCP Microscaling Formats, table 1).
_LIMITS = {"e2m1": (-1, 3), "e4m3": (-9, 9), "e5m2": (-16, 16), "bf16": None}
_NO_PLACE = Placed((0, 0, 1), (0,), (0, 0))
_DEQUANTISE_BLOCKS = 32
_REPAIR_TILES = 128, 256
_WIDE_FROM = 2**31
_BLOCKS_ROWS = 128


@dataclass(frozen=True)
class Operand:
    """A matrix ``[rows, K]`` and its scales, checked.

    Attributes:
        values, scales: the memory, FP8 and FP4 as bytes; scales are None for bfloat16.
        format: a value of :data:`FORMATS`.
        rows, k: logical size, K in elements.
        values_at, scales_at: where the elements are.
    """

    values: torch.Tensor
    scales: torch.Tensor | None
    format: str
    rows: int
    k: int
    values_at: Placed
    scales_at: Placed


def operand(
    name: str,
    values: torch.Tensor,
    scales: torch.Tensor | None,
    layout: str,
    scale_layout: str,
    *,
    rows: int | None = None,
) -> Operand:
    """Check one operand.

    Args:
        name: ``a`` or ``b``, for messages.
        values, scales: as for :func:`asmlaunch.triton_ref.gemm_a4w4`.
        layout, scale_layout: descriptions (``places.describe``), "" for logical order.
        rows: how many rows are not padding of the layout; all where it is left out.

    Raises:
        LayoutError: types or shapes that do not belong together.
    """
    if values.dim() != 2 or values.dtype not in FORMATS:
        got = f"{values.dtype} of shape {tuple(values.shape)}"
        raise LayoutError(
            f"operand {name}", got=got, need="a matrix of FP4 bytes (uint8), float8_e4m3fn, float8_e5m2 or bfloat16"
        )
    kind = FORMATS[values.dtype]
    rows = values.shape[0] if rows is None else rows
    k = values.shape[1] * (2 if kind == "e2m1" else 1)
    there = parse(layout)
    values_at = plain(values.shape, values.stride()) if there is None else placed(there, values.shape)
    _need_contiguous(f"operand {name}", values, layout)
    if kind == "bf16":
        if scales is not None:
            raise LayoutError(f"scales of {name}", got="a tensor", need="None: bfloat16 has no scales")
        return Operand(values, None, kind, rows, k, values_at, _NO_PLACE)
    if scales is None:
        raise LayoutError(f"scales of {name}", got="None", need=f"E8M0 bytes, one a {BLOCK} elements of K")
    if scales.dim() != 2 or scales.element_size() != 1:
        got = f"{scales.dtype} of shape {tuple(scales.shape)}"
        raise LayoutError(f"scales of {name}", got=got, need="a matrix of E8M0 bytes")
    scale_there = parse(scale_layout)
    need = (rows, -(-k // BLOCK))
    shape = tuple(scales.shape)
    if scale_there is None:
        right, wanted = shape == need, f"{need}"
        scales_at = plain(scales.shape, scales.stride())
    else:
        wanted = f"at least {need} in whole tiles of layout {scale_layout.split(';')[0]!r}"
        scales_at = placed(scale_there, shape)
        padded = scale_there.padded_shape(need)
        right = shape[0] >= padded[0] and shape[1] >= padded[1]
    _need_contiguous(f"scales of {name}", scales, scale_layout)
    if not right:
        hint = "K counts elements, two an FP4 byte" if kind == "e2m1" and shape[-1] == -(-k // 2 // BLOCK) else None
        raise LayoutError(f"scales of {name}", got=shape, need=f"{wanted} for {rows} rows and K={k}", hint=hint)
    return Operand(values.view(torch.uint8), scales.view(torch.uint8), kind, rows, k, values_at, scales_at)


def _need_contiguous(what: str, tensor: torch.Tensor, layout: str) -> None:
    if layout and not tensor.is_contiguous():
        raise LayoutError(f"{what} in a layout", got=f"strides {tensor.stride()}", need="contiguous memory")


def check(a: Operand, b: Operand) -> None:
    """Check that two operands can be multiplied.

    Raises:
        LayoutError: another K, or two bfloat16 matrices, or different devices.
    """
    if a.k != b.k:
        hint = "K counts elements, two an FP4 byte" if a.k in (2 * b.k, b.k // 2) else None
        raise LayoutError("K of operands a and b", got=f"{a.k} and {b.k}", need="the same", hint=hint)
    if a.format == "bf16" and b.format == "bf16":
        raise LayoutError("operands a and b", got="two of bfloat16", need="one with scales", hint="use matmul")
    if b.format == "bf16":
        raise LayoutError("operand b", got="bfloat16", need="FP4 or FP8 with scales", hint="swap the operands")
    devices = {str(t.device) for o in (a, b) for t in (o.values, o.scales) if t is not None}
    if len(devices) > 1:
        raise LayoutError("operands and scales", got=f"devices {', '.join(sorted(devices))}", need="one device")


def run(
    a: Operand,
    b: Operand,
    out: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: torch.Tensor | None = None,
    schedule: str = "auto",
    split_k: int = 1,
) -> str:
    """``out = alpha * a x b^T + beta * c + bias`` of checked operands.

    Returns:
        The schedule that ran.

    Raises:
        ArgumentError: the schedule ``blocks``, for what it does not take.
    """
    if not out.numel():
        return "none"
    hardware = hardware_of(out.device)
    schedule = choose(a, b, hardware, split_k) if schedule == "auto" else schedule
    problem = Problem(a, b, out, bias, alpha, beta, c)
    if schedule == "dequantise":
        dequantised(problem)
    elif schedule == "skinny":
        skinny(problem)
    elif schedule == "blocks":
        if not few_rows.fits(a, b, hardware):
            need = "MXFP4 in logical order and aligned, K a multiple of 128, a Hopper GPU, Triton 3.6 or later"
            raise ArgumentError("schedule blocks", got=f"{a.format} by {b.format}, K={a.k}, {hardware.name}", need=need)
        few_rows.launch(problem)
    else:
        _direct(problem, exact=schedule == "exact", split_k=split_k)
    return schedule


def skinny_fits(a: Operand, b: Operand) -> bool:
    """Whether the kernel for few rows takes these: MXFP4 both, at most 16 rows, rows in memory one after the other."""
    return (
        a.format == b.format == "e2m1"
        and a.rows <= 16
        and b.values_at.axes == plain((1, 1), (1, 1)).axes
        and b.values.stride(1) == 1
        and b.k % BLOCK == 0
        and b.k > 0
        and max(b.values_at.reach, a.values_at.reach) < _WIDE_FROM
    )


def choose(a: Operand, b: Operand, hardware: Hardware, split_k: int = 1) -> str:
    """The schedule for a problem: few rows are a matter of reading B once; large ones are worth a pass to bfloat16."""
    if split_k > 1:
        return "direct"
    # More rows than that are worth the pass to bfloat16.
    if a.rows <= _BLOCKS_ROWS and few_rows.fits(a, b, hardware):
        return "blocks"
    if skinny_fits(a, b):
        return "skinny"
    return "direct" if a.rows * b.rows < 64 * 64 or a.k == 0 else "dequantise"


@dataclass(frozen=True)
class Problem:
    """``out = alpha * a x b^T + beta * c + bias`` of checked operands, and what launches make of it."""

    a: Operand
    b: Operand
    out: torch.Tensor
    bias: torch.Tensor | None
    alpha: float
    beta: float
    c: torch.Tensor | None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """a, b, their scales: the output stands for what is not there."""
        a, b, out = self.a, self.b, self.out
        return a.values, b.values, out if a.scales is None else a.scales, out if b.scales is None else b.scales

    @property
    def epilogue(self) -> tuple[torch.Tensor, ...]:
        """c, bias, out."""
        return (
            self.out if self.c is None else self.c,
            self.out if self.bias is None else self.bias,
            self.out,
        )

    @property
    def wide(self) -> bool:
        """Whether addresses need 64 bits."""
        a, b = self.a, self.b
        return max(p.reach for p in (a.values_at, b.values_at, a.scales_at, b.scales_at)) >= _WIDE_FROM

    @property
    def strides(self) -> tuple[Any, ...]:
        """Of a, b, their scales."""
        a, b = self.a, self.b
        return a.values_at.strides, b.values_at.strides, a.scales_at.strides, b.scales_at.strides

    @property
    def output_strides(self) -> tuple[Any, ...]:
        """Of out and c."""
        return self.out.stride(), (0, 0) if self.c is None else self.c.stride()

    @property
    def constants(self) -> dict[str, Any]:
        """What all kernels are specialised on."""
        a, b = self.a, self.b
        return {
            "A_AT": a.values_at.axes,
            "B_AT": b.values_at.axes,
            "A_SCALE_AT": a.scales_at.axes,
            "B_SCALE_AT": b.scales_at.axes,
            "FORMAT_A": a.format,
            "FORMAT_B": b.format,
            "WIDE": self.wide,
        }

    @property
    def epilogue_constants(self) -> dict[str, Any]:
        """Further constants of kernels that store the result."""
        return {"HAS_C": self.c is not None, "HAS_BIAS": self.bias is not None}

    @property
    def limits(self) -> dict[str, Any]:
        """Further constants of kernels that decide between the two ways of adding."""
        return {"LIMITS_A": _LIMITS[self.a.format], "LIMITS_B": _LIMITS[self.b.format]}


def _direct(problem: Problem, *, exact: bool, split_k: int) -> None:
    """The kernel that reads everything through the layouts, a tile a program."""
    m, n, k = problem.a.rows, problem.b.rows, problem.a.k
    block_m = 16 if m <= 16 or exact else 32 if m <= 32 else 64
    block_n = 16 if exact else 32 if n <= 32 else 64
    block_k = 32 if exact else 64
    tiles = -(-m // block_m) * -(-n // block_n)
    k_part = max(-(-k // max(split_k, 1) // block_k) * block_k, block_k)
    if k_part * split_k < k:
        k_part += block_k
    parts = max(-(-k // k_part), 1) if not exact else 1
    blocks = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": 4}

    def product(partials: Any) -> None:
        _jit_mx.product[(tiles, parts)](
            *problem.tensors, *problem.epilogue, partials, m, n, k, k_part, problem.alpha, problem.beta,
            problem.strides, *problem.output_strides, BLOCK_K=block_k, PARTS=parts, EXACT=exact, num_stages=2,
            **blocks, **problem.constants, **problem.epilogue_constants, **problem.limits,
        )  # fmt: skip

    if parts == 1:
        product(problem.out)
        return
    with workspace.use(problem.out.device) as scratch:
        partials = scratch.get("partials", tiles * parts * (block_m * block_n + 4), torch.float32)
        product(partials)
        _jit_mx.reduce[(tiles,)](
            *problem.tensors, *problem.epilogue, partials, m, n, k, problem.alpha, problem.beta, problem.strides,
            *problem.output_strides, PARTS=parts, **blocks, **problem.constants, **problem.epilogue_constants,
            **problem.limits,
        )  # fmt: skip


def dequantised(problem: Problem, *, only: str | None = None) -> None:
    """One pass to bfloat16, a dense product, and a look at whether any tile has to be computed the exact way.

    ``only``: "dequantise", "product" or "repair" alone, to be timed; the result is then not right.
    """
    a, b, out = problem.a, problem.b, problem.out
    m, n, k = a.rows, b.rows, a.k
    k_out = -(-k // 8) * 8  # rows of 16 bytes, which descriptors need
    hardware = hardware_of(out.device)
    # Two rows at a time are four bytes a thread of eight warps; the interpreter is quicker with few programs.
    rows, blocks = 16 if hardware.name == "interpreter" else hardware.warp // 8, _DEQUANTISE_BLOCKS
    across = -(-k // (BLOCK * blocks))
    tiles_a = -(-m // rows) * across if a.format != "bf16" else 0
    tiles_b = -(-n // rows) * across
    extra = {"ROWS": rows, "BLOCKS": blocks}
    with workspace.use(out.device) as scratch:
        ranges = scratch.get("ranges", 2 * (tiles_a + tiles_b), torch.int32)
        left = a.values if a.format == "bf16" else scratch.get("left", m * k_out, torch.bfloat16).view(m, k_out)
        right = scratch.get("right", n * k_out, torch.bfloat16).view(n, k_out)
        if only in (None, "dequantise"):
            _jit_mx.dequantise[(tiles_a + tiles_b,)](
                *problem.tensors, left, right, ranges, tiles_a, m, n, k, k_out, problem.strides, num_warps=8,
                NVIDIA=_has_asm(hardware), **extra, **problem.constants,
            )  # fmt: skip
        addend, beta = problem.c, problem.beta
        if problem.bias is not None and problem.c is None:
            addend, beta = problem.bias.expand(m, n), 1.0
        elif problem.bias is not None and problem.c is not None:
            addend, beta = torch.add(problem.bias.float(), problem.c.float(), alpha=problem.beta), 1.0
        if only in (None, "product"):
            dense.launch(left[:, :k], right[:, :k].T, out, c=addend, alpha=problem.alpha, beta=beta)
        # A look takes longer to start than to do: large results get few programs.
        tile = _REPAIR_TILES[min(m, n) >= 2048]
        if only not in (None, "repair"):
            return
        _jit_mx.repair[(-(-m // tile) * -(-n // tile),)](
            *problem.tensors, *problem.epilogue, ranges, tiles_a, m, n, k, problem.alpha, problem.beta,
            problem.strides, *problem.output_strides, BLOCK_M=tile, BLOCK_N=tile, num_warps=4, **extra,
            **problem.constants, **problem.epilogue_constants, **problem.limits,
        )  # fmt: skip


def _has_asm(hardware: Hardware) -> bool:
    """Whether the processor has the kernels' PTX: products of bfloat16 pairs."""
    return hardware.name == "sm90"


def skinny(problem: Problem, tile: tuple[int, int, int, int, int] | None = None) -> None:
    """The kernel for few rows of A; ``tile``: columns, elements of K a step, warps, stages, programs a processor."""
    a, b, out = problem.a, problem.b, problem.out
    m, n, k = a.rows, b.rows, a.k
    hardware = hardware_of(out.device)
    block_n, block_k, warps, stages, resident = tile or ((128, 256, 8, 3, 2) if n >= 4096 else (64, 256, 4, 4, 1))
    tiles = -(-n // block_n)
    # Parts of K until the processor is full, of at least two steps.
    parts = max(1, min(resident * hardware.units // tiles, k // (2 * block_k), 16))
    k_part = -(-k // (parts * block_k)) * block_k
    parts = -(-k // k_part)

    # The exact way, hardly ever taken, would ask for more registers than leave room for so many programs.
    limit = (
        {"maxnreg": min(255, hardware.registers // (resident * warps * hardware.warp) // 8 * 8)}
        if _has_asm(hardware)
        else {}
    )

    def launch(partials: Any, flags: Any) -> None:
        _jit_mx.skinny[(tiles, parts)](
            *problem.tensors, *problem.epilogue, partials, flags, m, n, k, k_part // BLOCK, problem.alpha, problem.beta,
            problem.strides, *problem.output_strides, BLOCK_N=block_n, BLOCK_K=block_k, PARTS=parts,
            NVIDIA=_has_asm(hardware), EVEN=k % block_k == 0, num_warps=warps, num_stages=stages,
            **limit, **problem.constants, **problem.epilogue_constants,
        )  # fmt: skip

    if parts == 1:
        launch(out, out)
        return
    with workspace.use(out.device) as scratch:
        count = (parts - 1) * tiles
        launch(scratch.get("partials", count * block_n * 16, torch.float32), scratch.flags(count))
