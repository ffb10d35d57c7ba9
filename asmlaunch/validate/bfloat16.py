"""bfloat16 in plain numpy: values of bit patterns, and the one correct rounding from float64."""

from __future__ import annotations

import numpy as np

from asmlaunch.errors import LayoutError

#: How a conversion picks one of the two neighbours: the nearest with ties to even, the nearest with ties away from
#: zero, or the one nearer to zero.
ROUNDINGS = ("nearest", "half_away", "toward_zero")


def to_float64(array: np.ndarray) -> np.ndarray:
    """float64 values of a result: bfloat16 as uint16 bit patterns or as an ml_dtypes array, a numpy float or integer.

    Raises:
        LayoutError: any other dtype.
    """
    array = np.asarray(array)
    if is_bfloat16(array):
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if array.dtype.kind not in "fi":
        raise LayoutError(
            "result", got=f"dtype {array.dtype}", need="bfloat16 (or its bits as uint16), a numpy float or integer"
        )
    return array.astype(np.float64)


def is_bfloat16(array: np.ndarray) -> bool:
    """True if ``array`` holds bfloat16: as ml_dtypes.bfloat16, or as uint16 bit patterns."""
    return array.dtype == np.uint16 or array.dtype.name == "bfloat16"


def round_integer(values: np.ndarray, rounding: str = "nearest") -> np.ndarray:
    """float64 ``values`` rounded to integers as named (see :data:`ROUNDINGS`), still as float64."""
    if rounding == "nearest":
        return np.rint(values)
    return np.trunc(values if rounding == "toward_zero" else values + np.copysign(0.5, values))


def round_bfloat16(values: np.ndarray, rounding: str = "nearest") -> np.ndarray:
    """float64 ``values`` rounded once to bfloat16 as named (see :data:`ROUNDINGS`), still as float64.

    bfloat16 has 8 significant bits and the exponent range of float32: below 2^-126 its step is 2^-133, and what rounds
    to 2^128 is infinity.
    """
    x = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponent = np.maximum(np.frexp(x)[1], -125)
        rounded = np.ldexp(round_integer(np.ldexp(x, 8 - exponent), rounding), exponent - 8)
        rounded = np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, x), rounded)
    return np.where(np.isfinite(x), rounded, x)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """uint16 bit patterns of float64 ``values`` rounded to bfloat16."""
    with np.errstate(over="ignore"):
        return (round_bfloat16(values).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
