"""fmha_v3_bwd: gradients of attention, from the log-sum-exp and D that float64 gives; and the dQ of 16 bits in order.

P and dS are rounded to 16 bits before they are multiplied again. dQ is added up over tiles of keys with atomics, in f32
or in 16 bits; in some kernels its 16-bit sums lie in an order of their own, which dq_shuffle undoes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from asmlaunch.abi.families import fmha_v3_bwd
from asmlaunch.abi.families.base import Family, round_up
from asmlaunch.validate import attention
from asmlaunch.validate.attention import Gradients
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.compare import EXACT, Bound
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Definition, Output, Parameters, Problem
from asmlaunch.validate.problems.sequences import Heads, Layout, Lengths, Spans, batch, sequences_of
from asmlaunch.validate.reference import Reference

#: Significant bits of a format, and its smallest normal number.
_FORMATS = {"bf16": (8, 2.0**-126), "fp16": (11, 2.0**-14)}

_AROUND = 8  # roundings to f32 around the exponential

#: Rows of Q in one block of the shuffled accumulator.
_BLOCK = 16


@dataclass(frozen=True)
class Sizes(Lengths):
    """Gradients of ``softmax(Q K^T / sqrt(width)) V``, each sequence by itself; dK and dV per head of Q.

    Attributes:
        width: head size, for kernels that take any; 0 for the kernel's own.
        pad: elements between rows of each tensor, in multiples that differ, or between heads.
        outside: 1 if rows of a head follow each other, 0 if the heads of a row do.
        left, right: keys that a row sees before and after its own, for kernels with a window.
        poison: 1 for NaN beside the heads of Q and dO where a kernel reads past the head size.
    """

    width: int = 0
    pad: int = 0
    outside: int = 0
    left: int = 20
    right: int = 5
    poison: int = 0


@dataclass(frozen=True)
class _Shape:
    """The tensors of a problem."""

    case: Sizes
    p: Parameters
    family: Family

    @property
    def fixed(self) -> bool:
        return self.family is fmha_v3_bwd.FIXED

    @cached_property
    def spans(self) -> tuple[Spans, Spans]:
        if self.fixed and self.case.rows != self.case.keys:
            raise ValueError("rows of Q as many as rows of K")
        return sequences_of(self.case, self.p)

    @property
    def widths(self) -> tuple[int, int]:
        """Of Q and K, and of V."""
        if self.p["head"] == "192_hd128":
            return 192, 128
        width = self.case.width or self.p["head"]
        return width, width

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """By the names of the arguments.

        Kernels with one length take strides of several tensors from one argument, and want Q and dO packed.
        """
        (rows, keys), (width, width_v) = self.spans, self.widths
        case, outside = self.case, bool(self.case.outside)
        ratio = case.heads // max(case.key_heads, 1)
        pads = (1, 2, 3, 4, 5, 6) if not self.fixed else (0, 1, 1, 0, ratio, ratio)

        def layout(of: Spans, heads: int, width: int, pad: int) -> Layout:
            return Layout(of, heads, width, heads_outside=outside, pad=case.pad * pad)

        statistics = Layout(rows, case.heads, 1, 4, heads_outside=True, pad=case.pad if self.p["group"] else 0)
        return {
            "q": layout(rows, case.heads, width, pads[0]),
            "k": layout(keys, case.key_heads, width, pads[1]),
            "v": layout(keys, case.key_heads, width_v, pads[2]),
            "do": layout(rows, case.heads, width_v, pads[3]),
            "dk": layout(keys, case.heads, width, pads[4]),
            "dv": layout(keys, case.heads, width_v, pads[5]),
            "lse": statistics,
            "d": statistics,
        }

    @property
    def shuffled(self) -> bool:
        """Whether dQ is added up in 16 bits, in an order of its own."""
        return self.family is fmha_v3_bwd.WIDE and self.p["accumulated"] == 16

    @property
    def accumulator(self) -> Layout:
        """Of dQ, where it is not shuffled. In f32 a head has as many rows as the log-sum-exp."""
        if self.p["accumulated"] == 16:
            return self.layouts["q"]
        width = self.widths[0]
        pad = width * self.layouts["lse"].pad
        return Layout(self.spans[0], self.case.heads, width, 4, heads_outside=True, pad=pad)


def sizes(family: Family, case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments that the family has."""
    shape = _Shape(case, p, family)
    rows, keys = shape.spans
    layouts = shape.layouts
    made: dict[str, Any] = {
        "scalar": shape.widths[0] ** -0.5, "ratio": case.heads // max(case.key_heads, 1), "nhead_q": case.heads,
        "batch": len(rows.each), "head_dim": shape.widths[0], "max_seqlen_k": keys.longest,
        "max_seqlen_dq": round_up(rows.longest, _BLOCK), "Hs_lsed": layouts["lse"].head,
    }  # fmt: skip
    if not p["group"]:
        made |= {"seqlen_q": case.rows, "seqlen_k": case.keys}
    for name in ("q", "k", "v", "do", "dk", "dv"):
        of = layouts[name]
        made |= {f"Hs_{name}": of.head, f"Seqs_{name}": of.row}
        if not p["group"]:
            made[f"BAs_{name}"] = of.entry
    if shape.fixed:
        made |= {"seq_len": case.rows, "Ts": p["tile_k"] * layouts["k"].row, "Seqs_dkv": layouts["dk"].row}
        made |= {part: made[f"{part}_q"] for part in ("Hs", "BAs", "Seqs")}
        made |= {f"{part}_kv": made[f"{part}_k"] for part in ("Hs", "BAs", "Seqs")}
    if p["mask"] == "swa":
        made |= {"mask_x": case.right + 1, "mask_y": case.left + 1}
    known = {entry.name for entry in family.fields} | {symbol.name for symbol in family.symbols}
    return {name: value for name, value in made.items() if name in known}


