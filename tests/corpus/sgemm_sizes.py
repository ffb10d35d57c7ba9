"""Run the SGEMM fixture at every M, N, K in 1..70 (343,000 problems a processor) and compare with float64.

    python tests/corpus/sgemm_sizes.py [gfx942|gfx950] [step]

``step`` runs every step-th problem. One launch a problem; prints the number of problems and the largest norm error.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

import asmlaunch

LARGEST = 70
BOUND = 3e-7  # of the norm error


def main(processor: str = "gfx950", step: int = 1) -> int:
    file = Path(__file__).parents[2] / "fixtures" / "kernels" / f"sgemm.{processor}.co"
    kernel = asmlaunch.load(file, device="emulator").kernel
    random = np.random.default_rng(0)
    a, b, c = random.standard_normal((3, LARGEST, LARGEST), np.float32)
    worst = 0.0
    sizes = list(itertools.product(range(1, LARGEST + 1), repeat=3))[::step]
    for m, n, k in sizes:
        left, right, out = (x.copy() for x in (a[:k, :m], b[:n, :k], c[:n, :m]))
        start = out.astype(np.float64)
        expected = 0.5 * (right.astype(np.float64) @ left) + 1.5 * start
        kernel.launch({"A": left, "B": right, "C": out, "alpha": 0.5, "beta": 1.5}, threads=1)
        # Few elements may cancel: what they are the sum of is then what the error is relative to.
        terms = 0.5 * (np.abs(right) @ np.abs(left)) + 1.5 * np.abs(start)
        error = float(np.linalg.norm(out - expected) / max(np.linalg.norm(expected), np.linalg.norm(terms) / 2))
        worst = max(worst, error)
        if error > BOUND:
            print(f"M={m} N={n} K={k}: norm error {error:.3g}")
            return 1
    print(f"{processor}: {len(sizes):,} problems, largest norm error {worst:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2], *map(int, sys.argv[2:3])))
