"""fmoe_2stages: ``act(x W_gate) * (x W_up)`` for the rows of each expert, or with K split the sums themselves.

Results are bf16, FP8 codes with a scale for 128 columns (blockscale), or f32 sums of the parts of K. The rows' weights
multiply both sums (doweight).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from asmlaunch.abi.families.fmoe_2stages import FAMILY, GROUP
from asmlaunch.validate import estimates, moe
from asmlaunch.validate.compare import Bound
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference

#: Of the first of this many parts of the tokens all experts are here; of the others all but the first are elsewhere.
_HERE = 4

#: What the largest magnitude of a group becomes, on both processors.
_LARGEST = 240.0

#: f32 errors are in the reference's slack; one rounding to bf16 follows, halves away from zero. A step of bf16 is 2^16
#: of f32's, and at the tail of the activations, where errors grow with the exponent, results may be off by hundreds of
#: these: few move over a boundary.
_BF16 = Bound(0.99, 2.0**-8, 0.0, rounding="half_away")

#: Codes are those of float64 but for the few that f32 errors move over a boundary, which the slack allows for.
_CODES = Bound(0.999, 0.0, 0.0)

_WITHIN_SLACK = Bound(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Sizes(Case):
    """``O[token, slot] = act(X[token] x Gate[e]^T) * (X[token] x Up[e]^T)``, e the expert of the slot.

    Attributes:
        tokens: rows of X. The first expert gets each of them, the second none, the others some of a few.
        hidden: columns of gate, of up and of the result.
        dim: columns of X.
        splits: log2 of the parts of K; above 0 the result is the f32 sums without activation.
        gelu: 1 for gelu, 0 for silu.
        experts, topk: experts, and slots of a token; some slots' experts are elsewhere.
        pad: bytes between rows of X, elements between tokens of the result.
        apart: KiB between the weights of two experts.
    """

    tokens: int
    hidden: int
    dim: int
    splits: int = 0
    gelu: int = 0
    experts: int = 3
    topk: int = 2
    pad: int = 0
    apart: int = 0


@dataclass(frozen=True)
class _Weights:
    """Gate and up of all experts.

    Attributes:
        shuffled: bytes ``[experts * 2 * hidden, dim]`` in the kernels' layout.
        scales: f32 ``[experts, 2 * hidden]``, or ``[experts, 2 * hidden / 128, dim / 128]`` with blocks.
        values: float64 ``[experts, 2 * hidden, dim]``, with the scales of blocks applied, without those of rows.
    """

    shuffled: np.ndarray
    scales: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class _Format:
    """8-bit operands: random codes, and their values."""

    make: Callable[..., np.ndarray]
    decode: Callable[[np.ndarray], np.ndarray]
    round: Callable[[np.ndarray], np.ndarray]
    size: float  # typical size of a product


_FORMATS = {
    "int8": _Format(operands.int8, lambda codes: codes.astype(np.float64), np.rint, 2.0**16 / 12),
    "e4m3fnuz": _Format(partial(operands.e4m3, form="e4m3fnuz"), decode_e4m3fnuz, estimates.round_e4m3fnuz, 1.0),
    "e4m3fn": _Format(partial(operands.e4m3, form="e4m3fn"), decode_e4m3, estimates.round_e4m3, 1.0),
}


def format_of(p: Parameters) -> str:
    """Name of a kernel's 8-bit format."""
    if p["quant"] == "Int8":
        return "int8"
    return "e4m3fnuz" if p["processor"] == "gfx942" else "e4m3fn"


