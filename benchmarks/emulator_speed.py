"""The emulator's speed on f4gemm, as a ratio to ``torch.matmul`` in float32 of the same sizes on the same cores.

Run as ``.venv/bin/python benchmarks/emulator_speed.py [--sizes 1024,2048] [--kernels all|NAME,NAME] [--json]``; needs
torch (extra ``torch``). Both sides are timed in turns, so that what else the machine does hits both; a time is the
median, and "best" the ratio of the shortest times.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import asmlaunch
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.validate import a4w4

DEFAULT = "BpreShuffle_256x256,noBpreShuffle_256x256,BpreShuffle_32x128"


def timed(function: Callable[[], object]) -> float:
    """Seconds of one call. Before it there is a pause: torch's threads go on spinning for a while after a product."""
    time.sleep(0.05)
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(name: str, size: int, repeats: int) -> dict[str, object]:
    """Median times of one kernel and of torch.matmul at ``size`` cubed, in turns."""
    kernel = asmlaunch.load(choose_object(find_objects("f4gemm_*.co"), name), device="emulator").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(size, size, size))
    a, b = (torch.from_numpy(np.random.default_rng(0).standard_normal((size, size), np.float32)) for _ in "ab")
    result = kernel.launch(problem.arguments)
    passed = problem.compare().passed
    torch.matmul(a, b.T)
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(timed(lambda: kernel.launch(problem.arguments)))
        theirs.append(timed(lambda: torch.matmul(a, b.T)))
    emulator, reference = statistics.median(ours), statistics.median(theirs)
    return {
        "kernel": name, "size": size, "emulator_ms": emulator * 1e3, "torch_ms": reference * 1e3,
        "ratio": emulator / reference, "best_ratio": min(ours) / min(theirs),
        "wave_instructions": result.instructions,
        "million_instructions_s_core": result.instructions / min(ours) / 1e6 / len(os.sched_getaffinity(0)),
        "passed": passed,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1024,2048")
    parser.add_argument("--kernels", default=DEFAULT)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = options.kernels.split(",")
    if options.kernels == "all":
        names = [path.stem.removeprefix("f4gemm_bf16_per1x32Fp4_") for path in find_objects("f4gemm_*.co")]
    rows = []
    if not options.json:
        columns = f"{'emulator ms':>13s}{'torch ms':>10s}{'ratio':>8s}{'best':>8s}{'M instr/s/core':>16s}"
        print(f"{'kernel':24s}{'size':>6s}{columns}")
    for size in map(int, options.sizes.split(",")):
        for name in names:
            row = measure(name, size, options.repeats)
            rows.append(row)
            if not options.json:
                print(
                    f"{name:24s}{size:6d}{row['emulator_ms']:13.2f}{row['torch_ms']:10.2f}{row['ratio']:8.2f}"
                    f"{row['best_ratio']:8.2f}{row['million_instructions_s_core']:16.1f}"
                    f"{'' if row['passed'] else '  WRONG'}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
