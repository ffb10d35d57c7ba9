"""Operands that several families share: random data in the formats and layouts of the kernels."""

from __future__ import annotations

import numpy as np

from asmlaunch import layouts
from asmlaunch.layouts.named import WEIGHTS_16X16, WEIGHTS_32X16
from asmlaunch.validate.bfloat16 import bfloat16_bits


def bfloat16(random: np.random.Generator, *shape: int, scale: float = 1.0, mean: float = 0.0) -> np.ndarray:
    """Normally distributed bf16 numbers as uint16 bits."""
    return bfloat16_bits(mean + scale * random.standard_normal(shape))


def bfloat16_integers(random: np.random.Generator, *shape: int, largest: int = 8) -> np.ndarray:
    """Integers from ``-largest`` to ``largest`` as bf16 bits: sums of their products are exact in f32."""
    return bfloat16_bits(random.integers(-largest, largest + 1, shape).astype(np.float64))


def int8(random: np.random.Generator, *shape: int) -> np.ndarray:
    """All 256 integers, equally often."""
    return random.integers(-128, 128, shape, np.int8)


def e4m3(random: np.random.Generator, *shape: int, form: str) -> np.ndarray:
    """Normally distributed numbers as codes (uint8) of ``form``, "e4m3fn" or "e4m3fnuz"."""
    return layouts.FORMATS[form].encode(random.standard_normal(shape).astype(np.float32))


def positive(random: np.random.Generator, *shape: int) -> np.ndarray:
    """f32 factors between 1/2 and 2, no powers of two among them."""
    return np.exp2(random.uniform(-1, 1, shape)).astype(np.float32)


def shuffle_16(weights: np.ndarray) -> np.ndarray:
    """Bytes ``[N, K]`` in blocks of 16 rows by 32 bytes."""
    return WEIGHTS_16X16.apply(weights)


def shuffle_32(weights: np.ndarray) -> np.ndarray:
    """Bytes ``[N, K]`` in blocks of 32 rows by 32 bytes."""
    return WEIGHTS_32X16.apply(weights)


def blocks(size: int, block: int = 128) -> int:
    """Blocks that cover ``size``."""
    return -(-size // block)
