"""pa: paged attention decode, a workgroup for each sequence and key head, over a cache of shuffled blocks.

8-bit kernels round each row of Q to the cache's format, and after the multiplication with V's scales each row of the
softmax weights of 256 tokens; those named hp round the weights of a last tile that is not whole to bf16, those named
uhp all of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asmlaunch.abi.families.pa import PA
from asmlaunch.layouts.named import PAGED_KEYS, PAGED_KEYS_16BIT, PAGED_VALUES, PAGED_VALUES_16BIT
from asmlaunch.validate.attention import causal
from asmlaunch.validate.bfloat16 import round_bfloat16, to_float64
from asmlaunch.validate.compare import Bound
from asmlaunch.validate.estimates import Plain, Rounding, round_e4m3, round_e4m3fnuz
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.minifloat import round_to
from asmlaunch.validate.online import Rounder, attend, scores
from asmlaunch.validate.paged import cumulative, shuffled_pages
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Definition, Output, Parameters, Problem
from asmlaunch.validate.problems.contexts import Contexts
from asmlaunch.validate.problems.elements import ELEMENTS, UNIT
from asmlaunch.validate.reference import Reference

_WIDTH = 128
_TILE = 256

#: The numbers of a cache's format, and the largest that a row of Q or of weights is scaled to.
_FORMATS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float]] = {
    "e4m3fn": (round_e4m3, 448.0),
    "e4m3fnuz": (round_e4m3fnuz, 240.0),
    "int8": (np.trunc, 127.0),
}
_SMALLEST = np.float32(1e-6)


@dataclass(frozen=True)
class Sizes(Contexts):
    """``O = softmax(q K^T / sqrt(128)) V`` for each sequence.

    Attributes:
        kv_heads: key heads.
        gqa: query heads of each.
        pad: bytes between rows of Q.
    """

    kv_heads: int = 2
    gqa: int = 8
    pad: int = 0


def _form(p: Parameters) -> str:
    """The element of K and V."""
    if p["cache"] == "pertokenFp8":
        return "e4m3fnuz" if p["processor"] == "gfx942" else "e4m3fn"
    return "int8" if p["cache"] == "pertokenInt8" else str(p["dtype"])


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    head = _WIDTH * p["block"] * (2 if p["cache"] == "noquant" else 1)
    queries = case.rows
    near = [rows for length, rows in zip(case.lengths, queries, strict=True) if 240 < length < 256]
    near = [rows for rows in near if rows == 1 or not p["causal"]]
    return {
        "sclg2e": math.log2(math.e) / math.sqrt(_WIDTH), "kv_nheads": case.kv_heads,
        "Qs": case.kv_heads * case.gqa * _WIDTH * 2 + case.pad, "KVs": head, "Bs": head * case.kv_heads,
        "batch": len(queries), "shortest_context": min(case.lengths), "fewest_queries": min(queries),
        "most_queries": max(queries), "sixteen_blocks": len(near),
        **({} if p["fixed_queries"] or p["one_kv_head"] else {"GQA": case.gqa}),
    }  # fmt: skip


def _rounders(p: Parameters) -> tuple[Rounder, Rounder | None]:
    """Of weights, and of those of a last tile that is not whole."""
    if p["cache"] == "noquant":
        if p["dtype"] == "fp16":
            return Plain(partial(round_to, bits=11, lowest=-14, rounding=p["f16_rounding"])), None
        return Plain(partial(round_bfloat16, rounding="half_away")), None
    cut_off = Plain(partial(round_bfloat16, rounding="toward_zero"))
    if p["all_16"]:
        return cut_off, None
    return Rounding(*_FORMATS[_form(p)]), cut_off if p["tail_16"] else None


def _quantised(q: np.ndarray, form: str) -> np.ndarray:
    """Rows of Q in the cache's format, with the kernel's f32 arithmetic."""
    if form not in _FORMATS:
        return q
    round_, largest = _FORMATS[form]
    amax = np.maximum(np.abs(q).max(axis=-1, keepdims=True).astype(np.float32), _SMALLEST)
    factor = np.float32(largest) * (np.float32(1) / amax)
    return np.asarray(round_((q.astype(np.float32) * factor).astype(np.float64)) / factor)


def _bound(p: Parameters, longest: int) -> Bound:
    """One rounding of the result to Q's type; sums over all tokens in f32."""
    cancellation = (longest + longest // _TILE) * F32_STEP
    # Weights on a rounding boundary are in the reference's slack; few are, but where numbers are cut off the largest
    # one always is: 127, and 1 in f16.
    often = p["cache"] == "pertokenInt8" or (
        (p["cache"], p["dtype"], p["f16_rounding"]) == ("noquant", "fp16", "toward_zero")
    )
    equal = 0.0 if often else 0.97
    if p["dtype"] == "fp16":
        step = 2.0**-11 if p["f16_rounding"] == "nearest" else 2.0**-10
        return Bound(equal, step, cancellation, absolute=2.0**-24, rounding=p["f16_rounding"])
    return Bound(equal, 2.0**-8, cancellation, rounding="half_away")


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    random = np.random.default_rng(case.seed)
    form, size = _form(p), p["block"]
    element = ELEMENTS[form]
    pages = shuffled_pages(random, case.lengths, size)
    shape = pages.count, case.kv_heads, size, _WIDTH
    keys, values = (element.make(random, *shape) for _ in range(2))
    factors = [operands.positive(random, *shape[:3]) * np.float32(UNIT.get(form, 1)) for _ in range(2)]
    for array in (keys, values, *factors):
        array[pages.spare] = element.nan if array.dtype != np.float32 else np.nan
    heads, tokens = case.kv_heads * case.gqa, cumulative(case.rows)
    q = ELEMENTS[p["dtype"]].make(random, tokens[-1], heads * _WIDTH)
    spaced = np.zeros((len(q), heads * _WIDTH + case.pad // 2), q.dtype)
    spaced[:, : heads * _WIDTH] = q
    # Kernels with one key head store with Q's stride.
    between = case.pad // 2 if p["one_kv_head"] else 0
    o = Canvas(len(q), heads * _WIDTH, q.dtype, more_rows=2, more_columns=between)
    wide = form not in _FORMATS
    arguments = {
        "O": o.whole, "Q": spaced,
        "K": (PAGED_KEYS_16BIT if wide else PAGED_KEYS).apply(keys),
        "V": (PAGED_VALUES_16BIT if wide else PAGED_VALUES).apply(values),
        "BT": pages.table(), "CL": np.array(case.lengths, np.int32),
        "tokens": len(q), "blocks": pages.count,
        **({} if wide else {"KQ": factors[0], "VQ": factors[1]}),
        **({"QTP": tokens} if p["ragged"] else {}),
    }  # fmt: skip
    rounder, last = _rounders(p)

    def reference() -> Reference:
        rows = to_float64(q).reshape(len(q), case.kv_heads, case.gqa, _WIDTH)
        value, magnitude, slack = (np.empty(rows.shape) for _ in range(3))
        for sequence, length in enumerate(case.lengths):
            own = slice(tokens[sequence], tokens[sequence + 1])
            page, token = pages.places(sequence)
            seen = causal(case.rows[sequence], length, bottom_right=True) if p["causal"] else None
            for head in range(case.kv_heads):
                k, v = (element.decode(cache[page, head, token]) for cache in (keys, values))
                key, scale = (None, None) if wide else (one[page, head, token].astype(np.float64) for one in factors)
                s = scores(
                    _quantised(rows[own, head], form).reshape(-1, _WIDTH),
                    k,
                    (1 if key is None else key) / math.sqrt(_WIDTH),
                )
                visible = None if seen is None else np.repeat(seen, case.gqa, axis=0)
                one = attend(s, v, rounder, _TILE, visible=visible, value_scales=scale, last=last).output
                for whole, part in ((value, one.value), (magnitude, one.magnitude), (slack, one.slack)):
                    whole[own, head] = np.reshape(part, (-1, case.gqa, _WIDTH))
        return Reference(*(one.reshape(len(q), -1) for one in (value, magnitude, slack)))

    output = Output("O", o.inside, reference, _bound(p, max(case.lengths)), o)
    return Problem((arguments,), (output,))


def cases(p: Parameters) -> Sequence[Sizes]:
    """Contexts around pages and tiles in one batch."""
    heads = p["max_heads"]
    if p["fixed_queries"]:
        return (Sizes("4 16 255 256 257 1023 1024 1025 1300", queries=str(p["fixed_queries"]), gqa=heads),)
    one = 1 if p["one_kv_head"] else 2
    plain = Sizes("1 16 17 240 256 257 511 700", gqa=heads, kv_heads=one, pad=64)
    if p["ragged"]:
        near = 255 if p["causal"] else 240
        return (
            dataclasses.replace(plain, contexts=f"4 16 17 {near} 256 257 511 700", queries="4 3 2"),
            dataclasses.replace(plain, gqa=heads - 1, pad=0),
        )
    few = {} if p["one_kv_head"] else {"gqa": heads - 3}
    return plain, dataclasses.replace(plain, contexts="2 15 33 128 513", kv_heads=one, pad=0, **few)


DEFINITION = Definition(PA, "pa_*.co", Sizes, sizes, build, cases)
