"""fmha_v3_fwd: attention forward in bf16 (gfx942, gfx950), one sequence length for all (batch) or one each (group).

All strides are in bytes, the last dimension is contiguous. The causal mask is aligned to the bottom right.

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asmlaunch.abi.families.base import (
    Dim3,
    Family,
    Require,
    Variant,
    ceil_div,
    f32,
    num,
    ptr,
    slots,
    strided_nbytes,
    words,
)
from asmlaunch.abi.schema import Field, Symbol, extent
from asmlaunch.codeobject import KernelInfo

_BF16 = ("bfloat16", "uint16", "int16")

#: Rows of Q that a workgroup takes at a time.
_TILE_Q = {("gfx942", "128"): 256, ("gfx950", "128"): 256, ("gfx950", "192_hd128"): 128}


def _stride(name: str, meta: str, of: str) -> Field:
    return num(name, f"{of} stride", "bytes", meta)


def _tensor(of: str, head: Callable[[Any], int], rows: str, heads: Callable[[Any], int]) -> Callable[[Any], int]:
    """Bytes of Q, K, V or O in a batch; in groups the rows are in arrays on the device."""

    def nbytes(p: Any) -> int:
        if p.group:
            return 0
        strides = (getattr(p, f"s_{of}{part}") for part in ("Seqs", "Hs", "Bs"))
        return strided_nbytes(2 * head(p), *zip((getattr(p, rows), heads(p), p.batch), strides, strict=True))

    return nbytes


def _lse_nbytes(p: Any) -> int:
    return strided_nbytes(4 * p.s_seq_len, (p.batch * p.s_q_head_num, p.s_lse_Hs)) if p.s_lse and not p.group else 0


def _key_heads(p: Any) -> int:
    return max(p.s_q_head_num // p.s_gqa, 1) if p.s_gqa else 1


def _qk_head(p: Any) -> int:
    return int(p.width)


def _is_legacy(kernel: KernelInfo) -> bool:
    """The gfx942 objects without a rounding mode in the name are an older form with a launch rule of its own."""
    return kernel.target.processor == "gfx942" and not words(kernel) & {"rtne", "rtna", "rtz"}


def _derived(kernel: KernelInfo, stated: Mapping[str, Any]) -> dict[str, Any]:
    parts = words(kernel)
    legacy = _is_legacy(kernel)
    return {
        "group": "group" in parts,
        "causal": "causal" in parts,
        "legacy": legacy,
        "width": 192 if stated["head"] == "192_hd128" else 128,
        "rounding": "toward_zero" if legacy or "rtz" in parts else "half_away" if "rtna" in parts else "nearest",
        "tile_q": _TILE_Q.get((kernel.target.processor, str(stated["head"])), 256),
    }


def _grid(p: Any) -> Dim3:
    tiles = ceil_div(p.max_seqlen_q if p.group else p.s_seq_len, p.tile_q)
    tiles = ceil_div(tiles, 2) if p.causal else tiles
    if p.group and not p.legacy:
        return p.s_q_head_num, p.batch, tiles
    return tiles, p.s_q_head_num, p.batch


_GROUP_DEAD = ("s_seq_len", "s_Bs", "s_k_Bs", "s_kv_seq_len", "s_v_Bs", "s_o_Bs")
_GROUP_ONLY = ("ptr_qseq", "ptr_kseq", "ptr_qseq_padding", "ptr_kseq_padding")

FAMILY = Family(
    name="fmha_v3_fwd",
    title="attention forward, bf16",
    pattern=r"fmha_fwd_hd(?P<head>128|192_hd128)_bf16(_causal)?(_rtn[ae]|_rtz)?(_group)?",
    derived=_derived,
    fields=slots(
        ptr(
            "ptr_o",
            "output",
            "bf16 [B, Hq, Sq, 128] by its strides",
            "R",
            aliases=("o", "O"),
            dtypes=_BF16,
            nbytes=_tensor("o_", lambda _: 128, "s_seq_len", lambda p: p.s_q_head_num),
        ),
        ptr(
            "ptr_q",
            "queries",
            "bf16 [B, Hq, Sq, head] by its strides",
            "Q",
            aliases=("q", "Q"),
            dtypes=_BF16,
            nbytes=_tensor("", _qk_head, "s_seq_len", lambda p: p.s_q_head_num),
        ),
        ptr(
            "ptr_k",
            "keys",
            "bf16 [B, Hk, Sk, head] by its strides",
            "K",
            aliases=("k", "K"),
            dtypes=_BF16,
            nbytes=_tensor("k_", _qk_head, "s_kv_seq_len", _key_heads),
        ),
        ptr(
            "ptr_v",
            "values",
            "bf16 [B, Hk, Sk, 128] by its strides",
            "V",
            aliases=("v", "V"),
            dtypes=_BF16,
            nbytes=_tensor("v_", lambda _: 128, "s_kv_seq_len", _key_heads),
        ),
        ptr(
            "ptr_lse",
            "output: log-sum-exp",
            "f32 [B, Hq, Sq], or [Hq, total] in groups",
            "LSE",
            aliases=("lse", "LSE"),
            default=0,
            nbytes=_lse_nbytes,
        ),
        f32("scalar", "factor of the scores, above 0"),
        num("s_seq_len", "rows of Q", "rows", "seq_len", aliases=("seqlen_q",)),
        _stride("s_Seqs", "Seqs", "Q row"),
        num("s_Ts", "bytes of Q in one tile, tile rows * s_Seqs", "bytes", "Ts"),
        _stride("s_Hs", "Hs", "Q head"),
        _stride("s_Bs", "Bs", "Q batch"),
        num("s_gqa", "query heads per key head", "", "gqa"),
        _stride("s_k_Seqs", "k_Seqs", "K row"),
        _stride("s_k_Hs", "k_Hs", "K head"),
        _stride("s_k_Bs", "k_Bs", "K batch"),
        num(
            "s_opt",
            "order of the tiles: bit 0 reverses every second one, bits 1-2 remap; MI308 objects ignore it",
            "",
            "msk_opt",
            default=0,
        ),
        num("s_lse", "whether to store the log-sum-exp", "", "lse", default=0),
        num("s_kv_seq_len", "rows of K and V", "rows", "kv_seq_len", aliases=("seqlen_k",)),
        num("s_qk_head_dim", "never loaded", live=False, meta="qk_head_dim"),
        num("s_v_head_dim", "never loaded", live=False, meta="v_head_dim"),
        num("s_q_head_num", "query heads", "", "q_head_num", aliases=("nhead_q",)),
        _stride("s_v_Seqs", "v_Seqs", "V row"),
        _stride("s_v_Hs", "v_Hs", "V head"),
        _stride("s_v_Bs", "v_Bs", "V batch"),
        _stride("s_o_Seqs", "r_Seqs", "O row"),
        _stride("s_o_Hs", "r_Hs", "O head"),
        _stride("s_o_Bs", "r_Bs", "O batch"),
        ptr("ptr_qseq", "row counts of Q, cumulative", "i32 [B + 1]", live=False),
        ptr("ptr_kseq", "row counts of K, cumulative", "i32 [B + 1]", live=False),
        num("s_lse_Hs", "log-sum-exp head stride", "bytes", "lse_Hs"),
        ptr("ptr_qseq_padding", "first row of each sequence in Q", "i32 [B + 1]", live=False),
        ptr("ptr_kseq_padding", "first row of each sequence in K", "i32 [B + 1]", live=False),
    ),
    variants=(
        Variant(
            "_group",
            {name: {"live": False, "default": 0} for name in _GROUP_DEAD}
            | {name: {"live": True, "default": None} for name in _GROUP_ONLY},
        ),
        Variant("_group", {"s_q_head_num": {"live": False}}),
        Variant("^(?!.*causal)", {"s_opt": {"live": False}}),
        Variant("", {"s_q_head_num": {"live": False}}, where=_is_legacy),
        Variant("^(?!.*group)", {"s_lse_Hs": {"live": False}}, where=_is_legacy),
    ),
    symbols=(
        Symbol("batch", "sequences", derive=(extent("ptr_qseq", 0, plus=-1),)),
        Symbol("max_seqlen_q", "rows of the longest sequence of Q"),
    ),
    grid=_grid,
    requires=(
        Require("scalar", lambda p: p.scalar > 0, "above 0: every output would be NaN"),
        Require("s_gqa", lambda p: p.s_gqa > 0 and p.s_q_head_num % p.s_gqa == 0, "a divisor of the query heads"),
        Require(
            "s_opt",
            lambda p: p.s_q_head_num % 8 == 0,
            "without bit 2 unless the query heads are a multiple of 8: tiles are lost and others written outside",
            when=lambda p: p.causal and not p.group and (p.s_opt >> 1) & 3 == 2,
        ),
        Require(
            "s_opt",
            lambda p: not p.s_opt & 1,
            "without bit 0: this older causal form is wrong in mirrored tiles",
            when=lambda p: p.legacy and p.causal,
        ),
        Require(
            "s_o_Seqs",
            lambda p: (p.s_o_Seqs, p.s_o_Hs) == (p.s_Seqs, p.s_Hs) and (p.group or p.s_o_Bs == p.s_Bs),
            "the strides of Q: this older form mixes the two",
            when=lambda p: p.legacy,
        ),
        Require(
            "s_Bs",
            lambda p: p.s_Bs == 2 * p.width * p.s_q_head_num * p.s_seq_len,
            "Q packed: this older form finds a batch's log-sum-exp by the batch stride of Q",
            when=lambda p: p.legacy and not p.group and p.s_lse and p.batch > 1,
        ),
        Require(
            "s_lse_Hs",
            lambda p: p.s_lse_Hs == 4 * p.s_seq_len,
            "4 bytes a row: this older form takes the log-sum-exp as packed",
            when=lambda p: p.legacy and not p.group and p.s_lse,
        ),
        Require(
            "s_seq_len",
            lambda p: p.s_seq_len > 0 and p.s_kv_seq_len > 0,
            "at least 1 row of Q and K",
            when=lambda p: not p.group,
        ),
    ),
)
