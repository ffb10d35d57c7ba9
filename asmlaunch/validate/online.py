"""Attention as kernels compute it: tile after tile of keys, with weights rounded before they are multiplied with V.

The weights of a tile are relative to the largest score so far, so what their rounding loses depends on the tiles. The
reference rounds as the kernel does; where the kernel's f32 arithmetic may put a weight on the other side of a rounding
boundary, it allows for both (``Reference.slack``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asmlaunch.validate.estimates import Estimate, Rounded
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.reference import Reference

#: How weights become numbers of a format, ``[rows, keys of a tile]``.
Rounder = Callable[[Estimate], Rounded]

_AROUND = 8  # f32 roundings between a score and its weight: scales, difference, exponential, scale of V


@dataclass(frozen=True)
class Online:
    """Attention of one set of keys.

    Attributes:
        output: ``[rows, width of V]``; a row that sees no key is NaN.
        lse: natural log-sum-exp of the scores, ``[rows]``, -inf for a row that sees no key; its magnitude is an f32
            error's unit, the scores' own.
    """

    output: Reference
    lse: Reference


def scores(q: np.ndarray, k: np.ndarray, factor: np.ndarray | float) -> Estimate:
    """``q k^T * factor`` in natural units, with the worst that sums in f32 may be off.

    Args:
        q: ``[rows, width]``.
        k: ``[keys, width]``.
        factor: one, or one a key.
    """
    q, k, factor = (np.asarray(one, np.float64) for one in (q, k, factor))
    steps = (q.shape[1] + _AROUND) * F32_STEP
    return Estimate(q @ k.T * factor, steps * (np.abs(q) @ np.abs(k).T) * np.abs(factor))


def attend(
    s: Estimate,
    v: np.ndarray,
    rounder: Rounder,
    tile: int,
    *,
    visible: np.ndarray | None = None,
    value_scales: np.ndarray | None = None,
    last: Rounder | None = None,
    counted: int | None = None,
) -> Online:
    """Softmax of scores times V.

    Args:
        s: scores ``[rows, keys]``, natural units.
        v: ``[keys, width]``.
        rounder: how the weights of a tile are rounded, after they are multiplied with V's scales.
        tile: keys of a tile.
        visible: bool, broadcast against ``[rows, keys]``; None for all.
        value_scales: factor of each key's V, ``[keys]``; None for 1.
        last: the rounder of a last tile that is not whole; None for the same.
        counted: keys that have a weight; those after them only count for the largest score. None for all.
    """
    rows, keys = s.value.shape
    seen = np.broadcast_to(True if visible is None else visible, (rows, keys))
    value = np.where(seen, s.value, -np.inf)
    factors = np.ones(keys) if value_scales is None else np.asarray(value_scales, np.float64)
    largest = np.full((rows, 1), -np.inf)
    total, total_error = np.zeros((rows, 1)), np.zeros((rows, 1))
    product, magnitude, slack = (np.zeros((rows, v.shape[1])) for _ in range(3))
    for start in range(0, keys, tile):
        part = slice(start, min(start + tile, keys))
        before, largest = largest, np.maximum(largest, value[:, part].max(axis=1, keepdims=True))
        top = np.where(np.isfinite(largest), largest, 0.0)
        again = np.exp(np.where(np.isfinite(before), before, -np.inf) - top)
        weights = np.exp(value[:, part] - top)
        weights[:, max(0, (keys if counted is None else counted) - start) :] = 0.0
        # The largest score so far is off by as much again.
        error = weights * (2 * s.error[:, part] + _AROUND * F32_STEP)
        scaled = Estimate(weights * factors[part], error * factors[part])
        whole = part.stop - start == tile
        rounded = (rounder if whole or last is None else last)(scaled).estimate
        size = np.abs(v[part])
        total = total * again + weights.sum(axis=1, keepdims=True)
        total_error = total_error * again + error.sum(axis=1, keepdims=True)
        product = product * again + rounded.value @ v[part]
        magnitude = magnitude * again + scaled.value @ size
        slack = slack * again + rounded.error @ size
    with np.errstate(divide="ignore", invalid="ignore"):
        off = total_error / total
        output = Reference(product / total, magnitude / total, slack / total + np.abs(product / total) * off)
        lse = (np.log(total) + np.where(total > 0, largest, 0.0))[:, 0]
        error = (off + np.max(np.where(seen, s.error, 0.0), axis=1, keepdims=True, initial=0.0))[:, 0]
    return Online(output, Reference(lse, np.abs(lse), np.where(np.isfinite(error), error, 0.0)))
