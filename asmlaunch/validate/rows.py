"""float64 references of operations on rows: softmax with the k largest, RMS norm with residual, sums over ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from asmlaunch.validate.reference import Reference


def top_k_softmax(logits: np.ndarray, k: int, *, renormalize: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices ``[rows, k]`` (int64) and weights of the k largest probabilities, largest first, equal ones by index.

    Args:
        logits: ``[rows, experts]``.
        renormalize: divide the weights by their sum.
    """
    x = np.asarray(logits, np.float64)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    order = np.argsort(-x, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(probabilities, order, axis=1)
    return order, weights / weights.sum(axis=1, keepdims=True) if renormalize else weights


@dataclass(frozen=True)
class Normed:
    """What a residual add with RMS norm gives.

    Attributes:
        residual: the sum, ``[rows, width]``.
        value: the normalised sum times weight plus bias.
        quantised, scale: with column scales, ``value * x_scale`` in steps of the row's scale, before rounding.
    """

    residual: Reference
    value: Reference
    quantised: Reference
    scale: Reference


def rms_norm(
    terms: list[np.ndarray],
    weight: np.ndarray,
    bias: np.ndarray,
    epsilon: float,
    x_scale: np.ndarray | None = None,
    smallest: float = 1e-6,
) -> Normed:
    """``sum(terms) / sqrt(mean(sum^2) + epsilon) * weight + bias``, and in int8.

    The scale of a row is its largest magnitude, at least ``smallest``, over 127.

    Args:
        terms: float64 arrays ``[rows, width]`` that are added.
        x_scale: ``[width]`` factors before quantisation.
    """
    total = np.sum(terms, axis=0)
    normal = total / np.sqrt(np.mean(total**2, axis=1, keepdims=True) + epsilon)
    value = normal * weight + bias
    magnitude = np.abs(normal * weight) + np.abs(bias)
    factor = np.ones(total.shape[1]) if x_scale is None else np.asarray(x_scale, np.float64)
    scaled = value * factor
    scale = np.maximum(np.abs(scaled).max(axis=1, keepdims=True), smallest) / 127
    return Normed(
        Reference(total, np.sum(np.abs(terms), axis=0)),
        Reference(value, magnitude),
        Reference(scaled / scale, magnitude * np.abs(factor) / scale),
        Reference(scale[:, 0], scale[:, 0]),
    )
