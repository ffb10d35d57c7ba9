"""Element formats of attention's operands: random codes, their values, and codes that show where they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.problems import operands


@dataclass(frozen=True)
class Element:
    """A format of Q, K or V.

    Attributes:
        make: random codes of a shape, values around 1.
        decode: their float64 values.
        nan: a code that shows where it is read: NaN, or the largest number of integers.
    """

    make: Callable[..., np.ndarray]
    decode: Callable[[np.ndarray], np.ndarray]
    nan: float


def _float16(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float16)


def _integers(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Normally distributed around 0, up to four standard deviations."""
    return np.clip(np.rint(random.standard_normal(shape) * _INT8_DEVIATION), -127, 127).astype(np.int8)


_INT8_DEVIATION = 127 / 4

#: By name; a quantised cache's scales make int8 codes as large as the others.
ELEMENTS: dict[str, Element] = {
    "bf16": Element(operands.bfloat16, to_float64, 0x7FFF),
    "fp16": Element(_float16, to_float64, np.nan),
    "e4m3fn": Element(lambda random, *shape: operands.e4m3(random, *shape, form="e4m3fn"), decode_e4m3, 0x7F),
    "e4m3fnuz": Element(lambda random, *shape: operands.e4m3(random, *shape, form="e4m3fnuz"), decode_e4m3fnuz, 0x80),
    "int8": Element(_integers, to_float64, 127),
}

#: What a code of 1 is worth for values around 1.
UNIT = {"int8": 1 / _INT8_DEVIATION}
