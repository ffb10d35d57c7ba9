"""A few of the mutated inputs that ``mutate.py`` runs many of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from fuzz import mutate

from asmlaunch.errors import AsmlaunchError


def test_mutated_inputs_raise_only_the_packages_errors(aiter_kernels: Path) -> None:
    real = (aiter_kernels / "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co").read_bytes()
    outcomes = Counter(mutate.campaign(1500, seed=7, objects=[real]))
    assert {kind for kind, _ in outcomes} == {"object", "container", "dump"}
    assert sum(outcomes.values()) == 1500
    assert any(outcome == "accepted" for _, outcome in outcomes)


@pytest.mark.parametrize("name", ["gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128", "gfx942/layer_norm"])
def test_real_objects_cut_off(aiter_kernels: Path, name: str) -> None:
    data = (aiter_kernels / f"{name}.co").read_bytes()
    outcomes = Counter(mutate.truncations(data, step=97))
    assert set(outcomes) == {"CodeObjectError"}


def test_the_harness_sees_other_errors() -> None:
    def broken(data: bytes) -> None:
        raise KeyError(data)

    def refuses(data: bytes) -> None:
        raise AsmlaunchError("no")

    with pytest.raises(KeyError):
        mutate.attempt(broken, b"")
    assert mutate.attempt(refuses, b"", measure_memory=True) == "AsmlaunchError"
