"""``asmlaunch diff`` of two code objects: the instructions."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from asmlaunch.cli import app

PREFIX = "f4gemm_bf16_per1x32Fp4_BpreShuffle_"


def run(*arguments: object, status: int) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["diff", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.stdout


def test_instructions_that_differ(f4gemm_folder: Path) -> None:
    pair = [f4gemm_folder / f"{PREFIX}{tile}.co" for tile in ("32x128", "64x128")]
    assert "with other code" in run(*pair, status=1)
    instructions = json.loads(run(*pair, "--json", status=1))["instructions"]
    assert instructions["classes"]["matrix"] == [64, 128]


def test_an_alpha_that_became_live(f4gemm_folder: Path) -> None:
    """Of these two only the second uses alpha and splits K."""
    pair = [f4gemm_folder / f"{PREFIX}{tile}.co" for tile in ("224x256", "256x256")]
    text = run(*pair, status=1)
    assert "argument bytes loaded only by b: 368..371" in text
    assert "argument bytes used only by b: 64..67, 368..371" in text


def test_the_same_kernel(f4gemm_folder: Path) -> None:
    path = f4gemm_folder / f"{PREFIX}32x128.co"
    assert json.loads(run(path, path, "--json", status=0))["instructions"] is None


def test_code_that_cannot_be_read(f4gemm_folder: Path, tmp_path: Path) -> None:
    path = f4gemm_folder / f"{PREFIX}32x128.co"
    data = path.read_bytes()
    broken = tmp_path / "broken.co"
    start = data.find(bytes.fromhex("000081bf"))  # s_endpgm
    broken.write_bytes(data[:start] + b"\xff" * 4 + data[start + 4 :])
    assert json.loads(run(path, broken, "--json", status=1))["instructions"] is None
