"""i8gemm and gemm_a8w8_m128: int8 GEMM with per-row and per-column scales and a bias, bf16 result (gfx942).

``C = (A x B^T) * sa[m] * sb[n] + bias[n]``; B is shuffled (32, 16). Split-K kernels zero the rows themselves and add
with atomics, so all splits of a tile have to be resident together.

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from asmlaunch.abi.families.base import Family, Require, Variant, ceil_div, num, ptr, rows_nbytes, slots
from asmlaunch.abi.schema import Field, extent, stride
from asmlaunch.codeobject import KernelInfo

_I8 = ("int8", "uint8")


def _fields(splits: str) -> tuple[Field, ...]:
    return slots(
        ptr(
            "ptr_c",
            "output",
            "bf16 [M, N], rows ldc bytes apart",
            "C",
            aliases=("C",),
            dtypes=("bfloat16", "uint16", "int16"),
            nbytes=lambda p: rows_nbytes(p.m, p.ldc, 2 * p.n),
        ),
        ptr(
            "ptr_a",
            "left operand",
            "i8 [M, K]",
            "A",
            aliases=("A",),
            dtypes=_I8,
            nbytes=lambda p: rows_nbytes(p.m, p.lda, p.k),
        ),
        ptr(
            "ptr_b",
            "right operand",
            "i8 [N, K] shuffled (32, 16)",
            "B",
            aliases=("B",),
            dtypes=_I8,
            nbytes=lambda p: p.n * p.ldb,
        ),
        ptr(
            "ptr_sa", "scale of A", "f32 [M]", "SA", aliases=("ScaleA",), dtypes=("float32",), nbytes=lambda p: 4 * p.m
        ),
        ptr(
            "ptr_sb", "scale of B", "f32 [N]", "SB", aliases=("ScaleB",), dtypes=("float32",), nbytes=lambda p: 4 * p.n
        ),
        ptr("ptr_bias", "bias; zeros if there is none", "f32 [N]", "BIAS", aliases=("bias",), nbytes=lambda p: 4 * p.n),
        num("m", "rows of A and C", "rows", "M", aliases=("M",), derive=(extent("A", 0),)),
        num("n", "rows of B, columns of C", "rows", "N", aliases=("N",), derive=(extent("B", 0),)),
        num("k", "columns of A and B", "elements", "K", aliases=("K",), derive=(extent("A", 1), extent("B", 1))),
        num("lda", "row stride of A", "bytes", "PA", derive=(stride("A", 0),)),
        num("ldb", "row stride of B", "bytes", "PB", derive=(stride("B", 0),)),
        num("ldc", "row stride of C", "bytes", "PC", derive=(stride("C", 0),)),
        num("ks", splits, "", "KS", aliases=("splitk",)),
    )


_SHAPE = (
    Require("m", lambda p: p.m > 0, "at least 1"),
    Require("n", lambda p: p.n > 0 and p.n % 128 == 0, "a multiple of 128: columns are not masked"),
)

I8GEMM = Family(
    name="i8gemm",
    title="int8 GEMM, per-token scales, bf16 result",
    pattern=r"I8gemm_bf16_perTokenI8_BpreShuffle_(?P<tile_m>\d+)x(?P<tile_n>\d+)",
    fields=_fields("splits of K"),
    variants=(Variant("", {"ks": {"default": 1}}),),
    grid=lambda p: (p.n // p.tile_n * p.ks, ceil_div(p.m, p.tile_m), 1),
    requires=(
        *_SHAPE,
        Require("ks", lambda p: p.ks >= 1, "at least 1: 0 divides by zero and never ends"),
        Require("k", lambda p: p.k > 0 and p.k % 128 == 0, "a multiple of 128"),
        Require(
            "ks", lambda p: (p.ks - 1) * ceil_div(p.k // p.ks, 128) * 128 <= p.k, "few enough that each split has work"
        ),
        Require("lda", lambda p: p.lda >= 260, "at least 260: narrower rows make negative offsets"),
    ),
)

#: Start of the sha256 of the code of the kernel that does not split K; both kernels have one name and one metadata.
_NO_SPLIT = "6184c744a7c76e95"


def _splits(kernel: KernelInfo) -> bool:
    return not hashlib.sha256(kernel.code).hexdigest().startswith(_NO_SPLIT)


def _m128(kernel: KernelInfo, _: Mapping[str, Any]) -> dict[str, Any]:
    return {"splits": _splits(kernel)}


M128 = Family(
    name="gemm_a8w8_m128",
    title="int8 GEMM, 128x128 tile, per-token scales, bf16 result",
    pattern=r"gemm_kernel_func",
    where=lambda kernel: any(argument.name == "BIAS" for argument in kernel.arguments),
    derived=_m128,
    fields=_fields("log2 of the splits of K; only the split-K object loads it"),
    variants=(
        Variant("", {"ks": {"default": 0}, "n": {"live": False}}),
        Variant("", {"ks": {"live": False}}, where=lambda kernel: not _splits(kernel)),
    ),
    grid=lambda p: (p.n // 128 << p.ks, ceil_div(p.m, 128), 1),
    requires=(
        *_SHAPE,
        Require("ks", lambda p: p.splits or p.ks == 0, "0: this object does not split K"),
        Require("k", lambda p: p.k > 0 and p.k % (128 << p.ks) == 0, "a multiple of 128 << ks"),
        Require("lda", lambda p: p.m * p.lda < 1 << 32, "m * lda below 2^32 bytes"),
    ),
)

FAMILIES = (I8GEMM, M128)
