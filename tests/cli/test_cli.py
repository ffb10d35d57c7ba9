"""The commands as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch import codeobject
from asmlaunch.cli import app
from asmlaunch.kernels import PATH_VARIABLE

KERNEL = "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128"

# Lines that were printed by another program; the rest of the segment was left out.
PUBLIC_DUMP = """
Offset | 00 01 02 03 04 05 06 07 | 08 09 0A 0B 0C 0D 0E 0F
-------|-------------------------|-------------------------
0000   | 00 00 20 6d ab 7f 00 00 | 00 00 00 00 00 00 00 00
0016   | 00 00 00 00 00 00 00 00 | 00 00 00 00 00 00 00 00
[...]
0336   | 80 00 00 00 00 00 00 00 | 00 00 00 00 00 00 00 00
0352   | 00 00 00 00 00 00 00 00 | 00 00 00 00 00 00 00 00
0368   | 00 00 00 00
"""


@pytest.fixture
def kernel(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / f"{KERNEL}.co"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.txt"
    path.write_text(PUBLIC_DUMP)
    return path


def run(*arguments: object, status: int = 0, stdin: str | bytes | None = None) -> str:
    """Run the command line, check the exit status and give back both outputs."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == status, result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_help_names_every_command() -> None:
    text = run("--help")
    assert all(command in text for command in ("inspect", "hexdump", "diff", "verify"))
    assert "a4w4" in run("verify", "--help")


def test_inspect(kernel: Path) -> None:
    text = run("inspect", kernel)
    assert "target gfx950, code object v6" in text
    assert "163840" in text
    assert "ScaleB" in text
    assert "pad " not in text.split("padding left out")[1]


def test_inspect_as_json(kernel: Path) -> None:
    described = json.loads(run("inspect", kernel, "--json"))
    (only,) = described["kernels"]
    assert described["target"] == "gfx950"
    assert (only["family"], only["kernarg_size"], only["lds_size"]) == ("f4gemm", 384, 163840)
    assert only["arguments"][0] | {"type": None} == {
        "name": "D",
        "offset": 0,
        "size": 8,
        "kind": "global_buffer",
        "pointer": True,
        "hidden": False,
        "address_space": "global",
        "access": "read_write",
        "type": None,
    }
    assert only["descriptor"]["user_sgpr_count"] == 2


def test_a_wrong_file_is_one_line_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "x.co").write_text("hello")
    assert "error: CodeObjectError: not an ELF file" in run("inspect", tmp_path / "x.co", status=2)


def test_hexdump_without_and_with_the_kernel(dump: Path, kernel: Path) -> None:
    assert "0336   | 80 00 00 00" in run("hexdump", dump)
    text = run("hexdump", dump, "--kernel", kernel)
    row = next(line for line in text.splitlines() if "stride_ScaleB0" in line)
    assert "336" in row
    assert "128" in row
    assert "?" in next(line for line in text.splitlines() if "stride_ScaleA0" in line)


def test_hexdump_of_raw_bytes_from_standard_input() -> None:
    assert "0000   | 01 00 00 00" in run("hexdump", "-", stdin=b"\x01\x00\x00\x00")


def test_hexdump_of_argument_values(tmp_path: Path, kernel: Path) -> None:
    values = {"D": "0x1000", "A": "0x2000", "B": 3, "ScaleA": 4, "ScaleB": 5, "M": 300, "N": 2048, "K": 1024}
    strides = dict.fromkeys(("stride_C0", "stride_A0", "stride_B0", "stride_ScaleA0", "stride_ScaleB0"), 7)
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values | strides))
    assert "0000   | 00 10 00 00 00 00 00 00" in run("hexdump", file, "--kernel", kernel)
    assert "name the kernel with --kernel" in run("hexdump", file, status=2)
    file.write_text(json.dumps(values | strides | {"M": "many"}))
    assert "argument M" in run("hexdump", file, "--kernel", kernel, status=2)
    file.write_text("{")
    assert "is not JSON" in run("hexdump", file, "--kernel", kernel, status=2)


def test_hexdump_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot read" in run("hexdump", tmp_path / "nothing", status=2)


