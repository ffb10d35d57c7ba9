"""f4gemm: MXFP4 GEMM for gfx950, ``D[M, N] = alpha * A[M, K] x B[N, K]^T`` with a bf16 result.

Source: the objects' metadata for offsets; which arguments matter, and the domain, by executing the objects' machine
code against a float64 reference and changing one argument at a time.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from asmlaunch.abi.families.base import Dim3, Family, Require, Variant, ceil_div, round_up, rows_nbytes
from asmlaunch.abi.schema import Field, extent, stride

#: Kernels that do not mask columns: with N % tile_n != 0 the last tile stores into the next row.
_NO_COLUMN_MASK = {
    "noBpreShuffle": {(256, 256)},
    "BpreShuffle": {(256, 256), (192, 256), (224, 256), (128, 512)},
}

_FP4 = ("uint8", "int8", "float4_e2m1fn_x2")
_E8M0 = ("uint8", "float8_e8m0fnu")
_BF16 = ("bfloat16", "uint16", "int16")
_BF16_ELEMENTS = Fraction(1, 2)


def _masks_rows(p: Any) -> bool:
    return bool(p.shuffle == "BpreShuffle")


def _d_nbytes(p: Any) -> int:
    rows = p.M if _masks_rows(p) else round_up(p.M, p.tile_m)
    return rows_nbytes(rows, 2 * p.stride_C0, 2 * p.N)


def _pointer(name: str, offset: int, role: str, live: bool = True, **more: Any) -> Field:
    return Field(f"ptr_{name}", offset, "pointer", role=role, live=live, aliases=(name,), **more)


def _number(name: str, offset: int, unit: str, role: str, **more: Any) -> Field:
    return Field(name, offset, "u32", unit=unit, role=role, live=True, **more)


def _unused(name: str, offset: int) -> Field:
    return Field(name, offset, "u32", unit="elements", role="never loaded", live=False, default=0)


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
    fields=(
        _pointer("D", 0x00, "output", dtypes=_BF16, layout="bf16 [M, N], rows stride_C0 apart", nbytes=_d_nbytes),
        _pointer("C", 0x10, "loaded, not used", live=False, default=0),
        _pointer(
            "A",
            0x20,
            "left operand",
            dtypes=_FP4,
            layout="fp4 [M, K], two elements a byte, low nibble first",
            nbytes=lambda p: rows_nbytes(p.M, p.stride_A0 // 2, p.K // 2),
        ),
        _pointer(
            "B",
            0x30,
            "right operand",
            dtypes=_FP4,
            layout="fp4 [N, K], two elements a byte; BpreShuffle kernels take it shuffled (16, 16)",
            nbytes=lambda p: rows_nbytes(p.N, p.stride_B0 // 2, p.K // 2),
        ),
        Field("alpha", 0x40, "f32", role="factor of the product", live=False, default=1.0),
        Field("beta", 0x50, "f32", role="loaded, not used", live=False, default=0.0),
        _unused("stride_D0", 0x60),
        _unused("stride_D1", 0x70),
        _number("stride_C0", 0x80, "elements", "row stride of D", derive=(stride("D", 0, _BF16_ELEMENTS),)),
        _unused("stride_C1", 0x90),
        _number("stride_A0", 0xA0, "elements", "row stride of A", derive=(stride("A", 0, 2),)),
        _unused("stride_A1", 0xB0),
        _number("stride_B0", 0xC0, "elements", "row stride of B", derive=(stride("B", 0, 2),)),
        _unused("stride_B1", 0xD0),
        _number("M", 0xE0, "rows", "rows of A and D", metadata_name="Mdim", derive=(extent("A", 0),)),
        _number("N", 0xF0, "rows", "rows of B, columns of D", metadata_name="Ndim", derive=(extent("B", 0),)),
        _number(
            "K",
            0x100,
            "elements",
            "columns of A and B",
            metadata_name="Kdim",
            derive=(extent("A", 1, 2), extent("B", 1, 2)),
        ),
        _pointer(
            "ScaleA",
            0x110,
            "scale of A",
            dtypes=_E8M0,
            layout="e8m0, one per 32 elements, tiled 32x8; rows padded to 32, columns to 8",
            nbytes=lambda p: round_up(p.M, 32) * p.stride_ScaleA0,
        ),
        _pointer(
            "ScaleB",
            0x120,
            "scale of B",
            dtypes=_E8M0,
            layout="e8m0, one per 32 elements, tiled 32x8; rows padded to 32, columns to 8",
            nbytes=lambda p: round_up(p.N, 32) * p.stride_ScaleB0,
        ),
        _number("stride_ScaleA0", 0x130, "bytes", "row stride of ScaleA", derive=(stride("ScaleA", 0),)),
        _unused("stride_ScaleA1", 0x140),
        _number("stride_ScaleB0", 0x150, "bytes", "row stride of ScaleB", derive=(stride("ScaleB", 0),)),
        _unused("stride_ScaleB1", 0x160),
        Field("log2_k_split", 0x170, "i32", role="log2 of the splits of K", live=False, default=0),
    ),
    variants=(
        Variant(r"_BpreShuffle_(256x256|128x512)", {"alpha": {"live": True}, "log2_k_split": {"live": True}}),
        Variant(r"_noBpreShuffle_256x256", {"alpha": {"live": True}}),
    ),
    grid=_grid,
    zero=lambda p: ("ptr_D",) if p.log2_k_split else (),
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
            lambda p: p.stride_ScaleA0 >= round_up(p.K // 32, 8),
            "at least K/32 rounded up to 8 (in bytes)",
            hint="pad the scales' columns with 0x00 (layouts.pad_scales)",
        ),
        Require(
            "stride_ScaleB0",
            lambda p: p.stride_ScaleB0 >= round_up(p.K // 32, 8),
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
            when=lambda p: not (_splits_k(p) or not _masks_rows(p)),
        ),
        Require("beta", lambda p: p.beta == 0, "0: beta and C have no effect in these kernels"),
        Require("ptr_C", lambda p: not p.ptr_C, "null: beta and C have no effect in these kernels"),
    ),
)


def _whole_tiles(p: Any) -> bool:
    return (p.tile_m, p.tile_n) in _NO_COLUMN_MASK[p.shuffle]


def _splits_k(p: Any) -> bool:
    return p.shuffle == "BpreShuffle" and (p.tile_m, p.tile_n) in {(256, 256), (128, 512)}
