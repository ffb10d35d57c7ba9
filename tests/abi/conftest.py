"""Shared inputs of the ABI tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.codeobject import CodeObject, KernelInfo

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def public_dump() -> str:
    """The published kernarg dump of an MXFP4 GEMM launch, with most of its lines left out."""
    return (ROOT / "fixtures" / "abi" / "f4gemm_public_dump.txt").read_text()


def only_kernel(path: Path) -> KernelInfo:
    """The kernel of an object that has one."""
    (kernel,) = codeobject.read(path).kernels.values()
    return kernel


@pytest.fixture(scope="session")
def split_kernel(f4gemm_folder: Path) -> KernelInfo:
    """A kernel that can split K."""
    return only_kernel(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256.co")


@pytest.fixture(scope="session")
def plain_kernel(f4gemm_folder: Path) -> KernelInfo:
    """The kernel that takes B as it is."""
    return only_kernel(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256.co")


@pytest.fixture(scope="session")
def small_kernel(f4gemm_folder: Path) -> KernelInfo:
    """A kernel that masks columns and neither splits K nor uses alpha."""
    return only_kernel(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co")


@pytest.fixture(scope="session")
def two_kernels() -> CodeObject:
    """An assembled object with the kernels add_one and scale."""
    return codeobject.read(ROOT / "fixtures" / "codeobject" / "two_kernels_v5.co")
