"""Numbers with the error that a kernel's f32 arithmetic may leave in them, and their roundings to narrow formats.

Kernels round intermediate results to the format of the next product. Where f32 arithmetic may put a number on the
other side of a rounding boundary than float64, a reference allows for both: values come with errors
(:class:`Estimate`), which roundings turn into whole steps and products carry on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asmlaunch.validate.matrix import F32_STEP
from asmlaunch.validate.minifloat import round_to

#: The smallest largest magnitude that kernels divide by.
_SMALLEST = 1e-6


@dataclass(frozen=True)
class Estimate:
    """float64 numbers, and how far off the kernel's f32 arithmetic may be.

    Attributes:
        value: of any shape.
        error: the same shape, >= 0.
    """

    value: np.ndarray
    error: np.ndarray

    def __getitem__(self, index: Any) -> Estimate:
        """A part of both."""
        return Estimate(self.value[index], self.error[index])

    def scaled(self, factor: np.ndarray) -> Estimate:
        """Multiplied by exact factors, with one rounding to f32."""
        value = self.value * factor
        return Estimate(value, self.error * np.abs(factor) + F32_STEP * np.abs(value))


def exact(value: np.ndarray) -> Estimate:
    """Numbers without an error."""
    value = np.asarray(value, np.float64)
    return Estimate(value, np.zeros_like(value))


@dataclass(frozen=True)
class Rounding:
    """A format that activations are rounded to, with one scale a group of columns.

    A group is multiplied by ``largest / amax`` (amax at least 1e-6), rounded, and its products divided by that again.

    Attributes:
        round: to the format's numbers.
        largest: what the largest magnitude of a group becomes.
        group: columns that share a scale; 0 for all.
    """

    round: Callable[[np.ndarray], np.ndarray]
    largest: float
    group: int = 0

    def __call__(self, x: Estimate) -> Rounded:
        """``[rows, columns]`` rounded."""
        rows, columns = x.value.shape
        group = self.group or columns
        value, error = (one.reshape(rows, -1, group) for one in (x.value, x.error))
        amax = np.maximum(np.abs(value).max(axis=2, keepdims=True), _SMALLEST)
        factor = self.largest / amax
        return _rounded(self.round, value * factor, error * factor, amax / self.largest, self.largest)


@dataclass(frozen=True)
class Plain:
    """A 16-bit format that activations are rounded to without a scale."""

    round: Callable[[np.ndarray], np.ndarray]

    def __call__(self, x: Estimate) -> Rounded:
        """``[rows, columns]`` rounded."""
        rows = len(x.value)
        value, error = (one.reshape(rows, 1, -1) for one in (x.value, x.error))
        return _rounded(self.round, value, error, np.ones((rows, 1, 1)))


@dataclass(frozen=True)
class MxFp4:
    """E2M1 with a power of two for 32 columns, as the kernels choose it from the largest magnitude.

    With ``v = max(amax, 1e-6) / 4`` it is v's power of two, and the next one where v's significand is 1.5 or more.
    """

    group: int = 32

    def __call__(self, x: Estimate) -> Rounded:
        """``[rows, columns]`` rounded."""
        value, error = (one.reshape(len(x.value), -1, self.group) for one in (x.value, x.error))
        largest = np.abs(value).max(axis=2, keepdims=True)
        amax_error = np.take_along_axis(error, np.abs(value).argmax(axis=2)[:, :, None], axis=2)
        scale, *others = (self._scale(largest + sign * amax_error) for sign in (0, 1, -1))
        rounded = _rounded(round_e2m1, value / scale, error / scale, scale)
        # Where the scale itself is in doubt all of the group may come out otherwise.
        doubt = np.zeros_like(rounded.slack)
        for other in others:
            differ = np.abs(round_e2m1(value / other) * other / scale - rounded.codes)
            doubt = np.maximum(doubt, np.where(other != scale, differ, 0))
        return Rounded(rounded.codes, rounded.slack + doubt, scale)

    @staticmethod
    def _scale(amax: np.ndarray) -> np.ndarray:
        significand, exponent = np.frexp(np.maximum(amax, _SMALLEST) / 4)
        return np.ldexp(1.0, exponent - 1 + (2 * significand >= 1.5))


def _rounded(
    round_: Callable[[np.ndarray], np.ndarray],
    value: np.ndarray,
    error: np.ndarray,
    scale: np.ndarray,
    largest: float = 1.0,
) -> Rounded:
    """Both sides of a boundary that is within reach; the factor's own roundings are four f32 steps.

    There are none where the largest magnitude (``scale * largest``) is a power of two and the number one of f32.
    """
    rounds = (np.frexp(scale * largest)[0] != 0.5) | (value.astype(np.float32) != value)
    error = error + 4 * F32_STEP * np.abs(value) * rounds
    codes = round_(value)
    slack = np.maximum(np.abs(round_(value + error) - codes), np.abs(round_(value - error) - codes))
    return Rounded(codes, slack, scale)


@dataclass(frozen=True)
class Rounded:
    """Activations in a format.

    Attributes:
        codes: float64 ``[rows, groups, columns of a group]``: numbers of the format.
        slack: the same shape: by how much another decision at a boundary would change them.
        scale: float64 ``[rows, groups, 1]``: what a code of 1 stands for.
    """

    codes: np.ndarray
    slack: np.ndarray
    scale: np.ndarray

    @property
    def estimate(self) -> Estimate:
        """The numbers that the codes stand for, ``[rows, columns]``."""
        rows = len(self.codes)
        return Estimate((self.codes * self.scale).reshape(rows, -1), (self.slack * self.scale).reshape(rows, -1))


#: To the numbers of E2M1, E4M3 and its fnuz form (no clamping: factors keep numbers in range), bf16 and f16.
round_e2m1 = partial(round_to, bits=2, lowest=0)
round_e4m3 = partial(round_to, bits=4, lowest=-6)
round_e4m3fnuz = partial(round_to, bits=4, lowest=-7)
round_bf16 = partial(round_to, bits=8, lowest=-126)
round_f16 = partial(round_to, bits=11, lowest=-14)