def test_diff_names_the_field(dump: Path, kernel: Path, tmp_path: Path) -> None:
    assert "5 of 5 known fields are equal" in run("diff", dump, dump, "--kernel", kernel)
    other = tmp_path / "other.txt"
    other.write_text(PUBLIC_DUMP.replace("0336   | 80", "0336   | 40"))
    text = run("diff", dump, other, "--kernel", kernel, status=1)
    assert "stride_ScaleB0" in text
    assert "128" in text
    assert "64" in text
    judged = json.loads(run("diff", dump, other, "--kernel", kernel, "--json", status=1))
    assert [field["name"] for field in judged["fields"] if field["same"] is False] == ["stride_ScaleB0"]


def test_diff_without_a_kernel_compares_words(dump: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(PUBLIC_DUMP.replace("0336   | 80", "0336   | 40"))
    assert "word 0x150" in run("diff", dump, other, status=1)
    short = tmp_path / "short"
    short.write_bytes(bytes(6))
    run("diff", short, short)


def test_several_kernels_need_a_name(kernel: Path, dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    object_ = codeobject.read(kernel)
    (info,) = object_.kernels.values()
    two = type("Two", (), {"kernels": {"one": info, "two": info}})
    monkeypatch.setattr(codeobject, "read", lambda _: two)
    assert "holds 2 kernels: need --name, one of one, two" in run("hexdump", dump, "--kernel", kernel, status=2)
    assert "stride_ScaleB0" in run("hexdump", dump, "--kernel", kernel, "--name", "two")


def test_verify_one_kernel(kernel: Path) -> None:
    text = run("verify", "a4w4", "--kernel", "BpreShuffle_32x128")
    assert "32x128x512" in text
    assert "64x256x256" in text
    assert "2 of 2 runs passed, 20,480 elements compared" in text


def test_verify_as_json_in_a_folder_of_ones_own(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(kernel, tmp_path)
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    sizes = ("-m", 40, "-n", 160, "-k", 384, "--seed", 3)
    (row,) = json.loads(run("verify", "a4w4", "--kernel", "all", *sizes, "--json"))
    wanted = {"kernel", "m", "n", "k", "split_k", "seed", "equal_fraction", "max_abs_error", "max_rel_error"}
    assert wanted | {"norm_error", "passed", "seconds"} <= set(row)
    assert (row["m"], row["n"], row["k"], row["split_k"], row["seed"], row["passed"]) == (40, 160, 384, 0, 3, True)
    assert row["device"] == "emulator"


@pytest.mark.parametrize(("sizes", "label"), [((), "128x512x1024/2"), (("-k", 1792), "128x512x1792/7")])
def test_verify_split_k(sizes: tuple[object, ...], label: str) -> None:
    """An eighth of K = 1792 is not a multiple of 256, so seven workgroups take all of it."""
    split = 3 if sizes else 1
    text = run("verify", "a4w4", "--kernel", "BpreShuffle_128x512", "--split-k", split, *sizes)
    assert label in text


def test_an_error_comes_with_what_was_noticed_before(aiter_kernels: Path) -> None:
    """The atomics of this kernel's split K take addresses from registers that were loaded over (docs/findings.md)."""
    problem = ("--kernel", "x32", "--problem", "splits=1", "--no-check")
    text = run("verify", "fp8_block_scale", "--kernels", aiter_kernels, *problem, status=2)
    assert "error: MemoryFaultError" in text
    assert "also noticed: races: kernel f8_block_scale_mi350_x32" in text
    assert "also noticed: fault: kernel f8_block_scale_mi350_x32" in text


def test_verify_fails_when_a_result_is_wrong(kernel: Path, tmp_path: Path) -> None:
    """One bit of the machine code changed, so that a matrix instruction reads the wrong register."""
    data = bytearray(kernel.read_bytes())
    (info,) = codeobject.read(kernel).kernels.values()
    at = data.index(info.code)
    # V_MFMA_SCALE_F32_16X16X128_F8F6F4 ends with D3AD.... and a word whose low 9 bits are its first source register.
    mfma = next(i for i in range(at, at + len(info.code), 4) if data[i + 2 : i + 4] == b"\xad\xd3")
    data[mfma + 4] ^= 0x10
    (tmp_path / kernel.name).write_bytes(data)
    text = run("verify", "a4w4", "--kernels", tmp_path, "--kernel", KERNEL, "-k", 512, status=1)
    assert "FAILED" in text
    assert "elements beyond the bound, worst at" in text
    assert "0 of 1 runs passed" in text


def test_verify_without_kernels(tmp_path: Path) -> None:
    assert "no file matches f4gemm_*.co" in run("verify", "a4w4", "--kernels", tmp_path, "--kernel", "all", status=2)
