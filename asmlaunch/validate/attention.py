"""float64 references of attention: masks, the forward pass with its log-sum-exp, and the gradients.

Arrays are ``[..., heads, rows, width]``, in logical order. K and V may have fewer heads than Q: head ``h`` of Q reads
head ``h // ratio`` of theirs. Softmax is computed on whole rows, not online as the kernels do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asmlaunch.errors import ArgumentError
from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.reference import Reference

_AROUND = 4  # f32 roundings of dP - D, and of what it is multiplied with


def band(rows: int, keys: int, *, before: int | None = None, after: int | None = None) -> np.ndarray:
    """bool ``[rows, keys]``: row ``i`` sees keys ``i - before`` to ``i + after``; None has no limit on that side.

    Either number may be negative.
    """
    distance = np.arange(keys) - np.arange(rows)[:, None]
    seen = np.ones((rows, keys), bool)
    if before is not None:
        seen &= distance >= -before
    if after is not None:
        seen &= distance <= after
    return seen


def causal(rows: int, keys: int, *, bottom_right: bool = False) -> np.ndarray:
    """bool ``[rows, keys]``: row ``i`` sees the keys up to ``i``; with ``bottom_right`` the last row sees all."""
    return band(rows, keys, after=keys - rows if bottom_right else 0)


def window(rows: int, keys: int, left: int | None, right: int | None, *, bottom_right: bool = False) -> np.ndarray:
    """bool ``[rows, keys]``: ``left`` keys before a row's own and ``right`` after it; None for all of that side.

    A row's own key has its index; with ``bottom_right`` that of the last row is the last key.
    """
    shift = keys - rows if bottom_right else 0
    return band(
        rows, keys, before=None if left is None else left - shift, after=None if right is None else right + shift
    )


def softmax(scores: np.ndarray, visible: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``[..., rows, keys]`` and the natural log-sum-exp ``[..., rows]`` of scores.

    Args:
        visible: bool, broadcast against the scores; a row that sees no key has zeros and a log-sum-exp of -inf.
    """
    seen = np.asarray(scores, np.float64)
    if visible is not None:
        seen = np.where(visible, seen, -np.inf)
    largest = seen.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(seen - np.where(np.isfinite(largest), largest, 0.0))
    total = powers.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + np.where(total > 0, largest, 0.0))[..., 0]
    return powers / np.where(total > 0, total, 1.0), lse


