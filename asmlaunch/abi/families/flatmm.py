"""flatmm: fp8 GEMM with block scales, f16 result (gfx942); compiler-built, with naturally aligned arguments.

Source: the object's metadata; what is live and the domain by executing its machine code.
"""

from __future__ import annotations

from asmlaunch.abi.families.base import Family, Require, ceil_div, num, ptr, slots
from asmlaunch.abi.schema import Field, extent

_FP8 = ("float8_e4m3fnuz", "uint8", "int8")


def _unused(name: str) -> Field:
    return ptr(name, "not used", live=False)


FAMILY = Family(
    name="flatmm",
    title="fp8 GEMM with 128x128 block scales, f16 result",
    pattern=r"flatmm_uk_gfx9_f16f8_(?P<tile_m>\d+)x(?P<tile_n>\d+)x(?P<tile_k>\d+)_\w+",
    fields=(
        *slots(
            ptr(
                "a_ptr", "left operand", "fp8 e4m3fnuz [M, K]", aliases=("A",), dtypes=_FP8, nbytes=lambda p: p.M * p.K
            ),
            ptr(
                "b_ptr",
                "right operand",
                "fp8 e4m3fnuz [N, K] shuffled (16, 16)",
                aliases=("B",),
                dtypes=_FP8,
                nbytes=lambda p: p.N * p.K,
            ),
            _unused("c_ptr"),
            ptr("sa_ptr", "scale of A", "f32 [K/128, M]", aliases=("ScaleA",), nbytes=lambda p: p.K // 128 * p.M * 4),
            ptr(
                "sb_ptr",
                "scale of B",
                "f32 [K/128, N/128]",
                aliases=("ScaleB",),
                nbytes=lambda p: p.K // 128 * (p.N // 128) * 4,
            ),
            _unused("d_ptr"),
            ptr(
                "d_f16_ptr",
                "output",
                "f16 [M, N]",
                aliases=("D",),
                dtypes=("float16",),
                nbytes=lambda p: 2 * p.M * p.N,
            ),
            _unused("dbg_int_ptr"),
            _unused("dbg_fp8_ptr"),
            _unused("dbg_f16_ptr"),
            _unused("dbg_fp32_ptr"),
            pitch=8,
        ),
        *slots(
            num(
                "K",
                "columns of A and B",
                "elements",
                "hidden_size",
                type="i32",
                derive=(extent("A", 1), extent("B", 1)),
            ),
            num("N", "rows of B, columns of D", "rows", "intermediate_size", type="i32", derive=(extent("B", 0),)),
            num("M", "rows of A and D", "rows", "num_tokens", type="i32", derive=(extent("A", 0),)),
            num("num_experts", "not used", type="i32", live=False),
            num("topk", "not used", type="i32", live=False),
            num("stride_token", "not used", type="i32", live=False),
            pitch=4,
            first=88,
        ),
    ),
    grid=lambda p: (ceil_div(p.N, p.tile_n), ceil_div(p.M, p.tile_m), 1),
    requires=(
        Require("M", lambda p: p.M > 0, "at least 1"),
        Require("N", lambda p: p.N > 0 and p.N % 256 == 0, "a multiple of 256"),
        Require("K", lambda p: p.K > 0 and p.K % 128 == 0, "a multiple of 128"),
        Require("M", lambda p: p.M * p.N < 1 << 31, "M * N below 2^31: element offsets are signed 32 bits"),
    ),
)
