"""``asmlaunch probe``: tables, JSON, pictures and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch.cli import app
from asmlaunch.kernels import PATH_VARIABLE

KERNEL = "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128"
SOFTMAX = "topksoftmax_4x128x6"


@pytest.fixture(autouse=True)
def kernels(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, f"{aiter_kernels / 'gfx950' / 'f4gemm'}:{aiter_kernels / 'gfx942/topksoftmax'}")


def probe(*arguments: str, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["probe", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def test_layout(tmp_path: Path) -> None:
    text = probe("layout", KERNEL, "--operand", "ScaleA")
    assert "known as   scales_32x8" in text
    assert "   1 |   4  68 132 196   6  70 134 198" in text
    picture = tmp_path / "scales.svg"
    found = json.loads(probe("layout", KERNEL, "--operand=ScaleB", "--picture", str(picture), "--json"))
    assert found["pattern"] == "(t rh l) (c kh k) -> t c k l kh rh"
    assert picture.read_text().startswith("<svg")
    assert "need a file that ends in .svg" in probe(
        "layout", KERNEL, "--operand=ScaleB", "--picture=scales.gif", status=2
    )


def test_args() -> None:
    text = probe("args", SOFTMAX, "--problem", "batch=3")
    assert "bounds the rows" in text
    assert "dead: topk" in text
    assert "padding" not in text.split("launches")[0]
    assert json.loads(probe("args", SOFTMAX, "--json"))["dead"] == ["topk"]
    assert "0xa5 in every byte" in probe("args", SOFTMAX, "--padding")


def test_domain() -> None:
    text = probe("domain", SOFTMAX, "--size", "batch")
    assert "from batch=9" in text
    assert json.loads(probe("domain", SOFTMAX, "--size=batch", "--json"))["sizes"][0]["step"] == 1


def test_numerics(tmp_path: Path) -> None:
    file = tmp_path / "numerics.json"
    file.write_text(probe("numerics", KERNEL, "--json"))
    text = probe("numerics", KERNEL, "--against", str(file))
    assert "every line is the same as in the file" in text
    assert "in order of K" in text
    file.write_text(file.read_text().replace('"bits": "3f82"', '"bits": "3f81"'))
    assert "differs output: tie above an odd number: 3f81 there, 3f82 here" in probe(
        "numerics", KERNEL, "--against", str(file), status=1
    )
    for content in ("[]", "no"):
        file.write_text(content)
        assert "probe numerics --json" in probe("numerics", KERNEL, "--against", str(file), status=2)
