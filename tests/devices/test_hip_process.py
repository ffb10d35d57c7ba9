"""What concerns a whole process: which runtime is loaded, and what a fork does. Each test has processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hip_runtime import standin

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled into a folder of its own."""
    return standin.build(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def path(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"


def python(code: str, *arguments: object, **environment: str) -> str:
    """Run Python code in a new process; what it prints, or a failure with its error output."""
    result = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | {"HIP_STANDIN_DEVICES": "1", "PYTHONPATH": _search_path()} | environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def _search_path() -> str:
    return os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))


LOAD = """
import sys
import asmlaunch
from asmlaunch.errors import AsmlaunchError
def attempt(device=None):
    try:
        return asmlaunch.load(sys.argv[1], device=device).device.name
    except AsmlaunchError as error:
        return f"{type(error).__name__}: {error}"
"""


def test_without_a_runtime_the_emulator_is_taken_quietly(path: Path) -> None:
    nowhere = "from asmlaunch.devices.hip import library\nlibrary._candidates = lambda: iter(['libamdhip64.so.none'])\n"
    printed = python(nowhere + LOAD + "print(attempt()); print(attempt('hip:0'))", path).splitlines()
    assert printed[0] == "emulator"
    assert printed[1].startswith("NoGpuError: no HIP runtime (libamdhip64.so) on this machine")
    assert "device='emulator'" in printed[1]


def test_without_hip_python(path: Path) -> None:
    hide = "import sys; sys.modules['hip'] = None\n"
    printed = python(hide + LOAD + "print(attempt()); print(attempt('hip:0'))", path).splitlines()
    assert printed[0] == "emulator"
    assert "hip-python is not installed" in printed[1]
    assert "asmlaunch[hip]" in printed[1]


def test_a_runtime_on_the_library_path_is_found(path: Path, library: Path) -> None:
    assert python(LOAD + "print(attempt())", path, LD_LIBRARY_PATH=str(library.parent)) == "hip:0"


def test_a_runtime_that_is_loaded_already_is_the_one_used(path: Path, library: Path, tmp_path: Path) -> None:
    """As torch's ROCm build does: its own library, in a place the system does not know, with another one installed."""
    other = standin.build(tmp_path)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[2])\n" + LOAD
    code += "from asmlaunch.devices.hip.library import mapped_runtimes\nprint(attempt(), *mapped_runtimes())"
    assert python(code, path, other, LD_LIBRARY_PATH=str(library.parent)) == f"hip:0 {other}"


def test_two_runtimes_are_refused(path: Path, library: Path, tmp_path: Path) -> None:
    other = standin.build(tmp_path)
    code = "import ctypes, sys; [ctypes.CDLL(p) for p in sys.argv[2:]]\n" + LOAD
    for printed in python(code + "print(attempt('hip:0')); print(attempt())", path, other, library).splitlines():
        assert "two HIP runtimes in this process: got" in printed
        assert str(other) in printed
        assert str(library) in printed


def test_importing_touches_no_gpu_so_that_a_child_can(path: Path, library: Path) -> None:
    """Import, fork, and use the GPU in the child; then in the parent."""
    code = LOAD + (
        "import os\nasmlaunch.load, asmlaunch.devices, asmlaunch.layouts\n"
        "from asmlaunch.devices.hip.library import mapped_runtimes\nassert not mapped_runtimes()\n"
        "child = os.fork()\nif child == 0:\n    os._exit(attempt() != 'hip:0')\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), attempt())"
    )
    assert python(code, path, LD_LIBRARY_PATH=str(library.parent)) == "0 hip:0"


def test_a_child_of_a_process_that_used_the_gpu_is_told_so(path: Path, library: Path) -> None:
    code = LOAD + (
        "import os\nmodule = asmlaunch.load(sys.argv[1], device='hip:0')\n"
        "child = os.fork()\nif child == 0:\n    del module\n"
        "    print(attempt('hip:0'), attempt(), sep='\\n', flush=True)\n    os._exit(0)\n"
        "os.waitpid(child, 0)\nprint(attempt('hip:0'))"
    )
    printed = python(code, path, LD_LIBRARY_PATH=str(library.parent)).splitlines()
    assert all(line.startswith("DeviceError: HIP in a forked process: got a runtime") for line in printed[:2])
    assert printed[2] == "hip:0"


def test_a_module_left_open_at_exit_is_no_trouble(path: Path, library: Path) -> None:
    code = LOAD + "module = asmlaunch.load(sys.argv[1], device='hip:0'); print(len(module))"
    assert python(code, path, LD_LIBRARY_PATH=str(library.parent)) == "1"


@pytest.mark.debian_runtime
def test_a_real_runtime_without_devices(path: Path) -> None:
    """Debian's libamdhip64, on LD_LIBRARY_PATH: a real AMD runtime that finds no GPU here."""
    code = LOAD + (
        "from asmlaunch.devices.hip.library import mapped_runtimes\n"
        "print(attempt()); print(attempt('hip:0')); print(*mapped_runtimes())"
    )
    chosen, refused, mapped = python(code, path).splitlines()
    assert chosen == "emulator"
    assert refused.startswith("NoGpuError: hip")
    assert "no such AMD GPU is visible here" in refused
    assert "libamdhip64.so.5" in mapped
