"""One element of a CDNA3 matrix product, with rational numbers: what MMA-Sim (arXiv 2511.10909) says, step by step.

Nothing of the emulator is used, so this is what ``numerics="cdna3"`` is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import ml_dtypes
import numpy as np

#: The numpy type of each format's codes and of its numbers, and the exponent of its smallest normal number.
FORMATS = {
    "f16": (np.uint16, np.float16, -14),
    "bf16": (np.uint16, ml_dtypes.bfloat16, -126),
    "xf32": (np.uint32, np.float32, -126),
    "fp8": (np.uint8, ml_dtypes.float8_e4m3fnuz, -7),
    "bf8": (np.uint8, ml_dtypes.float8_e5m2fnuz, -15),
}
GROUP = {"f16": 8, "bf16": 8, "xf32": 4, "fp8": 16, "bf8": 16}
NAN, INFINITY = 0x7FC00000, 0x7F800000


def number(kind: str, code: int) -> float:
    """What a code means."""
    codes, numbers, _ = FORMATS[kind]
    if kind == "xf32":
        code &= ~0x1FFF
    return float(np.array([code], codes).view(numbers)[0])


def exponent(value: float, lowest: int) -> int:
    """The exponent of the leading digit, or of the format's smallest normal number; zeros have that of f32's."""
    return -126 if value == 0 else max(math.frexp(value)[1] - 1, lowest)


def power(e: int) -> Fraction:
    return Fraction(2) ** e


def rounded(value: Fraction) -> int:
    """The f32 pattern nearest to a number, even in the middle."""
    if value == 0:
        return 0
    sign, size = (0x80000000 if value < 0 else 0), abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e = max(e - (size < power(e)), -126)
    digits = round(size / power(e - 23))  # Python rounds halves to even
    code = digits + ((e + 126) << 23)
    return sign | min(code, INFINITY)


def element(kind_a: str, kind_b: str, a: Sequence[int], b: Sequence[int], c: int) -> int:
    """D's f32 pattern, from a row of A, a column of B and C's pattern."""
    step = min(GROUP[kind_a], len(a))
    for first in range(0, len(a), step):
        part = slice(first, first + step)
        c = group(kind_a, kind_b, a[part], b[part], c)
    return c


def group(kind_a: str, kind_b: str, a: Sequence[int], b: Sequence[int], c: int) -> int:
    """C after one group of K."""
    left, right = [number(kind_a, code) for code in a], [number(kind_b, code) for code in b]
    addend = float(np.array([c], np.uint32).view(np.float32)[0])
    special = sum((x * y for x, y in zip(left, right, strict=True)), addend)
    if math.isnan(special):
        return NAN
    if math.isinf(special):
        return INFINITY if special > 0 else INFINITY | 0x80000000
    products = [Fraction(x) * Fraction(y) for x, y in zip(left, right, strict=True)]
    above, below = (any(sign * product >= power(128) for product in products) for sign in (1, -1))
    if above or below:
        return NAN if above and below else INFINITY if above else INFINITY | 0x80000000
    lowest = FORMATS[kind_a][2], FORMATS[kind_b][2]
    exponents = [exponent(x, lowest[0]) + exponent(y, lowest[1]) for x, y in zip(left, right, strict=True)]
    e_c = exponent(addend, -126)
    if kind_a in ("fp8", "bf8"):
        halves = [cut(products[odd::2], exponents[odd::2]) for odd in (0, 1)]
        top = max(t for _, t in halves)
        total = sum((down(part, top - 24) for part, _ in halves), Fraction(0))
    else:
        total, top = cut(products, exponents)
    e = max(top, e_c)
    kept = Fraction(0) if kind_a in ("fp8", "bf8") and e_c < e - 25 else down(Fraction(addend), e - 24)
    return rounded(down(total, e - 31) + kept)


def cut(products: Sequence[Fraction], exponents: Sequence[int]) -> tuple[Fraction, int]:
    """The sum of products cut off 24 digits below the largest exponent, and that exponent."""
    top = max(exponents)
    unit = power(top - 24)
    return sum((int(product / unit) * unit for product in products), Fraction(0)), top


def down(value: Fraction, e: int) -> Fraction:
    """Rounded down to a multiple of 2**e."""
    return math.floor(value / power(e)) * power(e)
