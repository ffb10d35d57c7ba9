"""The layouts that have a name, each written once with its source.

Scales are ``[rows, ceil(K/block)]``, one byte a block; weights are ``[N, bytes along K]`` unless the entry says
otherwise. A ``pad_value`` is what the producers write; where they refuse to pad, or leave the padding unwritten, there
is none here either and the caller names one.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.layout import Layout

SCALES_32X8 = Layout(
    "(t rh l) (c kh k) -> t c k l kh rh",
    sizes={"rh": 2, "l": 16, "kh": 2, "k": 4},
    name="scales_32x8",
    # A kernel steps K by 256 and multiplies the tail's scales with whatever elements lie there: only byte 0 (2^-127)
    # silences them; 127 adds garbage and 255 gives NaN.
    pad_value=0,
    source="AITER e8m0_shuffle, scales of the MI350 a4w4 GEMM",
    aliases=("aiter_e8m0", "hipblaslt_gfx950", "xla_hipblaslt_32x8", "triton_gfx950", "aiter_moe_mxfp4_sort"),
)
"""E8M0 scales of an MI350 a4w4 GEMM: tiles of 32 rows by 8 K-blocks, 256 bytes each."""

SCALES_32X8_GATE_UP = Layout(
    "(g t l) (c kh k) -> t c k l kh g",
    sizes={"g": 2, "l": 16, "kh": 2, "k": 4},
    name="scales_32x8_gate_up",
    pad_value=0x7F,
    source="AITER shuffle_scale with gate and up interleaved in 16-row blocks, scales of MoE stage 1 [E, 2*I, n]",
)

SCALES_N32K4 = Layout(
    "(t r) (c k) -> t c r k",
    sizes={"r": 32, "k": 4},
    name="scales_n32k4",
    source="AITER shuffle_scale_n32k4, weight scales of gfx1250 grouped GEMMs",
    aliases=("aiter_gfx1250_moe", "aiter_gfx1250_f4_mxfp4"),
)

SCALES_N32K4_GATE_UP = Layout(
    "(g t l) (c k) -> t c l g k",
    sizes={"g": 2, "l": 16, "k": 4},
    name="scales_n32k4_gate_up",
    source="AITER shuffle_scale_n32k4 with gate and up rows interleaved one by one, gfx1250",
)

SCALES_N32K8 = Layout(
    "(t r) (c k) -> t c r k",
    sizes={"r": 32, "k": 8},
    name="scales_n32k8",
    source="AITER's Triton MoE scales for gfx1250; NVFP4 scales of its gfx1250 F4 GEMM",
    aliases=("aiter_gfx1250_triton_moe", "aiter_gfx1250_f4_nvfp4"),
)

SCALES_N16K4 = Layout(
    "(t r) (c k) -> t c r k",
    sizes={"r": 16, "k": 4},
    name="scales_n16k4",
    source="AITER shuffle_scale_gemm for gfx1250 (a4w4)",
    aliases=("aiter_gfx1250_gemm",),
)

SCALES_GFX1250_MX32 = Layout(
    "r (c k) -> c r k",
    sizes={"k": 4},
    name="scales_gfx1250_mx32",
    pad_value=0,
    source="hipBLASLt preSwizzleScalesGFX1250, MX block 32 (128 elements of K a group)",
)

SCALES_GFX1250_MX16 = Layout(
    "r (c k) -> c r k",
    sizes={"k": 8},
    name="scales_gfx1250_mx16",
    pad_value=0,
    source="hipBLASLt preSwizzleScalesGFX1250, MX block 16",
)

SCALES_ROCROLLER_32_8_4 = Layout(
    "(t b l) (c s v i) -> t i l c v s b",
    sizes={"b": 2, "l": 16, "s": 2, "v": 2, "i": 2},
    name="scales_rocroller_32_8_4",
    source="rocRoller / mxDataGenerator preSwizzle {32, 8, 4}",
)

SCALES_ROCROLLER_32_8_2 = Layout(
    "(t b l) (c s v i) -> t b l c i s v",
    sizes={"b": 2, "l": 16, "s": 2, "v": 2, "i": 2},
    name="scales_rocroller_32_8_2",
    source="rocRoller / mxDataGenerator preSwizzle {32, 8, 2}",
)

SCALES_ROCROLLER_64_4_4 = Layout(
    "(t b l) (c i) -> t i l c b",
    sizes={"b": 4, "l": 16, "i": 4},
    name="scales_rocroller_64_4_4",
    source="rocRoller / mxDataGenerator preSwizzle {64, 4, 4}",
)

SCALES_TENSILELITE = Layout(
    "(t r) (c k) -> t c k r",
    sizes={"r": 32, "k": 8},
    name="scales_tensilelite_32_8",
    source="swizzle_scales of TensileLite's MX helpers, tile (32, 8, 4); not checked against its C++",
)

SCALES_128X4 = Layout(
    "(t a b) (c k) -> t c b a k",
    sizes={"a": 4, "b": 32, "k": 4},
    name="scales_128x4",
    pad_value=0,
    source="NVIDIA cuBLAS block scaling factors, tcgen05; torchao to_blocked",
    aliases=("nvidia_128x4", "cublas_128x4", "torchao_blocked"),
)


def weights_shuffle(
    rows: int = 16, columns: int = 16, *, itemsize: int = 1, int4: bool = False, name: str = ""
) -> Layout:
    """AITER's ``shuffle_weight`` with ``layout=(rows, columns)`` for elements of ``itemsize`` bytes.

    Blocks of ``rows`` by ``2 * columns`` elements; within a block, 16-byte pieces of all rows. ``int4`` is for elements
    that are int4 numbers still in a byte each: pieces of 32 of them, packed to 16 bytes afterwards.

    Raises:
        LayoutError: a block narrower than a piece.
    """
    piece = 32 if int4 else 16 // itemsize
    if piece == 0 or (2 * columns) % piece:
        raise LayoutError("columns of a weight shuffle", got=columns, need=f"a multiple of {max(piece // 2, 1)}")
    return Layout(
        "(n i) (k g j) -> n k g i j",
        sizes={"i": rows, "g": 2 * columns // piece, "j": piece},
        name=name,
        itemsize=itemsize,
        source=f"AITER shuffle_weight, layout ({rows}, {columns}), {'int4' if int4 else f'{itemsize}-byte'} elements",
    )


def weights_mfma(inst_n: int, inst_k: int, *, itemsize: int = 1, name: str = "") -> Layout:
    """Weights in the order in which the 64 lanes of an MFMA of ``inst_n`` columns and ``inst_k`` deep hold them.

    Lane ``l`` holds column ``l % inst_n`` and ``inst_k / (64 / inst_n)`` elements of K from group ``l / inst_n`` on.

    Raises:
        LayoutError: sizes that do not fit 64 lanes.
    """
    if inst_n <= 0 or 64 % inst_n or inst_k % (64 // inst_n):
        raise LayoutError(
            "MFMA shape", got=(inst_n, inst_k), need="inst_n dividing 64, inst_k a multiple of 64 / inst_n"
        )
    groups = 64 // inst_n
    return Layout(
        "(n i) (k g j) -> n k g i j",
        sizes={"i": inst_n, "g": groups, "j": inst_k // groups},
        name=name,
        itemsize=itemsize,
        source=f"AITER shuffle_weight_NK, inst_N {inst_n}, inst_K {inst_k}",
    )


WEIGHTS_16X16 = weights_shuffle(name="weights_16x16")
"""Weights ``[N, bytes along K]`` pre-shuffled in blocks of 16 rows by 32 bytes."""

WEIGHTS_16X16_16BIT = weights_shuffle(itemsize=2, name="weights_16x16_16bit")
WEIGHTS_32X16 = weights_shuffle(32, 16, name="weights_32x16")
WEIGHTS_16X16_INT4 = weights_shuffle(int4=True, name="weights_16x16_int4")
WEIGHTS_MFMA_16X128 = weights_mfma(16, 128, name="weights_mfma_16x128")
WEIGHTS_MFMA_32X64 = weights_mfma(32, 64, name="weights_mfma_32x64")

WEIGHTS_16X16_GATE_UP = Layout(
    "(g n i) (k h j) -> n g k h i j",
    sizes={"g": 2, "i": 16, "h": 4, "j": 16},
    name="weights_16x16_gate_up",
    source="AITER shuffle_weight with gate and up interleaved in 16-row blocks, MoE stage 1 [E, 2*I, bytes]",
)

WEIGHTS_GFX1250_16X16 = Layout(
    "(n i) (k j) -> n k i j",
    sizes={"i": 16, "j": 16},
    name="weights_gfx1250_16x16",
    source="AITER shuffle_weight_f4 and shuffle_mxfp8fp4_b, gfx1250",
)

ACTIVATIONS_GFX1250_2X128 = Layout(
    "(m i) (k j) -> m k i j",
    sizes={"i": 2, "j": 128},
    name="activations_gfx1250_2x128",
    source="AITER shuffle_mxfp8fp4_a, gfx1250",
)

NIBBLES_GGML = Layout(
    "(b h j) -> b j h",
    sizes={"h": 2, "j": 16},
    name="nibbles_ggml",
    source="GGML block formats (q4_0, mxfp4): byte j of a block holds elements j (low) and j + 16 (high)",
)
"""4-bit codes ``[K]``, one an element: in this order, packing neighbours gives GGML's bytes."""

