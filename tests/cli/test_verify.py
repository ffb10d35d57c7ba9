"""``asmlaunch verify`` for families: choice of kernels and problems, tables, JSON, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch.cli import app
from asmlaunch.kernels import PATH_VARIABLE
from asmlaunch.validate.problems import DEFINITIONS


@pytest.fixture(autouse=True)
def kernels(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(aiter_kernels))


def verify(*arguments: str, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["verify", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_every_family_is_a_command_that_says_what_its_sizes_are() -> None:
    text = verify("--help")
    assert all(name in text for name in DEFINITIONS)
    text = verify("topksoftmax", "--help")
    assert "softmax over experts" in text
    assert "renormalize: 1 to divide" in text


def test_all_standard_problems_of_the_first_kernel() -> None:
    text = verify("topksoftmax", "--kernel", "4x128x8")
    assert text.count("passed") == 7
    assert "batch=4, levels=128, shift=-70" in text
    assert "6 of 6 runs passed, 464 elements compared" in text


def test_problems_given_and_json() -> None:
    rows = json.loads(
        verify(
            "topksoftmax", "--kernel", "4x128x6", "--problem", "batch=2", "--problem", "levels=3", "--seed=7", "--json"
        )
    )
    assert [(row["batch"], row["levels"], row["seed"]) for row in rows] == [(2, 128, 7), (9, 3, 7)]
    for row in rows:
        assert row["passed"]
        assert row["kernel"].endswith("topksoftmax_4x128x6E")
        assert Path(row["file"]).name == "topksoftmax_4x128x6.co"
        assert set(row["outputs"]) == {"T", "W"}
        assert row["spilled"] == {"T": 0, "W": 0}
        assert row["device"] == "emulator"
        assert row["seconds"] > 0


def test_schedules_and_numerics_are_passed_on() -> None:
    options = ["--schedule", "barrier,reverse", "--numerics", "cdna3", "--checks", "bounds", "--json"]
    (row,) = json.loads(verify("topksoftmax", "--kernel", "4x128x6", "--problem", "batch=2", *options))
    assert row["fidelity"][0]["numerics"] == "cdna3"
    assert row["findings"] == []
    assert "random(SEED)" in verify("topksoftmax", "--kernel", "4x128x6", "--schedule", "chaos", status=2)


def test_a_failure_says_what_is_wrong() -> None:
    text = verify("topksoftmax", "--kernel", "4x128x6", "--problem", "shift=100", "--checks=numerics", status=1)
    assert "FAILED" in text
    assert "topksoftmax_4x128x6: W: 54 of 54 elements beyond the bound" in text
    assert "0 of 1 runs passed" in text


def test_what_cannot_be_run() -> None:
    assert "at least 1" in verify("topksoftmax", "--problem", "batch=0", status=2)
    assert "topksoftmax_12x128x6" in verify("topksoftmax", "--kernel", "5x5", status=2)
    assert "need even" in verify("layer_norm", "--problem", "m=3", status=2)
