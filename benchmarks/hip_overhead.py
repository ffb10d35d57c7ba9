"""What a launch costs in Python, and what capturing adds, measured against the stand-in HIP runtime of the tests.

Run as ``.venv/bin/python benchmarks/hip_overhead.py``. The stand-in only records a launch, so that what is left is the
cost of the layers above it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
os.environ["HIP_STANDIN_DEVICES"] = "1"

import asmlaunch  # noqa: E402
from asmlaunch.capture.record import recording_library  # noqa: E402
from asmlaunch.devices.hip.calls import Segment  # noqa: E402
from asmlaunch.devices.hip.runtime import runtime  # noqa: E402
from asmlaunch.kernels import choose_object, find_objects  # noqa: E402

_CALLS, _REPEATS = 20_000, 7


def microseconds(function: Callable[[], object]) -> float:
    """The fastest of several rounds, a call, in CPU time of this process: other processes do not count."""
    return min(timeit.repeat(function, number=_CALLS, repeat=_REPEATS, timer=time.process_time)) / _CALLS * 1e6


def main() -> None:
    """Print a table; with ``--bare`` only the time of the bare call, for the run under the recording library."""
    from hip_runtime import standin

    stand_in = standin.load()
    stand_in.emulate(False)
    path = choose_object(find_objects("f4gemm_*.co"), "BpreShuffle_32x128")
    kernel = asmlaunch.load(path, device="hip:0").kernel
    hip = runtime()
    memory = {name: int(hip.call("hipMalloc", 1 << 20)) for name in ("D", "A", "B", "ScaleA", "ScaleB")}
    sizes = {"M": 32, "N": 128, "K": 256, "stride_C0": 128, "stride_A0": 256, "stride_B0": 256}
    arguments = memory | sizes | {"stride_ScaleA0": 8, "stride_ScaleB0": 8}
    function = kernel._opened.handle.function(kernel.info)
    segment = Segment(bytes(372))
    stream = int(hip.call("hipStreamCreate"))
    launch, words = hip.hip.hipModuleLaunchKernel, segment.words
    bare = microseconds(lambda: launch(function, 1, 1, 1, 256, 1, 1, 0, stream, None, words))
    if "--bare" in sys.argv:
        print(bare)
        return
    prepared = microseconds(kernel.prepare(arguments, stream=stream))
    whole = microseconds(lambda: kernel.launch(arguments, stream=stream))
    captured = _under_the_recorder()
    print(f"{'bare hip-python call':44s} {bare:8.2f} us")
    print(f"{'prepared launch':44s} {prepared:8.2f} us  {prepared / bare:.2f} x")
    print(f"{'Kernel.launch, arguments bound each time':44s} {whole:8.2f} us")
    print(f"{'added by capturing':44s} {captured - bare:8.2f} us")


def _under_the_recorder() -> float:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "LD_PRELOAD": str(recording_library()),
            "ASMLAUNCH_CAPTURE_FOLDER": folder,
            "ASMLAUNCH_CAPTURE_LIMIT": str(1 << 30),
        }
        command = [sys.executable, __file__, "--bare"]
        return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
