"""Families of kernels whose arguments, launch rule and domain are declared, one file a family."""

from __future__ import annotations

from asmlaunch.abi.families import (
    all_reduce,
    bf16gemm,
    f4gemm,
    flatmm,
    fmha_v3_bwd,
    fmha_v3_fwd,
    fmoe,
    fmoe_2stages,
    fp8_block_scale,
    i8gemm,
    layer_norm,
    mla,
    pa,
    sgemm,
    topksoftmax,
)
from asmlaunch.abi.families.base import Family, Launch, Require, Variant
from asmlaunch.codeobject import KernelInfo

#: Every declared family.
FAMILIES: tuple[Family, ...] = (
    f4gemm.FAMILY,
    bf16gemm.FAMILY,
    *i8gemm.FAMILIES,
    fp8_block_scale.FAMILY,
    flatmm.FAMILY,
    topksoftmax.FAMILY,
    layer_norm.FAMILY,
    *all_reduce.FAMILIES,
    fmha_v3_fwd.FAMILY,
    *fmha_v3_bwd.FAMILIES,
    *pa.FAMILIES,
    mla.FAMILY,
    fmoe.FAMILY,
    fmoe_2stages.FAMILY,
    sgemm.FAMILY,
)


def family_of(kernel: KernelInfo) -> Family | None:
    """The family a kernel belongs to, or None when none is declared."""
    return next((family for family in FAMILIES if family.matches(kernel)), None)


__all__ = ["FAMILIES", "Family", "Launch", "Require", "Variant", "family_of"]
