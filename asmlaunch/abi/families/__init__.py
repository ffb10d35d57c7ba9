"""Families of kernels whose arguments, launch rule and domain are declared, one file a family."""

from __future__ import annotations

from asmlaunch.abi.families import f4gemm
from asmlaunch.abi.families.base import Family, Launch, Require, Variant
from asmlaunch.codeobject import KernelInfo

#: Every declared family.
FAMILIES: tuple[Family, ...] = (f4gemm.FAMILY,)


def family_of(kernel: KernelInfo) -> Family | None:
    """The family a kernel belongs to, or None when none is declared."""
    return next((family for family in FAMILIES if family.matches(kernel)), None)


__all__ = ["FAMILIES", "Family", "Launch", "Require", "Variant", "family_of"]
