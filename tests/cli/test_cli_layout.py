"""``asmlaunch layout`` as a user runs it."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

from asmlaunch import layouts
from asmlaunch.cli.layout import app
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import files

SCALES = np.random.default_rng(0).integers(100, 140, (70, 20), dtype=np.uint8)


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.output


def test_list():
    text = run("list")
    assert all(name in text for name in layouts.names())
    assert [entry["name"] for entry in json.loads(run("list", "--json"))] == layouts.names()


def test_show(tmp_path):
    text = run("show", "scales_32x8")
    assert "t c k l kh rh" in text
    assert "  31 |  63 127 191 255  61 125 189 253"[:6] in text
    assert json.loads(run("show", "hipblaslt_gfx950", "--json"))["name"] == "scales_32x8"
    run("show", "scales_32x8", "--picture", tmp_path / "a.svg", "--shape", "32x16")
    run("show", "scales_32x8", "--picture", tmp_path / "a.png")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ending", ["npy", "safetensors", "bin"])
def test_convert_there_and_back(tmp_path, ending):
    plain, tiled, back = (str(tmp_path / f"{name}.{ending}") for name in ("plain", "tiled", "back"))
    files.save(plain, SCALES)
    run("convert", plain, tiled, "--to", "scales_32x8", "--shape", "70x20")
    assert np.array_equal(files.load(tiled, shape=(96, 24)).array, layouts.SCALES_32X8.apply(SCALES))
    text = run("convert", tiled, back, "--from", "scales_32x8", "--to", "row_major", "--shape", "70,20")
    assert "70 x 20 in row_major" in text
    assert np.array_equal(files.load(back, shape=(70, 20)).array, SCALES)


def test_identify(tmp_path):
    values, good, bad = (str(tmp_path / name) for name in ("values.npy", "good.bin", "bad.npy"))
    np.save(values, SCALES)
    files.save(good, layouts.tile_scales(SCALES, pad_value=0x7F))
    np.save(bad, layouts.tile_scales(SCALES - 1))
    assert "scales_32x8, pad 0x7f" in run("identify", good, values)
    assert json.loads(run("identify", good, values, "--json"))["exact"] is True
    assert "one low" in run("identify", bad, values, status=1)


def test_identify_against_bfloat16_values(tmp_path):
    x = np.random.default_rng(1).standard_normal((64, 256)).astype(ml_dtypes.bfloat16)
    values, buffer = str(tmp_path / "x.safetensors"), str(tmp_path / "s.bin")
    files.save(values, x.view(np.uint16), "BF16")
    files.save(buffer, layouts.tile_scales(layouts.quantize_mxfp4(x, "RoundDown")[1]))
    assert "RoundDown" in run("identify", buffer, values + ":tensor")


def test_compare():
    assert "same permutation" in run("compare", "scales_32x8", "triton_gfx950")
    assert "element (0, 1)" in run("compare", "scales_32x8", "nvidia_128x4", status=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "scales_33x8"), "scales_32x8"),
        (("show", "scales_32x8", "--picture", "x.gif"), "svg"),
        (("convert", "{dir}/none.npy", "{dir}/x", "--to", "scales_32x8"), "No such file"),
        (("convert", "{dir}/junk.npy", "{dir}/x", "--to", "scales_32x8"), "junk.npy"),
        (("convert", "{dir}/junk.safetensors", "{dir}/x", "--to", "scales_32x8"), "safetensors file"),
        (("convert", "{dir}/short.safetensors", "{dir}/x", "--to", "scales_32x8"), "safetensors file"),
        (("convert", "{dir}/two.safetensors", "{dir}/x", "--to", "scales_32x8"), "one of a, b"),
        (("convert", "{dir}/two.safetensors:b", "{dir}/x", "--to", "scales_32x8"), "F4"),
        (("convert", "{dir}/junk.bin", "{dir}/x", "--to", "scales_32x8", "--shape", "4x4"), "16"),
        (("convert", "{dir}/junk.bin", "{dir}/x", "--to", "scales_32x8", "--shape", "4by4"), "300x52"),
        (("convert", "{dir}/junk.bin", "{dir}/x", "--to", "scales_32x8", "--dtype", "fp3"), "numpy dtype"),
        (("convert", "{dir}/junk.bin", "{dir}/x", "--to", "scales_32x8", "--dtype", "uint16"), "whole elements"),
        (("convert", "{dir}/junk.bin", "{dir}/x", "--to", "scales_32x8"), "rank 1"),
        (("convert", "{dir}/ok.npy", "{dir}/no/x.npy", "--to", "row_major"), "can be written"),
    ],
)
def test_bad_input(tmp_path, arguments, message):
    for name in ("junk.npy", "junk.bin"):
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "junk.safetensors").write_bytes(b"\x05\0\0\0\0\0\0\0[1,2]")
    (tmp_path / "short.safetensors").write_bytes(b"\xff" * 12)
    entry = '{"dtype": "F4", "shape": [1], "data_offsets": [0, 1]}'
    header = f'{{"a": {entry}, "b": {entry}}}'.encode()
    (tmp_path / "two.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"x")
    np.save(tmp_path / "ok.npy", SCALES)
    with pytest.raises(LayoutError, match=message):
        run(*(argument.replace("{dir}", str(tmp_path)) for argument in arguments))
