"""f8_block_scale: fp8 GEMM with one scale per 128x128 block, bf16 result (gfx950).

The metadata's names are those of a mixture-of-experts template; here the arguments are named for what they hold.

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from asmlaunch.abi.families.base import Family, Known, Require, ceil_div, num, ptr, rows_nbytes, slots
from asmlaunch.abi.schema import Field, extent, stride

_FP8 = ("float8_e4m3fn", "uint8", "int8")


def _unused(name: str, meta: str) -> Field:
    return num(name, "not used", live=False, meta=meta)


FAMILY = Family(
    name="fp8_block_scale",
    title="fp8 GEMM with 128x128 block scales, bf16 result",
    pattern=r"f8_block_scale_mi350_x(?P<tile_m>\d+)",
    fields=slots(
        ptr(
            "ptr_D",
            "output",
            "bf16 [M, N], rows stride_D bytes apart",
            "O",
            dtypes=("bfloat16", "uint16", "int16"),
            nbytes=lambda p: rows_nbytes(p.M, p.stride_D, 2 * p.N),
        ),
        ptr(
            "ptr_A",
            "left operand",
            "fp8 e4m3 [M, K]",
            "X",
            dtypes=_FP8,
            nbytes=lambda p: rows_nbytes(p.M, p.stride_A, p.K),
        ),
        ptr(
            "ptr_B",
            "right operand",
            "fp8 e4m3 [N, K] shuffled (16, 16)",
            "G",
            dtypes=_FP8,
            nbytes=lambda p: p.N * p.stride_B,
        ),
        ptr("ptr_XC", "not used", meta="Xc", live=False),
        ptr(
            "ptr_ScaleA",
            "scale of A",
            "f32 [K/128, M]",
            "XQ",
            dtypes=("float32",),
            nbytes=lambda p: p.K // 128 * p.M * 4,
        ),
        ptr(
            "ptr_ScaleB",
            "scale of B",
            "f32 [N/128, K/128]",
            "GQ",
            dtypes=("float32",),
            nbytes=lambda p: p.N // 128 * (p.K // 128) * 4,
        ),
        ptr("ptr_SMQ", "not used", meta="SMQ", live=False),
        ptr("ptr_STP", "not used", meta="STP", live=False),
        ptr("ptr_SEP", "not used", meta="SEP", live=False),
        num("K", "columns of A and B", "elements", "dim", derive=(extent("A", 1), extent("B", 1))),
        num("N", "rows of B, columns of D", "rows", "hdim", derive=(extent("B", 0),)),
        num("M", "rows of A and D", "rows", "batch", derive=(extent("A", 0),)),
        _unused("eprt_cnt", "eprt"),
        num("stride_A", "row stride of A", "bytes", "Xs", derive=(stride("A", 0),)),
        num("stride_B", "row stride of B", "bytes", "GUs", derive=(stride("B", 0),)),
        num("stride_D", "row stride of D", "bytes", "Os", derive=(stride("D", 0),)),
        _unused("eGUs", "eGUs"),
        _unused("eGUQs", "eGUQs"),
        _unused("eSMQs", "eSMQs"),
        _unused("topk", "topk"),
        num("splitk", "log2 of the splits of K", "", "splitk", default=0),
        _unused("activation", "activation"),
        ptr("ptr_tmp", "not used", meta="SW", live=False),
    ),
    known=(Known("ptr_tmp", "the metadata has 4 bytes here, launchers pass a pointer; the code loads neither"),),
    grid=lambda p: (ceil_div(p.N, 256), ceil_div(p.M, p.tile_m), 1),
    requires=(
        Require("M", lambda p: p.M > 0, "at least 1"),
        Require("N", lambda p: p.N > 0 and p.N % 256 == 0, "a multiple of 256: a workgroup writes 256 columns"),
        Require("K", lambda p: p.K > 0 and p.K % 128 == 0, "a multiple of 128"),
        Require("splitk", lambda p: p.splitk == 0, "0: with splits these kernels write to wrong addresses"),
    ),
)
