"""pa: paged attention decode, one workgroup a sequence and key head (gfx942, gfx950).

Keys are [block, head, 128/x, tokens, x], values [block, head, tokens/x, 128, x] with x elements in 16 bytes.

Source: the objects' metadata; what is live and the domain by executing their machine code. The persistent form (pa_ps)
is in no object of the 2025-11 wheel; its layout is that of its launcher.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from asmlaunch.abi.families.base import Family, Require, Variant, f32, num, ptr, slots, words
from asmlaunch.abi.schema import Field, Symbol, extent
from asmlaunch.codeobject import KernelInfo

_LIVE_POINTER = {"live": True, "default": None}


#: Starts of the sha256 of the 16-bit kernels' code; the name pa_kernel_func is that of 8-bit ones too.
_16_BIT = ("4bdb4743aa54f81e", "5826a0e1ccc1bf0e")


def _is_16_bit(kernel: KernelInfo) -> bool:
    return hashlib.sha256(kernel.code).hexdigest().startswith(_16_BIT)


def _derived(kernel: KernelInfo, _: Mapping[str, Any]) -> dict[str, Any]:
    parts = words(kernel)
    heads = next((int(part[3:]) for part in parts if part.startswith("gqa")), 8)
    return {"max_heads": heads, "one_kv_head": kernel.name == "pa_kernel_func"}


def _common() -> list[Field]:
    return [
        ptr("ptr_O", "output", "[tokens, heads, 128], Q's type, contiguous", "O"),
        ptr("ptr_Q", "queries", "[tokens, heads, 128], rows Qs apart", "Q"),
        ptr("ptr_K", "key cache", "[blocks, kv heads, 128/x, block, x]", "K"),
        ptr("ptr_V", "value cache", "[blocks, kv heads, block/x, 128, x]", "V"),
    ]


PA = Family(
    name="pa",
    title="paged attention decode",
    pattern=r"pa_(bf16|fp16)_(noquant|pertokenFp8|pertokenInt8)_gqa\d+_[12]tg_4w(_\w+)?|pa_a16w8_2tg_g8_\w+|pa_kernel_func",
    where=lambda kernel: not plain_ps(kernel),
    derived=_derived,
    fields=slots(
        *_common(),
        ptr("ptr_BT", "block table", "i32 [batch, mblk]", "BT", nbytes=lambda p: 4 * p.batch * p.mblk),
        ptr("ptr_CL", "context lengths", "i32 [batch]", "CL"),
        ptr("ptr_KQ", "key scales", "f32 [blocks, kv heads, block]", "KQ"),
        ptr("ptr_VQ", "value scales", "f32 [blocks, kv heads, block]", "VQ"),
        f32("sclg2e", "log2(e) / sqrt(128)", "sclg"),
        num("mblk", "row stride of the block table", "entries", derive=(extent("BT", 1),)),
        num("kv_nheads", "key heads", "", "batch"),
        num("Qs", "row stride of Q", "bytes"),
        num("Bs", "block stride of K and of V", "bytes"),
        num("KVs", "head stride of K and of V", "bytes"),
        num("GQA", "query heads per key head"),
        ptr("ptr_QTP", "first token of each sequence", "i32 [batch + 1]", "QTP", live=False),
    ),
    variants=(
        Variant("_noquant_", {name: {"live": False, "default": 0} for name in ("ptr_KQ", "ptr_VQ")}),
        Variant("_mtp_", {"ptr_QTP": _LIVE_POINTER}),
        Variant("^pa_kernel_func", {name: {"live": False, "default": 0} for name in ("ptr_KQ", "ptr_VQ")}, _is_16_bit),
        Variant("^pa_kernel_func", {name: {"live": False, "default": 1} for name in ("kv_nheads", "KVs")}),
    ),
    symbols=(Symbol("batch", "sequences", derive=(extent("CL", 0), extent("BT", 0))),),
    grid=lambda p: (p.kv_nheads, p.batch, 1),
    requires=(
        Require(
            "GQA",
            lambda p: 1 <= p.GQA <= p.max_heads,
            "1 to the gqa in the kernel's name",
            when=lambda p: bool(p.get("GQA")),
        ),
        Require(
            "kv_nheads", lambda p: p.kv_nheads == 1, "1: this kernel has one key head", when=lambda p: p.one_kv_head
        ),
        Require("kv_nheads", lambda p: p.kv_nheads > 0, "at least 1"),
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
