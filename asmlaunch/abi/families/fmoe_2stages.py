"""fmoe_2stages: gate/up GEMM and activation of a mixture-of-experts layer; the down GEMM is another kernel's.

Rows come in blocks of the tile's rows, sorted by expert. The result is in the order of tokens and slots; rows without
an expert are left as they were. With K split it is the raw f32 sums, gate then up, accumulated with atomics, and has to
hold zeros. Blockscale kernels write FP8 codes, and their scales behind the last token's. Weights are shuffled (16, 16).

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from typing import Any

from asmlaunch.abi.families.base import (
    Family,
    Known,
    Require,
    Variant,
    ceil_div,
    num,
    ptr,
    rows_nbytes,
    slots,
)
from asmlaunch.abi.schema import Symbol, extent

#: Columns that share a scale in blockscale kernels, of X, of the weights and of the output.
GROUP = 128

_8BIT = ("int8", "uint8", "float8_e4m3fn", "float8_e4m3fnuz")
_F32 = ("float32",)

#: Bytes that offsets reach.
_REACH = (1 << 32) - 1
_WHY = "offsets have 32 bits"


def _output_nbytes(p: Any) -> int:
    if p.get("form") == "blockscale" and not p.splitk:
        return int(p.token_cnt * (p.Os + p.Os // GROUP * 4))
    return rows_nbytes(p.token_cnt, p.Os, (8 if p.splitk else 2) * p.hidden_dim)


def _scales_of_x_nbytes(p: Any) -> int:
    return int(4 * p.token_cnt * (p.dim // GROUP if p.get("form") == "blockscale" else 1))


def _weights_nbytes(p: Any) -> int:
    return int(p.eprt_cnt * p.eGUs)


def _rows_nbytes(p: Any) -> int:
    return int(4 * p.tile_m * p.blocks)


FAMILY = Family(
    name="fmoe_2stages",
    title="mixture-of-experts layer, first stage",
    pattern=r"fmoe_stage1_bf16_pertoken(?P<quant>Fp8|Int8)(_(?P<form>doweight|blockscale))?_g1u1_(?P<tile_m>\d+)x(?P<tile_n>\d+)\w*",
    fields=slots(
        ptr(
            "ptr_O",
            "output",
            "bf16 [tokens, topk, hidden]; fp8 and then f32 [tokens, topk, hidden/128] (blockscale); "
            "f32 [tokens, topk, 2 * hidden] with K split",
            "O",
            nbytes=_output_nbytes,
        ),
        ptr(
            "ptr_X",
            "activations",
            "8-bit [tokens, dim]",
            "X",
            dtypes=_8BIT,
            nbytes=lambda p: rows_nbytes(p.token_cnt, p.Xs, p.dim),
        ),
        ptr(
            "ptr_GU",
            "gate and up weights, shuffled",
            "8-bit [experts, 2 * hidden, dim]",
            "G",
            dtypes=_8BIT,
            nbytes=_weights_nbytes,
        ),
        ptr("ptr_XC", "rows with the padding of whole blocks, and tokens", "i32 [2]", "Xc", nbytes=lambda _: 8),
        ptr(
            "ptr_XQ",
            "scales of the activations",
            "f32 [tokens]; f32 [dim/128, tokens] (blockscale)",
            meta="XQ",
            dtypes=_F32,
            nbytes=_scales_of_x_nbytes,
        ),
        ptr(
            "ptr_GUQ",
            "scales of gate and up",
            "f32 [experts, 2 * hidden]; f32 [experts, hidden/64, dim/128] (blockscale)",
            meta="GQ",
            dtypes=_F32,
        ),
        ptr("ptr_SMQ", "loaded, not used", live=False, meta="SMQ"),
        ptr(
            "ptr_STP",
            "sorted tokens: slot << 24 | token",
            "i32 [blocks * tile rows]",
            "STP",
            nbytes=_rows_nbytes,
        ),
        ptr("ptr_SEP", "expert of each block", "i32 [blocks]", "SEP", nbytes=lambda p: 4 * p.blocks),
        num("dim", "model size", "elements"),
        num("hidden_dim", "size of the intermediate", "elements", "hdim"),
        num("token_cnt", "tokens", "rows", "batch"),
        num("eprt_cnt", "experts; not used, but for checks of sizes", live=False, meta="eprt"),
        num("Xs", "row stride of X", "bytes"),
        num("GUs", "row stride of gate and up", "bytes"),
        num("Os", "row stride of the output", "bytes"),
        num("eGUs", "bytes of gate and up per expert", "bytes"),
        num("eGUQs", "bytes of their scales per expert", "bytes"),
        num("eSMQs", "loaded, not used", live=False),
        num("topk", "loaded, not used", live=False),
        num("splitk", "log2 of the splits of K", default=0),
        num("activation", "0 silu, 1 gelu; not used with K split", default=0),
        ptr("ptr_SW", "sorted weights", "f32", "SW", live=False),
        num("total_tgs", "never loaded", live=False),
        num("ps_deno", "never loaded", live=False),
    ),
    variants=(
        Variant(
            "doweight",
            {"ptr_SW": {"live": True, "default": None, "layout": "f32 [blocks * tile rows]", "nbytes": _rows_nbytes}},
        ),
    ),
    known=(Known("ptr_SW", "the metadata calls this pointer a 4-byte number; kernels that use it load 8 bytes"),),
    symbols=(Symbol("blocks", "blocks of sorted rows", derive=(extent("SEP", 0),)),),
    grid=lambda p: (ceil_div(p.hidden_dim, p.tile_n), p.blocks, 1 << p.splitk),
    zero=lambda p: ("ptr_O",) if p.splitk else (),
    requires=(
        Require(
            "hidden_dim",
            lambda p: p.hidden_dim > 0 and p.hidden_dim % p.tile_n == 0,
            "a multiple of the tile's columns",
        ),
        Require("splitk", lambda p: 0 <= p.splitk < 16, "0 to 15"),
        Require(
            "dim",
            lambda p: p.dim > 0 and p.dim % (GROUP << p.splitk) == 0,
            "a multiple of 128 for each split",
        ),
        Require(
            "GUs",
            lambda p: p.GUs == p.dim,
            "dim: K is split by it",
            when=lambda p: p.splitk > 0,
        ),
        Require(
            "Os",
            lambda p: p.Os % GROUP == 0,
            "a multiple of 128: each token's scales are Os / 32 bytes",
            when=lambda p: p.get("form") == "blockscale" and not p.splitk,
        ),
        Require("eGUs", lambda p: _weights_nbytes(p) <= _REACH, "less than 4 GiB for all experts: " + _WHY),
        Require("Xs", lambda p: p.token_cnt * p.Xs <= _REACH, "less than 4 GiB for all tokens: " + _WHY),
        Require("Os", lambda p: _output_nbytes(p) <= _REACH, "less than 4 GiB for all tokens: " + _WHY),
    ),
)
