"""fmha_v3_fwd: attention forward in bf16, P rounded to bf16 before it is multiplied with V, sums in f32."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from asmlaunch.abi.families.fmha_v3_fwd import FAMILY
from asmlaunch.validate import attention
from asmlaunch.validate.attention import Forward
from asmlaunch.validate.bfloat16 import bfloat16_bits, to_float64
from asmlaunch.validate.compare import EXACT, Bound
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Definition, Parameters, Problem
from asmlaunch.validate.problems.sequences import Heads, Layout, Lengths, sequences_of
from asmlaunch.validate.reference import Reference

WIDTH_V = 128

#: One rounding to bf16 as a fraction of the value: half a step, or a whole one where the rest is cut off.
STEP = {"nearest": 2.0**-8, "half_away": 2.0**-8, "toward_zero": 2.0**-7}

_AROUND = 8  # roundings to f32 around the exponential and the logarithm

#: The f32 errors of a score, as a fraction of the sum of its products' magnitudes: up to 192 additions.
_SCORE = (192 + _AROUND) * F32_STEP


@dataclass(frozen=True)
class Sizes(Lengths):
    """``O = softmax(Q K^T / sqrt(width)) V``, each sequence by itself.

    Attributes:
        pad: elements between rows (of K twice as many, of V three, of O four times), or between heads.
        outside: 1 if rows of a head follow each other, 0 if the heads of a row do.
        opt: order of the tiles.
        lse: whether the log-sum-exp is stored.
        spread: standard deviation of the scores.
        ties: 1 for scores of 0 and integers in V, so that the mean of two rows is often half-way between bf16 numbers.
    """

    heads: int = 4
    key_heads: int = 2
    pad: int = 0
    outside: int = 0
    opt: int = 0
    lse: int = 1
    spread: int = 1
    ties: int = 0


def _layouts(case: Sizes, p: Parameters) -> dict[str, Layout]:
    """Of Q, K, V, O and the log-sum-exp. The older kernels take the strides of O from Q, and want Q and LSE packed."""
    rows, keys = sequences_of(case, p)
    pad = 0 if p["legacy"] else case.pad
    outside = bool(case.outside)
    return {
        "": Layout(rows, case.heads, p["width"], heads_outside=outside, pad=pad),
        "k_": Layout(keys, case.key_heads, p["width"], heads_outside=outside, pad=2 * case.pad),
        "v_": Layout(keys, case.key_heads, WIDTH_V, heads_outside=outside, pad=3 * case.pad),
        "o_": Layout(rows, case.heads, WIDTH_V, heads_outside=outside, pad=4 * pad),
        "lse_": Layout(rows, case.heads, 1, itemsize=4, heads_outside=True, pad=pad),
    }  # fmt: skip


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    rows, _ = sequences_of(case, p)
    made = {
        "scalar": p["width"] ** -0.5, "s_gqa": case.heads // max(case.key_heads, 1), "s_q_head_num": case.heads,
        "s_opt": case.opt, "s_lse": case.lse, "batch": len(rows.each), "max_seqlen_q": rows.longest,
    }  # fmt: skip
    for name, of in _layouts(case, p).items():
        made |= {f"s_{name}Seqs": of.row, f"s_{name}Hs": of.head, f"s_{name}Bs": of.entry}
    made["s_Ts"] = p["tile_q"] * made["s_Seqs"]
    only_batch = {"s_seq_len": case.rows, "s_kv_seq_len": case.keys}
    unused = {"s_lse_Seqs", "s_lse_Bs"} | ({name for name in made if name.endswith("Bs")} if p["group"] else set())
    return {**({} if p["group"] else only_batch), **{name: made[name] for name in made.keys() - unused}}


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    rows, keys = sequences_of(case, p)
    scale = p["width"] ** -0.5
    layouts = _layouts(case, p)
    q, k, v, o = (Heads(layouts[name], np.uint16) for name in ("", "k_", "v_", "o_"))
    lse = Heads(layouts["lse_"], np.float32)
    random = np.random.default_rng(case.seed)
    for part in q.each:
        part[...] = operands.bfloat16(random, *part.shape, scale=0.0 if case.ties else case.spread)
    for part in k.each:
        part[...] = operands.bfloat16(random, *part.shape)
    for part in v.each:
        made = random.integers(128, 256, part.shape) if case.ties else random.standard_normal(part.shape)
        part[...] = bfloat16_bits(made.astype(np.float64))
    arguments: dict[str, Any] = {"O": o.whole, "Q": q.whole, "K": k.whole, "V": v.whole, "LSE": lse.whole}
    if p["group"]:
        arguments |= {
            "ptr_qseq": rows.cumulative, "ptr_kseq": keys.cumulative,
            "ptr_qseq_padding": rows.first_rows, "ptr_kseq_padding": keys.first_rows,
        }  # fmt: skip

    @cache
    def forward(index: int) -> Forward:
        given_q, given_k, given_v = (to_float64(one.each[index]) for one in (q, k, v))
        visible = attention.causal(rows.each[index].rows, keys.each[index].rows, bottom_right=True)
        return attention.forward(given_q, given_k, given_v, scale, visible if p["causal"] else None)

    def output(index: int) -> Reference:
        return forward(index).output

    def log_sum(index: int) -> Reference:
        return Reference(forward(index).lse[..., None], forward(index).score_magnitude[..., None])

    step = STEP[p["rounding"]]
    score = case.spread * p["width"] ** 0.5 * _SCORE
    bound = Bound(0.0, step, step + score + case.keys * F32_STEP, rounding=p["rounding"])
    if case.ties:
        bound = dataclasses.replace(EXACT, rounding=p["rounding"])
    log_bound = Bound(0.0, 4 * F32_STEP, _SCORE, absolute=(case.keys + _AROUND) * F32_STEP)
    outputs = o.outputs("O", output, bound)
    outputs += lse.outputs("lse", log_sum, log_bound) if case.lse else (lse.untouched("lse"),)
    # LDS is used again without a barrier: waves have to advance together.
    return Problem((arguments,), outputs, {"schedule": "lockstep"})


def cases(p: Parameters) -> Sequence[Sizes]:
    """A tile of rows and a part of one, keys that end within a tile, grouped heads, strides of their own; then other
    lengths, layout and order of the tiles, over three tiles of rows; then rounding of numbers half-way.
    """
    rows, keys = p["tile_q"] + 44, 310
    reverse = 0 if p["legacy"] else 3 if p["causal"] else 0
    if p["group"]:
        return (
            Sizes(1, rows, keys, more="1/33 0/7 40/7", pad=16, opt=reverse & 1),
            Sizes(0, 0, 0, more="129/64 5/129", heads=2, key_heads=1, outside=1, lse=0, spread=4),
            Sizes(2, 1, 2, ties=1),
        )
    return (
        Sizes(2, rows, keys, heads=2, key_heads=1, pad=16, opt=reverse),
        Sizes(1, 2 * p["tile_q"] + 88, 65, heads=8, outside=1, lse=0, spread=4, opt=0 if p["legacy"] else 5),
        Sizes(2, 1, 2, ties=1),
    )


DEFINITION = Definition(FAMILY, "fwd_hd*.co", Sizes, sizes, build, cases)
