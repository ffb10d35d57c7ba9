"""Every family's kernels, executed and compared: one small problem of a sample, and the machinery around it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch.devices.emulator import EmulatorDevice
from asmlaunch.errors import ArgumentError, DomainError, KernelNotFoundError, LaunchError
from asmlaunch.validate.compare import EXACT
from asmlaunch.validate.problems import DEFINITIONS, definition_of, get
from asmlaunch.validate.problems.base import Canvas, Outcome, Output
from asmlaunch.validate.problems.topksoftmax import Sizes
from asmlaunch.validate.reference import Reference

#: One kernel a family and one problem each; what is left is for the sweep.
SAMPLE = [
    ("f4gemm", "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", 0),
    ("bf16gemm", "gfx942/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co", 1),
    ("bf16gemm", "gfx950/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co", 3),
    ("i8gemm", "gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co", 2),
    ("gemm_a8w8_m128", "gfx942/gemm_a8w8_m128_noSplitK.co", 0),
    ("fp8_block_scale", "gfx950/f8_block_scale_mi350_x32.co", 0),
    ("flatmm", "gfx942/flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32.co", 0),
    ("topksoftmax", "gfx942/topksoftmax/topksoftmax_4x128x6.co", 2),
    ("layer_norm", "gfx942/layer_norm_qnt.co", 0),
    ("all_reduce", "gfx942/all_reduce.co", 0),
    ("fmha_v3_fwd", "gfx950/fmha_v3_fwd/fwd_hd128_bf16_causal_group.co", 0),
    ("fmha_v3_bwd_fixed", "gfx942/fmha_v3_bwd/bwd_hd64_fp16_a16.co", 0),
    ("fmha_v3_bwd_ragged", "gfx942/fmha_v3_bwd/bwd_hd64_bf16_a32_rtz_pssk.co", 0),
    ("fmha_v3_bwd_group", "gfx950/fmha_v3_bwd/bwd_hd64_bf16_causal_br_a32_rtna_pssk_group.co", 0),
    ("fmha_v3_bwd_wide", "gfx950/fmha_v3_bwd/bwd_hd128_bf16_causal_br_a16_psskddv_group.co", 0),
    ("fmha_v3_bwd_dq_shuffle", "gfx950/fmha_v3_bwd/bwd_hd128_dq_shuffle_group.co", 0),
    ("all_reduce_norm", "gfx942/allreduce_rmsnorm_qnt_N8192.co", 1),
    ("fmoe", "gfx942/fmoe/silu/fmoe_bf16_pertokenInt8_g1u1_vs_silu_1tg_32x128.co", 0),
    ("pa", "gfx942/pa/pa_bf16_pertokenFp8_gqa8_2tg_4w_hp.co", 0),
    ("mla", "gfx942/mla/mla_a16w16_qh16_m16x4_n16x1_coex0_mask1_ps.co", 2),
    ("fmoe_2stages", "gfx950/fmoe_2stages/fmoe_stage1_bf16_pertokenFp8_blockscale_g1u1_16x128_4tg_pf2.co", 0),
]


def run(path: Path, case: str | int = 0, check: bool = True, **options: object) -> Outcome:
    """A problem by number, or the first one with changes."""
    kernel = asmlaunch.load(path, device="emulator").kernel
    definition = definition_of(kernel.info)
    assert definition is not None
    cases = definition.cases(definition.parameters(kernel.info))
    return definition.run(
        kernel, cases[case] if isinstance(case, int) else cases[0].changed(case), check=check, **options
    )


def test_the_sample_has_every_family() -> None:
    """All but those whose objects are not AITER's."""
    assert {family for family, _, _ in SAMPLE} == set(DEFINITIONS) - {"sgemm"}


@pytest.mark.parametrize(("family", "file", "case"), SAMPLE, ids=[file.split("/")[-1] for _, file, _ in SAMPLE])
def test_a_kernel_of_each_family(aiter_kernels: Path, family: str, file: str, case: int) -> None:
    outcome = run(aiter_kernels / file, case)
    assert outcome.passed, {name: str(one) for name, one in outcome.comparisons.items()}
    row = outcome.as_dict()
    assert row["passed"]
    assert row["instructions"] > 1000
    assert set(row["outputs"]) == set(row["spilled"]) == set(outcome.comparisons)


@pytest.mark.parametrize(
    ("file", "problem", "rule"),
    [
        ("gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_192x256.co", "n=288", "a multiple of the tile's columns"),
        ("gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", "n=144", "columns are stored 32 at a time"),
        ("gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", "alpha=64", "does not use it"),
        ("gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", "split_k=1", "split K"),
        ("gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", "m=0", "loops for ever"),
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co", "n=80", "columns are not masked"),
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co", "k=96", "a multiple of 64"),
        ("gfx942/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co", "splits=4", "at most K / 64"),
        ("gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co", "n=192", "columns are not masked"),
        ("gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co", "splits=0", "never ends"),
        ("gfx942/i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128.co", "k=128", "at least 260"),
        ("gfx942/gemm_a8w8_m128_noSplitK.co", "splits=2", "does not split K"),
        ("gfx942/gemm_a8w8_m128_splitK.co", "k=384,splits=2", "a multiple of 128 << ks"),
        ("gfx950/f8_block_scale_mi350_x32.co", "n=384", "a workgroup writes 256 columns"),
        ("gfx950/f8_block_scale_mi350_x32.co", "splits=1", "wrong addresses"),
        ("gfx942/flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32.co", "k=192", "a multiple of 128"),
        ("gfx942/layer_norm.co", "m=3", "a workgroup takes two rows"),
        ("gfx942/all_reduce.co", "kib=1024", "right for 2 MiB only"),
        ("gfx942/allreduce_rmsnorm_N8192.co", "m=520", "the signal buffers hold no more"),
    ],
)
def test_a_problem_outside_the_domain_is_refused_with_its_rule(
    aiter_kernels: Path, file: str, problem: str, rule: str
) -> None:
    with pytest.raises(DomainError, match=re.escape(rule)):
        run(aiter_kernels / file, problem)


