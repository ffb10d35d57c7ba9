"""Mixture-of-experts layers: rows sorted by expert, and float64 references with the roundings that the kernels make.

A row is one (token, slot): the token's activations on their way through one of its experts. References go through the
rows in this order, ``row = token * topk + slot``; kernels go through them in blocks of one expert each.

Kernels round the intermediate activation to the format of the second product (``validate.estimates``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from asmlaunch.validate.estimates import Estimate
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.reference import Reference

SLOT_SHIFT = 24
"""Bits of the token in a sorted id; the slot is above."""

#: f32 roundings, and steps of exp and reciprocal, from the sums to the activated number.
_ACTIVATION_STEPS = 16

#: Largest slope of both activations (gelu's is 1.129 near 1.5).
_SLOPE = 1.13


@dataclass(frozen=True)
class Routing:
    """Which experts the tokens go to.

    Attributes:
        experts: ``[tokens, topk]``, -1 for a slot whose expert is elsewhere: it has no row.
        weights: f32 ``[tokens, topk]``.
    """

    experts: np.ndarray
    weights: np.ndarray

    @property
    def tokens(self) -> int:
        """Tokens."""
        return len(self.experts)

    @property
    def topk(self) -> int:
        """Slots of a token."""
        return int(self.experts.shape[1])


@dataclass(frozen=True)
class SortedRows:
    """Rows in blocks of one expert each, as the kernels read them.

    Attributes:
        ids: i32 ``[blocks * block]``: ``slot << 24 | token``; padding is ``topk << 24 | tokens``.
        weights: f32 ``[blocks * block]``; NaN in the padding, which must reach no result.
        experts: i32 ``[blocks]``, -1 in the blocks beyond the rows.
        counts: i32 ``[2]``: rows with padding (without the blocks beyond), and tokens.
    """

    ids: np.ndarray
    weights: np.ndarray
    experts: np.ndarray
    counts: np.ndarray


def route(
    random: np.random.Generator,
    tokens: int,
    experts: int,
    topk: int,
    *,
    idle: tuple[int, ...] = (1,),
    here: int | None = None,
) -> Routing:
    """Random weights, and different experts for the slots of a token.

    The first expert that is not idle gets every token, so that its rows fill more than one block where the tokens do.

    Args:
        idle: experts that get no token.
        here: tokens after this many go to the first expert only, their other experts are elsewhere. None for none.

    Raises:
        ValueError: fewer experts at work than slots.
    """
    busy = np.array([expert for expert in range(experts) if expert not in idle])
    if len(busy) < topk:
        raise ValueError(f"{len(busy)} experts at work for {topk} slots")
    chosen = np.empty((tokens, topk), np.int64)
    for token in range(tokens):
        others = random.permutation(busy[1:])[: topk - 1]
        chosen[token] = random.permutation(np.concatenate([busy[:1], others]))
    if here is not None:
        chosen[here:][chosen[here:] != busy[0]] = -1
    return Routing(chosen, random.uniform(0.25, 1, (tokens, topk)).astype(np.float32))


def sort_rows(routing: Routing, block: int, *, beyond: int = 1) -> SortedRows:
    """Rows by expert, each expert's padded to whole blocks.

    Args:
        block: rows of a block.
        beyond: blocks after the last that hold nothing, as in buffers made for the largest number of rows.
    """
    padding = routing.topk << SLOT_SHIFT | routing.tokens
    ids, weights, experts = [], [], []
    for expert in np.unique(routing.experts[routing.experts >= 0]):
        token, slot = np.nonzero(routing.experts == expert)
        blocks = -(-len(token) // block)
        padded = np.full(blocks * block, padding)
        padded[: len(token)] = slot << SLOT_SHIFT | token
        weight = np.full(blocks * block, np.nan, np.float32)
        weight[: len(token)] = routing.weights[token, slot]
        ids.append(padded)
        weights.append(weight)
        experts += [expert] * blocks
    rows = len(experts) * block
    ids.append(np.full(beyond * block, padding))
    weights.append(np.full(beyond * block, np.nan, np.float32))
    return SortedRows(
        np.concatenate(ids).astype(np.int32),
        np.concatenate(weights),
        np.array([*experts, *[-1] * beyond], np.int32),
        np.array([rows, routing.tokens], np.int32),
    )


def silu(x: np.ndarray) -> np.ndarray:
    """``x / (1 + exp(-x))``."""
    return np.asarray(x / (1 + np.exp(-x)))


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form as the kernels have it: ``x / (1 + exp(-x * (1.59577 + 0.071354 x^2)))``.

    Their constants are those of ``sqrt(2/pi) * (x + 0.044715 x^3)``, doubled and cut to five or six digits.
    """
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x * (1.59577 + 0.071354 * x**2))))


