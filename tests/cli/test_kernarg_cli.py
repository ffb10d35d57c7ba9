"""The commands that read, compare and draw argument segments, and check manifests, as a user runs them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch import abi
from asmlaunch.cli import app

ROOT = Path(__file__).parents[2]
DUMP = ROOT / "fixtures" / "abi" / "f4gemm_public_dump.txt"
OBJECTS = ROOT / "fixtures" / "codeobject"
PLAIN = "f4gemm_bf16_per1x32Fp4_noBpreShuffle_256x256"


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_the_public_dump_against_a_launchs_arguments() -> None:
    text = run("diff", DUMP, "--kernel", PLAIN, "--set", "K=4096", "--set", "D=0x7f0000000000", "--set", "M=300")
    assert "equal, 1 pointers to other places" in text
    lines = re.findall(r"^(\d{4})   \| (.*)$", text, re.MULTILINE)
    assert lines == [
        ("0000", "ptr_D equivalent"),
        ("0016", "ptr_C same"),
        ("0336", "stride_ScaleB0 same"),
        ("0352", "stride_ScaleB1 same"),
        ("0368", "log2_k_split same"),
    ]
    text = run("diff", DUMP, "--kernel", PLAIN, "--set", "K=1024", status=1)
    assert re.search(r"stride_ScaleB0 +│ 128 +│ 32 +│ differs", text)
    assert "stride_ScaleB0 differs" in text


def test_exact_pointers(tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(DUMP.read_text().replace("20 6d ab 7f", "20 6e ab 7f"))
    run("diff", DUMP, other, "--kernel", PLAIN)
    assert "ptr_D" in run("diff", DUMP, other, "--kernel", PLAIN, "--exact", status=1)
    dead = tmp_path / "dead.txt"
    dead.write_text(DUMP.read_text().replace("0352   | 00", "0352   | 01"))
    assert "dead" in run("diff", DUMP, dead, "--kernel", PLAIN)
    assert "stride_ScaleB1" in run("diff", DUMP, dead, "--kernel", PLAIN, "--strict", status=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["diff", DUMP], "second segment: need a file, or argument values with --set"),
        (["diff", DUMP, "--set", "K=1"], "--set: got no --kernel"),
        (["diff", DUMP, DUMP, "--kernel", PLAIN, "--set", "K=1"], "--set: got a second file"),
        (["diff", DUMP, "--kernel", PLAIN, "--set", "K"], "setting: got 'K', need NAME=VALUE with a number"),
        (["diff", DUMP, "--kernel", PLAIN, "--set", "Q=1"], "argument of .*got 'Q'"),
        (["hexdump", DUMP, "--kernel", "no_such_kernel"], "kernel: got 'no_such_kernel'"),
        (["hexdump", DUMP, "--format", "pdf"], "dump format: got 'pdf'"),
        (["map", PLAIN, "-o", "out.png"], "a file that ends in .svg or .html"),
    ],
)
def test_what_is_refused(arguments: list[object], says: str) -> None:
    assert re.search(says, " ".join(run(*arguments, status=2).split()))


def test_a_float_argument() -> None:
    judged = json.loads(run("diff", DUMP, "--kernel", PLAIN, "--set", "alpha=0.5", "--json"))
    (alpha,) = [field for field in judged["fields"] if field["name"] == "alpha"]
    assert (alpha["a"], alpha["b"], alpha["status"]) == (None, 0.5, "unknown")


def test_two_code_objects() -> None:
    text = run("diff", OBJECTS / "two_kernels_v5.co", OBJECTS / "two_kernels_v6.co", "--name", "scale")
    assert "same argument layout" in text
    text = run("diff", OBJECTS / "plain_gfx900.co", OBJECTS / "plain_gfx1100.co", status=1)
    assert "gfx1100" in text
    changes = json.loads(run("diff", OBJECTS / "plain_gfx900.co", OBJECTS / "plain_gfx1100.co", "--json", status=1))
    assert changes["layout_changed"] is False


@pytest.mark.parametrize("form", ["hexdump", "xxd", "c", "python"])
def test_formats(form: str, tmp_path: Path) -> None:
    data = bytes(range(200))
    raw, text = tmp_path / "raw", tmp_path / "text"
    raw.write_bytes(data)
    text.write_text(run("hexdump", raw, "--format", form))
    assert abi.read_dumps(text.read_bytes())[0].data == data
    run("diff", raw, text)


def test_one_of_several_dumps_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"first\n{DUMP.read_text()}\nsecond\n{abi.hexdump(bytes(372))}\n")
    assert re.search(
        r"dumps in .*log: got 1 \(aiter, 372 bytes\), 2 \(aiter", run("hexdump", log, status=2).replace("\n", "")
    )
    run("diff", log, DUMP, "--kernel", PLAIN, "--dump", 1)
    run("diff", log, DUMP, "--kernel", PLAIN, "--dump", 2, status=1)
    run("hexdump", log, "--dump", 3, status=2)


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_map(ending: str, tmp_path: Path) -> None:
    output = tmp_path / f"map.{ending}"
    assert str(output) in run("map", PLAIN, "-o", output, "--args", DUMP, "--against", DUMP).replace("\n", "")
    assert "0x7fab6d200000" in output.read_text()


def test_manifests(tmp_path: Path) -> None:
    shutil.copy(OBJECTS / "plain_gfx900.co", tmp_path / "here.co")
    (tmp_path / "m.csv").write_text("knl_name,co_name\nnothing,here.co\n")
    assert "1 manifests, 1 rows" in run("manifests", tmp_path)
    (tmp_path / "m.csv").write_text("knl_name,co_name\nnothing,gone.co\n")
    report = json.loads(run("manifests", tmp_path, "--json", status=1))
    assert (report["missing"], report["unlisted"]) == ([["m.csv", "gone.co"]], ["here.co"])


def test_inspect_shows_the_schema_and_the_preload() -> None:
    described = json.loads(run("inspect", OBJECTS / "two_kernels_v5.co", "--json"))
    scale = described["kernels"][1]
    assert scale["preload"] == {"dwords": 3, "first": 2}
    assert scale["schema"]["size"] == 280
    assert [field["name"] for field in scale["schema"]["fields"]][:4] == ["out", "in", "n", "factor"]
    assert "need gfx950" in run("inspect", OBJECTS / "plain_gfx900.co", "--target", "gfx950", status=2)
