"""fmha_v3_bwd: attention backward in bf16 and fp16 (gfx942, gfx950), in three steps.

``odo`` computes D = rowsum(O * dO), ``dqdkdv`` the gradients, ``post`` turns the dQ accumulator into dQ. The dqdkdv
kernels come in five layouts, told apart by the size of the segment. All strides are in bytes. dK and dV are per query
head and fully written; dQ is accumulated with atomics and has to hold zeros.

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    slots,
    strided_nbytes,
    words,
)
from asmlaunch.abi.schema import Field, Symbol, extent
from asmlaunch.codeobject import KernelInfo

_NAME = (
    r"fmha_bwd_hd(?P<head>64|128|192|192_hd128)_(?P<type>bf16|fp16)_((?P<mask>causal|causal_br|swa)_)?"
    r"a(?P<accumulated>16|32)\w*"
)


_WIDE_SIZE = 704


def _size_is(size: int) -> Callable[[KernelInfo], bool]:
    return lambda kernel: kernel.kernarg_size == size


def _gradients() -> list[Field]:
    return [
        ptr("ptr_dq", "output: dQ or its accumulator", meta="dQ", aliases=("dq", "dQ")),
        ptr("ptr_dk", "output: dK, per query head", meta="dK", aliases=("dk", "dK")),
        ptr("ptr_dv", "output: dV, per query head", meta="dV", aliases=("dv", "dV")),
        ptr("ptr_q", "queries", meta="Q", aliases=("q", "Q")),
        ptr("ptr_k", "keys", meta="K", aliases=("k", "K")),
        ptr("ptr_v", "values", meta="V", aliases=("v", "V")),
        ptr("ptr_do", "gradient of the output", meta="dO", aliases=("do", "dO")),
        ptr("ptr_lse", "log-sum-exp of the forward pass", "f32 [B, Hq, Sq]", "Lse", aliases=("lse",)),
        ptr("ptr_d", "row sums of O * dO", "f32 [B, Hq, Sq]", "D", aliases=("d",)),
    ]


def _factors() -> list[Field]:
    return [f32("scalar", "factor of the scores"), f32("log2e", "1.442695, log2 of e", default=1.4426950408889634)]


def _strides(of: str, *parts: str, meta: str = "") -> list[Field]:
    words_of = {"Hs": "head", "BAs": "batch", "Seqs": "row"}
    return [
        num(f"{part}_{of}", f"{words_of[part]} stride of {of}", "bytes", meta and f"{part}{meta}") for part in parts
    ]


def _sequences(*metas: str, live: bool) -> list[Field]:
    names = ("ptr_qseq", "ptr_kseq", "ptr_qseq_padded", "ptr_kseq_padded")
    roles = (
        "row counts of Q, cumulative",
        "row counts of K, cumulative",
        "first row of each in Q",
        "first row of each in K",
    )
    return [
        ptr(name, role, "i32 [B + 1]", meta, live=live)
        for name, role, meta in zip(names, roles, metas or names, strict=True)
    ]


def _derived(kernel: KernelInfo, stated: Mapping[str, Any]) -> dict[str, Any]:
    parts = words(kernel)
    swa = "swa" in parts
    tile = {"64": 192, "192": 64, "192_hd128": 192}.get(
        str(stated["head"]), 256 if kernel.target.processor == "gfx950" and not swa else 192
    )
    return {
        "group": "group" in parts,
        "halved": "causal" in parts,
        "tile_k": tile,
        "ragged_head": "dv" in plain_tail(parts),
        "rounding": _rounding(kernel, parts),
    }


def _rounding(kernel: KernelInfo, parts: frozenset[str]) -> str:
    """How P, dS and 16-bit results are rounded: the wide gfx950 kernels have instructions that round to nearest."""
    if kernel.kernarg_size == _WIDE_SIZE:
        return "nearest"
    return "half_away" if "rtna" in parts else "nearest" if "rtne" in parts else "toward_zero"


def plain_tail(parts: frozenset[str]) -> str:
    """The part of a name that says what may be ragged, ``psskddv``: sequence of Q, of K, head size."""
    return next((part for part in parts if part.startswith("p")), "")


def _heads_of(p: Any) -> tuple[int, int]:
    """Head size of Q and K, and of V."""
    if p.head == "192_hd128":
        return 192, 128
    size = p.get("head_dim") or p.head
    return size, size


def _tensor(of: str, rows: str, *, value: bool = False, per_key_head: bool = False) -> Callable[[Any], int]:
    """Bytes of a 16-bit tensor by its strides."""

    def nbytes(p: Any) -> int:
        heads = max(p.nhead_q // p.ratio, 1) if per_key_head else p.nhead_q
        axes = zip((getattr(p, rows), heads, p.batch), (f"{part}_{of}" for part in ("Seqs", "Hs", "BAs")), strict=True)
        return strided_nbytes(2 * _heads_of(p)[value], *((count, getattr(p, name)) for count, name in axes))

    return nbytes


def _row_nbytes(p: Any) -> int:
    return int(4 * p.batch * p.nhead_q * p.seqlen_q)


#: Sizes of the buffers where every sequence has one length and every tensor its strides.
_BATCH_SIZES: dict[str, dict[str, Any]] = {
    "ptr_q": {"nbytes": _tensor("q", "seqlen_q")},
    "ptr_k": {"nbytes": _tensor("k", "seqlen_k", per_key_head=True)},
    "ptr_v": {"nbytes": _tensor("v", "seqlen_k", value=True, per_key_head=True)},
    "ptr_do": {"nbytes": _tensor("do", "seqlen_q", value=True)},
    "ptr_dk": {"nbytes": _tensor("dk", "seqlen_k")},
    "ptr_dv": {"nbytes": _tensor("dv", "seqlen_k", value=True)},
    "ptr_lse": {"nbytes": _row_nbytes},
    "ptr_d": {"nbytes": _row_nbytes},
}


def _grid(p: Any) -> Dim3:
    tiles = ceil_div(_rows_k(p), p.tile_k)
    return ceil_div(tiles, 2) if p.halved else tiles, p.nhead_q, p.batch


def _rows_k(p: Any) -> int:
    rows: int = p.max_seqlen_k if p.group else p.get("seqlen_k") or p.seq_len
    return rows


_BATCH = Symbol("batch", "sequences", derive=(extent("ptr_qseq", 0, plus=-1),))
_HEADS = Symbol("nhead_q", "query heads")
_MAX_K = Symbol("max_seqlen_k", "rows of the longest sequence of K")
_ZERO_DQ = ("ptr_dq",)
_HEAD_SIZE = Require(
    "head_dim",
    lambda p: p.head_dim % 8 == 0 and (64 <= p.head_dim <= 128 if p.head == 128 else 136 <= p.head_dim <= 192),
    "a multiple of 8, from 64 to 128 (hd128) or 136 to 192 (hd192)",
    when=lambda p: p.ragged_head,
)

FIXED = Family(
    name="fmha_v3_bwd_fixed",
    title="attention backward, one sequence length for Q and K, shared strides",
    pattern=_NAME,
    where=_size_is(352),
    derived=_derived,
    fields=slots(
        *_gradients(),
        *_factors(),
        num("seq_len", "rows of Q and of K", "rows"),
        num("Ts", "bytes of K in one tile, tile rows * Seqs_kv", "bytes"),
        num("Hs", "head stride of Q and dO", "bytes"),
        num("BAs", "batch stride of Q and dO", "bytes"),
        num("Seqs", "row stride of Q and dO", "bytes"),
        num("ratio", "query heads per key head"),
        *_strides("kv", "Hs", "BAs", "Seqs"),
        num("Seqs_dkv", "row stride of dK and dV", "bytes"),
        num("head_dim", "head size; loaded by pddv kernels only", "elements", live=False),
    ),
    variants=(Variant("pddv", {"head_dim": {"live": True, "default": None}}),),
    symbols=(Symbol("batch", "sequences"), _HEADS),
    grid=_grid,
    zero=lambda _: _ZERO_DQ,
    requires=(
        Require(
            "seq_len",
            lambda p: p.seq_len > 0 and p.seq_len % 64 == 0,
            "a multiple of 64: tails are read and written outside",
        ),
        Require(
            "BAs",
            lambda p: p.BAs == 2 * (p.get("head_dim") or p.head) * p.nhead_q * p.seq_len,
            "Q packed: a sequence's log-sum-exp, D and f32 dQ are found by the batch stride of Q",
            when=lambda p: p.batch > 1,
        ),
        _HEAD_SIZE,
    ),
)

_RAGGED = (
    *_gradients(),
    *_factors(),
    num("ratio", "query heads per key head"),
    num("seqlen_q", "rows of Q", "rows"),
    num("seqlen_k", "rows of K", "rows"),
    num("head_dim", "head size; not loaded by hd64 kernels", "elements"),
    num("nhead_q", "query heads", "", "nhead_q nhead"),
    *(f for of in ("q", "k", "v", "do", "dk", "dv") for f in _strides(of, "Hs", "BAs", "Seqs")),
)

RAGGED = Family(
    name="fmha_v3_bwd_ragged",
    title="attention backward, any sequence lengths",
    pattern=_NAME,
    where=lambda kernel: kernel.kernarg_size in (272, 288),
    derived=_derived,
    fields=slots(
        *_RAGGED,
        num("mask_x", "window to the right, plus 1", type="i32"),
        num("mask_y", "window to the left, plus 1", type="i32"),
        pitch=8,
    ),
    variants=(Variant("_hd64_", {"head_dim": {"live": False, "default": 0}}), Variant("", _BATCH_SIZES)),
    symbols=(Symbol("batch", "sequences"),),
    grid=_grid,
    zero=lambda _: _ZERO_DQ,
    requires=(
        Require("seqlen_q", lambda p: p.seqlen_q > 0 and p.seqlen_k > 0, "at least 1 row of Q and K"),
        _HEAD_SIZE,
    ),
)

GROUP = Family(
    name="fmha_v3_bwd_group",
    title="attention backward, one sequence length each",
    pattern=_NAME,
    where=_size_is(248),
    derived=_derived,
    fields=slots(
        *_gradients(),
        *_sequences(live=True),
        *_factors(),
        num("ratio", "query heads per key head"),
        num("Hs_lsed", "head stride of the log-sum-exp and of D", "bytes", "s_Hs_lsed"),
        num("seqlen_k", "not used", live=False),
        *(f for of in ("q", "k", "v", "do", "dk", "dv") for f in _strides(of, "Hs", "Seqs")),
        num("head_dim", "head size; not loaded by hd64 kernels", "elements"),
        pitch=8,
    ),
    variants=(Variant("_hd64_", {"head_dim": {"live": False, "default": 0}}),),
    symbols=(_BATCH, _HEADS, _MAX_K),
    grid=_grid,
    zero=lambda _: _ZERO_DQ,
    requires=(_HEAD_SIZE,),
)

_POINTERS_AS_4_BYTES = "the metadata calls this pointer a 4-byte number; the code loads 8 bytes"
_SEQUENCE_FIELDS = ("ptr_qseq", "ptr_kseq", "ptr_qseq_padded", "ptr_kseq_padded")
_WIDE_GROUP_DEAD = ("seqlen_q", "seqlen_k", "BAs_q", "BAs_k", "BAs_v", "BAs_do", "BAs_dk", "BAs_dv")

WIDE = Family(
    name="fmha_v3_bwd_wide",
    title="attention backward for gfx950, batch and group",
    pattern=_NAME,
    where=_size_is(_WIDE_SIZE),
    derived=_derived,
    fields=slots(
        *_gradients(),
        *_factors(),
        num("seqlen_q", "rows of Q", "rows"),
        num("Ts", "never loaded", live=False),
        *_strides("q", "Hs", "BAs", "Seqs"),
        num("ratio", "query heads per key head"),
        *_strides("k", "Hs", "BAs", "Seqs"),
        num("Seqs_dk", "row stride of dK", "bytes"),
        num("seqlen_k", "rows of K", "rows"),
        num("head_dim", "head size of Q and K", "elements", "head_dim_q"),
        num("head_dim_v", "never loaded", live=False, meta="head_dim_k"),
        num("nhead_q", "query heads"),
        *_strides("v", "Hs", "BAs", "Seqs"),
        *_strides("do", "Hs", "BAs", "Seqs"),
        *_strides("dk", "Hs", "BAs"),
        *_strides("dv", "Hs", "BAs", "Seqs"),
        num("Hs_lsed", "head stride of the log-sum-exp and of D", "bytes", live=False),
        *_sequences("ptr_seqstart_q", "ptr_seqstart_k", "ptr_seqstart_q_padded", "ptr_seqstart_k_padded", live=False),
        num(
            "max_seqlen_dq",
            "rows of the longest sequence in the 16-bit accumulator",
            "rows",
            "max_seq_len_dq",
            live=False,
        ),
        num("mask_x", "never loaded", live=False, type="i32"),
        num("mask_y", "never loaded", live=False, type="i32"),
    ),
    variants=(
        Variant(
            "_group",
            {name: {"live": False, "default": 0} for name in _WIDE_GROUP_DEAD}
            | {name: {"live": True, "default": None} for name in (*_SEQUENCE_FIELDS, "Hs_lsed")},
        ),
        Variant("_a16_.*_group", {"max_seqlen_dq": {"live": True, "default": None}}),
        Variant("_a32_.*_group", {"nhead_q": {"live": False}}),
        Variant("hd192_hd128_.*a16", {"head_dim": {"live": False, "default": 192}}),
    ),
    known=tuple(Known(name, _POINTERS_AS_4_BYTES) for name in _SEQUENCE_FIELDS),
    symbols=(_BATCH, _MAX_K),
    grid=_grid,
    zero=lambda _: _ZERO_DQ,
    requires=(_HEAD_SIZE,),
)

DQ_SHUFFLE = Family(
    name="fmha_v3_bwd_dq_shuffle",
    title="attention backward, last step: 16-bit accumulator to dQ",
    pattern=r"fmha_bwd_hd(?P<head>128|192)_dq_shuffle(?P<group>_group)?",
    fields=slots(
        ptr("ptr_dq_acc", "accumulator, shuffled", "16-bit [B, Hq, ceil16(Sq), head]", "dQ_acc", aliases=("dq_acc",)),
        ptr("ptr_dq", "output", "16-bit", "dQ", aliases=("dq", "dQ")),
        num("Ts", "never loaded", live=False),
        *_strides("dq_acc", "Hs", "BAs", "Seqs"),
        *_strides("dq", "Hs", "BAs", "Seqs"),
        num("seqlen_q", "rows of Q", "rows"),
        num("head_dim", "head size", "elements"),
        ptr("ptr_qseq", "row counts of Q, cumulative", "i32 [B + 1]", "ptr_seqstart_q", live=False),
        ptr("ptr_qseq_padded", "first row of each in Q", "i32 [B + 1]", "ptr_seqstart_q_padded", live=False),
        num("max_seqlen_dq", "not used", "rows", live=False),
    ),
    variants=(
        Variant(
            "_group",
            {name: {"live": False, "default": 0} for name in ("BAs_dq", "seqlen_q")}
            | {name: {"live": True, "default": None} for name in ("ptr_qseq", "ptr_qseq_padded")},
        ),
        Variant("hd192", {"head_dim": {"live": False, "default": 192}}),
    ),
    known=tuple(Known(name, _POINTERS_AS_4_BYTES) for name in ("ptr_qseq", "ptr_qseq_padded")),
    symbols=(_BATCH, _HEADS, Symbol("max_seqlen_q", "rows of the longest sequence of Q")),
    grid=lambda p: (ceil_div(p.max_seqlen_q if p.get("group") else p.seqlen_q, 64), p.nhead_q, p.batch),
    requires=(Require("head_dim", lambda p: p.head_dim == 192, "192", when=lambda p: p.head == 192),),
)

_ODO_POINTERS = (
    ptr("ptr_o", "output of the forward pass", aliases=("o", "O")),
    ptr("ptr_do", "its gradient", aliases=("do", "dO")),
    ptr("ptr_d", "output: row sums of O * dO", "f32 [B, Hq, Sq]", aliases=("d", "D")),
)
_ODO_TAIL = (
    *_strides("d", "Hs", "BAs", "Seqs"),
    num("seqlen_q", "rows of Q", "rows"),
    num("head_dim", "head size", "elements"),
    ptr("ptr_qseq", "row counts of Q, cumulative", "i32 [B + 1]", default=0),
    ptr("ptr_qseq_padded", "first row of each in Q", "i32 [B + 1]", default=0),
)
_ODO = r"fmha_bwd_hd(?P<head>\d+)_(dot_do_o|odo)_\w+|fmha_bwd_hd(?P<head2>\d+)_\w*odo\w*"


def _odo(name: str, size: int, *strides: Field) -> Family:
    return Family(
        name=name,
        title="attention backward, first step: D = rowsum(O * dO)",
        pattern=_ODO,
        where=_size_is(size),
        fields=slots(*_ODO_POINTERS, *strides, *_ODO_TAIL),
        symbols=(_BATCH, _HEADS, Symbol("max_seqlen_q", "rows of the longest sequence of Q")),
        grid=lambda p: (ceil_div(p.get("max_seqlen_q") or p.seqlen_q, 128), p.nhead_q, p.batch),
        requires=(Require("head_dim", lambda p: p.head_dim % 8 == 0, "a multiple of 8"),),
    )


ODO_208 = _odo("fmha_v3_bwd_odo_208", 208, *_strides("odo", "Hs", "BAs", "Seqs"))
ODO_256 = _odo("fmha_v3_bwd_odo_256", 256, *_strides("o", "Hs", "BAs", "Seqs"), *_strides("do", "Hs", "BAs", "Seqs"))

DQ_CONVERT = Family(
    name="fmha_v3_bwd_dq_convert",
    title="attention backward, last step: f32 accumulator to dQ",
    pattern=r"fmha_bwd_hd(?P<head>\d+)_\w*dq_convert\w*",
    fields=slots(
        ptr("ptr_dq_acc", "accumulator", "f32", aliases=("dq_acc",)),
        ptr("ptr_dq", "output", "16-bit", aliases=("dq", "dQ")),
        *_strides("dq_acc", "Hs", "BAs", "Seqs"),
        *_strides("dq", "Hs", "BAs", "Seqs"),
        num("seqlen_q", "rows of Q", "rows"),
        num("head_dim", "head size", "elements"),
        ptr("ptr_qseq", "row counts of Q, cumulative", "i32 [B + 1]", default=0),
        ptr("ptr_qseq_padded", "first row of each in Q", "i32 [B + 1]", default=0),
    ),
    symbols=(_BATCH, _HEADS, Symbol("max_seqlen_q", "rows of the longest sequence of Q")),
    grid=lambda p: (ceil_div(p.get("max_seqlen_q") or p.seqlen_q, 64), p.nhead_q, p.batch),
)

FAMILIES = (FIXED, RAGGED, GROUP, WIDE, DQ_SHUFFLE, ODO_208, ODO_256, DQ_CONVERT)
