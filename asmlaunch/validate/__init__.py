"""Independent references in float64, and the comparison of results with them."""

from asmlaunch.validate.bfloat16 import bfloat16_bits, round_bfloat16, to_float64
from asmlaunch.validate.compare import BF16_GEMM, EXACT, Bound, Comparison, compare
from asmlaunch.validate.reference import Reference, decode_mxfp4, gemm_a4w4, gemm_a4w4_split_k
from asmlaunch.validate.structure import Structure
from asmlaunch.validate.testing import assert_kernel_close

__all__ = [
    "BF16_GEMM",
    "EXACT",
    "Bound",
    "Comparison",
    "Reference",
    "Structure",
    "assert_kernel_close",
    "bfloat16_bits",
    "compare",
    "decode_mxfp4",
    "gemm_a4w4",
    "gemm_a4w4_split_k",
    "round_bfloat16",
    "to_float64",
]
