"""fmoe: a mixture-of-experts layer in one kernel, in all its number formats.

Activations, weights and scales are drawn as codes and factors; the reference multiplies what they stand for. What the
kernels round in between (the intermediate, and for the smf kernels the activations) is in ``_ROUNDINGS``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from asmlaunch.abi.families.fmoe import FAMILY
from asmlaunch.layouts.named import SCALES_32X8
from asmlaunch.validate import estimates, moe
from asmlaunch.validate.bfloat16 import bfloat16_bits, to_float64
from asmlaunch.validate.matrix import added_bound
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Canvas, Case, Definition, Output, Parameters, Problem
from asmlaunch.validate.reference import Reference, decode_mxfp4

BLOCK = 32  # rows of a block
_SCALE_BLOCK = 128  # rows and columns of weights that share a scale in fp8_blocks
_QUANTISED = 256  # columns of the activations that share a scale in kernels that quantise them
_IDLE = 1  # the expert without a token

#: Kernels whose LDS is used again before all waves have read it.
_LOCKSTEP = ("fp8_blocks", "mxfp4", "bf16", "f16")


@dataclass(frozen=True)
class Sizes(Case):
    """``O[t] = sum over slots of weight * (act(X[t] x G[e]^T) * (X[t] x U[e]^T)) x D[e]^T``, e the slot's expert.

    Attributes:
        m: tokens.
        dim: of the model.
        chunks: of the kernel's columns in the intermediate.
        experts: of which number 1 gets no token.
        topk: slots of a token.
        here: tokens that have all their slots; later ones have only their first, the others are elsewhere.
        groups: persistent workgroups a chunk, 0 for the plain grid (persistent kernels only).
        pad: bytes between rows of X, elements between rows of O.
        apart: KiB between the weights of two experts, of both projections.
    """

    m: int
    dim: int
    chunks: int = 2
    experts: int = 3
    topk: int = 2
    here: int = 20
    groups: int = 0
    pad: int = 0
    apart: int = 0


@dataclass(frozen=True)
class _Kind:
    """The parameters that operands and result (before it is rounded) depend on."""

    sub: int
    format: str
    activation: str
    gated: bool
    rows_by_slot: bool
    smoothed: bool
    quantises: bool
    weight_first: bool
    ocp: bool  # E4M3 as OCP defines it, not CDNA3's form

    @classmethod
    def of(cls, p: Parameters) -> _Kind:
        names = (field.name for field in dataclasses.fields(cls) if field.name != "ocp")
        return cls(**{name: p[name] for name in names}, ocp=p["processor"] != "gfx942")

    @property
    def e4m3(self) -> str:
        return "e4m3fn" if self.ocp else "e4m3fnuz"


@dataclass(frozen=True)
class _Form:
    """A number format of weights and activations.

    Attributes:
        draw: random codes of a shape.
        decode: the float64 values of codes.
        rms: of the values drawn.
        bits: of a code.
        pack: codes ``[..., columns]`` as bytes.
    """

    draw: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
    decode: Callable[[np.ndarray], np.ndarray]
    rms: float
    bits: int
    pack: Callable[[np.ndarray], np.ndarray] = lambda codes: codes.view(np.uint8)


def _draw_from(codes: np.ndarray) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Draws of a fixed set of codes: far quicker than numbers that are then converted."""
    return lambda random, shape: codes[random.integers(0, len(codes), shape, np.uint16)]


def _pack_pairs(codes: np.ndarray) -> np.ndarray:
    """Two codes a byte, the first in the low half."""
    return (codes[..., ::2] & 15 | codes[..., 1::2] << 4).view(np.uint8)


def _pack_int4(codes: np.ndarray) -> np.ndarray:
    """Eight codes a dword, the even ones in the low half of it."""
    eights = codes.reshape(*codes.shape[:-1], -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]]
    return _pack_pairs(eights.reshape(codes.shape))


