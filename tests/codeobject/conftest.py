"""Small objects assembled with LLVM (fixtures/codeobject/build.sh), and LLVM's own reading of them."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "fixtures" / "codeobject"


@pytest.fixture(scope="session")
def objects() -> Path:
    """Folder of the assembled objects."""
    return FIXTURES


@pytest.fixture(scope="session")
def two_kernels(objects: Path) -> bytes:
    """A version 5 object with two kernels."""
    return (objects / "two_kernels_v5.co").read_bytes()
