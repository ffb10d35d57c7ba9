"""Fixtures shared by all tests."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from asmlaunch.kernels import aiter_folder

# pytest's line editor leaves the size of its terminal in the environment of worker processes, and consoles would keep
# to it; tests that need a width give their own.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# The stand-in HIP runtime of tests/hip_runtime stays loaded once a test has used it; only those that ask see a device.
os.environ.setdefault("HIP_STANDIN_DEVICES", "0")

# A code cache of the run's own: what is tested, and counted as covered, is what compiles now.
if "ASMLAUNCH_CACHE" not in os.environ:
    os.environ["ASMLAUNCH_CACHE"] = tempfile.mkdtemp(prefix="asmlaunch-tests-")
    atexit.register(shutil.rmtree, os.environ["ASMLAUNCH_CACHE"], ignore_errors=True)


@pytest.fixture(scope="session")
def aiter_kernels() -> Path:
    """Folder ``aiter_meta/hsa`` of the installed amd-aiter wheel (``make`` installs it)."""
    return aiter_folder()


@pytest.fixture(scope="session")
def f4gemm_folder(aiter_kernels: Path) -> Path:
    """Folder of the MI350 MXFP4 GEMM objects."""
    return aiter_kernels / "gfx950" / "f4gemm"