PAGED_KEYS = Layout(
    "t (d x) -> d t x",
    sizes={"x": 16},
    name="paged_keys",
    source="AITER paged attention, key cache [blocks, heads, 128/x, tokens, x], x elements in 16 bytes",
)
"""Keys ``[tokens of a block, width]`` of a paged cache of one-byte elements."""

PAGED_VALUES = Layout(
    "(t x) d -> t d x",
    sizes={"x": 16},
    name="paged_values",
    source="AITER paged attention, value cache [blocks, heads, tokens/x, 128, x], x elements in 16 bytes",
)
"""Values ``[tokens of a block, width]`` of a paged cache of one-byte elements."""

PAGED_KEYS_16BIT = Layout(
    "t (d x) -> d t x", sizes={"x": 8}, name="paged_keys_16bit", itemsize=2, source=PAGED_KEYS.source
)
PAGED_VALUES_16BIT = Layout(
    "(t x) d -> t d x", sizes={"x": 8}, name="paged_values_16bit", itemsize=2, source=PAGED_VALUES.source
)

LAYOUTS = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            SCALES_32X8,
            SCALES_32X8_GATE_UP,
            SCALES_N32K4,
            SCALES_N32K4_GATE_UP,
            SCALES_N32K8,
            SCALES_N16K4,
            SCALES_GFX1250_MX32,
            SCALES_GFX1250_MX16,
            SCALES_ROCROLLER_32_8_4,
            SCALES_ROCROLLER_32_8_2,
            SCALES_ROCROLLER_64_4_4,
            SCALES_TENSILELITE,
            SCALES_128X4,
            WEIGHTS_16X16,
            WEIGHTS_16X16_16BIT,
            WEIGHTS_32X16,
            WEIGHTS_16X16_INT4,
            WEIGHTS_MFMA_16X128,
            WEIGHTS_MFMA_32X64,
            WEIGHTS_16X16_GATE_UP,
            WEIGHTS_GFX1250_16X16,
            ACTIVATIONS_GFX1250_2X128,
            NIBBLES_GGML,
            PAGED_KEYS,
            PAGED_VALUES,
            PAGED_KEYS_16BIT,
            PAGED_VALUES_16BIT,
        )
    }
)
"""Every named layout, by name."""

_ALIASES = {alias: layout for layout in LAYOUTS.values() for alias in layout.aliases}


def names() -> list[str]:
    """The names of all layouts; :func:`get` also knows their aliases."""
    return list(LAYOUTS)


def get(name: str) -> Layout:
    """The layout of a name or an alias.

    Raises:
        LayoutError: no layout of that name; the message lists the nearest.
    """
    layout = LAYOUTS.get(name) or _ALIASES.get(name)
    if layout is None:
        near = difflib.get_close_matches(name, [*LAYOUTS, *_ALIASES], n=3, cutoff=0.4)
        raise LayoutError("layout", got=repr(name), need=f"one of {', '.join(near or LAYOUTS)}")
    return layout
