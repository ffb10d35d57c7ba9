"""pa: paged attention decode, one workgroup a sequence and key head (gfx942, gfx950).

Keys are [block, head, 128/x, tokens, x], values [block, head, tokens/x, 128, x] with x elements in 16 bytes.

Source: the objects' metadata; what is live and the domain by executing their machine code. The persistent form (pa_ps)
is in no object of the 2025-11 wheel; its layout is that of its launcher.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from asmlaunch.abi.families.base import (
    Family,
    Require,
    Variant,
    f32,
    num,
    ptr,
    rows_nbytes,
    slots,
    strided_nbytes,
    words,
)
from asmlaunch.abi.schema import Field, Symbol, extent
from asmlaunch.codeobject import KernelInfo

_LIVE_POINTER = {"live": True, "default": None}
_WIDTH = 128
_INTEGERS = ("int32", "uint32")

#: What names do not tell of kernels outside of the folder pa, by the start of the sha256 of their code: Q's type, and
#: the cache's for those with one key head.
_BY_CODE = {
    "4bdb4743aa54f81e": ("bf16", "noquant"),
    "5826a0e1ccc1bf0e": ("fp16", "noquant"),
    "bd3459101f1cbeb0": ("bf16", "pertokenInt8"),
    "60fcf73e2c213da9": ("fp16", "pertokenInt8"),
    "5246607a55eabfc5": ("fp16", "pertokenFp8"),
    "59d7ec6a4aea97f6": ("fp16", "pertokenInt8"),
}


def _known(kernel: KernelInfo) -> tuple[str, str] | None:
    return _BY_CODE.get(hashlib.sha256(kernel.code).hexdigest()[:16])


def _is_16_bit(kernel: KernelInfo) -> bool:
    known = _known(kernel)
    return known is not None and known[1] == "noquant"


def _derived(kernel: KernelInfo, stated: Mapping[str, Any]) -> dict[str, Any]:
    parts = words(kernel)
    known = _known(kernel)
    heads = next((int(part[3:]) for part in parts if part.startswith("gqa")), 8)
    fixed = next((int(part[4:]) for part in parts if part.startswith("qlen")), 0)
    cache = stated["cache"] or (known[1] if known else "pertokenInt8" if "i8" in parts else "pertokenFp8")
    return {
        "dtype": known[0] if known else "fp16" if "fp16" in parts else "bf16",
        "cache": cache,
        # How numbers become f16: the older objects round to nearest.
        "f16_rounding": "nearest" if known else "toward_zero",
        # What the weights are rounded to: 8 bits, 16 bits in a tile that is not whole, or always 16 bits.
        "tail_16": bool({"hp", "tail"} & parts),
        "all_16": cache == "noquant" or bool({"uhp", "gemm1"} & parts),
        "max_heads": heads,
        "one_kv_head": kernel.name == "pa_kernel_func",
        # Rows of a sequence: as many as QTP says, or as the object's name.
        "ragged": "mtp" in parts,
        "fixed_queries": fixed,
        "causal": "msk1" in parts,
        "block": 1024 if fixed else 16,
    }


def _common(**sizes: Callable[[Any], int]) -> list[Field]:
    return [
        ptr("ptr_O", "output", "[tokens, heads, 128], Q's type, contiguous", "O", nbytes=sizes.get("o")),
        ptr("ptr_Q", "queries", "[tokens, heads, 128], rows Qs apart", "Q", nbytes=sizes.get("q")),
        ptr("ptr_K", "key cache", "[blocks, kv heads, 128/x, block, x]", "K", nbytes=sizes.get("cache")),
        ptr("ptr_V", "value cache", "[blocks, kv heads, block/x, 128, x]", "V", nbytes=sizes.get("cache")),
    ]


def _heads(p: Any) -> int:
    return int(p.kv_nheads * (p.get("GQA") or p.max_heads))


def _o_nbytes(p: Any) -> int:
    row = 2 * _WIDTH * _heads(p)
    return rows_nbytes(p.tokens, p.Qs if p.one_kv_head else row, row)


def _block_nbytes(p: Any) -> int:
    return int(_WIDTH * p.block * (2 if p.cache == "noquant" else 1))


def _cache_nbytes(p: Any) -> int:
    heads = (p.kv_nheads, p.KVs) if not p.one_kv_head else (1, 0)
    return strided_nbytes(_block_nbytes(p), (p.blocks, p.Bs), heads)


def _scales_nbytes(p: Any) -> int:
    return int(4 * p.blocks * p.kv_nheads * p.block)


PA = Family(
    name="pa",
    title="paged attention decode",
    pattern=(
        r"pa_(?P<type>bf16|fp16)_(?P<cache>noquant|pertokenFp8|pertokenInt8)_gqa\d+_[12]tg_4w(_\w+)?"
        r"|pa_a16w8_2tg_g8_\w+|pa_kernel_func"
    ),
    where=lambda kernel: not plain_ps(kernel),
    derived=_derived,
    fields=slots(
        *_common(
            o=_o_nbytes,
            q=lambda p: rows_nbytes(p.tokens, p.Qs, 2 * _WIDTH * _heads(p)),
            cache=_cache_nbytes,
        ),
        ptr(
            "ptr_BT",
            "block table",
            "i32 [batch, mblk]",
            "BT",
            dtypes=_INTEGERS,
            nbytes=lambda p: 4 * p.batch * p.mblk,
        ),
        ptr("ptr_CL", "context lengths", "i32 [batch]", "CL", dtypes=_INTEGERS, nbytes=lambda p: 4 * p.batch),
        ptr("ptr_KQ", "key scales", "f32 [blocks, kv heads, block]", "KQ", dtypes=("float32",), nbytes=_scales_nbytes),
        ptr(
            "ptr_VQ", "value scales", "f32 [blocks, kv heads, block]", "VQ", dtypes=("float32",), nbytes=_scales_nbytes
        ),
        f32("sclg2e", "log2(e) / sqrt(128)", "sclg"),
        num("mblk", "row stride of the block table", "entries", derive=(extent("BT", 1),)),
        num("kv_nheads", "key heads", "", "batch"),
        num("Qs", "row stride of Q", "bytes"),
        num("Bs", "block stride of K and of V", "bytes"),
        num("KVs", "head stride of K and of V", "bytes"),
        num("GQA", "query heads per key head"),
        ptr(
            "ptr_QTP",
            "first token of each sequence",
            "i32 [batch + 1]",
            "QTP",
            live=False,
            dtypes=_INTEGERS,
            nbytes=lambda p: 4 * (p.batch + 1) if p.ragged else 0,
        ),
    ),
    variants=(
        Variant("_noquant_", {name: {"live": False, "default": 0, "nbytes": None} for name in ("ptr_KQ", "ptr_VQ")}),
        Variant("_mtp_", {"ptr_QTP": _LIVE_POINTER}),
        Variant(
            "^pa_kernel_func",
            {name: {"live": False, "default": 0, "nbytes": None} for name in ("ptr_KQ", "ptr_VQ")},
            _is_16_bit,
        ),
        Variant("^pa_kernel_func", {name: {"live": False, "default": 1} for name in ("kv_nheads", "KVs")}),
    ),
    symbols=(
        Symbol("batch", "sequences", derive=(extent("CL", 0), extent("BT", 0))),
        Symbol("tokens", "rows of Q", derive=(extent("Q", 0),)),
        Symbol("blocks", "blocks of the cache", derive=(extent("K", 0),)),
        Symbol("shortest_context", "tokens of the shortest sequence"),
        Symbol("fewest_queries", "query tokens of the sequence with the fewest"),
        Symbol("most_queries", "query tokens of the sequence with the most"),
        Symbol("sixteen_blocks", "sequences of 241 to 255 tokens; of kernels named msk1 those with one query token"),
    ),
    grid=lambda p: (p.kv_nheads, p.batch, 1),
    requires=(
        Require(
            "GQA",
            lambda p: 1 <= p.GQA <= p.max_heads,
            "1 to the gqa in the kernel's name: heads beyond are not written",
            when=lambda p: bool(p.get("GQA")),
        ),
        Require(
            "kv_nheads", lambda p: p.kv_nheads == 1, "1: this kernel has one key head", when=lambda p: p.one_kv_head
        ),
        Require("kv_nheads", lambda p: p.kv_nheads > 0, "at least 1"),
        Require(
            "Qs",
            lambda p: p.Qs >= 2 * _WIDTH * _heads(p) and p.Qs % 4 == 0,
            "a row's bytes or more, a multiple of 4",
        ),
        Require("Bs", lambda p: _block_nbytes(p) <= p.Bs < 1 << 24, "a block's bytes or more, below 2^24"),
        Require(
            "blocks",
            lambda p: p.blocks * p.Bs <= 1 << 31,
            "less than 2 GiB of K and of V: blocks beyond are read as zeros",
            optional=True,
        ),
        Require(
            "shortest_context",
            lambda p: p.shortest_context >= max(1, p.get("most_queries") or 1),
            "at least 1, and as many as the sequence has query tokens: an empty one gives NaN",
            optional=True,
        ),
        Require(
            "fewest_queries",
            lambda p: p.fewest_queries >= 1,
            "at least 1: the kernel writes a row all the same, which belongs to the next sequence",
            optional=True,
        ),
        Require(
            "most_queries",
            lambda p: p.most_queries <= (p.fixed_queries or 4 if p.ragged or p.fixed_queries else 1),
            "at most the query tokens of the object's name, 4 for mtp, else 1: rows beyond are not computed",
            optional=True,
        ),
        Require(
            "sixteen_blocks",
            lambda p: p.sixteen_blocks == 0,
            "0: with 16 blocks of which the last is not full, they are taken for a full tile, and then once more",
            when=lambda p: bool(p.get("sixteen_blocks")) and p.block == 16,
        ),
    ),
)

PA_PS = Family(
    name="pa_ps",
    title="paged attention decode, persistent workgroups",
    pattern=r"pa_\w+_ps",
    fields=slots(
        *_common(),
        ptr("ptr_KVIndices", "block table", "i32"),
        ptr("ptr_CL", "context lengths", "i32 [batch]"),
        ptr("ptr_KQ", "key scales", "f32"),
        ptr("ptr_VQ", "value scales", "f32"),
        f32("sclg2e", "log2(e) / sqrt(128)"),
        num("kv_nheads", "key heads"),
        num("Qs", "row stride of Q", "bytes"),
        num("Bs", "block stride of K and of V", "bytes"),
        num("KVs", "head stride of K and of V", "bytes"),
        num("mtp", "further tokens per step", default=0),
        num("GQA", "query heads per key head"),
        ptr("ptr_QOPtr", "first token of each sequence", "i32 [batch + 1]", default=0),
        ptr("ptr_KVPtr", "first block of each sequence", "i32 [batch + 1]"),
        ptr("ptr_WorkPtr", "first work of each workgroup", "i32 [workgroups + 1]"),
        ptr("ptr_WorkInfo", "works", "i32 [works, 8]"),
        ptr("ptr_SplitO", "output: partial results", "f32"),
        ptr("ptr_SplitLSE", "output: partial log-sum-exps", "f32"),
        num("stride_scale_blk", "scale stride of a block", "bytes", default=0),
        num("stride_scale_page", "scale stride of a page", "bytes", default=0),
    ),
    symbols=(Symbol("work_lists", "persistent workgroups", derive=(extent("WorkPtr", 0, plus=-1),)),),
    grid=lambda p: (p.work_lists, 1, 1),
)


def plain_ps(kernel: KernelInfo) -> bool:
    """Whether the name ends in ``_ps``: the persistent form, which has another layout."""
    return "ps" in words(kernel)


FAMILIES = (PA, PA_PS)
