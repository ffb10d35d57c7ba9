"""Kernel choice: deterministic, only kernels that are right on the problem, and explained."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import asmlaunch
from asmlaunch.choice import SELECTORS, Choice, choose
from asmlaunch.choice.analytical import seconds
from asmlaunch.choice.machine import MI350, machine_of
from asmlaunch.errors import KernelNotFoundError


def tile(choice: Choice) -> tuple[int, int]:
    return choice.kernel.tile_m, choice.kernel.tile_n


@pytest.mark.parametrize("selector", ["aiter", "analytical"])
def test_every_legal_shape_has_a_kernel(selector: str) -> None:
    """N only has to be a multiple of 32: thirty kernels mask their columns."""
    for m, n, k in itertools.product((1, 33, 256, 4097), (32, 96, 2080, 2112), (32, 384, 7168)):
        chosen = choose("a4w4", m, n, k, selector=selector)
        rows, columns = tile(chosen)
        assert n % columns == 0 or (rows, columns) not in {(256, 256), (192, 256), (224, 256), (128, 512)}


def test_a_shape_that_the_original_rule_has_no_kernel_for() -> None:
    chosen = choose("a4w4", 32800, 2112, 7168, explain=True)
    assert "128x512" not in chosen.kernel.name
    reasons = {entry.name: entry.reason for entry in chosen.dropped}
    assert "N: got 2112" in reasons["f4gemm_bf16_per1x32Fp4_BpreShuffle_128x512"]
    assert reasons["f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256"] == "the weights are shuffled"


def test_the_rule_by_hand() -> None:
    """m=256, n=4096 on 256 units: 32x128 tiles make 8 x 32 = 256 workgroups, one full round with nobody idle."""
    chosen = choose("a4w4", 256, 4096, 512, explain=True)
    assert tile(chosen) == (32, 128)
    assert chosen.ranking[0][1] == (1, 0, -25)
    scores = {candidate.name.split("_")[-1]: score for candidate, score in chosen.ranking}
    assert scores["256x256"] == (1, 240, -128)
    # 64 x 4096 in 32x128 tiles: 64 workgroups, fewer idle than any other tile leaves.
    assert tile(choose("a4w4", 64, 4096, 512)) == (32, 128)


def test_the_same_choice_every_time_and_in_every_folder(f4gemm_folder: Path, tmp_path: Path) -> None:
    for path in sorted(f4gemm_folder.iterdir(), reverse=True):
        if path.suffix in (".co", ".csv"):
            shutil.copy(path, tmp_path)
    for m, n in ((100, 512), (5000, 6144)):
        assert choose("a4w4", m, n, 4096).kernel.name == choose("a4w4", m, n, 4096, folder=tmp_path).kernel.name
    for manifest in tmp_path.glob("*.csv"):
        manifest.unlink()
    assert choose("a4w4", 100, 512, 4096, folder=tmp_path).kernel.name


def test_fewer_units_change_the_choice() -> None:
    assert machine_of(None).units == machine_of("emulator").units == 256
    few = SimpleNamespace(limits=SimpleNamespace(units=64))
    assert machine_of(few).units == 64
    assert tile(choose("a4w4", 1024, 4096, 512, few)) != tile(choose("a4w4", 1024, 4096, 512))


def test_split_k_only_when_asked_for() -> None:
    assert choose("a4w4", 256, 512, 65536).kernel.splits == 1
    both = choose("a4w4", 256, 512, 65536, split_k=None, selector="analytical", explain=True)
    assert {candidate.splits for candidate, _ in both.ranking} == {1, 2, 4, 8, 16}
    chosen = choose("a4w4", 256, 512, 7168, split_k=3, explain=True)
    assert chosen.kernel.splits == 7
    assert {c.name.split("_")[-1] for c, _ in chosen.ranking} == {"256x256", "128x512"}
    assert "K in 7 parts" in str(chosen)


def test_weights_that_are_not_shuffled_have_one_kernel() -> None:
    assert "noBpreShuffle" in choose("a4w4", 512, 512, 512, preshuffled=False).kernel.name


def test_no_kernel_says_why() -> None:
    with pytest.raises(KernelNotFoundError, match=r"m=64 n=48 k=256 .*N: got 48, need a multiple of 32"):
        choose("a4w4", 64, 48, 256)
    with pytest.raises(KernelNotFoundError, match="K: got 40, need a multiple of 32"):
        choose("a4w4", 64, 64, 40)


def test_four_gigabytes_of_output_drop_the_kernel_that_would_lose_rows() -> None:
    chosen = choose("a4w4", 1 << 20, 2048, 256, explain=True)
    reasons = {entry.name.split("Fp4_")[1]: entry.reason for entry in chosen.dropped}
    assert "2^32" in reasons["BpreShuffle_256x256"]


def test_unknown_operation_and_selector() -> None:
    with pytest.raises(KernelNotFoundError, match="got 'a8w8', need one of a4w4"):
        choose("a8w8", 1, 32, 32)
    with pytest.raises(KernelNotFoundError, match="need one of aiter, analytical, origami"):
        choose("a4w4", 1, 32, 32, selector="best")


def test_the_model_follows_the_problem() -> None:
    """Twice the depth takes nearly twice as long where computing dominates; one more round costs a round."""
    candidate = choose("a4w4", 8192, 8192, 8192, selector="analytical").kernel
    short, long = (seconds(candidate, 8192, 8192, k, MI350) for k in (8192, 16384))
    assert 1.7 < long / short < 2.0
    large = next(c for c, _ in choose("a4w4", 4096, 4096, 4096, explain=True).ranking if tile_of(c) == (256, 256))
    one, two = (seconds(large, 4096, n, 4096, MI350) for n in (4096, 4352))
    assert two == pytest.approx(2 * one, rel=0.1)
    # No model may promise more than the machine's peak.
    assert seconds(large, 8192, 8192, 8192, MI350) > 2 * 8192**3 / 9.2e15


def tile_of(candidate: asmlaunch.choice.Candidate) -> tuple[int, int]:
    return candidate.tile_m, candidate.tile_n


def test_large_problems_get_large_tiles_from_the_model() -> None:
    assert tile(choose("a4w4", 8192, 8192, 8192, selector="analytical")) == (256, 256)
    assert tile(choose("a4w4", 16, 7168, 2048, selector="analytical"))[0] == 32


def test_origami_is_asked_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelNotFoundError, match=r"origami.*not installed"):
        choose("a4w4", 256, 256, 256, selector="origami")
    asked = []

    def select_config(problem: SimpleNamespace, hardware: tuple[object, ...], configs: list[SimpleNamespace]) -> object:
        asked.append((problem.size, configs[0].mt, configs[0].mi))
        return SimpleNamespace(latency=abs(configs[0].mt[0] - 96) + abs(configs[0].mt[1] - 256))

    module = SimpleNamespace(
        architecture_t=SimpleNamespace(gfx950="gfx950"),
        transpose_t=SimpleNamespace(T="T", N="N"),
        dim3_t=lambda *sizes: sizes,
        problem_t=SimpleNamespace,
        config_t=SimpleNamespace,
        string_to_datatype=str,
        get_hardware_for_arch=lambda *numbers: numbers,
        select_config=select_config,
    )
    monkeypatch.setitem(sys.modules, "origami", module)
    assert tile(choose("a4w4", 512, 512, 256, selector="origami")) == (96, 256)
    assert ((512, 512, 256), (96, 256, 256), (16, 16, 128)) in asked
    assert set(SELECTORS) == {"aiter", "analytical", "origami"}
