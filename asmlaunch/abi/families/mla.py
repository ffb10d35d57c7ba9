"""mla: multi-head latent attention decode and prefill over a latent cache of 576 elements a token (gfx942, gfx950).

The metadata of most objects reuses the names of paged attention for other things, so only the names below are accepted.

Source: the objects' metadata for offsets; what each holds, and the domain, by executing their machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from asmlaunch.abi.families.base import Dim3, Family, Require, Variant, ceil_div, f32, num, ptr, slots, words
from asmlaunch.abi.schema import Symbol, extent
from asmlaunch.codeobject import KernelInfo


def _derived(kernel: KernelInfo, _: Mapping[str, Any]) -> dict[str, Any]:
    parts = words(kernel)
    return {
        "persistent": "ps" in parts,
        "prefill": "pfl" in parts,
        # Rows of Q that a workgroup takes: the decode kernel for 16 heads takes 16, the others 128.
        "rows": 16 if {"subQ16", "dec"} <= parts else 128,
    }


def _grid(p: Any) -> Dim3:
    if p.persistent:
        return p.work_lists, 1, 1
    return ceil_div(p.s_MQA, p.rows), p.batch, 1 if p.prefill else p.s_kv_split


def _is(processor: str) -> Callable[[KernelInfo], bool]:
    return lambda kernel: kernel.target.processor == processor


_LIVE = {"live": True, "default": None}
_DEAD = {"live": False, "default": 0}

FAMILY = Family(
    name="mla",
    title="multi-head latent attention, decode and prefill",
    pattern=r"mla_(a16w16|a16w8|a8w8|dec_stage1_bf16_a16w16|pfl_bf16_a16w16_causal)_\w+",
    derived=_derived,
    fields=slots(
        ptr("ptr_R", "output: partial results f32, or the result bf16 when K is not split", meta="O ptr_R"),
        ptr("ptr_LSE", "output: partial log-sum-exps", "f32", "Q ptr_LSE"),
        ptr("ptr_Q", "queries", "[tokens, heads, 576]", "K ptr_Q"),
        ptr("ptr_KV", "latent cache", "[pages, 1, 1, 576]", "V ptr_KV"),
        ptr("ptr_LTP", "first page of each sequence", "i32 [batch + 1]", "BT ptr_LTP"),
        ptr("ptr_LTD", "pages", "i32", "CL ptr_LTD"),
        ptr("ptr_LTL", "not used", live=False, meta="KQ ptr_LTL"),
        f32("scalar", "factor of the scores", "sclg scalar"),
        num("s_MQA", "query heads times tokens", "", "mblk s_MQA", live=False, default=None),
        num("s_kv_split", "splits of K", "", "batch s_kv_split", default=1),
        num("s_Q_Bs", "bytes of Q per sequence", "bytes", "Qs s_Q_Bs", live=False),
        num("s_Bs", "page stride", "bytes", "Bs s_Bs"),
        num("s_log2_plen", "log2 of the tokens in a page", "", "Cs s_log2_plen", live=False),
        ptr("ptr_QTP", "first token of each sequence", "i32 [batch + 1]", "QT ptr_QTP"),
        ptr(
            "ptr_STP",
            "persistent: address of {work index, works}; else splits of each sequence",
            meta="ST ptr_STP",
            live=False,
        ),
        ptr("ptr_RP", "output, bf16, of the persistent form", meta="RP ptr_RP", live=False),
        ptr("ptr_QSCALE", "scale of Q", "f32 [1]", "DQ ptr_DQ"),
        ptr("ptr_KVSCALE", "scale of the cache", "f32 [1]", "DK ptr_DK"),
        num("out_16_nosplit", "1: bf16 result when K is not split", "", "out16", default=0),
    ),
    variants=(
        Variant("_ps", dict.fromkeys(("ptr_LTP", "ptr_QTP", "s_kv_split"), _DEAD)),
        Variant("_ps", {"s_MQA": _DEAD, "ptr_STP": _LIVE, "ptr_RP": _LIVE}),
        Variant("a16w16_qh16_m16x4_.*mask1$", {"ptr_STP": {"live": True}}, where=_is("gfx942")),
        Variant("qseqlen4_gqaratio16$", {"ptr_STP": {"live": True}, "s_MQA": _LIVE}, where=_is("gfx950")),
        Variant("dec_.*subQ16|qseqlen[12]_gqaratio16$", {"s_MQA": _LIVE}),
        Variant("qseqlen[12]_.*_ps", {"s_MQA": _LIVE}),
        Variant("_page$", {"s_log2_plen": _LIVE}),
        Variant("dec_.*subQ16_mqa16$|qseqlen[12]_gqaratio16$", {"s_Q_Bs": _LIVE, "ptr_QTP": _DEAD}),
        Variant("a16w", {"ptr_QSCALE": _DEAD}),
    ),
    symbols=(
        Symbol("batch", "sequences", derive=(extent("LTP", 0, plus=-1),)),
        Symbol("work_lists", "persistent workgroups"),
    ),
    grid=_grid,
    requires=(
        Require("s_kv_split", lambda p: p.s_kv_split >= 1, "at least 1", when=lambda p: not p.persistent),
        Require("s_MQA", lambda p: p.s_MQA >= 1, "at least 1", when=lambda p: not p.persistent),
        Require(
            "s_kv_split",
            lambda p: p.s_kv_split == 1,
            "1: with splits this object writes them all to the same place",
            when=lambda p: p.kernel.target.processor == "gfx950" and p.kernel.name.endswith("qseqlen4_gqaratio16E"),
        ),
    ),
)
