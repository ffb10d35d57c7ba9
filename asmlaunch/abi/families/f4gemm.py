"""f4gemm: MXFP4 GEMM for gfx950, ``D[M, N] = alpha * A[M, K] x B[N, K]^T`` with a bf16 result.

Source: the objects' metadata for offsets; which arguments matter, and the domain, by executing the objects' machine
code against a float64 reference and changing one argument at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from asmlaunch.abi.families.base import (
    Dim3,
    Family,
    Known,
    Require,
    Variant,
    ceil_div,
    f32,
    num,
    ptr,
    round_up,
    rows_nbytes,
    slots,
)
from asmlaunch.abi.schema import Field, FromShape, extent, stride

#: Kernels that do not mask columns: with N % tile_n != 0 the last tile stores into the next row.
_NO_COLUMN_MASK = {
    "noBpreShuffle": {(256, 256)},
    "BpreShuffle": {(256, 256), (192, 256), (224, 256), (128, 512)},
}

_FP4 = ("uint8", "int8", "float4_e2m1fn_x2")
_E8M0 = ("uint8", "float8_e8m0fnu")
_BF16 = ("bfloat16", "uint16", "int16")
_SCALES = "e8m0, one per 32 elements, tiled 32x8; rows padded to 32, columns to 8"


def _masks_rows(p: Any) -> bool:
    return bool(p.shuffle == "BpreShuffle")


def _d_nbytes(p: Any) -> int:
    rows = p.M if _masks_rows(p) else round_up(p.M, p.tile_m)
    return rows_nbytes(rows, 2 * p.stride_C0, 2 * p.N)


def _unused(name: str, instead: str = "") -> Field:
    return num(name, "never loaded", "elements", live=False, meta=name.replace("_", ""), instead=instead)


def _dim(name: str, role: str, unit: str, *derive: FromShape) -> Field:
    return num(name, role, unit, meta=f"{name}dim", derive=derive)


def _row_stride(name: str, unit: str, array: str, factor: int | Fraction, contiguous: Callable[[Any], int]) -> Field:
    derive = (stride(array, 0, factor),)
    meta = name.replace("_", "")
    return num(name, f"row stride of {array}", unit, meta, derive=derive, contiguous=contiguous)


def _scale_columns(p: Any) -> int:
    return round_up(ceil_div(p.K, 32), 8)


def splits(p: Any) -> int:
    """Workgroups along z: each takes ``round_up(K >> log2_k_split, 256)`` of K."""
    if not p.log2_k_split:
        return 1
    return ceil_div(p.K, round_up(p.K >> p.log2_k_split, 256))


def _grid(p: Any) -> Dim3:
    return ceil_div(p.N, p.tile_n), ceil_div(p.M, p.tile_m), splits(p)


FAMILY = Family(
    name="f4gemm",
    title="MXFP4 GEMM with a bf16 result (gfx950)",
    pattern=r"f4gemm_bf16_per1x32Fp4_(?P<shuffle>(?:no)?BpreShuffle)_(?P<tile_m>\d+)x(?P<tile_n>\d+)",
    size=372,
    fields=slots(
        ptr("ptr_D", "output", "bf16 [M, N], rows stride_C0 apart", "D", dtypes=_BF16, nbytes=_d_nbytes),
        ptr("ptr_C", "loaded, not used", meta="C", live=False),
        ptr(
            "ptr_A",
            "left operand",
            "fp4 [M, K], two elements a byte, low nibble first",
            "A",
            dtypes=_FP4,
            tiling="plain",
            nbytes=lambda p: rows_nbytes(p.M, p.stride_A0 // 2, p.K // 2),
        ),
        ptr(
            "ptr_B",
            "right operand",
            "fp4 [N, K], two elements a byte; BpreShuffle kernels take it shuffled (16, 16)",
            "B",
            dtypes=_FP4,
            tiling="weights_16x16",
            nbytes=lambda p: rows_nbytes(p.N, p.stride_B0 // 2, p.K // 2),
        ),
        f32("alpha", "factor of the product", live=False, default=1.0),
        f32("beta", "loaded, not used", live=False),
        _unused("stride_D0", instead="stride_C0, which is D's row stride too"),
        _unused("stride_D1"),
        _row_stride("stride_C0", "elements", "D", Fraction(1, 2), lambda p: p.N),
        _unused("stride_C1"),
        _row_stride("stride_A0", "elements", "A", 2, lambda p: p.K),
        _unused("stride_A1"),
        _row_stride("stride_B0", "elements", "B", 2, lambda p: p.K),
        _unused("stride_B1"),
        _dim("M", "rows of A and D", "rows", extent("A", 0)),
        _dim("N", "rows of B, columns of D", "rows", extent("B", 0)),
        _dim("K", "columns of A and B", "elements", extent("A", 1, 2), extent("B", 1, 2)),
        ptr(
            "ptr_ScaleA",
            "scale of A",
            _SCALES,
            "ScaleA",
            dtypes=_E8M0,
            tiling="scales_32x8",
            nbytes=lambda p: round_up(p.M, 32) * p.stride_ScaleA0,
        ),
        ptr(
            "ptr_ScaleB",
            "scale of B",
            _SCALES,
            "ScaleB",
            dtypes=_E8M0,
            tiling="scales_32x8",
            nbytes=lambda p: round_up(p.N, 32) * p.stride_ScaleB0,
        ),
        _row_stride("stride_ScaleA0", "bytes", "ScaleA", 1, _scale_columns),
        _unused("stride_ScaleA1"),
        _row_stride("stride_ScaleB0", "bytes", "ScaleB", 1, _scale_columns),
        _unused("stride_ScaleB1"),
        num("log2_k_split", "log2 of the splits of K", type="i32", live=False),
    ),
    variants=(
        Variant(r"_BpreShuffle_(256x256|128x512)", {"alpha": {"live": True}, "log2_k_split": {"live": True}}),
        Variant(r"_noBpreShuffle_", {"ptr_B": {"tiling": "plain"}}),
        Variant(r"_noBpreShuffle_256x256", {"alpha": {"live": True}}),
    ),
    grid=_grid,
    zero=lambda p: ("ptr_D",) if p.log2_k_split else (),
    known=(
        Known(
            "log2_k_split",
            "launchers pass 372 bytes to every kernel, past this one's 368",
            pattern="noBpreShuffle",
        ),
    ),
    requires=(
        Require("M", lambda p: p.M > 0, "at least 1: with no row tile the kernel loops for ever"),
        Require("M", lambda p: p.M < 1 << 31, "less than 2^31"),
        Require("N", lambda p: p.N > 0, "at least 1"),
        Require("K", lambda p: p.K > 0 and p.K % 32 == 0, "a multiple of 32, the block of one scale"),
        Require(
            "N",
            lambda p: p.N % 32 == 0,
            "a multiple of 32: columns are stored 32 at a time",
            when=lambda p: not _whole_tiles(p),
        ),
        Require(
            "N",
            lambda p: p.N % p.tile_n == 0,
            "a multiple of the tile's columns: this kernel does not mask them and would write into the next row",
            hint="choose a kernel with a tile that divides N",
            when=lambda p: _whole_tiles(p),
        ),
        Require("stride_C0", lambda p: p.stride_C0 >= p.N, "at least N (it is D's row stride, in elements)"),
        Require("stride_A0", lambda p: p.stride_A0 >= p.K, "at least K (in fp4 elements)"),
        Require("stride_B0", lambda p: p.stride_B0 >= p.K, "at least K (in fp4 elements)"),
        Require(
            "stride_ScaleA0",
            lambda p: p.stride_ScaleA0 >= _scale_columns(p),
            "at least K/32 rounded up to 8 (in bytes)",
            hint="pad the scales' columns with 0x00 (layouts.pad_scales)",
        ),
        Require(
            "stride_ScaleB0",
            lambda p: p.stride_ScaleB0 >= _scale_columns(p),
            "at least K/32 rounded up to 8 (in bytes)",
            hint="pad the scales' columns with 0x00 (layouts.pad_scales)",
        ),
        Require(
            "stride_C0",
            lambda p: 2 * p.M * p.stride_C0 < 1 << 32,
            "2 * M * stride_C0 below 2^32: this kernel bounds D with 32 bits and would drop rows",
            when=lambda p: (p.shuffle, p.tile_m, p.tile_n) == ("BpreShuffle", 256, 256),
        ),
        Require(
            "log2_k_split",
            lambda p: p.log2_k_split == 0,
            "0: only BpreShuffle_256x256 and BpreShuffle_128x512 split K",
            when=lambda p: not _splits_k(p),
        ),
        Require(
            "log2_k_split",
            lambda p: 0 <= p.log2_k_split < 32 and p.K >> p.log2_k_split > 0,
            "0 or more, with K >> log2_k_split above 0",
        ),
        Require(
            "alpha",
            lambda p: p.alpha == 1,
            "1: this kernel loads alpha and does not use it",
            when=lambda p: not uses_alpha(p.shuffle, p.tile_m, p.tile_n),
        ),
        Require("beta", lambda p: p.beta == 0, "0: beta and C have no effect in these kernels"),
        Require("ptr_C", lambda p: not p.ptr_C, "null: beta and C have no effect in these kernels"),
    ),
)


def masks_columns(shuffle: str, tile_m: int, tile_n: int) -> bool:
    """Whether the kernel of these parameters stores no column past N."""
    return (tile_m, tile_n) not in _NO_COLUMN_MASK[shuffle]


def splits_k(shuffle: str, tile_m: int, tile_n: int) -> bool:
    """Whether the kernel of these parameters can split K."""
    return shuffle == "BpreShuffle" and (tile_m, tile_n) in {(256, 256), (128, 512)}


def uses_alpha(shuffle: str, tile_m: int, tile_n: int) -> bool:
    """Whether the kernel of these parameters multiplies by alpha."""
    return shuffle == "noBpreShuffle" or splits_k(shuffle, tile_m, tile_n)


def _whole_tiles(p: Any) -> bool:
    return not masks_columns(p.shuffle, p.tile_m, p.tile_n)


def _splits_k(p: Any) -> bool:
    return splits_k(p.shuffle, p.tile_m, p.tile_n)
