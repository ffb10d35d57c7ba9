"""What the declarations say of an argument's effect, against what the machine code does with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.abi.families import family_of
from asmlaunch.emulator.liveness import liveness

#: An object of each family, of variants where they differ.
OBJECTS = [
    "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256",
    "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256",
    "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128",
    "gfx942/bf16gemm/bf16gemm_outf32_tn_32x64_pf3",
    "gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128",
    "gfx942/gemm_a8w8_m128_noSplitK",
    "gfx950/f8_block_scale_mi350_x32",
    "gfx942/flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32",
    "gfx942/topksoftmax/topksoftmax_4x128x8",
    "gfx942/layer_norm",
    "gfx942/layer_norm_qnt",
    "gfx942/all_reduce",
    "gfx942/allreduce_rmsnorm_qnt_N8192",
    "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna_group",
    "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16",
    "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_group",
    "gfx950/fmha_v3_fwd/fwd_hd128_bf16",
    "gfx942/fmha_v3_bwd/bwd_hd128_bf16_a16_rtna_pddv",
    "gfx942/fmha_v3_bwd/bwd_hd64_bf16_a32_rtna_pssk",
    "gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna_pssk_group",
    "gfx950/fmha_v3_bwd/bwd_hd128_bf16_a32_psskddv_group",
    "gfx950/fmha_v3_bwd/bwd_hd192_dq_shuffle",
    "gfx942/pa/pa_bf16_pertokenFp8_gqa8_2tg_4w",
    "gfx942/pa_a16w16_b16",
    "gfx942/mla/mla_a16w16_qh16_m16x4_n16x1_coex0_mask1",
    "gfx942/mla/mla_a8w8_qh16_qseqlen2_gqaratio16_ps",
    "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256",
    "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_doweight_g1u1_16x128_4tg_pf2",
]


@pytest.mark.parametrize("path", OBJECTS)
def test_declared_effects_are_those_of_the_machine_code(aiter_kernels: Path, path: str) -> None:
    (kernel,) = codeobject.read(aiter_kernels / f"{path}.co").kernels.values()
    family = family_of(kernel)
    assert family is not None
    schema, live = family.schema(kernel), liveness(kernel).live_bytes()
    assert live.end <= schema.size
    for field in schema.fields:
        state = live.state(field)
        assert (state == "used") == field.live, f"{field.name}: declared {field.live}, code {state}"
        if field.role == "never loaded":
            assert state == "never loaded", field.name
