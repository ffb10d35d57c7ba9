"""A second reference beside float64: the Triton kernels of ``asmlaunch.triton_ref``; which of three results departs.

The three share no code: a kernel, Triton's compiler or interpreter, and numpy in float64.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.compare import Bound, Comparison, compare
from asmlaunch.validate.reference import Reference

REFERENCES = ("float64", "triton", "both")
"""What a result can be compared with."""

BETWEEN = Bound(equal_fraction=0.9996, relative=2.0**-7, cancellation=2.0**-19)
"""Two results that each keep ``compare.BF16_GEMM`` may be twice as far from each other as from their reference."""


@dataclass(frozen=True)
class ThreeWay:
    """A kernel, Triton and float64 compared two by two.

    Attributes:
        kernel: the kernel's result against float64.
        triton: Triton's result against float64.
        between: the kernel's result against Triton's.
    """

    kernel: Comparison
    triton: Comparison
    between: Comparison

    @property
    def departs(self) -> str:
        """``none``; ``kernel``, ``triton`` or ``float64``, which the two others contradict; ``all`` if none agree."""
        if self.kernel.passed and self.triton.passed:
            return "none"
        if self.kernel.passed or self.triton.passed:
            return "triton" if self.kernel.passed else "kernel"
        return "float64" if self.between.passed else "all"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"departs": self.departs, **{name: getattr(self, name).as_dict() for name in ("triton", "between")}}


def three_way(kernel: np.ndarray, triton: np.ndarray, reference: Reference, bound: Bound) -> ThreeWay:
    """Compare bfloat16 results (uint16 bits) with float64 and with each other; ``bound`` is of each to float64."""
    other = Reference(to_float64(triton), reference.magnitude)
    return ThreeWay(
        compare(kernel, reference, bound), compare(triton, reference, bound), compare(kernel, other, BETWEEN)
    )


def triton_a4w4(
    a: np.ndarray, b: np.ndarray, scale_a: np.ndarray, scale_b: np.ndarray, *, alpha: float = 1.0
) -> np.ndarray:
    """bfloat16 bits (uint16) ``[M, N]`` of ``alpha * A x B^T`` by Triton, on the GPU or else in Triton's interpreter.

    Args:
        a, b, scale_a, scale_b: as for ``validate.gemm_a4w4``, in logical order.

    Raises:
        ImportError: torch or Triton is missing; it names the extras. DeviceError: no GPU, in a process that imported
            the kernels without the interpreter.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError("this reference needs torch and Triton: pip install 'asmlaunch[torch,triton]'") from error
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and "asmlaunch.triton_ref" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are decorated
    from asmlaunch.triton_ref import gemm_a4w4

    operands = [torch.from_numpy(np.ascontiguousarray(x).view(np.uint8)).to(device) for x in (a, b, scale_a, scale_b)]
    result = gemm_a4w4(*operands, alpha=alpha)
    bits: np.ndarray = result.view(torch.int16).cpu().numpy().view(np.uint16)
    return bits
