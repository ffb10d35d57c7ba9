"""Problems that exercise the kernels of each family: operands, reference and bounds, one small file a family."""

from __future__ import annotations

from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import KernelNotFoundError
from asmlaunch.validate.problems import (
    all_reduce,
    bf16gemm,
    block_scale,
    f4gemm,
    fmha_bwd,
    fmha_fwd,
    fmoe,
    fmoe_2stages,
    i8gemm,
    layer_norm,
    mla,
    pa,
    sgemm,
    topksoftmax,
)
from asmlaunch.validate.problems.base import Case, Definition, Outcome, Output, Problem

#: Every family with problems, by its name.
DEFINITIONS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        f4gemm.DEFINITION,
        bf16gemm.DEFINITION,
        i8gemm.I8,
        i8gemm.M128_SPLIT_OR_NOT,
        block_scale.MI350,
        block_scale.FLATMM,
        topksoftmax.DEFINITION,
        layer_norm.DEFINITION,
        all_reduce.MESSAGE,
        all_reduce.FUSED,
        fmha_fwd.DEFINITION,
        *fmha_bwd.DEFINITIONS,
        fmoe.DEFINITION,
        fmoe_2stages.DEFINITION,
        pa.DEFINITION,
        mla.DEFINITION,
        sgemm.DEFINITION,
    )
}


def definition_of(kernel: KernelInfo) -> Definition | None:
    """The definition of the family a kernel belongs to, None where there is none."""
    return next((one for one in DEFINITIONS.values() if one.family.matches(kernel)), None)


def get(name: str) -> Definition:
    """The definition of a family.

    Raises:
        KernelNotFoundError: no problems for a family of that name; the message lists those there are.
    """
    if name not in DEFINITIONS:
        raise KernelNotFoundError("family", got=repr(name), need=f"one of {', '.join(DEFINITIONS)}")
    return DEFINITIONS[name]


__all__ = ["DEFINITIONS", "Case", "Definition", "Outcome", "Output", "Problem", "definition_of", "get"]
