"""How long a launch in the emulator takes: with nothing compiled before, in a later process, and repeated.

Run as ``.venv/bin/python benchmarks/first_launch.py [KERNEL ...]``. Each kernel gets two processes of its own and an
empty code cache: the first compiles everything, the second loads what the first has kept on disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from asmlaunch.kernels import choose_object, find_objects

DEFAULT = ("BpreShuffle_256x256", "noBpreShuffle_256x256", "BpreShuffle_32x128")


def measure(name: str, when: str) -> None:
    """Print the times of one kernel: one tile at K=512."""
    start = time.perf_counter()
    import asmlaunch
    from asmlaunch.validate import a4w4

    imported = time.perf_counter() - start
    kernel = asmlaunch.load(choose_object(find_objects("f4gemm_*.co"), name), device="emulator").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(*a4w4.tile(kernel.info), 512))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        kernel.launch(problem.arguments)
        times.append(time.perf_counter() - start)
    problem.compare().require()
    print(f"{name:24s} {when:12s} {imported:10.3f} {times[0]:14.3f} {times[1]:15.4f} {min(times[1:]):13.4f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(*sys.argv[2:])
    else:
        columns = f"{'import':>10s} {'first launch':>14s} {'second launch':>15s} {'best of 4':>13s}"
        print(f"{'seconds':24s} {'code cache':12s} {columns}", flush=True)
        for kernel_name in sys.argv[1:] or DEFAULT:
            with tempfile.TemporaryDirectory() as folder:
                for state in ("empty", "filled"):
                    command = [sys.executable, __file__, "--one", kernel_name, state]
                    subprocess.run(command, check=True, env={**os.environ, "ASMLAUNCH_CACHE": folder})
