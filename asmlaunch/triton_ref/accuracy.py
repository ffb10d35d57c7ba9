"""How far a product may be from its float64 reference, from the length of its sums: no round tolerance.

Adding in float32 in any order of K that keeps runs together, each addition rounds a running sum once: the error is at
most ``u`` times the sum of the magnitudes of all running sums (Higham, Accuracy and Stability of Numerical Algorithms,
section 3.3, the running error bound). A matrix instruction adds 16 products at once and may truncate, so there is one
addition a 16 elements of K and ``u`` is 2^-23. The running sums are those of the reference itself, known at the ends of
chunks of K, and between those at most the chunk's magnitudes away. Factor 2 covers sums that start within K (split-K,
stream-K: a difference of two running sums). To that comes one rounding to the type of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_ROUNDOFF = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-24, torch.int32: 0.0}
_SMALLEST = {torch.bfloat16: 2.0**-134, torch.float16: 2.0**-25, torch.float32: 2.0**-150, torch.int32: 0.0}
_ADDITION = 16


@dataclass(frozen=True)
class Expected:
    """What a product should be.

    Attributes:
        value: float64 ``[M, N]``.
        allowed: float64 ``[M, N]``, the largest error of a right result.
    """

    value: torch.Tensor
    allowed: torch.Tensor

    def wrong(self, result: torch.Tensor) -> int:
        """How many elements of a result are further off than allowed, or NaN or infinite where the value is not."""
        got = result.to(torch.float64)
        rounded = self.value.to(result.dtype).to(torch.float64)
        equal = (got == rounded) | (got.isnan() & rounded.isnan())
        return int((~equal & ~((got - self.value).abs() <= self.allowed)).sum())


def expected(
    a: torch.Tensor,
    b: torch.Tensor,
    dtype: torch.dtype,
    *,
    c: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    chunks: int = 64,
) -> Expected:
    """``alpha * a x b + beta * c`` in float64, and the error that float32 sums and one rounding to ``dtype`` may make.

    Args:
        a, b: ``[M, K]`` and ``[K, N]``, on any device; exact in float64.
        dtype: of the result to be judged.
        c: broadcasts to ``[M, N]``.
        chunks: parts of K at whose ends the running sums are known; more is tighter.
    """
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    value = torch.zeros((m, n), dtype=torch.float64, device=a.device)
    running = torch.zeros_like(value)
    step = max(_ADDITION, -(-k // chunks))
    additions = -(-step // _ADDITION)
    for start in range(0, k, step):
        left, right = a[:, start : start + step].double(), b[start : start + step].double()
        before = value.abs()
        value = value + left @ right
        running += additions * (torch.maximum(before, value.abs()) + left.abs() @ right.abs())
    error = 0.0 if dtype == torch.int32 else abs(alpha) * 2 * 2.0**-23 * running
    value = alpha * value
    if c is not None:
        added = beta * c.double()
        error = error + 2.0**-22 * (value.abs() + added.abs())
        value = value + added
    roundoff = _ROUNDOFF[dtype]
    return Expected(value, error * (1 + roundoff) + roundoff * value.abs() + _SMALLEST[dtype])
