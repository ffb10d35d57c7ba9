"""``asmlaunch bench`` as a user runs it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from typer.testing import CliRunner

from asmlaunch.cli import app

FOLDER = Path(__file__).parents[2] / "fixtures" / "kernels"
SGEMM = str(FOLDER / "sgemm.gfx950.co")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *arguments])
    return result.exit_code, result.output


def test_one_line_with_time_rate_and_norm_error() -> None:
    status, text = run(SGEMM, "--problem", "m=128, n=64, k=256, beta=1, pad=0", "--repeat", "2", "--verify")
    assert status == 0
    row = dict(part.split("=") for part in text.strip().split(", "))
    assert (row["kernel"], row["m"], row["n"], row["k"]) == ("asmlaunch_sgemm", "128", "64", "256")
    assert float(row["us"]) > 0
    assert float(row["gflops"]) > 0
    assert 0 < float(row["norm_error"]) <= 3e-7
    assert row["passed"] == "True"


def test_csv_and_json_hold_the_same_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    problems = ["--problem", "m=3, n=4, k=5", "--problem", "m=64, k=8"]
    status, text = run(SGEMM, *problems, "--repeat", "1", "--json", "--csv", str(file))
    assert status == 0
    rows = json.loads(text)
    assert [row["m"] for row in rows] == [3, 64]
    with file.open() as lines:
        assert [{key: str(value) for key, value in row.items()} for row in rows] == list(csv.DictReader(lines))


def test_a_kernel_without_problems() -> None:
    status, text = run(str(FOLDER / "vector_add.gfx950.co"))
    assert status == 2
    assert "no declared problems" in text


def test_how_matrix_instructions_round() -> None:
    sizes = ["--problem", "m=3, n=4, k=5", "--repeat", "1"]
    assert run(SGEMM, *sizes, "--verify", "--numerics", "cdna3")[0] == 0
    status, text = run(SGEMM, *sizes, "--numerics", "cdna4")
    assert status == 2
    assert "exact, cdna3" in text
