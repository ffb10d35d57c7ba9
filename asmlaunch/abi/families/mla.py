"""mla: multi-head latent attention decode and prefill over a latent cache of 576 elements a token (gfx942, gfx950).

The metadata of most objects reuses the names of paged attention for other things, so only the names below are accepted.

Source: the objects' metadata for offsets; what each holds, and the domain, by executing their machine code.
"""

from __future__ import annotations

import re
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
    plain_name,
    ptr,
    rows_nbytes,
    slots,
    words,
)
from asmlaunch.abi.schema import Symbol, extent
from asmlaunch.codeobject import KernelInfo

_WIDTH, _VALUES = 576, 512
_INTEGERS = ("int32", "uint32")

#: Query heads, query tokens of a sequence (0: any number), and tokens of a chunk of keys, by the kernel's name.
_SHAPES: tuple[tuple[str, dict[str, int]], ...] = (
    ("dec_.*subQ16_", {"heads": 16, "fewest": 1, "most": 1, "chunk": 64}),
    ("dec_.*subQ128_", {"heads": 128, "fewest": 1, "most": 0, "chunk": 16}),
    ("pfl_.*subQ16_", {"heads": 16, "fewest": 1, "most": 0, "chunk": 16}),
    ("pfl_.*subQ128_", {"heads": 128, "fewest": 1, "most": 0, "chunk": 16}),
    ("qh16_m16x4", {"heads": 16, "fewest": 1, "most": 4, "chunk": 16}),
    ("qh16_m32x4", {"heads": 16, "fewest": 1, "most": 8, "chunk": 16}),
    ("qh128_m32x4", {"heads": 128, "fewest": 1, "most": 0, "chunk": 32}),
    ("qseqlen1_", {"heads": 16, "fewest": 1, "most": 1, "chunk": 64}),
    ("qseqlen2_", {"heads": 16, "fewest": 2, "most": 2, "chunk": 64}),
    ("qseqlen4_", {"heads": 16, "fewest": 3, "most": 4, "chunk": 32}),
)


def _is_qseqlen4_gfx950(kernel: KernelInfo) -> bool:
    """The one whose machine code is not that of gfx942."""
    parts = words(kernel)
    return "qseqlen4" in parts and "ps" not in parts and kernel.target.processor == "gfx950"


def _derived(kernel: KernelInfo, _: Mapping[str, Any]) -> dict[str, Any]:
    parts = words(kernel)
    name = plain_name(kernel.name)
    shape = dict(next(shape for pattern, shape in _SHAPES if re.search(pattern, name)))
    if _is_qseqlen4_gfx950(kernel):
        shape["chunk"] = 64
    return {
        **shape,
        "persistent": "ps" in parts,
        "prefill": "pfl" in parts,
        # Rows of Q that a workgroup takes: the decode kernel for 16 heads takes 16, the others 128.
        "rows": 16 if {"subQ16", "dec"} <= parts else 128,
        "q_bits": 8 if "a8w8" in parts else 16,
        "kv_bits": 16 if "a16w16" in parts else 8,
        # Persistent kernels for 128 heads get one row a work, whose keys end where it may see no more.
        "causal": bool({"mask1", "msk1", "causal", "qseqlen2", "qseqlen4"} & parts) or {"qh128", "ps"} <= parts,
        # Whether Q is read by s_Q_Bs, and not by QTP.
        "uniform": shape["fewest"] == shape["most"],
        "always_partial": {"subQ16", "dec"} <= parts,
        "paged": "page" in parts,
        # The cache's scale is missing in the result.
        "scale_lost": {"qseqlen4", "ps"} <= parts,
        "splits": not ("pfl" in parts or "page" in parts or _is_qseqlen4_gfx950(kernel)),
        "out16": kernel.kernarg_size > 0x120,
        "unmasked": ("msk0" in parts and "ps" not in parts) or {"subQ128", "dec"} <= parts,
        # Rows that see no key of a split get 0 and -inf.
        "empty_rows": bool({"m16x4", "m32x4", "qseqlen4"} & parts) and "qh128" not in parts,
        "ragged": kernel.kernarg_size > 0xD0,
        "split_table": kernel.kernarg_size > 0xE0,
    }


