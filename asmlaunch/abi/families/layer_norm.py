"""layer_norm and layer_norm_qnt: residual add and RMS norm with bias over rows of 8192, two rows a workgroup (gfx942).

In spite of the name no mean is subtracted. The int8 form (qnt) also writes one scale a row.

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

from typing import Any

from asmlaunch.abi.families.base import Family, Require, Variant, f32, num, ptr, slots
from asmlaunch.abi.schema import extent

_BF16 = ("bfloat16", "uint16", "int16")
_WIDTH = 8192

FAMILY = Family(
    name="layer_norm",
    title="residual add and RMS norm with bias, rows of 8192",
    pattern=r"layer_norm_(?P<form>kernel_func|qnt)",
    fields=slots(
        ptr(
            "ptr_Out", "output", "bf16 (qnt: int8) [M, 8192]", "OutBuffer", nbytes=lambda p: p.M * _WIDTH * _out_size(p)
        ),
        ptr("ptr_In", "input", "bf16 [M, 8192]", "InBuffer", dtypes=_BF16, nbytes=lambda p: 2 * p.M * _WIDTH),
        ptr("ptr_Weight", "weight", "bf16 [8192]", "WeightBuffer", dtypes=_BF16, nbytes=lambda _: 2 * _WIDTH),
        ptr("ptr_Bias", "bias", "bf16 [8192]", "BiasBuffer", dtypes=_BF16, nbytes=lambda _: 2 * _WIDTH),
        f32("epsilon", "added to the mean square"),
        num("M", "rows; loaded, not used", "rows", live=False, default=None, derive=(extent("In", 0),)),
        num("N", "row stride; must be 8192", "elements", derive=(extent("In", 1),)),
        ptr(
            "ptr_OutResidual",
            "output: residual",
            "bf16 [M, 8192]",
            "OutResidualBuffer",
            dtypes=_BF16,
            nbytes=lambda p: 2 * p.M * _WIDTH,
        ),
        ptr(
            "ptr_InResidual",
            "residual",
            "bf16 [M, 8192]",
            "InResidualBuffer",
            dtypes=_BF16,
            nbytes=lambda p: 2 * p.M * _WIDTH,
        ),
        ptr(
            "ptr_OutYScale",
            "output: scale of each row",
            "f32 [M]",
            "OutYScaleBuffer",
            live=False,
            nbytes=lambda p: 4 * p.M,
        ),
        ptr(
            "ptr_XScale", "scale of each column", "f32 [8192]", "XScaleBuffer", live=False, nbytes=lambda _: 4 * _WIDTH
        ),
    ),
    variants=(
        Variant(
            "qnt", {"ptr_OutYScale": {"live": True, "default": None}, "ptr_XScale": {"live": True, "default": None}}
        ),
    ),
    grid=lambda p: (p.M // 2, 1, 1),
    requires=(
        Require("M", lambda p: p.M > 0 and p.M % 2 == 0, "even: a workgroup takes two rows and writes both"),
        Require("M", lambda p: p.M <= 131072, "at most 131072: later rows are dropped"),
        Require("N", lambda p: p.N == _WIDTH, f"{_WIDTH}"),
    ),
)


def _out_size(p: Any) -> int:
    return 1 if p.form == "qnt" else 2
