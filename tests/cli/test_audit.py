"""``asmlaunch audit`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch.cli import app

RIGHT = {
    "D": "0x7f0000001000", "A": "0x7f0000002000", "B": "0x7f0000003000", "ScaleA": "0x7f0000008000",
    "ScaleB": "0x7f0000009000", "M": 32, "N": 128, "K": 512, "stride_C0": 128, "stride_A0": 512, "stride_B0": 512,
    "stride_ScaleA0": 16, "stride_ScaleB0": 16,
}  # fmt: skip


@pytest.fixture
def kernel(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["audit", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


def values(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "arguments.json"
    path.write_text(json.dumps({**RIGHT, **changes}))
    return path


def line(text: str, name: str) -> str:
    return next(row for row in text.splitlines() if f" {name} " in row)


def test_what_the_machine_code_does(kernel: Path) -> None:
    text = run(kernel)
    assert "loaded, unused" in line(text, "alpha")
    assert "never loaded" in line(text, "stride_D0")
    assert "address, branch" in line(text, "M")
    assert "last byte loaded: 339, of a segment of 384 bytes" in text


def test_arguments_of_a_launch(kernel: Path, tmp_path: Path) -> None:
    run(kernel, "--args", values(tmp_path))
    text = run(kernel, "--args", values(tmp_path, B=0, stride_D0=128), status=1)
    assert "ptr_B is null and the kernel uses it" in text
    assert "stride_D0 = 128 has no effect" in text


def test_a_struct_too_short_for_what_the_code_loads(kernel: Path) -> None:
    assert "the code loads bytes up to 340, the caller passes 336" in run(kernel, "--size", 336, status=1)
    assert "only padding" in run(kernel, "--size", 372)


def test_json(kernel: Path, tmp_path: Path) -> None:
    answer = json.loads(run(kernel, "--args", values(tmp_path, beta=2), "--json", status=1))
    assert answer["arguments"]["beta"] == "loaded, unused"
    assert answer["machine_code"]["highest_byte"] == 339
    assert [finding["check"] for finding in answer["findings"]] == ["domain", "dead slot", "size"]


def test_without_the_machine_code(kernel: Path) -> None:
    assert "last byte" not in run(kernel, "--no-code")
    assert json.loads(run(kernel, "--no-code", "--json"))["machine_code"] is None


def test_machine_code_that_cannot_be_read(kernel: Path, tmp_path: Path) -> None:
    """The rest of the audit is made all the same."""
    data = kernel.read_bytes()
    start = data.find(bytes.fromhex("000081bf"))  # s_endpgm
    broken = tmp_path / kernel.name
    broken.write_bytes(data[:start] + b"\xff" * 4 + data[start + 4 :])
    text = run(broken)
    assert "machine code not analysed: machine code at" in text
    assert "the caller passes 372 bytes of 384" in text


def test_a_jump_that_is_not_followed(kernel: Path, tmp_path: Path) -> None:
    data = kernel.read_bytes()
    start = data.find(bytes.fromhex("000081bf"))
    jumping = tmp_path / kernel.name
    jumping.write_bytes(data[:start] + bytes.fromhex("041d80be") + data[start + 4 :])  # s_setpc_b64 s[4:5]
    text = run(jumping)
    assert "jumps to an unknown address" in text
    assert "unknown" in line(text, "stride_D0")