ACTIVATIONS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {"silu": silu, "gelu": gelu}


def project(x: Estimate, weights: np.ndarray, experts: np.ndarray, *, exact_sums: bool = False) -> Estimate:
    """Each row times the weights of its expert.

    Args:
        x: ``[rows, K]``, scales applied.
        weights: ``[experts, N, K]``, scales applied.
        experts: ``[rows]``; rows of expert -1 give zeros.
        exact_sums: the kernel adds integers, and the sums here are off by roundings of float64; otherwise it adds in
            f32. The error of a sum of n terms is about sqrt(n) steps, of which twice that is allowed.

    Returns:
        ``[rows, N]``.
    """
    value, error = (np.zeros((len(experts), weights.shape[1])) for _ in range(2))
    steps = 2 * math.sqrt(weights.shape[2]) * (2.0**-53 if exact_sums else F32_STEP)
    for expert in np.unique(experts[experts >= 0]):
        rows = experts == expert
        w, magnitude = np.asarray(weights[expert], np.float64).T, np.abs(weights[expert], dtype=np.float64).T
        value[rows] = x.value[rows] @ w
        if x.error[rows].any():
            error[rows] = x.error[rows] @ magnitude
        error[rows] += steps * (np.abs(x.value[rows]) @ magnitude)
    return Estimate(value, error + 3 * F32_STEP * np.abs(value))


def activate(product: Estimate, activation: str, *, gated: bool = True) -> Estimate:
    """``act(gate) * up``, or ``act(gate)`` alone.

    Args:
        product: ``[rows, 2 * columns]``, gate then up; not gated ``[rows, columns]``.
        activation: of :data:`ACTIVATIONS`.
    """
    half = product.value.shape[1] // 2 if gated else product.value.shape[1]
    gate = product[:, :half]
    active = ACTIVATIONS[activation](gate.value)
    # The exponent's argument is rounded to f32: an error relative to the result that grows with the argument.
    error = _SLOPE * gate.error + _ACTIVATION_STEPS * F32_STEP * np.abs(active) * (1 + np.abs(gate.value))
    if not gated:
        return Estimate(active, error)
    up = product[:, half:]
    return Estimate(active * up.value, error * np.abs(up.value) + np.abs(active) * up.error)


def combine(
    intermediate: Estimate,
    weights: np.ndarray,
    routing: Routing,
    *,
    chunk: int,
    row_weights: np.ndarray | None = None,
    exact_sums: bool = False,
) -> Reference:
    """The down projection of rounded activations, summed over the slots of a token.

    Each slot and ``chunk`` columns of the intermediate make one part of the sum, which is rounded before it is added.

    Args:
        intermediate: ``[tokens * topk, columns]``.
        weights: ``[experts, dim, columns]``, scales applied.
        row_weights: ``[tokens * topk]`` factors on the rows; None for none.
        exact_sums: as for :func:`project`.

    Returns:
        ``[tokens, dim]``; ``magnitude`` is the sum of the parts' largest, ``slack`` what roundings inside may change.
    """
    experts = routing.experts.reshape(-1)
    factors = np.ones(len(experts)) if row_weights is None else np.asarray(row_weights, np.float64)
    shape = (routing.tokens, routing.topk, weights.shape[1])
    value, magnitude, slack = (np.zeros((routing.tokens, weights.shape[1])) for _ in range(3))
    for start in range(0, intermediate.value.shape[1], chunk):
        columns = slice(start, start + chunk)
        part = project(intermediate[:, columns], weights[:, :, columns], experts, exact_sums=exact_sums)
        part = part.scaled(factors[:, None])
        value += part.value.reshape(shape).sum(axis=1)
        magnitude += (np.abs(part.value) + part.error).reshape(shape).sum(axis=1)
        slack += part.error.reshape(shape).sum(axis=1)
    return Reference(value, magnitude, slack)
