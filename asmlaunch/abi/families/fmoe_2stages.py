"""fmoe_2stages: gate/up GEMM and activation of a mixture-of-experts layer; the down GEMM is another kernel's.

Rows come in blocks of the tile's rows, sorted by expert. With K split the result is the raw f32 sums, accumulated with
atomics, and has to hold zeros. Weights are shuffled (16, 16).

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from asmlaunch.abi.families.base import Family, Known, Require, Variant, ceil_div, num, ptr, slots
from asmlaunch.abi.schema import Symbol, extent

FAMILY = Family(
    name="fmoe_2stages",
    title="mixture-of-experts layer, first stage",
    pattern=r"fmoe_stage1_bf16_pertoken(?P<quant>Fp8|Int8)(_(?P<form>doweight|blockscale))?_g1u1_(?P<tile_m>\d+)x(?P<tile_n>\d+)\w*",
    fields=slots(
        ptr("ptr_O", "output", "bf16 [tokens, topk, hidden]; f32 with K split; fp8 and scales (blockscale)", "O"),
        ptr("ptr_X", "activations", "8-bit [tokens, dim]", "X"),
        ptr("ptr_GU", "gate and up weights, shuffled", "[experts, 2 * hidden, dim]", "G"),
        ptr("ptr_XC", "rows after padding, and tokens", "i32 [2]", "Xc", nbytes=lambda _: 8),
        ptr("ptr_XQ", "scales of the activations", meta="XQ"),
        ptr("ptr_GUQ", "scales of gate and up", meta="GQ"),
        ptr("ptr_SMQ", "loaded, not used", live=False, meta="SMQ"),
        ptr(
            "ptr_STP",
            "sorted tokens: slot << 24 | token",
            "i32 [blocks * tile rows]",
            "STP",
            nbytes=lambda p: 4 * p.tile_m * p.blocks,
        ),
        ptr("ptr_SEP", "expert of each block", "i32", "SEP"),
        num("dim", "model size", "elements"),
        num("hidden_dim", "size of the intermediate", "elements", "hdim"),
        num("token_cnt", "tokens", "rows", "batch"),
        num("eprt_cnt", "not used", live=False, meta="eprt"),
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
    variants=(Variant("doweight", {"ptr_SW": {"live": True, "default": None}}),),
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
        Require("dim", lambda p: p.dim > 0 and (p.dim >> p.splitk) % 128 == 0, "a multiple of 128 for each split"),
    ),
)