class TestSoftmax:
    """The machinery on kernels that compile fast."""

    @pytest.fixture
    def path(self, aiter_kernels: Path) -> Path:
        return aiter_kernels / "gfx942" / "topksoftmax" / "topksoftmax_4x128x6.co"

    @pytest.mark.parametrize("case", range(6))
    def test_the_standard_problems(self, path: Path, case: int) -> None:
        assert run(path, case).passed

    def test_rows_beyond_exp_fail(self, path: Path) -> None:
        """No maximum is subtracted, so the sum of the exponentials overflows or vanishes."""
        assert run(path, "shift=76").passed
        for shift in ("shift=100", "shift=-100"):
            outcome = run(path, shift)
            assert not outcome.passed
            assert outcome.comparisons["W"].non_finite

    def test_a_problem_outside_the_domain(self, path: Path) -> None:
        with pytest.raises(DomainError, match=r"batch for .*got 0, need at least 1"):
            run(path, "batch=0")

    @pytest.mark.parametrize("text", ["rows=3", "batch", "batch=", "batch=many"])
    def test_a_problem_that_is_none(self, path: Path, text: str) -> None:
        with pytest.raises(ArgumentError, match=r"need some of batch=9, levels=128.*seed=0"):
            run(path, text)

    def test_sizes_nobody_can_hold(self, path: Path) -> None:
        with pytest.raises(ArgumentError, match="batch of a problem: got 99999999999"):
            run(path, "batch=99999999999")
        with pytest.raises(ArgumentError, match="sizes that operands can be made of"):
            run(path, "pad=-9", check=False)

    def test_written_back_as_text(self) -> None:
        case = Sizes(batch=3, levels=7, shift=-2, seed=5)
        assert Sizes(batch=1, levels=1).changed(str(case)) == case
        assert case.short() == "batch=3, levels=7, shift=-2, seed=5"

    def test_launch_options_reach_the_device(self, path: Path) -> None:
        assert run(path, checks="all", schedule="lockstep").passed
        with pytest.raises(LaunchError, match="launch option"):
            run(path, colour="red")


def test_a_wrong_result_is_seen(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One element changed after the launch, and one next to the result."""
    path = aiter_kernels / "gfx942" / "topksoftmax" / "topksoftmax_4x128x6.co"
    launch = EmulatorDevice.launch

    def spoiled(at: tuple[int, int]):
        def spoil(self, *args, buffers, **options):
            result = launch(self, *args, buffers=buffers, **options)
            next(buffer.owner for buffer in buffers if buffer.name == "ptr_T")[at] += 1
            return result

        return spoil

    for at, compared, spilled in (((0, 0), False, 0), ((0, 6), True, 1), ((9, 0), True, 1)):
        monkeypatch.setattr(EmulatorDevice, "launch", spoiled(at))
        outcome = run(path)
        assert not outcome.passed
        assert outcome.worst == "T"
        assert outcome.comparisons["T"].passed is compared
        assert outcome.spilled["T"] == spilled


def test_a_canvas_sees_what_is_written_around_it() -> None:
    canvas = Canvas(2, 3, np.uint16, more_rows=1, more_columns=1)
    before = canvas.whole.copy()
    canvas.inside[...] = 7
    assert canvas.spilled(before) == 0
    canvas.whole[2, 0] = canvas.whole[0, 3] = 7
    assert canvas.spilled(before) == 2


def test_a_canvas_in_memory_that_others_share() -> None:
    memory = np.zeros(20, np.uint8)
    first, second = Canvas(2, 3, np.uint16, memory=memory), Canvas(1, 2, np.float32, memory=memory[12:])
    first.whole[...] = 0x0102
    second.whole[...] = 1.0
    assert memory.tolist() == [2, 1] * 6 + [0, 0, 0x80, 0x3F] * 2


def test_a_result_in_codes_is_decoded_when_it_is_compared() -> None:
    codes = np.zeros(2, np.uint8)
    output = Output("q", codes, lambda: Reference(np.array([0.5, 2.0]), np.zeros(2)), EXACT, decode=lambda c: c / 2)
    assert not output.compare().passed
    codes[...] = 1, 4
    assert output.compare().passed


def test_unknown_families_and_kernels(aiter_kernels: Path) -> None:
    with pytest.raises(KernelNotFoundError, match=r"'conv'.*f4gemm, bf16gemm"):
        get("conv")
    assert get("f4gemm") is DEFINITIONS["f4gemm"]
    softmax = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    with pytest.raises(KernelNotFoundError, match="a kernel of flatmm"):
        get("flatmm").parameters(softmax.info)