def visible(case: Sizes, p: Parameters, rows: int, keys: int) -> np.ndarray | None:
    """Which keys the rows of a sequence see, None for all."""
    if p["mask"] == "swa":
        return attention.window(rows, keys, case.left, case.right)
    return attention.causal(rows, keys, bottom_right=p["mask"] == "causal_br") if p["mask"] else None


def build(family: Family, case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    shape = _Shape(case, p, family)
    rows, keys = shape.spans
    width = shape.widths[0]
    scale = width**-0.5
    stored = np.uint16 if p["type"] == "bf16" else np.float16
    tensors = {
        name: Heads(layout, np.float32 if layout.itemsize == 4 else stored) for name, layout in shape.layouts.items()
    }
    random = np.random.default_rng(case.seed)
    for name in ("q", "k", "v", "do"):
        if family is fmha_v3_bwd.WIDE and case.width and name in ("q", "do") and not case.poison:
            # These kernels read past the head size there, and multiply what they find with zeros.
            tensors[name].whole[...] = 7
        tensors[name].filled([_numbers(random, part.shape, p["type"]) for part in tensors[name].each])
    bits, smallest = _FORMATS[p["type"]]

    def given(name: str, index: int) -> np.ndarray:
        return to_float64(tensors[name].each[index])

    for index in range(len(rows.each)):
        seen = visible(case, p, rows.each[index].rows, keys.each[index].rows)
        made = attention.forward(given("q", index), given("k", index), given("v", index), scale, seen)
        tensors["lse"].each[index][..., 0] = made.lse
        tensors["d"].each[index][..., 0] = attention.row_sums(made.output.value, given("do", index)).value

    @cache
    def gradients(index: int) -> Gradients:
        seen = visible(case, p, rows.each[index].rows, keys.each[index].rows)
        q, k, v, do, lse, d = (given(name, index) for name in ("q", "k", "v", "do", "lse", "d"))
        return attention.gradients(
            q, k, v, do, scale, seen, lse=lse[..., 0], d=d[..., 0], smallest=smallest
        )  # fmt: skip

    # Half a step, or a whole one where the rest is cut off.
    step = 2.0 ** -(bits - (p["rounding"] == "toward_zero"))
    score = (width + _AROUND) * F32_STEP * 2 * width**0.5
    lost = step + score + (max(rows.longest, keys.longest) + _AROUND) * F32_STEP
    bound = Bound(0.0, step, lost, absolute=step * smallest, rounding=p["rounding"])

    def added_in_16_bits(index: int) -> Reference:
        """Each part, and each of the sums, is rounded."""
        made = gradients(index)
        k = attention.per_query_head(given("k", index), case.heads)
        starts = range(0, k.shape[-2], p["tile_k"])
        parts = [made.ds[..., at : at + p["tile_k"]] @ k[..., at : at + p["tile_k"], :] for at in starts]
        together = np.sum([np.abs(part) for part in parts], axis=0) if parts else np.abs(made.dq.value)
        slack = made.dq.slack + (len(parts) + 1) * step * (together + smallest)
        return dataclasses.replace(made.dq, slack=slack)

    outputs: tuple[Output, ...] = ()
    outputs += tensors["dk"].outputs("dK", lambda index: gradients(index).dk, bound)
    outputs += tensors["dv"].outputs("dV", lambda index: gradients(index).dv, bound)
    if shape.shuffled:
        memory = np.zeros((len(rows.each), case.heads, round_up(rows.longest, _BLOCK), _columns(p)), stored)
        outputs += tuple(
            Output(f"dQ {index}", memory[index], partial(added_in_16_bits, index),
                   dataclasses.replace(bound, relative=0.0, rounding="nearest"),
                   decode=partial(_ordered, rows=span.rows, width=width))
            for index, span in enumerate(rows.each) if span.rows
        )  # fmt: skip
    else:
        accumulator = Heads(shape.accumulator, np.float32 if p["accumulated"] == 32 else stored)
        accumulator.zeroed()
        memory = accumulator.whole
        if p["accumulated"] == 32:
            outputs += accumulator.outputs(
                "dQ", lambda index: gradients(index).dq, Bound(0.0, 0.0, lost, absolute=F32_STEP * smallest)
            )
        else:
            outputs += accumulator.outputs("dQ", added_in_16_bits, dataclasses.replace(bound, rounding="nearest"))
    arguments: dict[str, Any] = {f"ptr_{name}": tensor.whole for name, tensor in tensors.items()}
    arguments["ptr_dq"] = memory
    if p["group"]:
        arguments |= {
            "ptr_qseq": rows.cumulative, "ptr_kseq": keys.cumulative,
            "ptr_qseq_padded": rows.first_rows, "ptr_kseq_padded": keys.first_rows,
        }  # fmt: skip
    return Problem((arguments,), outputs, {"schedule": "lockstep"})


def _numbers(random: np.random.Generator, shape: tuple[int, ...], form: str) -> np.ndarray:
    if form == "bf16":
        return operands.bfloat16(random, *shape)
    return random.standard_normal(shape).astype(np.float16)


def _columns(p: Parameters) -> int:
    """Columns of the shuffled accumulator, whatever the head size."""
    return 128 if p["head"] == 128 else 192


def shuffle_order(columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the shuffled accumulator has each pair of columns of 16 rows.

    Returns:
        Row and pair in memory, each ``[16, columns / 2]``, of a row and a pair of columns.
    """
    row, pair = np.meshgrid(np.arange(_BLOCK), np.arange(columns // 2), indexing="ij")
    if columns == 128:
        return 2 * (pair >> 3) + (pair & 1), 16 * ((pair & 7) >> 1) + row
    part, within = pair >> 5, pair & 31
    return 4 * (within >> 3) + 2 * (within & 1) + ((within >> 2) & 1), 32 * part + 8 * (within & 2) + row


def _ordered(shuffled: np.ndarray, *, rows: int, width: int) -> np.ndarray:
    """``[heads, rows, width]`` of an accumulator ``[heads, a multiple of 16, columns]``."""
    heads, _, columns = shuffled.shape
    pairs = np.ascontiguousarray(shuffled).view(np.uint32).reshape(heads, -1, _BLOCK, columns // 2)
    at = shuffle_order(columns)
    ordered = np.ascontiguousarray(pairs[:, :, at[0], at[1]])
    return ordered.view(shuffled.dtype).reshape(heads, -1, columns)[:, :rows, :width]


def cases(family: Family, p: Parameters) -> Sequence[Sizes]:
    """Two tiles of keys and grouped heads, all lengths (and the head size) that end within a tile where they may, and
    strides of their own; then one part of a tile, the full head size, and the other layout.
    """
    width = {128: 104, 192: 184}[p["head"]] if p["ragged_head"] else 0
    keys = p["tile_k"] + 70
    if family is fmha_v3_bwd.FIXED:
        return Sizes(2, 320, 320, width=width, pad=16), Sizes(1, 64, 64, heads=4, key_heads=2, outside=1)
    if p["group"]:
        # No keys without rows of Q: some kernels leave their gradients unwritten.
        more = "2/33 40/0 33/5"
        return (
            Sizes(1, 145, keys, more=more, width=width, pad=16),
            Sizes(0, 0, 0, more="64/64 65/193 16/3", heads=4, key_heads=2, outside=1),
        )
    return (
        Sizes(2, 145, keys, width=width, pad=16),
        Sizes(1, 70, 33, heads=4, key_heads=2, outside=1, left=7, right=0),
    )


def _shuffle_layout(case: Sizes, p: Parameters, spans: Spans) -> tuple[Layout, Layout]:
    """Of the accumulator, and of dQ."""
    blocks = batch(len(spans.each), round_up(spans.longest, _BLOCK))
    outside = bool(case.outside)
    accumulator = Layout(blocks, case.heads, _columns(p), heads_outside=True)
    return accumulator, Layout(spans, case.heads, case.width or p["head"], heads_outside=outside, pad=case.pad)


def _shuffle_sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    spans, _ = sequences_of(case, p)
    made: dict[str, Any] = {"head_dim": case.width or p["head"], "nhead_q": case.heads, "batch": len(spans.each)}
    for name, of in zip(("dq_acc", "dq"), _shuffle_layout(case, p, spans), strict=True):
        made |= {f"Hs_{name}": of.head, f"BAs_{name}": of.entry, f"Seqs_{name}": of.row}
    if p["group"]:
        return made | {"BAs_dq": 0, "max_seqlen_q": spans.longest}
    return made | {"seqlen_q": case.rows}


def _shuffle(case: Sizes, p: Parameters) -> Problem:
    """Finite bf16 numbers in the accumulator, each of which has one place in dQ."""
    spans, _ = sequences_of(case, p)
    of_accumulator, of_dq = _shuffle_layout(case, p, spans)
    random = np.random.default_rng(case.seed)
    accumulator, dq = Heads(of_accumulator, np.uint16), Heads(of_dq, np.uint16)
    accumulator.whole[...] = operands.bfloat16(random, len(accumulator.whole))

    def reference(index: int) -> Reference:
        rows = spans.each[index].rows
        value = to_float64(_ordered(accumulator.inside[index], rows=rows, width=of_dq.width))
        return Reference(value, np.zeros(value.shape))

    arguments: dict[str, Any] = {"ptr_dq_acc": accumulator.whole, "ptr_dq": dq.whole}
    if p["group"]:
        arguments |= {"ptr_qseq": spans.cumulative, "ptr_qseq_padded": spans.first_rows}
    return Problem((arguments,), dq.outputs("dQ", reference, EXACT))


def _shuffle_cases(p: Parameters) -> Sequence[Sizes]:
    """Rows that end within a block and within a workgroup's 64; a head size below the accumulator's."""
    width = 0 if p["head"] == 192 else 104
    if p["group"]:
        return Sizes(1, 145, 0, more="1/0 0/0 64/0 33/0", width=width, pad=16), Sizes(1, 16, 0, outside=1)
    return Sizes(2, 145, 0, width=width, pad=16), Sizes(1, 64, 0, outside=1)


def _definition(family: Family) -> Definition:
    return Definition(
        family,
        "bwd_hd*.co",
        Sizes,
        partial(sizes, family),
        partial(build, family),
        partial(cases, family),
        shared_names=True,
    )


FIXED, RAGGED, GROUP, WIDE = (
    _definition(family) for family in (fmha_v3_bwd.FIXED, fmha_v3_bwd.RAGGED, fmha_v3_bwd.GROUP, fmha_v3_bwd.WIDE)
)
DQ_SHUFFLE = Definition(
    fmha_v3_bwd.DQ_SHUFFLE, "bwd_hd*_dq_shuffle*.co", Sizes, _shuffle_sizes, _shuffle, _shuffle_cases
)
DEFINITIONS = (FIXED, RAGGED, GROUP, WIDE, DQ_SHUFFLE)