def _decode_fp4(codes: np.ndarray) -> np.ndarray:
    """Values without their scales."""
    rows = codes.reshape(-1, codes.shape[-1])
    ones = np.full((len(rows), rows.shape[1] // 32), 127, np.uint8)
    return decode_mxfp4(_pack_pairs(rows), ones).reshape(codes.shape)


@lru_cache
def _form(name: str) -> _Form:
    random = np.random.default_rng(0)
    normal = random.standard_normal(1 << 12)
    if name in ("e4m3fn", "e4m3fnuz"):
        decode = decode_e4m3 if name == "e4m3fn" else decode_e4m3fnuz
        return _Form(_draw_from(operands.e4m3(random, 1 << 12, form=name)), decode, 1.0, 8)
    if name == "int8":
        return _Form(lambda random, shape: operands.int8(random, *shape), lambda codes: codes.astype(float), 74.0, 8)
    if name == "int4":
        return _Form(
            lambda random, shape: random.integers(-8, 8, shape, np.int8), lambda c: c.astype(float), 4.6, 4, _pack_int4
        )
    if name == "mxfp4":
        return _Form(lambda random, shape: random.integers(0, 16, shape, np.uint8), _decode_fp4, 2.9, 4, _pack_pairs)
    # There are no scales: numbers small enough for products of about 1.
    if name == "bf16":
        return _Form(_draw_from(bfloat16_bits(normal / 4)), to_float64, 0.25, 16)
    return _Form(_draw_from((normal / 4).astype(np.float16)), lambda codes: codes.astype(float), 0.25, 16)


def _round_middle(kind: _Kind, columns: int) -> estimates.Rounding | estimates.MxFp4 | estimates.Plain:
    """How the kernel rounds what it multiplies with ``columns`` columns of weights in int8, fp8 and so on."""
    e4m3 = estimates.round_e4m3 if kind.ocp else estimates.round_e4m3fnuz
    largest = 448.0 if kind.ocp else 240.0
    rounding: dict[str, estimates.Rounding | estimates.MxFp4 | estimates.Plain] = {
        "int8": estimates.Rounding(np.trunc, 127.0, columns),
        "fp8": estimates.Rounding(e4m3, largest, columns),
        "int4": estimates.Rounding(e4m3, largest, columns),
        # The largest of CDNA3's form on both processors.
        "fp8_blocks": estimates.Rounding(e4m3, 240.0, _SCALE_BLOCK),
        "mxfp4": estimates.MxFp4(),
        "bf16": estimates.Plain(estimates.round_bf16),
        "f16": estimates.Plain(estimates.round_f16),
    }
    return rounding[kind.format]


@dataclass(frozen=True)
class _Weights:
    """Weights of all experts: the bytes and scales a kernel is given, and what they stand for.

    Attributes:
        data: shuffled bytes.
        scales: f32 or E8M0 bytes; None in 16-bit formats.
        value: float64 ``[experts, N, K]``.
    """

    data: np.ndarray
    scales: np.ndarray | None
    value: np.ndarray


def _weights(random: np.random.Generator, kind: _Kind, shape: tuple[int, int, int], gain: float) -> _Weights:
    """Products with numbers of about 1 are about ``gain``."""
    experts, rows, k = shape
    form = _form(kind.e4m3 if kind.format.startswith("fp8") else kind.format)
    codes = form.draw(random, shape)
    data = operands.shuffle_16(form.pack(codes).reshape(experts * rows, -1))
    value = form.decode(codes)
    size = gain / (form.rms * math.sqrt(k))
    if kind.format == "mxfp4":
        bytes_ = _e8m0(random, (experts * rows, k // 32), size)
        value *= np.repeat(_powers(bytes_), 32, axis=1).reshape(shape)
        return _Weights(data, SCALES_32X8.apply(bytes_), value)
    if form.bits == 16:
        return _Weights(data, None, value)
    block = _SCALE_BLOCK
    if kind.format == "fp8_blocks":
        scales = operands.positive(random, experts, rows // block, k // block) * np.float32(size)
        value *= np.repeat(np.repeat(scales.astype(float), block, axis=1), block, axis=2)
    else:
        scales = operands.positive(random, experts, rows) * np.float32(size)
        value *= scales.astype(float)[:, :, None]
    return _Weights(data, scales, value)


def _e8m0(random: np.random.Generator, shape: tuple[int, ...], size: float) -> np.ndarray:
    """Scale bytes around ``size``."""
    return (127 + round(math.log2(size)) + random.integers(-1, 2, shape)).astype(np.uint8)


def _powers(bytes_: np.ndarray) -> np.ndarray:
    return np.asarray(2.0 ** (bytes_.astype(float) - 127))


@dataclass(frozen=True)
class _Activations:
    """What a kernel is given for X, and what comes out of it row by row.

    Attributes:
        data: bytes ``[rows of X, columns]``.
        scales: by the kernel's form; None in 16-bit formats.
        rows: ``[tokens * topk, dim]``, as the first product takes them.
    """

    data: np.ndarray
    scales: np.ndarray | None
    rows: estimates.Estimate


def _activations(
    random: np.random.Generator, kind: _Kind, case: Sizes, routing: moe.Routing, order: moe.SortedRows
) -> _Activations:
    if kind.quantises:
        return _unquantised(random, kind, case, routing)
    form = _form(kind.e4m3 if kind.format in ("fp8", "fp8_blocks", "int4") else kind.format)
    # Rows of X in memory: by slot and token, or by token.
    lead = (case.topk if kind.rows_by_slot else 1) * case.m
    codes = form.draw(random, (lead, case.dim))
    value = form.decode(codes)
    scales = None
    if kind.format == "mxfp4":
        bytes_ = _e8m0(random, (lead, case.dim // 32), 1 / form.rms)
        value *= np.repeat(_powers(bytes_), 32, axis=1)
        # Scales come in the order of the blocks; those of padding multiply zeros.
        token = order.ids & 0xFFFFFF
        padded = np.concatenate([bytes_, np.full((1, bytes_.shape[1]), 127, np.uint8)])
        scales = SCALES_32X8.apply(padded[np.minimum(token, case.m)])
    elif kind.format == "fp8_blocks":
        by_block = operands.positive(random, lead, case.dim // _SCALE_BLOCK)
        value *= np.repeat(by_block.astype(float), _SCALE_BLOCK, axis=1)
        scales = np.ascontiguousarray(by_block.T)
    elif form.bits < 16:
        scales = operands.positive(random, lead) / np.float32(form.rms)
        value *= scales.astype(float)[:, None]
    by_row = value.reshape(-1, case.m, case.dim).transpose(1, 0, 2)
    rows = np.broadcast_to(by_row, (case.m, case.topk, case.dim)).reshape(-1, case.dim)
    return _Activations(form.pack(codes), scales, estimates.exact(rows))


def _unquantised(random: np.random.Generator, kind: _Kind, case: Sizes, routing: moe.Routing) -> _Activations:
    """bf16 activations, which the kernel multiplies with smoothing factors and rounds.

    The largest product of each 256 columns is a power of two: then all factors are exact, and what int8 cuts off is
    certain.
    """
    x = np.clip(random.standard_normal((case.m, case.dim)), -3.5, 3.5)
    smooth = operands.positive(random, case.experts, case.dim)
    smooth[:, ::_QUANTISED] = 1
    x[:, ::_QUANTISED] = random.choice([-8.0, 8.0], (case.m, case.dim // _QUANTISED))
    bits = bfloat16_bits(x)
    each = np.repeat(to_float64(bits).astype(np.float32), case.topk, axis=0)
    smoothed = each * smooth[routing.experts.reshape(-1)]
    rows = _round_middle(kind, _QUANTISED)(estimates.exact(smoothed)).estimate
    return _Activations(bits.view(np.uint8), smooth, rows)


@dataclass(frozen=True)
class _Made:
    """Operands in a kernel's layout, and the reference of its result."""

    arguments: Mapping[str, np.ndarray]
    reference: Reference


@lru_cache(maxsize=16)
def _make(kind: _Kind, case: Sizes) -> _Made:
    random = np.random.default_rng(case.seed)
    inter = case.chunks * kind.sub
    routing = moe.route(random, case.m, case.experts, case.topk, idle=(_IDLE,), here=case.here)
    order = moe.sort_rows(routing, BLOCK)
    x = _activations(random, kind, case, routing, order)
    gate_up = _weights(random, kind, (case.experts, (2 if kind.gated else 1) * inter, case.dim), 1.5)
    down = _weights(random, kind, (case.experts, case.dim, inter), 1.5)
    smooth = operands.positive(random, case.experts, inter) if kind.smoothed else None
    # int4 kernels read it and use none of it.
    unused = np.full((case.experts, inter), np.nan, np.float32) if kind.format == "int4" else None

    experts, weights = routing.experts.reshape(-1), routing.weights.reshape(-1)
    exact_sums = kind.format == "int8"
    product = moe.project(x.rows, gate_up.value, experts, exact_sums=exact_sums and not kind.quantises)
    if kind.weight_first:
        product = product.scaled(weights[:, None])
    middle = moe.activate(product, kind.activation, gated=kind.gated)
    if smooth is not None:
        middle = middle.scaled(smooth.astype(float)[experts])
    rounded = _round_middle(kind, kind.sub)(middle).estimate
    reference = moe.combine(
        rounded, down.value, routing, chunk=kind.sub, row_weights=None if kind.weight_first else weights,
        exact_sums=exact_sums,
    )  # fmt: skip

    spaced = np.zeros((len(x.data), x.data.shape[1] + case.pad), np.uint8)
    spaced[:, : x.data.shape[1]] = x.data
    arguments = {
        "X": spaced, "GU": _apart(gate_up.data, case), "XC": order.counts, "D": _apart(down.data, case),
        "XQ": x.scales, "GUQ": gate_up.scales,
        "DQ": down.scales, "SMQ": unused if smooth is None else smooth, "STP": order.ids, "SW": order.weights,
        "SEP": order.experts,
    }  # fmt: skip
    given = {name: array for name, array in arguments.items() if array is not None}
    for array in given.values():
        array.flags.writeable = False
    return _Made(given, reference)


def _apart(data: np.ndarray, case: Sizes) -> np.ndarray:
    """Bytes of all experts, ``[experts, bytes]``, with a gap after each."""
    data = data.reshape(case.experts, -1)
    # Memory that is not written to costs nothing.
    spaced = np.zeros((case.experts, data.shape[1] + 1024 * case.apart), np.uint8)
    spaced[:, : data.shape[1]] = data
    return spaced


def sizes(case: Sizes, p: Parameters) -> Mapping[str, Any]:
    """The scalar arguments."""
    kind = _Kind.of(p)
    inter = case.chunks * kind.sub
    rows = (2 if kind.gated else 1) * inter
    bits = {"int4": 4, "mxfp4": 4, "bf16": 16, "f16": 16}.get(kind.format, 8)
    x_bits = 16 if kind.quantises else 8 if kind.format == "int4" else bits
    scales = {
        "mxfp4": lambda n, k: n * k // 32,
        "fp8_blocks": lambda n, k: 4 * (n // _SCALE_BLOCK) * (k // _SCALE_BLOCK),
        "bf16": lambda n, k: 0,
        "f16": lambda n, k: 0,
    }.get(kind.format, lambda n, k: 4 * n)
    persistent = {"total_tgs": case.groups * case.chunks, "ps_deno": case.chunks} if p["persistent"] else {}
    return {
        "dim": case.dim, "inter_dim": inter, "token_cnt": case.m, "eprt_cnt": case.experts, "topk": case.topk,
        "Xs": case.dim * x_bits // 8 + case.pad, "GUs": case.dim * bits // 8, "Ds": inter * bits // 8,
        "Os": 2 * (case.dim + case.pad), "eGUs": rows * case.dim * bits // 8 + 1024 * case.apart,
        "eDs": case.dim * inter * bits // 8 + 1024 * case.apart,
        "eGUQs": scales(rows, case.dim), "eDQs": scales(case.dim, inter), "eSMQs": 4 * inter, **persistent,
    }  # fmt: skip


def build(case: Sizes, p: Parameters) -> Problem:
    """Operands, arguments and reference."""
    made = _make(_Kind.of(p), dataclasses.replace(case, groups=0))
    f16 = p["output"] == "f16" and not p["one_part"]
    o = Canvas(case.m, case.dim, np.float16 if f16 else np.uint16, more_rows=2, more_columns=case.pad).zeroed()
    bound = added_bound(case.topk * case.chunks, "float16" if f16 else "bfloat16", rounding=p["rounding"])
    options = {"schedule": "lockstep"} if p["format"] in _LOCKSTEP else {}
    return Problem(
        ({"O": o.whole, **made.arguments},), (Output("O", o.inside, lambda: made.reference, bound, o),), options
    )


def cases(p: Parameters) -> Sequence[Sizes]:
    """Blocks and chunks in both directions with rows to spare; then one part of the sum an element, another ``dim``,
    and where the kernel is persistent more groups than blocks."""
    step, least, also_256 = p["dim_step"]
    dim = max(512, least) if step else 256
    groups = (2, 3) if p["persistent"] else (0, 0)
    whole = Sizes(m=37, dim=dim, groups=groups[0], pad=64, apart=1)
    single = Sizes(m=37, dim=256 if also_256 else dim + step, chunks=1, topk=1, groups=groups[1])
    if p["one_part"]:
        whole = dataclasses.replace(whole, chunks=1, topk=1)
    return whole, single


def _told_apart(p: Parameters) -> Parameters:
    """All but the domain, which decides on the cases alone."""
    return {name: value for name, value in p.items() if name != "dim_step"}


DEFINITION = Definition(FAMILY, "fmoe_[!s]*.co", Sizes, sizes, build, cases, _told_apart)