def per_query_head(array: np.ndarray, heads: int) -> np.ndarray:
    """K or V, ``[..., key heads, keys, width]``, repeated to ``heads`` heads.

    Raises:
        ArgumentError: heads that are no multiple of the key heads.
    """
    of = array.shape[-3]
    if of == 0 or heads % of:
        raise ArgumentError("query heads", got=heads, need=f"a multiple of the {of} key heads")
    return np.repeat(np.asarray(array, np.float64), heads // of, axis=-3)


def sum_of_groups(array: np.ndarray, key_heads: int) -> np.ndarray:
    """A gradient per query head, ``[..., heads, keys, width]``, added up to one per key head."""
    *front, heads, keys, width = array.shape
    return array.reshape(*front, key_heads, heads // key_heads, keys, width).sum(axis=-3)


@dataclass(frozen=True)
class Forward:
    """Result of attention.

    Attributes:
        output: ``softmax(scale * Q K^T) V``, ``[..., heads, rows, width of V]``; ``magnitude`` is that of
            ``P |V|``, since P is rounded before it is multiplied.
        lse: natural log-sum-exp of the scaled scores, ``[..., heads, rows]``.
        probabilities: ``[..., heads, rows, keys]``.
        score_magnitude: the largest sum of magnitudes that a visible score of a row is the sum of, ``[..., heads,
            rows]``: what its f32 errors are a fraction of.
    """

    output: Reference
    lse: np.ndarray
    probabilities: np.ndarray
    score_magnitude: np.ndarray


def forward(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, visible: np.ndarray | None = None) -> Forward:
    """Attention of decoded operands.

    Args:
        q: ``[..., heads, rows, width]``.
        k, v: ``[..., key heads, keys, width]``, each with its own width.
        scale: factor of the scores.
        visible: bool, broadcast against ``[..., heads, rows, keys]``; None for all.

    Raises:
        ArgumentError: heads that are no multiple of the key heads.
    """
    q = np.asarray(q, np.float64)
    k, v = (per_query_head(one, q.shape[-3]) for one in (k, v))
    keys = k.swapaxes(-1, -2)
    probabilities, lse = softmax(scale * (q @ keys), visible)
    sums = abs(scale) * (np.abs(q) @ np.abs(keys))
    if visible is not None:
        sums = np.where(visible, sums, 0.0)
    output = Reference(probabilities @ v, probabilities @ np.abs(v))
    return Forward(output, lse, probabilities, sums.max(axis=-1, initial=0.0))


@dataclass(frozen=True)
class Gradients:
    """Gradients of attention, all per query head (see :func:`sum_of_groups`).

    ``magnitude`` is that of the products of the last matrix product, with P and dS no smaller than their 16-bit
    format's normal numbers: their rounding loses a fraction of it. ``slack`` is what dP, a sum in f32 that may cancel
    against D, adds to that.

    Attributes:
        dq: ``[..., heads, rows, width]``.
        dk, dv: ``[..., heads, keys, width]``.
        ds: gradient of the scores, their factor included, ``[..., heads, rows, keys]``.
    """

    dq: Reference
    dk: Reference
    dv: Reference
    ds: np.ndarray


def row_sums(o: np.ndarray, do: np.ndarray) -> Reference:
    """D, the sum of ``O * dO`` over the width, ``[..., heads, rows]``."""
    products = np.asarray(o, np.float64) * np.asarray(do, np.float64)
    return Reference(products.sum(axis=-1), np.abs(products).sum(axis=-1))


def gradients(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    do: np.ndarray,
    scale: float,
    visible: np.ndarray | None = None,
    *,
    lse: np.ndarray | None = None,
    d: np.ndarray | None = None,
    smallest: float = 0.0,
) -> Gradients:
    """Gradients of :func:`forward` with respect to Q, K and V.

    Args:
        q, k, v, scale, visible: as for :func:`forward`.
        do: gradient of the output, ``[..., heads, rows, width of V]``.
        lse: log-sum-exp and
        d: :func:`row_sums` that a kernel is given, ``[..., heads, rows]``; None for those of these operands.
        smallest: smallest normal number of the format that P and dS are rounded to.
    """
    q, do = np.asarray(q, np.float64), np.asarray(do, np.float64)
    if lse is None or d is None:
        made = forward(q, k, v, scale, visible)
        lse = made.lse if lse is None else lse
        d = row_sums(made.output.value, do).value if d is None else d
    k, v = (per_query_head(one, q.shape[-3]) for one in (k, v))
    lse, d = (np.asarray(one, np.float64)[..., None] for one in (lse, d))
    seen = np.isfinite(lse) if visible is None else np.isfinite(lse) & visible
    p = np.exp(np.where(seen, scale * (q @ k.swapaxes(-1, -2)) - np.where(np.isfinite(lse), lse, 0.0), -np.inf))
    dp = do @ v.swapaxes(-1, -2)
    ds = p * (dp - d)
    p_size, ds_size = (np.where(seen, np.maximum(np.abs(one), smallest), 0.0) for one in (p, ds))
    lost = (
        p * (do.shape[-1] * (np.abs(do) @ np.abs(v).swapaxes(-1, -2)) + _AROUND * (np.abs(dp) + np.abs(d))) * F32_STEP
    )

    def product(of: np.ndarray, size: np.ndarray, error: np.ndarray, other: np.ndarray) -> Reference:
        return Reference(scale * (of @ other), *(abs(scale) * (one @ np.abs(other)) for one in (size, error)))

    dk = product(ds.swapaxes(-1, -2), ds_size.swapaxes(-1, -2), lost.swapaxes(-1, -2), q)
    dv = Reference(p.swapaxes(-1, -2) @ do, p_size.swapaxes(-1, -2) @ np.abs(do))
    return Gradients(product(ds, ds_size, lost, k), dk, dv, scale * ds)
