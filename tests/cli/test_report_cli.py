"""``verify --html --bundle``, ``report`` and ``replay`` of a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch.cli import app
from asmlaunch.kernels import PATH_VARIABLE


@pytest.fixture(autouse=True)
def kernels(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(aiter_kernels))


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_from_a_failing_run_to_its_page(tmp_path: Path) -> None:
    kept, page, again = tmp_path / "run.asml", tmp_path / "run.html", tmp_path / "again.html"
    problems = ("--problem", "batch=3", "--problem", "batch=4,shift=100")
    text = run("verify", "topksoftmax", "--kernel=4x128x6", *problems, "--html", page, "--bundle", kept, status=1)
    assert "1 of 2 runs passed" in text
    assert "shift=100" in page.read_text()  # the run that failed
    assert f"asmlaunch replay {kept}" in page.read_text()
    assert "equal" in run("replay", kept)
    text = run("report", kept, status=1)
    assert "WRONG" in text
    assert "bounds" not in text
    assert "ptr_A" in text
    assert "confidence: " in run("report", kept, "--diagnose", status=1)
    assert json.loads(run("report", kept, "--json", status=1))["verdict"] == "wrong"
    run("report", kept, "-o", again, status=1)
    assert again.read_text() == page.read_text()


def test_a_right_run_of_the_first_command(tmp_path: Path) -> None:
    page = tmp_path / "right.html"
    run("verify", "a4w4", "--kernel=BpreShuffle_32x128", "-m", 32, "-n", 128, "-k", 256, "--html", page)
    assert "<b>Right</b>" in page.read_text()


def test_what_cannot_be_done(tmp_path: Path, aiter_kernels: Path) -> None:
    kept = tmp_path / "run.asml"
    run("verify", "topksoftmax", "--kernel=4x128x6", "--problem=batch=3", "--bundle", kept)
    assert "cannot write" in run("report", kept, "-o", tmp_path / "no" / "page.html", status=2)
    assert "cannot read" in run("report", kept, "--object", tmp_path / "no.co", status=2)
    assert "code object of a bundle" in run(
        "replay", kept, "--object", aiter_kernels / "gfx942/layer_norm.co", status=2
    )
    assert "cannot write" in run(
        "verify",
        "topksoftmax",
        "--kernel=4x128x6",
        "--problem=batch=3",
        "--bundle",
        tmp_path / "no" / "x.asml",
        status=2,
    )
    assert "is no bundle" in run("report", aiter_kernels / "gfx942/layer_norm.co", status=2)
