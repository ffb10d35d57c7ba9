"""sgemm: the single-precision column-major GEMM that this package carries as source (``fixtures/kernels/sgemm.s``).

``C = alpha * A x B + beta * C``, for gfx942 and gfx950. A column-major M x K matrix with leading dimension lda is, to
numpy, an array ``[K, lda]``.
"""

from __future__ import annotations

from fractions import Fraction

from asmlaunch.abi.families.base import Family, Require, ceil_div, f32, num, ptr, slots
from asmlaunch.abi.schema import extent, stride

_F32 = ("float32",)
_ELEMENTS = Fraction(1, 4)


def _columns(rows: int, columns: int, leading: int) -> int:
    """Bytes of a column-major matrix: the last column may end early."""
    return 4 * ((columns - 1) * leading + rows) if rows and columns else 0


FAMILY = Family(
    name="sgemm",
    title="single-precision GEMM, column major, with alpha and beta (gfx942, gfx950)",
    pattern=r"^asmlaunch_sgemm$",
    fields=(
        *slots(
            ptr("C", "input and output", "f32 [N, ldc]", dtypes=_F32, nbytes=lambda p: _columns(p.M, p.N, p.ldc)),
            ptr("A", "left operand", "f32 [K, lda]", dtypes=_F32, nbytes=lambda p: _columns(p.M, p.K, p.lda)),
            ptr("B", "right operand", "f32 [N, ldb]", dtypes=_F32, nbytes=lambda p: _columns(p.K, p.N, p.ldb)),
            pitch=8,
        ),
        *slots(
            f32("alpha", "factor of the product", default=1.0),
            f32("beta", "factor of C; at 0 C is not read", default=0.0),
            num("M", "rows of A and C", "rows", derive=(extent("A", 1),)),
            num("N", "columns of B and C", "columns", derive=(extent("B", 0), extent("C", 0))),
            num("K", "columns of A, rows of B", "columns", derive=(extent("A", 0),)),
            num("lda", "from one column of A to the next", "elements", derive=(stride("A", 0, _ELEMENTS),)),
            num("ldb", "from one column of B to the next", "elements", derive=(stride("B", 0, _ELEMENTS),)),
            num("ldc", "from one column of C to the next", "elements", derive=(stride("C", 0, _ELEMENTS),)),
            pitch=4,
            first=24,
        ),
    ),
    grid=lambda p: (ceil_div(p.M, 64), ceil_div(p.N, 4), 1),
    requires=(
        Require("lda", lambda p: p.lda >= p.M, "at least M (in elements)"),
        Require("ldb", lambda p: p.ldb >= p.K, "at least K (in elements)"),
        Require("ldc", lambda p: p.ldc >= p.M, "at least M (in elements)"),
        Require("M", lambda p: p.M < 1 << 30, "less than 2^30: a row's offset in bytes has 32 bits"),
    ),
)
