"""Kernels prepared and dropped in several threads at once: their operations have equal names and different lives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, sys, threading
import asmlaunch
from asmlaunch.devices.emulator import EmulatorDevice
from asmlaunch.validate import a4w4

failures = []

def work():
    for _ in range(12):
        kernel = asmlaunch.load(sys.argv[1], device=EmulatorDevice()).kernel
        problem = a4w4.build(kernel.info, a4w4.Case(*a4w4.tile(kernel.info), 256))
        kernel.launch(problem.arguments)
        if not problem.compare().passed:
            failures.append(problem)
        del kernel, problem
        gc.collect()

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("wrong:", len(failures))
"""


def test_many_devices_in_many_threads(f4gemm_folder: Path) -> None:
    path = f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"
    done = subprocess.run([sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "wrong: 0"), done.stderr[-2000:]
