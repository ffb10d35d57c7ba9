"""topksoftmax: softmax over the experts and the k largest, in descending order (gfx942).

No maximum is subtracted: a row is right while its log-sum-exp is below 87 and its largest logit above -87.

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from asmlaunch.abi.families.base import Family, Require, ceil_div, num, ptr, rows_nbytes, slots
from asmlaunch.abi.schema import extent, stride

FAMILY = Family(
    name="topksoftmax",
    title="softmax over experts and the k largest",
    pattern=r"topksoftmax_(?P<rows>\d+)x(?P<experts>\d+)x(?P<k>\d+)",
    fields=slots(
        ptr(
            "ptr_T",
            "output: expert indices",
            "i32 [batch, topk], rows out_stride apart",
            "T",
            dtypes=("int32", "uint32"),
            nbytes=lambda p: rows_nbytes(p.batch, p.out_stride, 4 * p.k),
        ),
        ptr(
            "ptr_W",
            "output: weights",
            "f32 [batch, topk], rows out_stride apart",
            "W",
            dtypes=("float32",),
            nbytes=lambda p: rows_nbytes(p.batch, p.out_stride, 4 * p.k),
        ),
        ptr(
            "ptr_A", "logits", "f32 [batch, expert]", "A", dtypes=("float32",), nbytes=lambda p: 4 * p.batch * p.expert
        ),
        num("batch", "rows", "rows", derive=(extent("A", 0),)),
        num("expert", "experts, also the row stride of the logits", "elements", derive=(extent("A", 1),)),
        num("topk", "loaded, not used: the kernel's name fixes it", live=False),
        num("renormalize", "0 or 1: divide the weights by their sum", default=0),
        num("out_stride", "row stride of T and W", "bytes", derive=(stride("T", 0), stride("W", 0))),
    ),
    grid=lambda p: (ceil_div(p.batch, p.rows), 1, 1),
    requires=(
        Require("batch", lambda p: p.batch > 0, "at least 1"),
        Require("expert", lambda p: p.expert == p.experts, "the number of experts in the kernel's name"),
        Require("topk", lambda p: p.topk in (0, p.k), "the k in the kernel's name (or leave it out)"),
        Require("out_stride", lambda p: p.out_stride >= 4 * p.k, "at least 4 bytes times k"),
    ),
)