def _grid(p: Any) -> Dim3:
    if p.persistent:
        return p.work_lists, 1, 1
    return ceil_div(p.s_MQA, p.rows), p.batch, 1 if p.prefill else p.s_kv_split


def _rows(p: Any) -> int:
    return int(p.tokens * p.s_kv_split * p.heads)


def _r_nbytes(p: Any) -> int:
    if p.persistent:
        return 0
    whole = p.s_kv_split == 1 and not p.always_partial
    return _rows(p) * _VALUES * (2 if whole else 4)


def _lse_nbytes(p: Any) -> int:
    written = not p.persistent and (p.s_kv_split > 1 or p.always_partial)
    return _rows(p) * 4 if written else 0


def _is(processor: str) -> Callable[[KernelInfo], bool]:
    return lambda kernel: kernel.target.processor == processor


_PER_SEQUENCE: dict[str, Any] = {"dtypes": _INTEGERS, "nbytes": lambda p: 0 if p.persistent else 4 * (p.batch + 1)}
_LIVE = {"live": True, "default": None}
_DEAD = {"live": False, "default": 0}

FAMILY = Family(
    name="mla",
    title="multi-head latent attention, decode and prefill",
    pattern=r"mla_(a16w16|a16w8|a8w8|dec_stage1_bf16_a16w16|pfl_bf16_a16w16_causal)_\w+",
    derived=_derived,
    fields=slots(
        ptr(
            "ptr_R",
            "output: partial results f32, or the result bf16 when K is not split",
            "[tokens, splits, heads, 512]",
            "O ptr_R",
            nbytes=_r_nbytes,
        ),
        ptr("ptr_LSE", "output: partial log-sum-exps", "f32 [tokens, splits, heads]", "Q ptr_LSE", nbytes=_lse_nbytes),
        ptr(
            "ptr_Q",
            "queries",
            "[tokens, heads, 576]",
            "K ptr_Q",
            nbytes=lambda p: p.tokens * p.heads * _WIDTH * p.q_bits // 8,
        ),
        ptr(
            "ptr_KV",
            "latent cache",
            "[pages, page, 576]",
            "V ptr_KV",
            nbytes=lambda p: rows_nbytes(p.pages, p.s_Bs, _WIDTH * p.kv_bits // 8),
        ),
        ptr("ptr_LTP", "first page of each sequence", "i32 [batch + 1]", "BT ptr_LTP", **_PER_SEQUENCE),
        ptr("ptr_LTD", "pages", "i32", "CL ptr_LTD", dtypes=_INTEGERS),
        ptr("ptr_LTL", "not used", live=False, meta="KQ ptr_LTL"),
        f32("scalar", "factor of the scores", "sclg scalar"),
        num("s_MQA", "query heads times tokens", "", "mblk s_MQA", live=False, default=None),
        num("s_kv_split", "splits of K", "", "batch s_kv_split", default=1),
        num("s_Q_Bs", "bytes of Q per sequence", "bytes", "Qs s_Q_Bs", live=False),
        num("s_Bs", "page stride", "bytes", "Bs s_Bs"),
        num("s_log2_plen", "log2 of the tokens in a page", "", "Cs s_log2_plen", live=False),
        ptr("ptr_QTP", "first token of each sequence", "i32 [batch + 1]", "QT ptr_QTP", **_PER_SEQUENCE),
        ptr(
            "ptr_STP",
            "persistent: address of {work index, works}; else splits of each sequence",
            meta="ST ptr_STP",
            live=False,
        ),
        ptr(
            "ptr_RP",
            "output, bf16, of the persistent form",
            "[tokens, heads, 512]",
            "RP ptr_RP",
            live=False,
            nbytes=lambda p: p.tokens * p.heads * _VALUES * 2,
        ),
        ptr("ptr_QSCALE", "scale of Q", "f32 [1]", "DQ ptr_DQ", nbytes=lambda _: 4),
        ptr("ptr_KVSCALE", "scale of the cache", "f32 [1]", "DK ptr_DK", nbytes=lambda _: 4),
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
        Symbol("tokens", "rows of Q", derive=(extent("Q", 0),)),
        Symbol("pages", "pages of the cache", derive=(extent("KV", 0),)),
        Symbol("work_lists", "persistent workgroups"),
        Symbol("shortest_context", "tokens of the shortest sequence"),
        Symbol("fewest_queries", "query tokens of the sequence with the fewest"),
        Symbol("most_queries", "query tokens of the sequence with the most"),
        Symbol("page", "tokens of a page"),
        Symbol("lone_last", "split sequences of one token more than whole chunks"),
        Symbol("clobbered", "sequences of more than 64 tokens, 1 to query tokens - 2 more than a multiple of 64"),
        Symbol("scaled", "0 if the cache's scale is 1, else 1"),
    ),
    grid=_grid,
    requires=(
        Require("s_kv_split", lambda p: p.s_kv_split >= 1, "at least 1", when=lambda p: not p.persistent),
        Require("s_MQA", lambda p: p.s_MQA >= 1, "at least 1", when=lambda p: not p.persistent),
        Require(
            "s_kv_split",
            lambda p: p.s_kv_split == 1,
            "1: with splits this object writes them all to the same place",
            when=lambda p: _is_qseqlen4_gfx950(p.kernel),
        ),
        Require("s_kv_split", lambda p: p.s_kv_split == 1, "1 for prefill", when=lambda p: p.prefill),
        Require(
            "fewest_queries",
            lambda p: p.fewest_queries >= p.fewest,
            "as many as the object's name says: 2 for qseqlen2, 3 or 4 for qseqlen4, else at least 1",
            optional=True,
        ),
        Require(
            "most_queries",
            lambda p: p.most_queries <= p.most,
            "at most the rows that a workgroup takes: 8 for m32x4, 4 for m16x4 and qseqlen4, 2 for qseqlen2, else 1",
            when=lambda p: bool(p.most),
            optional=True,
        ),
        Require(
            "most_queries",
            lambda p: p.most_queries == 1,
            "1: this object masks no keys, rows before the last would see later tokens",
            when=lambda p: p.unmasked,
            optional=True,
        ),
        Require(
            "shortest_context",
            lambda p: p.shortest_context >= max(1, p.get("most_queries") or 1),
            "at least 1, and as many as the sequence has query tokens",
            optional=True,
        ),
        Require(
            "page",
            lambda p: p.page == 1,
            "1: the object takes every page for one token",
            when=lambda p: not p.paged,
            optional=True,
        ),
        Require(
            "page",
            lambda p: p.page <= p.chunk,
            "at most the tokens of a chunk",
            when=lambda p: p.paged,
            optional=True,
        ),
        Require(
            "scaled",
            lambda p: p.scaled == 0,
            "0: the object leaves the cache's scale out of the result",
            when=lambda p: p.scale_lost,
            optional=True,
        ),
        Require(
            "lone_last",
            lambda p: p.lone_last == 0,
            "0: a split that holds only the last token, which the first row must not see, gives NaN",
            when=lambda p: p.fewest == 2 and not p.persistent,
            optional=True,
        ),
        Require(
            "clobbered",
            lambda p: p.clobbered == 0,
            "0: the mask of a full chunk is made from registers that hold something else by then",
            when=lambda p: _is_qseqlen4_gfx950(p.kernel),
            optional=True,
        ),
    ),
)
