"""bf16gemm: ``D[M, N] (f32) = A[M, K] x B[N, K]^T`` with bf16 operands (gfx942, gfx950).

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from asmlaunch.abi.families.base import Family, Require, ceil_div, f32, num, ptr, rows_nbytes, slots
from asmlaunch.abi.schema import Field, extent, stride

_BF16 = ("bfloat16", "uint16", "int16")


def _unused(name: str, instead: str = "") -> Field:
    return num(name, "never loaded", "bytes", live=False, meta=name.replace("_", ""), instead=instead)


def _row_stride(name: str, array: str) -> Field:
    return num(name, f"row stride of {array}", "bytes", name.replace("_", ""), derive=(stride(array, 0),))


FAMILY = Family(
    name="bf16gemm",
    title="bf16 GEMM with an f32 result",
    pattern=r"bf16gemm_outf32_tn_(?P<tile_m>\d+)x(?P<tile_n>\d+)_pf\d+",
    fields=slots(
        ptr(
            "ptr_D",
            "output",
            "f32 [M, N], rows stride_C0 apart",
            "D",
            dtypes=("float32",),
            nbytes=lambda p: rows_nbytes(p.M, p.stride_C0, 4 * p.N),
        ),
        ptr("ptr_C", "loaded, not used", meta="C", live=False),
        ptr(
            "ptr_A",
            "left operand",
            "bf16 [M, K]",
            "A",
            dtypes=_BF16,
            nbytes=lambda p: rows_nbytes(p.M, p.stride_A0, 2 * p.K),
        ),
        ptr(
            "ptr_B",
            "right operand",
            "bf16 [N, K]",
            "B",
            dtypes=_BF16,
            nbytes=lambda p: rows_nbytes(p.N, p.stride_B0, 2 * p.K),
        ),
        f32("alpha", "loaded, not used", live=False, default=1.0),
        f32("beta", "loaded, not used", live=False),
        _unused("stride_D0", instead="stride_C0, which is D's row stride too"),
        _unused("stride_D1"),
        _row_stride("stride_C0", "D"),
        _unused("stride_C1"),
        _row_stride("stride_A0", "A"),
        _unused("stride_A1"),
        _row_stride("stride_B0", "B"),
        _unused("stride_B1"),
        num("M", "rows of A and D", "rows", "Mdim", derive=(extent("A", 0),)),
        num("N", "rows of B, columns of D", "rows", "Ndim", derive=(extent("B", 0),)),
        num("K", "columns of A and B", "elements", "Kdim", derive=(extent("A", 1), extent("B", 1))),
        num("splitk", "splits of K; 0 means 1", default=0),
    ),
    grid=lambda p: (ceil_div(p.N, p.tile_n), ceil_div(p.M, p.tile_m), max(p.splitk, 1)),
    zero=lambda p: ("ptr_D",) if p.splitk > 1 else (),
    requires=(
        Require("M", lambda p: p.M > 0, "at least 1"),
        Require("N", lambda p: p.N > 0 and p.N % 64 == 0, "a multiple of 64: columns are not masked"),
        Require("K", lambda p: p.K > 0 and p.K % 64 == 0, "a multiple of 64"),
        Require("splitk", lambda p: p.splitk <= p.K // 64, "at most K / 64"),
        Require("stride_C0", lambda p: p.M * p.stride_C0 < 1 << 32, "M * stride_C0 below 2^32 bytes"),
        Require("stride_A0", lambda p: p.M * p.stride_A0 < 1 << 32, "M * stride_A0 below 2^32 bytes"),
        Require("stride_B0", lambda p: p.N * p.stride_B0 < 1 << 32, "N * stride_B0 below 2^32 bytes"),
        Require("alpha", lambda p: p.alpha == 1, "1: alpha has no effect in these kernels"),
        Require("beta", lambda p: p.beta == 0, "0: beta and C have no effect in these kernels"),
        Require("ptr_C", lambda p: p.ptr_C == 0, "null: beta and C have no effect in these kernels"),
    ),
)
