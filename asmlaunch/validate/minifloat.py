"""8-bit floats decoded from the text of their specifications, once more and by other code than asmlaunch.layouts.

E4M3 is defined by the OCP 8-bit floating point specification: bias 7, largest number 448, NaN 0x7f and 0xff. The "fnuz"
form of CDNA3 (AMD CDNA3 ISA manual, "FP8 and BF8 formats") has bias 8, largest number 240, and one NaN, 0x80.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from asmlaunch.validate.bfloat16 import round_integer


@cache
def _table(bias: int, nans: tuple[int, ...]) -> np.ndarray:
    values = np.zeros(256)
    for code in range(256):
        exponent, mantissa = code // 8 % 16, code % 8
        magnitude = (1 + mantissa / 8) * 2.0 ** (exponent - bias) if exponent else mantissa / 8 * 2.0 ** (1 - bias)
        values[code] = np.nan if code in nans else -magnitude if code >= 128 else magnitude
    return values


def decode_e4m3(codes: np.ndarray) -> np.ndarray:
    """float64 values of E4M3 codes (uint8)."""
    return _table(7, (0x7F, 0xFF))[codes]


def decode_e4m3fnuz(codes: np.ndarray) -> np.ndarray:
    """float64 values of CDNA3's E4M3 codes (uint8)."""
    return _table(8, (0x80,))[codes]


def round_to(values: np.ndarray, bits: int, lowest: int, rounding: str = "nearest") -> np.ndarray:
    """float64 ``values`` rounded to ``bits`` significant bits; steps stop shrinking below ``2**lowest``.

    Args:
        rounding: one of ``bfloat16.ROUNDINGS``.
    """
    steps = np.maximum(np.frexp(values)[1] - 1, lowest) - (bits - 1)
    return np.asarray(np.ldexp(round_integer(np.ldexp(values, -steps), rounding), steps))
