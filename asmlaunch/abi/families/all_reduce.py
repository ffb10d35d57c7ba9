"""all_reduce and its fused forms: sums over 8 GPUs through each other's memory (gfx942).

Source: the objects' metadata; what is live and the domain by executing their machine code for 8 ranks.
"""

from __future__ import annotations

from asmlaunch.abi.families.base import Family, Require, Variant, f32, num, ptr, slots
from asmlaunch.abi.schema import Field, Symbol, extent

_RANKS = 8


def _signals() -> list[Field]:
    role = "signal counters of rank {}, zero before the first launch"
    return [ptr(f"ptr_Signal{rank}", role.format(rank), meta=f"GPU_{rank}_SIG") for rank in range(_RANKS)]


ALL_REDUCE = Family(
    name="all_reduce",
    title="bf16 sum of 2 MiB over 8 GPUs, in place",
    pattern=r"allreduce_kernel_func",
    fields=slots(
        ptr("ptr_Data", "addresses of the 8 ranks' buffers", "u64 [8], each bf16 [1048576]", "GPU_DATA_ADDR"),
        *_signals(),
        num("rank", "this GPU, 0 to 7", meta="GPU_ID"),
        num("stride_gpu", "bytes a rank reduces", "bytes", "STRIDE_GPU", default=(2 << 20) // 8),
        num("stride_tg", "bytes a workgroup reduces", "bytes", "STRIDE_TG", default=(2 << 20) // 8 // 64),
        num("stride_wave", "bytes a wave reduces", "bytes", "STRIDE_WV", default=(2 << 20) // 8 // 64 // 4),
        num("loop_count", "delay in the waiting loops; no effect on the data", meta="LOOP_CNT", default=10),
    ),
    grid=lambda _: (64, 1, 1),
    requires=(
        Require("rank", lambda p: 0 <= p.rank < _RANKS, "0 to 7"),
        Require("stride_gpu", lambda p: p.stride_gpu == (2 << 20) // 8, "262144: the kernel is right for 2 MiB only"),
        Require("stride_tg", lambda p: p.stride_tg == p.stride_gpu // 64, "stride_gpu / 64"),
        Require("stride_wave", lambda p: p.stride_wave == p.stride_tg // 4, "stride_tg / 4"),
    ),
)

FUSED = Family(
    name="all_reduce_norm",
    title="bf16 sum over 8 GPUs, residual add and RMS norm with bias, rows of 8192",
    pattern=r"allreduce_(?P<form>layernorm|rmsnorm|rmsnorm_qnt)_N8192_kernel",
    fields=slots(
        ptr(
            "ptr_Data",
            "addresses of 8 inputs, 8 outputs, 8 residual outputs and 8 row scales",
            "u64 [32]",
            "GPU_DATA_ADDR",
        ),
        *_signals(),
        ptr("ptr_Residual", "this rank's residual", "bf16 [M, 8192]", "RESI_IN", nbytes=lambda p: 2 * p.M * 8192),
        ptr("ptr_Weight", "weight", "bf16 [8192]", "WEIGHT_IN", nbytes=lambda _: 2 * 8192),
        ptr("ptr_Bias", "bias", "bf16 [8192]", "BIAS_IN", nbytes=lambda _: 2 * 8192),
        ptr("ptr_XScale", "scale of each column", "f32 [8192]", "XSCALE_IN", live=False, nbytes=lambda _: 4 * 8192),
        num("rank", "this GPU, 0 to 7", meta="GPU_ID"),
        num("stride_gpu", "bytes a rank reduces, M * 8192 * 2 / 8", "bytes", "STRIDE_GPU"),
        num("N", "row length, 8192", "elements", default=8192),
        f32("epsilon", "added to the mean square", "EPSILON"),
        num("workgroups", "M / 8", "", "TGS"),
        num("loop_count", "delay in the waiting loops; no effect on the data", meta="LOOP_CNT", default=10),
    ),
    symbols=(Symbol("M", "rows", derive=(extent("Residual", 0),)),),
    variants=(Variant("qnt", {"ptr_XScale": {"live": True, "default": None}}),),
    grid=lambda p: (p.workgroups, 1, 1),
    requires=(
        Require("rank", lambda p: 0 <= p.rank < _RANKS, "0 to 7"),
        Require("N", lambda p: p.N == 8192, "8192"),
        Require(
            "workgroups", lambda p: 1 <= p.workgroups <= 64, "1 to 64: the signal buffers hold no more (M up to 512)"
        ),
        Require("stride_gpu", lambda p: p.stride_gpu == p.workgroups * 8192 * 2, "workgroups * 8192 * 2"),
    ),
)

FAMILIES = (ALL_REDUCE, FUSED)
