"""What the Collatz kernels compute: loops that lanes leave at different times."""

from __future__ import annotations


def steps(number: int) -> int:
    """Steps to 1: half of an even number, three times an odd one plus 1."""
    count = 0
    while number > 1:
        number, count = (3 * number + 1 if number % 2 else number // 2), count + 1
    return count
