"""All declared families: agreement with every object's metadata, launch rules and domains."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asmlaunch import codeobject
from asmlaunch.abi import bind
from asmlaunch.abi.agreement import disagreements, unexplained
from asmlaunch.abi.families import FAMILIES, Family, Launch, family_of
from asmlaunch.abi.families.base import plain_name
from asmlaunch.codeobject import ArgumentInfo, KernelInfo
from asmlaunch.errors import ArgumentError, DomainError

#: Objects of each family in the wheel.
COUNTS = {
    "f4gemm": 35,
    "bf16gemm": 8,
    "i8gemm": 2,
    "gemm_a8w8_m128": 2,
    "fp8_block_scale": 4,
    "flatmm": 1,
    "topksoftmax": 8,
    "layer_norm": 2,
    "all_reduce": 1,
    "all_reduce_norm": 3,
    "fmha_v3_fwd": 40,
    "fmha_v3_bwd_fixed": 40,
    "fmha_v3_bwd_ragged": 68,
    "fmha_v3_bwd_group": 72,
    "fmha_v3_bwd_wide": 32,
    "fmha_v3_bwd_dq_shuffle": 3,
    "pa": 87,
    "mla": 36,
    "fmoe": 1689,
    "fmoe_2stages": 368,
}
#: Families that no object of the wheel belongs to: newer or older than it, or not of its makers.
ABSENT = {"sgemm", "pa_ps", "fmha_v3_bwd_odo_208", "fmha_v3_bwd_odo_256", "fmha_v3_bwd_dq_convert"}


def get(kernels: Path, path: str) -> KernelInfo:
    (kernel,) = codeobject.read(kernels / f"{path}.co").kernels.values()
    return kernel


def family(kernel: KernelInfo) -> Family:
    found = family_of(kernel)
    assert found is not None
    return found


def filled(kernel: KernelInfo, given: dict[str, Any]) -> dict[str, Any]:
    """``given``, with 1 for numbers and a made-up address for pointers that have to be given and are not."""
    schema = family(kernel).schema(kernel)
    canonical = schema.canonical(given)
    for field in schema.fields:
        if field.given_by_caller and field.default is None and field.name not in canonical:
            canonical[field.name] = 4096 if field.is_pointer else 1
    return canonical


def launch(kernel: KernelInfo, **given: Any) -> Launch:
    chosen = family(kernel)
    values, buffers = bind(chosen.schema(kernel), filled(kernel, given))
    return chosen.launch(kernel, values, buffers)


def check(kernel: KernelInfo, **given: Any) -> None:
    chosen = family(kernel)
    values, buffers = bind(chosen.schema(kernel), filled(kernel, given))
    chosen.check(kernel, values, buffers)


@pytest.fixture(scope="module")
def all_kernels(aiter_kernels: Path) -> list[KernelInfo]:
    """Every kernel of the wheel, without its machine code unless the name alone does not tell what it is."""
    found = []
    for path in sorted(aiter_kernels.rglob("*.co")):
        (kernel,) = codeobject.read(path).kernels.values()
        found.append(kernel if kernel.name.endswith("_func") else dataclasses.replace(kernel, code=b"", text=b""))
    return found


def test_every_object_belongs_to_one_family(all_kernels: list[KernelInfo]) -> None:
    counts: Counter[str] = Counter()
    for kernel in all_kernels:
        (only,) = [candidate.name for candidate in FAMILIES if candidate.matches(kernel)]
        counts[only] += 1
    assert counts == COUNTS
    assert {candidate.name for candidate in FAMILIES} == set(COUNTS) | ABSENT


def test_every_declaration_agrees_with_the_metadata_or_says_why_not(all_kernels: list[KernelInfo]) -> None:
    explained: Counter[tuple[str, str]] = Counter()
    for kernel in all_kernels:
        chosen = family(kernel)
        entries = disagreements(chosen.schema(kernel), kernel, chosen)
        assert not unexplained(entries), kernel.name
        explained.update((chosen.name, entry.field) for entry in entries)
    assert explained == {
        ("f4gemm", "log2_k_split"): 1,
        ("fp8_block_scale", "ptr_tmp"): 4,
        ("fmoe_2stages", "ptr_SW"): 368,
        **{("fmha_v3_bwd_wide", f"ptr_{n}"): 32 for n in ("qseq", "kseq", "qseq_padded", "kseq_padded")},
        **{("fmha_v3_bwd_dq_shuffle", f"ptr_{n}"): 3 for n in ("qseq", "qseq_padded")},
    }


def test_every_kernel_packs_its_own_schema(all_kernels: list[KernelInfo]) -> None:
    seen = {(family(kernel).name, kernel.arguments, kernel.kernarg_size): kernel for kernel in all_kernels}
    for kernel in seen.values():
        schema = family(kernel).schema(kernel)
        values = {name: index + 1 for index, name in enumerate(schema.names)}
        packed = schema.pack(values)
        assert schema.unpack(packed) == values
        assert len(packed) == (372 if family(kernel).name == "f4gemm" else kernel.kernarg_size)


@pytest.mark.parametrize(
    ("path", "given", "grid", "zero"),
    [
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_48x64_pf3", {"M": 100, "N": 128, "K": 256}, (2, 3, 1), False),
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_48x64_pf3", {"M": 100, "N": 128, "K": 256, "splitk": 4}, (2, 3, 4), True),
        ("gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_192x128", {"M": 200, "N": 384, "K": 512}, (3, 2, 1), False),
        (
            "gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_192x128",
            {"m": 200, "n": 384, "k": 512, "ks": 2},
            (6, 2, 1),
            False,
        ),
        ("gfx942/gemm_a8w8_m128_splitK", {"m": 129, "n": 256, "k": 512, "ks": 1}, (4, 2, 1), False),
        ("gfx942/gemm_a8w8_m128_noSplitK", {"m": 129, "n": 256, "k": 512}, (2, 2, 1), False),
        ("gfx950/f8_block_scale_mi350_x64", {"M": 65, "N": 512, "K": 256}, (2, 2, 1), False),
        ("gfx942/flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32", {"M": 129, "N": 512, "K": 128}, (2, 2, 1), False),
        ("gfx942/topksoftmax/topksoftmax_12x128x8", {"batch": 25, "expert": 128}, (3, 1, 1), False),
        ("gfx942/layer_norm_qnt", {"M": 10, "N": 8192}, (5, 1, 1), False),
        ("gfx942/all_reduce", {"rank": 3}, (64, 1, 1), False),
        ("gfx942/allreduce_rmsnorm_N8192", {"rank": 3, "workgroups": 2}, (2, 1, 1), False),
        (
            "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_rtna",
            {"s_seq_len": 600, "nhead_q": 8, "batch": 2},
            (3, 8, 2),
            False,
        ),
        (
            "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna",
            {"s_seq_len": 600, "nhead_q": 8, "batch": 2},
            (2, 8, 2),
            False,
        ),
        (
            "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna_group",
            {"max_seqlen_q": 600, "nhead_q": 8, "batch": 2},
            (8, 2, 2),
            False,
        ),
        (
            "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_group",
            {"max_seqlen_q": 600, "nhead_q": 8, "batch": 2},
            (3, 8, 2),
            False,
        ),
        ("gfx950/fmha_v3_fwd/fwd_hd192_hd128_bf16", {"s_seq_len": 600, "nhead_q": 8, "batch": 2}, (5, 8, 2), False),
        ("gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna", {"seq_len": 640, "nhead_q": 4, "batch": 2}, (4, 4, 2), True),
        (
            "gfx942/fmha_v3_bwd/bwd_hd64_bf16_causal_a32_rtna_pssk",
            {"seqlen_k": 600, "nhead_q": 4, "batch": 2},
            (2, 4, 2),
            True,
        ),
        (
            "gfx942/fmha_v3_bwd/bwd_hd192_bf16_a32_rtz_psskddv",
            {"seqlen_k": 600, "nhead_q": 4, "batch": 2},
            (10, 4, 2),
            True,
        ),
        (
            "gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna_pssk_group",
            {"max_seqlen_k": 600, "nhead_q": 4, "batch": 2},
            (4, 4, 2),
            True,
        ),
        ("gfx950/fmha_v3_bwd/bwd_hd128_bf16_a16_psskddv", {"seqlen_k": 600, "nhead_q": 4, "batch": 2}, (3, 4, 2), True),
        ("gfx950/fmha_v3_bwd/bwd_hd128_dq_shuffle", {"seqlen_q": 100, "nhead_q": 4, "batch": 2}, (2, 4, 2), False),
        ("gfx942/pa/pa_bf16_pertokenFp8_gqa16_2tg_4w", {"kv_nheads": 4, "batch": 3}, (4, 3, 1), False),
        ("gfx942/pa_a16w16_b16", {"batch": 3}, (1, 3, 1), False),
        (
            "gfx942/mla/mla_dec_stage1_bf16_a16w16_subQ16_mqa16",
            {"s_MQA": 16, "batch": 3, "s_kv_split": 4},
            (1, 3, 4),
            False,
        ),
        ("gfx942/mla/mla_dec_stage1_bf16_a16w16_subQ128_mqa128", {"s_MQA": 256, "batch": 3}, (2, 3, 1), False),
        ("gfx942/mla/mla_pfl_bf16_a16w16_causal_subQ16_mqa16", {"s_MQA": 160, "batch": 3}, (2, 3, 1), False),
        ("gfx942/mla/mla_a8w8_qh16_qseqlen2_gqaratio16_ps", {"work_lists": 80}, (80, 1, 1), False),
        (
            "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256",
            {"dim": 1024, "inter_dim": 512, "blocks": 7},
            (2, 7, 1),
            True,
        ),
        (
            "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_ps_32x256",
            {"dim": 1024, "inter_dim": 512, "total_tgs": 608, "ps_deno": 2, "blocks": 7},
            (608, 1, 1),
            True,
        ),
        ("gfx942/fmoe_int8_g1u0_smf", {"dim": 1024, "inter_dim": 1024, "blocks": 7}, (7, 2, 1), True),
        ("gfx942/fmoe_b16", {"dim": 1024, "inter_dim": 1024, "blocks": 7}, (2, 7, 1), True),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            {"dim": 1024, "hidden_dim": 512, "blocks": 7, "splitk": 1},
            (4, 7, 2),
            True,
        ),
    ],
)
def test_launch_rules(
    aiter_kernels: Path, path: str, given: dict[str, Any], grid: tuple[int, int, int], zero: bool
) -> None:
    kernel = get(aiter_kernels, path)
    output = np.zeros(16, np.float32)
    pointer = next((n for n in ("ptr_dq", "ptr_O", "ptr_D") if n in family(kernel).schema(kernel)), None)
    rule = launch(kernel, **given, **({pointer: output} if zero and pointer else {}))
    assert rule.grid == grid
    assert bool(rule.zero) == zero
    assert rule.block == kernel.required_workgroup_size


@pytest.mark.parametrize(
    ("path", "given", "says"),
    [
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_48x64_pf3", {"M": 1, "N": 80, "K": 64}, "N for .*multiple of 64"),
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_48x64_pf3", {"M": 1, "N": 64, "K": 64, "alpha": 2}, "alpha has no effect"),
        (
            "gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128",
            {"m": 1, "n": 128, "k": 512, "ks": 0},
            "divides by zero",
        ),
        ("gfx942/gemm_a8w8_m128_noSplitK", {"m": 1, "n": 128, "k": 512, "ks": 1}, "does not split K"),
        ("gfx950/f8_block_scale_mi350_x64", {"M": 65, "N": 384, "K": 256}, "a multiple of 256"),
        ("gfx950/f8_block_scale_mi350_x64", {"M": 65, "N": 256, "K": 256, "splitk": 1}, "wrong addresses"),
        ("gfx942/topksoftmax/topksoftmax_12x128x8", {"batch": 1, "expert": 256}, "number of experts"),
        ("gfx942/layer_norm", {"M": 3, "N": 8192}, "M for .*even"),
        ("gfx942/all_reduce", {"rank": 3, "stride_gpu": 4096}, "right for 2 MiB only"),
        ("gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_rtna", {"scalar": 0.0}, "above 0: every output would be NaN"),
        ("gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna", {"nhead_q": 2, "s_opt": 5}, "tiles are lost"),
        ("gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna", {"seq_len": 80, "dq": np.zeros(1)}, "multiple of 64"),
        ("gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna", {"seq_len": 64}, "ptr_dq of .* must hold zeros"),
        (
            "gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna_psskddv",
            {"head_dim": 40, "dq": np.zeros(1)},
            "multiple of 8, from 64",
        ),
        ("gfx942/pa/pa_bf16_pertokenFp8_gqa8_2tg_4w", {"GQA": 9, "batch": 1}, "1 to the gqa"),
        ("gfx942/pa_a16w16_b16", {"kv_nheads": 2, "batch": 1}, "one key head"),
        ("gfx942/pa/pa_bf16_pertokenFp8_gqa8_2tg_4w", {"GQA": 8, "batch": 1, "Qs": 2046}, "a row's bytes"),
        ("gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w", {"GQA": 8, "Qs": 2048, "Bs": 2048}, "a block's bytes"),
        (
            "gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w",
            {"GQA": 8, "Qs": 2048, "Bs": 1 << 15, "blocks": (1 << 16) + 1},
            "less than 2 GiB",
        ),
        ("gfx950/mla/mla_a8w8_qh16_qseqlen4_gqaratio16", {"s_kv_split": 2}, "all to the same place"),
        (
            "gfx942/fmoe/silu/fmoe_fp16_pertokenFp8_g1u1_silu_1tg_32x256",
            {"dim": 1024, "inter_dim": 512, "blocks": 7, "O": np.zeros(1)},
            "adds bf16 bits as f16",
        ),
        (
            "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256",
            {"dim": 768, "inter_dim": 512, "blocks": 7, "O": np.zeros(1)},
            "column loop",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenInt8_g1u1_32x192_pf3",
            {"dim": 128, "hidden_dim": 256, "blocks": 1},
            "multiple of the tile's columns",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            {"dim": 384, "hidden_dim": 256, "blocks": 1, "splitk": 1, "O": np.zeros(1)},
            "a multiple of 128 for each split",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_16x128_4tg_pf2",
            {"dim": 384, "hidden_dim": 256, "blocks": 1, "Os": 576},
            "each token's scales are Os / 32 bytes",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            {"dim": 512, "hidden_dim": 256, "GUs": 640, "blocks": 1, "splitk": 1, "O": np.zeros(1)},
            "dim: K is split by it",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            # 2 x 2048 x 7168 bytes an expert
            {"dim": 7168, "hidden_dim": 2048, "eGUs": 2 * 2048 * 7168, "eprt_cnt": 147, "blocks": 1},
            "eGUs .*: offsets have 32 bits",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            {"dim": 7168, "hidden_dim": 2048, "Xs": 7168, "token_cnt": 599187, "blocks": 1},
            "Xs .*: offsets have 32 bits",
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            {"dim": 7168, "hidden_dim": 2048, "Os": 8 * 4096, "token_cnt": 131073, "blocks": 1},
            "Os .*: offsets have 32 bits",
        ),
    ],
)
def test_domains(aiter_kernels: Path, path: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        check(get(aiter_kernels, path), **given)


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_48x64_pf3", {"M": 1, "N": 64, "K": 64}),
        ("gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128", {"m": 1, "n": 128, "k": 512, "lda": 512}),
        ("gfx942/topksoftmax/topksoftmax_12x128x8", {"batch": 1, "expert": 128, "out_stride": 32}),
        ("gfx942/layer_norm", {"M": 4, "N": 8192}),
        ("gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_causal_rtna", {"nhead_q": 8, "s_opt": 5}),
        ("gfx942/fmha_v3_bwd/bwd_hd128_bf16_a32_rtna_psskddv", {"head_dim": 72, "dq": np.zeros(1)}),
        ("gfx942/pa/pa_bf16_pertokenFp8_gqa8_2tg_4w", {"GQA": 8, "batch": 1, "Qs": 2048, "Bs": 2048}),
        (
            "gfx942/pa/pa_bf16_noquant_gqa8_1tg_4w_mtp_msk1",
            {"GQA": 8, "batch": 1, "Qs": 2048, "Bs": 4096, "blocks": 1 << 19, "most_queries": 4},
        ),
        ("gfx942/mla/mla_a8w8_qh16_qseqlen2_gqaratio16_ps", {"work_lists": 80}),
        (
            "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256",
            {"dim": 1024, "inter_dim": 512, "blocks": 7, "O": np.zeros(1024)},
        ),
        (
            "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2",
            {"dim": 1024, "hidden_dim": 512, "blocks": 7},
        ),
    ],
)
def test_right_problems(aiter_kernels: Path, path: str, given: dict[str, Any]) -> None:
    check(get(aiter_kernels, path), **given)


def test_buffers_of_the_wrong_size(aiter_kernels: Path) -> None:
    kernel = get(aiter_kernels, "gfx942/layer_norm")
    with pytest.raises(ArgumentError, match="array ptr_Weight: got 8 bytes, need 16384"):
        check(kernel, M=2, N=8192, Weight=np.zeros(4, np.uint16))
    quantised = get(aiter_kernels, "gfx942/layer_norm_qnt")
    with pytest.raises(ArgumentError, match="array ptr_Out: got 16383 bytes, need 16384"):
        check(quantised, M=2, N=8192, Out=np.zeros(16383, np.int8))


def test_sizes_of_attention_tensors(aiter_kernels: Path) -> None:
    """[B, S, H, D] in bf16: the bytes needed are those of the packed tensor, in either order of heads and rows."""
    batch, rows, keys, heads, key_heads, size = 2, 40, 50, 8, 2, 128
    kernel = get(aiter_kernels, "gfx942/fmha_v3_fwd/MI300/fwd_hd128_bf16_rtna")
    strides = {"s_Seqs": heads * size * 2, "s_Hs": size * 2, "s_Bs": rows * heads * size * 2}
    strides |= {f"s_o_{name[2:]}": value for name, value in strides.items()}
    for of in ("k", "v"):
        strides |= {
            f"s_{of}_Seqs": key_heads * size * 2,
            f"s_{of}_Hs": size * 2,
            f"s_{of}_Bs": keys * key_heads * size * 2,
        }
    given = {**strides, "s_seq_len": rows, "s_kv_seq_len": keys, "nhead_q": heads, "s_gqa": 4, "batch": batch}
    arrays = {
        "q": np.zeros((batch, rows, heads, size), np.uint16),
        "k": np.zeros((batch, keys, key_heads, size), np.uint16),
    }
    arrays |= {"o": np.zeros_like(arrays["q"]), "v": np.zeros_like(arrays["k"])}
    check(kernel, **given, **arrays)
    for name, array in arrays.items():
        with pytest.raises(ArgumentError, match=f"array ptr_{name}: got {array.nbytes - 2} bytes, need {array.nbytes}"):
            check(kernel, **given, **{**arrays, name: array.reshape(-1)[:-1]})
    lse = np.zeros(batch * heads * rows, np.float32)
    check(kernel, **given, s_lse=1, s_lse_Hs=4 * rows, LSE=lse)
    with pytest.raises(ArgumentError, match="ptr_lse"):
        check(kernel, **given, s_lse=1, s_lse_Hs=4 * rows, LSE=lse[:-1])


def test_sizes_of_backward_tensors(aiter_kernels: Path) -> None:
    batch, rows, keys, heads, key_heads, size = 2, 40, 50, 4, 2, 64
    kernel = get(aiter_kernels, "gfx942/fmha_v3_bwd/bwd_hd64_bf16_a32_rtna_pssk")
    counts = {"q": (rows, heads), "do": (rows, heads), "k": (keys, key_heads), "v": (keys, key_heads)}
    counts |= {"dk": (keys, heads), "dv": (keys, heads)}
    given: dict[str, Any] = {"seqlen_q": rows, "seqlen_k": keys, "nhead_q": heads, "ratio": 2, "batch": batch}
    arrays: dict[str, Any] = {"dq": np.zeros(batch * heads * rows * size, np.float32)}
    arrays |= {name: np.zeros(batch * heads * rows, np.float32) for name in ("lse", "d")}
    for of, (count, head_count) in counts.items():
        given |= {f"Seqs_{of}": 2 * size, f"Hs_{of}": 2 * size * count, f"BAs_{of}": 2 * size * count * head_count}
        arrays[of] = np.zeros(batch * head_count * count * size, np.uint16)
    check(kernel, **given, **arrays)
    for name in (*counts, "lse", "d"):
        with pytest.raises(ArgumentError, match=f"array ptr_{name}: got"):
            check(kernel, **given, **{**arrays, name: arrays[name][:-1]})


def test_sizes_of_sorted_rows(aiter_kernels: Path) -> None:
    kernel = get(aiter_kernels, "gfx942/fmoe/silu/fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x256")
    given = {"dim": 1024, "inter_dim": 512, "token_cnt": 5, "Os": 2048, "SEP": np.zeros(3, np.int32)}
    good: dict[str, Any] = {
        "O": np.zeros((5, 1024), np.uint16),
        "STP": np.zeros(96, np.int32),
        "SW": np.zeros(96, np.float32),
    }
    check(kernel, **given, **good)
    for name in good:
        with pytest.raises(ArgumentError, match=f"array ptr_{name}: got"):
            check(kernel, **given, **{**good, name: good[name].reshape(-1)[:-1]})
    stage = get(aiter_kernels, "gfx942/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_g1u1_16x128_4tg_pf2")
    with pytest.raises(ArgumentError, match="array ptr_STP: got 12 bytes, need 192"):
        check(stage, dim=1024, hidden_dim=512, SEP=np.zeros(3, np.int32), STP=np.zeros(3, np.int32))


@pytest.mark.parametrize(
    ("form", "splits", "output", "scales"),
    [
        # bf16 [2, 2, 256] with rows 2048 bytes apart, the last only as long as its first slot
        ("_pertokenFp8_g1u1_16x128_4tg_pf2", 0, 2048 + 512, 8),
        ("_pertokenFp8_g1u1_16x128_4tg_pf2", 1, 2048 + 2048, 8),
        # codes, then four bytes for each 128 of a row; scales [512/128, 2]
        ("_pertokenFp8_blockscale_g1u1_16x128_4tg_pf2", 0, 2 * 2048 + 2 * 64, 32),
        ("_pertokenFp8_blockscale_g1u1_16x128_4tg_pf2", 1, 2048 + 2048, 32),
    ],
)
def test_sizes_of_a_first_stage(aiter_kernels: Path, form: str, splits: int, output: int, scales: int) -> None:
    stage = get(aiter_kernels, f"gfx942/fmoe_2stages/fmoe_stage1_bf16{form}")
    sizes = {"dim": 512, "hidden_dim": 256, "GUs": 512, "Xs": 512, "Os": 2048, "token_cnt": 2, "splitk": splits}
    good: dict[str, Any] = {
        "O": np.zeros(output, np.uint8), "X": np.zeros(1024, np.int8), "XQ": np.zeros(scales // 4, np.float32),
        "STP": np.zeros(16, np.int32), "SEP": np.zeros(1, np.int32),
    }  # fmt: skip
    check(stage, **sizes, **good)
    for name in good:
        with pytest.raises(ArgumentError, match=f"array ptr_{name}: got"):
            check(stage, **sizes, blocks=1, **{**good, name: good[name][:-1]})
    with pytest.raises(ArgumentError, match="array ptr_X: got dtype float32"):
        check(stage, **sizes, **{**good, "X": good["X"].view(np.float32)})


def test_a_batch_size_is_read_off_the_arrays_or_asked_for(aiter_kernels: Path) -> None:
    kernel = get(aiter_kernels, "gfx942/pa/pa_bf16_pertokenFp8_gqa16_2tg_4w")
    assert launch(kernel, CL=np.zeros(5, np.int32), kv_nheads=2).grid == (2, 5, 1)
    with pytest.raises(ArgumentError, match=r"batch is needed for .* and not known"):
        launch(kernel, kv_nheads=2)
    group = get(aiter_kernels, "gfx950/fmha_v3_fwd/fwd_hd128_bf16_group")
    assert launch(group, ptr_qseq=np.zeros(4, np.int32), max_seqlen_q=10, nhead_q=2).grid == (2, 3, 1)


@pytest.mark.parametrize(("size", "strides"), [(208, ("odo",)), (256, ("o", "do"))])
def test_both_odo_layouts(aiter_kernels: Path, size: int, strides: tuple[str, ...]) -> None:
    """The segment grew from 208 to 256 bytes when O and dO got strides of their own; no object is in the wheel."""
    names = ["ptr_o", "ptr_do", "ptr_d"]
    names += [f"{part}_{of}" for of in (*strides, "d") for part in ("Hs", "BAs", "Seqs")]
    names += ["seqlen_q", "head_dim", "ptr_qseq", "ptr_qseq_padded"]
    arguments = tuple(
        ArgumentInfo(name, 16 * slot, 8 if "ptr" in name else 4, "global_buffer" if "ptr" in name else "by_value")
        for slot, name in enumerate(names)
    )
    template = get(aiter_kernels, "gfx950/fmha_v3_bwd/bwd_hd128_dq_shuffle")
    name = "_ZN5aiter23fmha_bwd_hd128_odo_bf16E"
    kernel = dataclasses.replace(template, name=name, kernarg_size=size, arguments=arguments)
    chosen = family(kernel)
    assert chosen.name == f"fmha_v3_bwd_odo_{size}"
    assert not disagreements(chosen.schema(kernel), kernel, chosen)
    assert launch(kernel, seqlen_q=300, nhead_q=4, batch=2).grid == (3, 4, 2)
    older = dataclasses.replace(kernel, kernarg_size=464 - size)
    assert disagreements(family(older).schema(older), kernel)


def test_plain_names() -> None:
    assert plain_name("_ZN5aiter3fooE") == "foo"
    assert plain_name("foo") == "foo"
    assert plain_name("_ZN3barE") == "bar"
