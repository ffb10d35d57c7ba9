"""``asmlaunch diagnose`` and ``verify --diagnose``: the answer, JSON, files, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import asmlaunch
from asmlaunch.cli import app
from asmlaunch.kernels import PATH_VARIABLE
from asmlaunch.validate.problems import DEFINITIONS

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kernels"
PROBLEM = "m=20, n=17, k=9, alpha=3, beta=0, pad=0"


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(FIXTURES))


def run(*arguments: str, status: int) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    """The result without alpha."""
    kernel = asmlaunch.load(FIXTURES / "sgemm.gfx950.co", device="emulator").kernel
    definition = DEFINITIONS["sgemm"]
    problem = definition.problem(kernel.info, definition.cases({})[0].changed(PROBLEM))
    kernel.launch({**problem.launches[0], "alpha": 1.0})
    np.save(tmp_path / "wrong.npy", problem.outputs[0].result)
    return tmp_path / "wrong.npy"


def test_a_wrong_result(wrong: Path) -> None:
    text = run("diagnose", "sgemm", "--kernel", "gfx950", "--problem", PROBLEM, "--result", str(wrong), status=1)
    assert text.startswith("alpha is ignored: the result is that of alpha = 1, not 3")
    assert "confidence: high" in text
    assert "right would be: alpha=3" in text


def test_json(wrong: Path) -> None:
    arguments = ("--problem", PROBLEM, "--result", str(wrong), "--no-emulate", "--json")
    found = json.loads(run("diagnose", "sgemm", *arguments, status=1))
    assert found["confidence"] == "high"
    assert found["explanations"][0]["mistakes"][0]["subject"] == "alpha"
    assert found["problem"].startswith("m=20, n=17, k=9, alpha=3.0")


def test_a_right_result() -> None:
    assert run("diagnose", "sgemm", "--problem", PROBLEM, status=0).startswith("right: ")


def test_what_cannot_be_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    assert "as numpy.save writes it" in run("diagnose", "sgemm", "--result", str(tmp_path / "text.npy"), status=2)
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    assert "several arrays" in run("diagnose", "sgemm", "--result", str(tmp_path / "two.npz"), status=2)
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    assert "numpy.save" in run("diagnose", "sgemm", "--result", str(tmp_path / "pickled.npy"), status=2)
    assert "one of f4gemm" in run("diagnose", "conv", status=2)
    assert "which passes" in run("diagnose", "sgemm", "--problem", PROBLEM, "--minimise", status=2)


def test_verify_says_why(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(aiter_kernels))
    arguments = ("verify", "f4gemm", "--kernel", "BpreShuffle_32x128", "--problem", "m=9, n=64, k=256, alpha=77")
    text = run(*arguments, "--no-check", "--diagnose", status=1)
    assert "this kernel loads alpha and does not use it" in text
    assert "the same result follows if alpha is ignored" in text
    (row,) = json.loads(run(*arguments, "--no-check", "--diagnose", "--json", status=1))
    assert row["diagnosis"]["explanations"][0]["mistakes"][0]["kind"] == "domain"
    (row,) = json.loads(run(*arguments[:-1], "m=9, n=64, k=256", "--diagnose", "--json", status=0))
    assert "diagnosis" not in row


def test_minimise_first(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(aiter_kernels))
    text = run("diagnose", "topksoftmax", "--kernel", "4x128x6", "--problem", "shift=100", "--minimise", status=1)
    assert "smallest that fails (T: wrong values): batch=1" in text
    assert "no model of topksoftmax is declared" in text