@lru_cache(maxsize=4)
def _weights(form: str, blocks: bool, experts: int, hidden: int, dim: int, seed: int) -> _Weights:
    """Kernels of one format share them."""
    random = np.random.default_rng([seed, 1])
    codes = _FORMATS[form].make(random, experts * 2 * hidden, dim)
    shape = (2 * hidden // GROUP, dim // GROUP) if blocks else (2 * hidden,)
    scales = operands.positive(random, experts, *shape)
    values = _FORMATS[form].decode(codes).reshape(experts, 2 * hidden, dim)
    if blocks:
        values *= np.repeat(np.repeat(scales, GROUP, axis=1), GROUP, axis=2)
    return _Weights(operands.shuffle_16(codes), scales, values)


@dataclass(frozen=True)
class Layer:
    """Operands of one problem, and what the kernel makes of them.

    Attributes:
        case: its sizes.
        p: the kernel's parameters.
    """

    case: Sizes
    p: Parameters

    @property
    def blocks(self) -> bool:
        """Scales of 128 columns, instead of one a row."""
        return self.p["form"] == "blockscale"

    @cached_property
    def form(self) -> _Format:
        """The 8-bit format."""
        return _FORMATS[format_of(self.p)]

    @cached_property
    def weights(self) -> _Weights:
        """Gate and up."""
        case = self.case
        return _weights(format_of(self.p), self.blocks, case.experts, case.hidden, case.dim, case.seed)

    @cached_property
    def x(self) -> np.ndarray:
        """8-bit ``[tokens, dim]``."""
        return self.form.make(np.random.default_rng([self.case.seed, 2]), self.case.tokens, self.case.dim)

    @cached_property
    def x_scales(self) -> np.ndarray:
        """f32 ``[tokens, 1]`` or ``[tokens, dim / 128]``: sums are about as large as 1."""
        columns = self.case.dim // GROUP if self.blocks else 1
        scales = operands.positive(np.random.default_rng([self.case.seed, 3]), self.case.tokens, columns)
        return scales / np.float32(self.form.size * self.case.dim**0.5)

    @cached_property
    def routing(self) -> moe.Routing:
        """Experts of the slots; most but the first are elsewhere."""
        case = self.case
        random = np.random.default_rng([case.seed, 4])
        return moe.route(random, case.tokens, case.experts, case.topk, here=-(-case.tokens // _HERE))

    @property
    def missing(self) -> np.ndarray:
        """bool ``[tokens * topk, 1]``: slots without a row, which the kernel must not touch."""
        return (self.routing.experts < 0).reshape(-1, 1)

    @cached_property
    def sums(self) -> estimates.Estimate:
        """Products ``[tokens * topk, 2 * hidden]``; zeros in the slots without a row."""
        case, experts = self.case, self.routing.experts.reshape(-1)
        x = self.form.decode(self.x)
        if self.blocks:
            x = x * np.repeat(self.x_scales, GROUP, axis=1)
        # Parts of K are added in f32.
        whole = self.p["quant"] == "Int8" and not case.splits
        x = np.repeat(x, case.topk, axis=0)
        sums = moe.project(estimates.exact(x), self.weights.values, experts, exact_sums=whole)
        if not self.blocks:
            factors = np.repeat(self.x_scales, case.topk, axis=0).astype(np.float64) * self.weights.scales[experts]
            sums = sums.scaled(factors)
        if self.p["form"] == "doweight":
            sums = sums.scaled(self.routing.weights.reshape(-1, 1).astype(np.float64))
        return sums

    @cached_property
    def activated(self) -> estimates.Estimate:
        """``act(gate) * up``, ``[tokens * topk, hidden]``."""
        return moe.activate(self.sums, "gelu" if self.case.gelu else "silu")

    @cached_property
    def rounded(self) -> estimates.Rounded:
        """The activated with a scale for 128 columns."""
        return estimates.Rounding(self.form.round, _LARGEST, GROUP)(self.activated)

    @property
    def codes(self) -> estimates.Estimate:
        """Numbers of the format, ``[tokens * topk, hidden]``."""
        rows = len(self.missing)
        return estimates.Estimate(self.rounded.codes.reshape(rows, -1), self.rounded.slack.reshape(rows, -1))

    @property
    def scales(self) -> estimates.Estimate:
        """What a code of 1 stands for, ``[tokens * topk, hidden / 128]``: as far off as the largest of its group."""
        scales = self.rounded.scale[:, :, 0]
        error = self.activated.error.reshape(*scales.shape, GROUP).max(axis=2) / _LARGEST
        return estimates.Estimate(scales, error + 4 * F32_STEP * scales)

    def reference(self, rows: estimates.Estimate, untouched: float) -> Reference:
        """``[tokens, topk * columns]`` of ``[tokens * topk, columns]``; slots without a row hold ``untouched``."""
        value = np.where(self.missing, untouched, rows.value).reshape(self.case.tokens, -1)
        slack = np.where(self.missing, 0.0, rows.error).reshape(self.case.tokens, -1)
        return Reference(value, np.zeros_like(value), slack)


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    weights = 2 * case.hidden * case.dim
    scales = weights // GROUP**2 if p["form"] == "blockscale" else 2 * case.hidden
    return {
        "dim": case.dim, "hidden_dim": case.hidden, "token_cnt": case.tokens, "splitk": case.splits,
        "activation": case.gelu, "Xs": case.dim + case.pad, "GUs": case.dim, "Os": _row_bytes(case, p),
        "eGUs": weights + 1024 * case.apart, "eGUQs": 4 * scales, "eprt_cnt": case.experts,
    }  # fmt: skip


def _row_bytes(case: Sizes, p: Parameters) -> int:
    """Bytes from one token of the result to the next."""
    if case.splits:
        return 4 * (2 * case.topk * case.hidden + case.pad)
    return (1 if p["form"] == "blockscale" else 2) * (case.topk * case.hidden + case.pad)


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    layer = Layer(case, p)
    rows = moe.sort_rows(layer.routing, p["tile_m"])
    spaced = np.zeros((case.tokens, case.dim + case.pad), np.uint8)
    spaced[:, : case.dim] = layer.x.view(np.uint8)
    weights = layer.weights.shuffled.view(np.uint8).reshape(case.experts, -1)
    # Memory that is not written to costs nothing.
    weights_apart = np.zeros((case.experts, weights.shape[1] + 1024 * case.apart), np.uint8)
    weights_apart[:, : weights.shape[1]] = weights
    result, outputs = _outputs(layer)
    arguments = {
        "O": result, "X": spaced, "GU": weights_apart, "XC": rows.counts,
        "XQ": np.ascontiguousarray(layer.x_scales.T), "GUQ": layer.weights.scales,
        "STP": rows.ids, "SW": rows.weights, "SEP": rows.experts,
    }  # fmt: skip
    # Results go through LDS that slower waves still read.
    return Problem((arguments,), outputs, {"schedule": "lockstep"})


def _outputs(layer: Layer) -> tuple[np.ndarray, tuple[Output, ...]]:
    """The array that the kernel is given, and what it should hold."""
    case, nan = layer.case, float("nan")
    tokens, columns = case.tokens, case.topk * case.hidden
    if case.splits:
        sums = Canvas(tokens, 2 * columns, np.float32, more_columns=case.pad).zeroed()
        return sums.whole, (Output("sums", sums.inside, lambda: layer.reference(layer.sums, 0.0), _WITHIN_SLACK, sums),)
    if not layer.blocks:
        out = Canvas(tokens, columns, np.uint16, more_columns=case.pad)
        return out.whole, (Output("O", out.inside, lambda: layer.reference(layer.activated, nan), _BF16, out),)
    groups = (columns + case.pad) // GROUP
    memory = np.empty(tokens * (columns + case.pad + 4 * groups), np.uint8)
    codes = Canvas(tokens, columns, np.uint8, more_columns=case.pad, memory=memory)
    after, spare = memory[codes.whole.nbytes :], case.pad // GROUP
    scales = Canvas(tokens, columns // GROUP, np.float32, more_columns=spare, memory=after)
    decode = layer.form.decode
    untouched = float(decode(codes.whole[0, 0]))
    return memory, (
        Output("codes", codes.inside, lambda: layer.reference(layer.codes, untouched), _CODES, codes, decode=decode),
        Output("scales", scales.inside, lambda: layer.reference(layer.scales, nan), _WITHIN_SLACK, scales),
    )


def cases(p: Parameters) -> Sequence[Sizes]:
    """A whole and a partial block, an expert without tokens, slots without rows, two columns of workgroups, a loop of
    several steps, rows and experts apart; the shortest loop, gelu, one token; K in two and four parts.
    """
    rows, columns = p["tile_m"], p["tile_n"]
    return (
        Sizes(tokens=rows + 5, hidden=2 * columns, dim=640, pad=GROUP, apart=1),
        Sizes(tokens=1, hidden=columns, dim=128, gelu=1),
        Sizes(tokens=rows - 1, hidden=columns, dim=512, splits=1, pad=16),
        Sizes(tokens=3, hidden=columns, dim=512, splits=2),
    )


DEFINITION = Definition(FAMILY, "fmoe_stage1_*.co", Sizes, sizes, build, cases)
