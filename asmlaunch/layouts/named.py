"""The layouts that have a name, each written once with its source."""

from __future__ import annotations

from types import MappingProxyType

from asmlaunch.layouts.layout import Layout

SCALES_32X8 = Layout(
    "(t rh l) (c kh k) -> t c k l kh rh",
    sizes={"rh": 2, "l": 16, "kh": 2, "k": 4},
    name="scales_32x8",
    # A kernel steps K by 256 and multiplies the tail's scales with whatever elements lie there: only byte 0 (2^-127)
    # silences them; 127 adds garbage and 255 gives NaN.
    pad_value=0,
    source="AITER e8m0 shuffle for the MI350 a4w4 GEMM; hipBLASLt preSwizzleScalesGFX950",
)
"""E8M0 scales ``[rows, ceil(K/32)]`` of an MI350 a4w4 GEMM: tiles of 32 rows by 8 K-blocks, 256 bytes each."""

WEIGHTS_16X16 = Layout(
    "(n i) (k g j) -> n k g i j",
    sizes={"i": 16, "g": 2, "j": 16},
    name="weights_16x16",
    source="AITER shuffle_weight, layout (16, 16), one-byte elements",
)
"""Weights ``[N, bytes along K]`` pre-shuffled in blocks of 16 rows by 32 bytes."""

LAYOUTS = MappingProxyType({layout.name: layout for layout in (SCALES_32X8, WEIGHTS_16X16)})
