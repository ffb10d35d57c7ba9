"""Which of three results departs, on results whose faults are known, and ``verify --reference``."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from asmlaunch import layouts, validate
from asmlaunch.cli import app
from asmlaunch.errors import ArgumentError
from asmlaunch.kernels import PATH_VARIABLE, choose_object, find_objects
from asmlaunch.module import load
from asmlaunch.validate import references
from asmlaunch.validate.bfloat16 import round_bfloat16, to_float64
from asmlaunch.validate.compare import BF16_GEMM
from asmlaunch.validate.problems import f4gemm
from asmlaunch.validate.reference import Reference

RANDOM = np.random.default_rng(0)
OPERANDS = [
    x for rows in (40, 48) for x in layouts.quantize_mxfp4(RANDOM.standard_normal((rows, 256), np.float32))
]  # a, scale_a, b, scale_b
REFERENCE = validate.gemm_a4w4(OPERANDS[0], OPERANDS[2], OPERANDS[1], OPERANDS[3])


def bits(values: np.ndarray) -> np.ndarray:
    """bfloat16 bits of values that bfloat16 holds."""
    return (round_bfloat16(values).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


RIGHT = bits(REFERENCE.value)
WRONG = bits(REFERENCE.value * 1.05)


@pytest.mark.parametrize(
    ("kernel", "triton", "reference", "departs"),
    [
        (RIGHT, RIGHT, REFERENCE, "none"),
        (WRONG, RIGHT, REFERENCE, "kernel"),
        (RIGHT, WRONG, REFERENCE, "triton"),
        (WRONG, WRONG, REFERENCE, "float64"),
        (WRONG, bits(-REFERENCE.value), REFERENCE, "all"),
        (RIGHT, RIGHT, Reference(to_float64(WRONG), REFERENCE.magnitude), "float64"),
    ],
)
def test_what_departs(kernel: np.ndarray, triton: np.ndarray, reference: Reference, departs: str) -> None:
    three = references.three_way(kernel, triton, reference, BF16_GEMM)
    assert three.departs == departs
    assert three.as_dict()["departs"] == departs


@pytest.fixture
def interpreter(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(aiter_kernels))
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def verify(*arguments: str, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["verify", "a4w4", *arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.usefixtures("interpreter")
def test_what_cannot_be_compared() -> None:
    sizes = ("-m", "32", "-n", "128", "-k", "256", "--kernel", "BpreShuffle_32x128")
    assert "float64, triton, both" in verify(*sizes, "--reference", "cublas", status=2)
    assert "float64 is there" in verify("--split-k", "1", "-k", "1024", "--reference", "both", status=2)


if find_spec("torch") and find_spec("triton"):  # optional: part of the run where they are installed

    def test_triton_is_right() -> None:
        got = references.triton_a4w4(OPERANDS[0], OPERANDS[2], OPERANDS[1], OPERANDS[3])
        validate.compare(got, REFERENCE, BF16_GEMM).require()

    @pytest.mark.usefixtures("interpreter")
    def test_three_ways() -> None:
        sizes = ("-m", "32", "-n", "128", "-k", "256", "--kernel", "BpreShuffle_32x128")
        text = verify(*sizes, "--reference", "both")
        assert "compared with float64 and Triton" in text
        assert "departs: none 1" in text
        assert "compared with triton" in verify("-m", "1", *sizes[2:], "--reference", "triton")
        (row,) = json.loads(verify(*sizes, "--reference", "both", "--json"))
        assert row["references"]["D"]["triton"]["passed"]

    @pytest.mark.usefixtures("interpreter")
    @pytest.mark.parametrize(("target", "departs"), [("triton_a4w4", "triton"), ("gemm_a4w4", "float64")])
    def test_a_wrong_reference_is_named(monkeypatch: pytest.MonkeyPatch, target: str, departs: str) -> None:
        right = getattr(f4gemm, target)

        def wrong(*operands: np.ndarray, **options: float) -> object:
            return right(operands[0][::-1].copy(), *operands[1:], **options)

        monkeypatch.setattr(f4gemm, target, wrong)
        sizes = ("-m", "32", "-n", "128", "-k", "256", "--kernel", "BpreShuffle_32x128")
        text = verify(*sizes, "--reference", "both", status=1)
        assert f"D: departs: {departs}" in text


@pytest.mark.usefixtures("interpreter")
def test_a_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load(choose_object(find_objects("f4gemm_*.co"), "BpreShuffle_32x128"), "emulator").kernel
    monkeypatch.setattr(f4gemm, "triton_a4w4", lambda *operands, **_: bits(validate.gemm_a4w4(*operands).value))
    case = f4gemm.Sizes(32, 128, 256)
    assert f4gemm.DEFINITION.run(kernel, case, reference="both").three["D"].departs == "none"
    built = f4gemm.build

    def wrong(case: f4gemm.Sizes, parameters: dict[str, object]) -> object:
        problem = built(case, parameters)
        problem.launches[0]["ScaleA"][...] += 1
        return problem

    definition = f4gemm.Definition(
        f4gemm.FAMILY, f4gemm.DEFINITION.files, f4gemm.Sizes, f4gemm.sizes, wrong, f4gemm.cases
    )
    outcome = definition.run(kernel, case, reference="both")
    assert outcome.three["D"].departs == "kernel"
    assert not outcome.passed
    with pytest.raises(ArgumentError, match="reference"):
        f4gemm.DEFINITION.run(kernel, case, reference="none")
