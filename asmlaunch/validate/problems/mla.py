"""mla: attention over a latent cache whose rows of 576 are keys and whose first 512 columns are values.

Decode kernels split the keys of a sequence: each split gives a partial result and a log-sum-exp in f32, which are put
together here in float64. Persistent kernels take lists of works, each a range of keys of one sequence. Softmax weights
are rounded to bf16, in kernels with 8-bit Q to its format, relative to the largest score so far.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np

from asmlaunch.abi.families.mla import FAMILY
from asmlaunch.validate.attention import causal
from asmlaunch.validate.bfloat16 import round_bfloat16
from asmlaunch.validate.compare import Bound
from asmlaunch.validate.estimates import Estimate, Plain, round_e4m3, round_e4m3fnuz
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.online import Online, Rounder, attend, scores
from asmlaunch.validate.paged import cumulative, shuffled_pages
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Definition, Output, Parameters, Problem
from asmlaunch.validate.problems.contexts import Contexts
from asmlaunch.validate.problems.elements import ELEMENTS
from asmlaunch.validate.reference import Reference

WIDTH = 576
VALUES = 512

_BF16 = Plain(partial(round_bfloat16, rounding="half_away"))
_E4M3 = {"e4m3fn": Plain(round_e4m3), "e4m3fnuz": Plain(round_e4m3fnuz)}
_EXACT = Plain(np.asarray)

#: f32 roundings around sums: of the exponentials, the scales, and what rescales earlier tiles.
_AROUND = 64

#: Bytes before the works in the memory that a persistent kernel is given the address of.
_TABLE = 4096


@dataclass(frozen=True)
class Sizes(Contexts):
    """``O = softmax(q latent^T / sqrt(576)) latent[:, :512]`` for each sequence.

    Attributes:
        splits: parts that the keys of a sequence are split into; of persistent kernels every second sequence's.
        page: tokens of a page.
        lists: persistent kernels: lists of works; one more is empty.
        unscaled: 1 if the cache's scale is 1.
    """

    splits: int = 1
    page: int = 1
    lists: int = 3
    unscaled: int = 0


@dataclass(frozen=True)
class _Part:
    """Rows of Q and keys that are worked on together.

    Attributes:
        sequence: index.
        rows: of Q.
        keys: indices of the sequence's tokens.
        at: rows of the array that the results go to.
    """

    sequence: int
    rows: slice
    keys: np.ndarray
    at: slice


class _Data:
    """Operands of a case, and the attention of its parts."""

    def __init__(self, case: Sizes, p: Parameters) -> None:
        random = np.random.default_rng(case.seed)
        self.case, self.p = case, p
        fp8 = "e4m3fnuz" if p["processor"] == "gfx942" else "e4m3fn"
        self.q_element, self.kv_element = (
            ELEMENTS[fp8 if bits == 8 else "bf16"] for bits in (p["q_bits"], p["kv_bits"])
        )
        self.pages = shuffled_pages(random, case.lengths, case.page)
        self.cache = self.kv_element.make(random, self.pages.count, case.page, WIDTH)
        self.cache[self.pages.spare] = self.kv_element.nan
        self.first = cumulative(case.rows)
        self.heads, self.tokens = int(p["heads"]), int(self.first[-1])
        self.q = self.q_element.make(random, self.tokens, self.heads, WIDTH)
        self.q_scale, self.kv_scale = (
            operands.positive(random, 1) if bits == 8 else np.ones(1, np.float32)
            for bits in (p["q_bits"], p["kv_bits"])
        )
        if case.unscaled:
            self.kv_scale[:] = 1
        self.page_0_counts = bool(p["persistent"] and p["fewest"] == 2)
        self.rounder: Rounder = _E4M3[fp8] if p["q_bits"] == 8 else _BF16

    @property
    def arguments(self) -> dict[str, Any]:
        """What all forms of the kernels take."""
        return {
            "ptr_Q": self.q, "ptr_KV": self.cache, "ptr_LTD": self.pages.listed(),
            **({"ptr_QSCALE": self.q_scale} if self.p["q_bits"] == 8 else {}),
            **({"ptr_KVSCALE": self.kv_scale} if self.p["kv_bits"] == 8 else {}),
        }  # fmt: skip

    def rows_of(self, sequence: int) -> slice:
        """A sequence's rows of Q."""
        return slice(int(self.first[sequence]), int(self.first[sequence + 1]))

    def attend(self, part: _Part, *, rounded: bool = True) -> Online:
        """Of rows ``[tokens * heads]``, with weights as the kernel rounds them or with exact ones."""
        keys, counted = part.keys, len(part.keys)
        if rounded and self.page_0_counts:
            # The keys that fill up a chunk are read from page 0, and count for the largest score.
            last = min(keys[0] + -(-counted // self.p["chunk"]) * self.p["chunk"], self.case.lengths[part.sequence])
            keys = np.arange(keys[0], last)
        page, token = (place[keys] for place in self.pages.places(part.sequence))
        page[counted:] = 0
        latent = self.kv_element.decode(self.cache[page, token])
        q = self.q_element.decode(self.q[part.rows]).reshape(-1, WIDTH)
        scale = float(self.kv_scale[0])
        s = scores(q, latent, float(self.q_scale[0]) * scale / math.sqrt(WIDTH))
        visible = None
        if self.p["causal"]:
            rows = self.rows_of(part.sequence)
            seen = causal(rows.stop - rows.start, self.case.lengths[part.sequence], bottom_right=True)
            own = seen[part.rows.start - rows.start : part.rows.stop - rows.start, keys]
            visible = np.repeat(own, self.heads, axis=0)
        rounder, tile = (self.rounder, self.p["chunk"]) if rounded else (_EXACT, len(latent))
        made = attend(s, latent[:, :VALUES], rounder, tile, visible=visible, counted=counted)
        o = made.output
        slack = o.slack if rounded else self._lost(s, visible, latent[:, :VALUES], made.lse.value)
        return Online(Reference(o.value * scale, o.magnitude * scale, slack * scale), made.lse)

    def _lost(self, s: Estimate, visible: np.ndarray | None, values: np.ndarray, lse: np.ndarray) -> np.ndarray:
        """What weights in 8 bits may lose, whatever their size: half a step of the smallest, 2^-10 of the largest."""
        if self.p["q_bits"] == 16:
            return np.zeros((len(s.value), VALUES))
        counted = np.ones(s.value.shape, bool) if visible is None else visible
        with np.errstate(invalid="ignore"):
            largest = np.exp(np.where(counted, s.value, -np.inf).max(axis=1) - lse)
        return 2.0**-10 * np.nan_to_num(largest)[:, None] * (counted @ np.abs(values))


class _Results:
    """What parts should give, each in its rows of an array whose other rows stay NaN."""

    def __init__(self, data: _Data, parts: Sequence[_Part], rows: int) -> None:
        self._data, self._parts, self._rows = data, parts, rows
        self._longest = max((len(part.keys) for part in parts), default=0)

    @cached_property
    def _made(self) -> tuple[Reference, Reference]:
        heads = self._data.heads
        value, magnitude, slack = (np.full((self._rows, heads * VALUES), fill) for fill in (np.nan, 0.0, 0.0))
        lse, lse_slack = np.full((self._rows, heads), np.nan), np.zeros((self._rows, heads))
        for part in self._parts:
            one = self._data.attend(part)
            for whole, made in (
                (value, one.output.value), (magnitude, one.output.magnitude), (slack, one.output.slack),
                (lse, one.lse.value), (lse_slack, one.lse.slack),
            ):  # fmt: skip
                whole[part.at] = np.reshape(made, whole[part.at].shape)
        # Rows that see no key of a split are 0 with a log-sum-exp of -inf, or are not written.
        empty = np.isneginf(lse)
        lse[empty] = -np.inf if self._data.p["empty_rows"] else np.nan
        every = np.repeat(empty, VALUES, axis=1)
        value[every] = 0.0 if self._data.p["empty_rows"] else np.nan
        return Reference(value, np.nan_to_num(magnitude), np.nan_to_num(slack)), Reference(lse, np.abs(lse), lse_slack)

    def output(self) -> Reference:
        """``[rows, heads * 512]``."""
        return self._made[0]

    def lse(self) -> Reference:
        """``[rows, heads]``."""
        return self._made[1]

    def final(self, o: Canvas) -> Output:
        """Results rounded to bf16."""
        bound = Bound(0.97, 2.0**-8, (self._longest + _AROUND) * F32_STEP, rounding="half_away")
        return Output("O", o.inside, self.output, bound, o)

    def partial(self, r: Canvas, lse: Canvas) -> tuple[Output, ...]:
        """Partial results, log-sum-exps, and what they give together."""
        bound = Bound(0.0, 4 * F32_STEP, (self._longest + _AROUND) * F32_STEP)
        # The log-sum-exp is near 0 where its terms are not.
        of_lse = dataclasses.replace(bound, absolute=8 * F32_STEP)
        outputs = (Output("R", r.inside, self.output, bound, r), Output("LSE", lse.inside, self.lse, of_lse, lse))
        if self._data.page_0_counts:
            return outputs  # what the weights lose has no bound of its own
        together = partial(self._together, lse.inside)
        return (*outputs, Output("R together", r.inside, self._exact, self._together_bound, decode=together))

    def _together(self, lse: np.ndarray, partials: np.ndarray) -> np.ndarray:
        """The results of split sequences from their partial ones, in float64: ``[tokens, heads * 512]``."""
        shape = self._data.tokens, self._data.heads
        logs = np.where(np.isnan(lse), -np.inf, lse.astype(np.float64))
        largest = np.full(shape, -np.inf)
        for part in self._parts:
            largest[part.rows] = np.maximum(largest[part.rows], logs[part.at])
        total, weights = np.zeros((*shape, VALUES)), np.zeros((*shape, 1))
        for part in self._parts:
            weight = np.exp(logs[part.at] - largest[part.rows])[:, :, None]
            weights[part.rows] += weight
            one = partials[part.at].astype(np.float64).reshape(-1, shape[1], VALUES)
            total[part.rows] += np.where(weight > 0, weight * one, 0.0)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / weights).reshape(shape[0], -1)

    def _exact(self) -> Reference:
        """Attention with weights that nobody rounds, ``[tokens, heads * 512]``; rows of no part are NaN."""
        data = self._data
        value = np.full((data.tokens, data.heads * VALUES), np.nan)
        magnitude, slack = np.zeros(value.shape), np.zeros(value.shape)
        for sequence in {part.sequence for part in self._parts}:
            rows, keys = data.rows_of(sequence), np.arange(data.case.lengths[sequence])
            output = data.attend(_Part(sequence, rows, keys, rows), rounded=False).output
            value[rows], magnitude[rows], slack[rows] = (
                np.reshape(one, (len(value[rows]), -1)) for one in (output.value, output.magnitude, output.slack)
            )
        return Reference(value, magnitude, slack)

    @property
    def _together_bound(self) -> Bound:
        """Each weight is off by half a step of its format (of normal numbers; ``_Data._lost`` has the others)."""
        half = 2.0**-8 if self._data.p["q_bits"] == 16 else 2.0**-4
        return Bound(0.0, 0.0, half + (self._longest + _AROUND) * F32_STEP)


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    most = max(case.rows)
    return {
        "scalar": 1 / math.sqrt(WIDTH), "s_MQA": p["heads"] * most, "s_kv_split": case.splits,
        "s_Q_Bs": most * p["heads"] * WIDTH * p["q_bits"] // 8, "s_Bs": case.page * WIDTH * p["kv_bits"] // 8,
        "s_log2_plen": case.page.bit_length() - 1, "batch": len(case.rows), "work_lists": case.lists + 1,
        "shortest_context": min(case.lengths), "fewest_queries": min(case.rows), "most_queries": max(case.rows),
        "page": case.page, "scaled": 1 - case.unscaled,
        "lone_last": sum(length % p["chunk"] == 1 for length in case.lengths) if case.splits > 1 else 0,
        "clobbered": sum(
            length > 64 and 1 <= length % 64 < rows - 1 for length, rows in zip(case.lengths, case.rows, strict=True)
        ),
        **({"out_16_nosplit": int(case.splits == 1)} if p["out16"] else {}),
    }  # fmt: skip


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    data = _Data(case, p)
    # Waves of kernels with 8-bit Q load over each other's rows, and write weights where others may still read.
    options = {"schedule": "lockstep"} if p["q_bits"] == 8 else {}
    arguments, outputs = _persistent(data) if p["persistent"] else _split(data)
    return Problem(({**data.arguments, **arguments},), outputs, options)


def _split(data: _Data) -> tuple[dict[str, Any], tuple[Output, ...]]:
    """Kernels that are not persistent: chunks of keys go round the splits."""
    case, p, splits = data.case, data.p, data.case.splits
    parts = []
    for sequence, length in enumerate(case.lengths):
        chunk, rows = np.arange(length) // p["chunk"], data.rows_of(sequence)
        for split in range(min(splits, int(chunk[-1]) + 1)):
            at = slice(rows.start * splits + split, rows.stop * splits, splits)
            parts.append(_Part(sequence, rows, np.flatnonzero(chunk % splits == split), at))
    whole = splits == 1 and not p["always_partial"]
    count = data.tokens * splits
    r = Canvas(count, data.heads * VALUES, np.uint16 if whole else np.float32, more_rows=2)
    lse = Canvas(count, data.heads, np.float32, more_rows=2)
    results = _Results(data, parts, count)
    arguments = {
        "ptr_R": r.whole, "ptr_LSE": lse.whole, "ptr_LTP": data.pages.first(),
        **({"ptr_QTP": data.first} if p["ragged"] else {}),
        **({"ptr_STP": splits * np.arange(len(case.rows) + 1, dtype=np.int32)} if p["split_table"] else {}),
    }  # fmt: skip
    return arguments, (results.final(r),) if whole else results.partial(r, lse)


def _persistent(data: _Data) -> tuple[dict[str, Any], tuple[Output, ...]]:
    """Works: one for each sequence, or for each split of every second one, or for each row of Q with 128 heads."""
    case = data.case
    whole: list[_Part] = []
    partial: list[_Part] = []
    works: list[tuple[int, ...]] = []
    slots = 0
    for sequence, length in enumerate(case.lengths):
        rows, base = data.rows_of(sequence), int(data.pages.first()[sequence]) * case.page
        splits = min(case.splits, length) if sequence % 2 == 0 else 1
        steps = range(rows.start, rows.stop, 1 if data.heads == 128 else rows.stop - rows.start)
        for block in (slice(row, min(row + steps.step, rows.stop)) for row in steps):
            # Kernels that work on one row have no mask: its keys end where it may see no more.
            limit = length - (rows.stop - block.stop if data.heads == 128 and data.p["causal"] else 0)
            for start, end in pairwise(length * index // splits for index in range(splits + 1)):
                keys = np.arange(start, min(end, limit))
                if not len(keys):
                    continue
                slot = -1 if splits == 1 else slots
                at = block if splits == 1 else slice(slots, slots + block.stop - block.start)
                slots += 0 if splits == 1 else block.stop - block.start
                (whole if splits == 1 else partial).append(_Part(sequence, block, keys, at))
                works.append(
                    (sequence, slot, block.start, block.stop, base + start, base + start + len(keys), length - end, 0)
                )
    counts = cumulative([*map(len, np.array_split(np.arange(len(works)), case.lists)), 0])
    numbers = np.array(works, np.int32)
    # The kernel gets the address of two addresses: one array holds them and what they point to.
    table = np.zeros(_TABLE + numbers.nbytes, np.uint8)
    table[:16].view(np.uint64)[:] = table.ctypes.data + 16, table.ctypes.data + _TABLE
    table[16 : 16 + counts.nbytes] = counts.view(np.uint8)
    table[_TABLE:] = numbers.reshape(-1).view(np.uint8)
    o = Canvas(data.tokens, data.heads * VALUES, np.uint16, more_rows=2)
    r = Canvas(slots, data.heads * VALUES, np.float32, more_rows=2)
    lse = Canvas(slots, data.heads, np.float32, more_rows=2)
    outputs = [_Results(data, whole, data.tokens).final(o)] if whole else []
    if partial:
        outputs += _Results(data, partial, slots).partial(r, lse)
    return {"ptr_STP": table, "ptr_RP": o.whole, "ptr_R": r.whole, "ptr_LSE": lse.whole}, tuple(outputs)


def cases(p: Parameters) -> Sequence[Sizes]:
    """Contexts around chunks, whole and split."""
    most = 1 if p["unmasked"] else p["most"] or (2 if p["heads"] == 128 else 9)
    base = Sizes(
        "3 32 65" if p["heads"] == 128 else "9 16 17 63 64 130 200",
        queries=f"{most} {p['fewest']}",
        unscaled=int(p["scale_lost"]),
    )
    if p["paged"]:
        return tuple(dataclasses.replace(base, page=page) for page in (16, 32 if p["chunk"] == 32 else 64))
    if not p["splits"]:
        return (base, dataclasses.replace(base, contexts="10 31 33 96", lists=1))
    return base, dataclasses.replace(base, splits=2), dataclasses.replace(base, contexts="40 97", splits=3)


DEFINITION = Definition(FAMILY, "mla_*.co", Sizes, sizes, build, cases)
