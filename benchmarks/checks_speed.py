"""What checks cost: wave-instructions a second of one core, for each check alone and for all.

    python benchmarks/checks_speed.py [kernel] [M N K]

CPU time of the process, best of five, one thread. The last column leaves out matrix instructions, and takes the whole
run without checks to be theirs: it is what the checks add to all the other instructions.
"""

from __future__ import annotations

import sys
import time

import asmlaunch
from asmlaunch.emulator.checks import CHECKS
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.validate import a4w4


def main(name: str = "BpreShuffle_32x128", m: int = 512, n: int = 1024, k: int = 1024) -> None:
    kernel = asmlaunch.load(choose_object(find_objects("f4gemm_*.co", None), name), device="emulator").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(m, n, k))
    without = 0.0
    print(f"{kernel.name} {m}x{n}x{k}")
    for checks in ("off", "all", *CHECKS):
        kernel.launch(problem.arguments, checks=checks, threads=1)
        best = float("inf")
        for _ in range(5):
            start = time.process_time()
            result = kernel.launch(problem.arguments, checks=checks, threads=1)
            best = min(best, time.process_time() - start)
        without = without or best
        assert result.fidelity is not None
        assert result.instructions is not None
        others = result.instructions - result.fidelity.instructions["matrix"]
        extra = f", {others / (best - without) / 1e6:8.1f} M/s of added time" if best > 1.05 * without else ""
        print(f"{checks:>14}: {best * 1e3:7.1f} ms, {result.instructions / best / 1e6:6.1f} M/s{extra}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:5]))
