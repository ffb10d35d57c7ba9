"""bfloat16 in plain numpy: values of bit patterns, and the one correct rounding from float64."""

from __future__ import annotations

import numpy as np

from asmlaunch.errors import LayoutError


def to_float64(array: np.ndarray) -> np.ndarray:
    """float64 values of a result: bfloat16 as uint16 bit patterns or as an ml_dtypes array, or any numpy float.

    Raises:
        LayoutError: any other dtype.
    """
    array = np.asarray(array)
    if is_bfloat16(array):
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if array.dtype.kind != "f":
        raise LayoutError(
            "result", got=f"dtype {array.dtype}", need="bfloat16 (or its bits as uint16) or a numpy float"
        )
    return array.astype(np.float64)


def is_bfloat16(array: np.ndarray) -> bool:
    """True if ``array`` holds bfloat16: as ml_dtypes.bfloat16, or as uint16 bit patterns."""
    return array.dtype == np.uint16 or array.dtype.name == "bfloat16"


def round_bfloat16(values: np.ndarray) -> np.ndarray:
    """float64 ``values`` rounded once to bfloat16 (to nearest, ties to even), still as float64.

    bfloat16 has 8 significant bits and the exponent range of float32: below 2^-126 its step is 2^-133, and what rounds
    to 2^128 is infinity.
    """
    x = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exponent = np.maximum(np.frexp(x)[1], -125)
        rounded = np.ldexp(np.rint(np.ldexp(x, 8 - exponent)), exponent - 8)
        rounded = np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, x), rounded)
    return np.where(np.isfinite(x), rounded, x)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """uint16 bit patterns of float64 ``values`` rounded to bfloat16."""
    with np.errstate(over="ignore"):
        return (round_bfloat16(values).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
