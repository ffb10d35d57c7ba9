"""CSV manifests."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from asmlaunch.abi.manifests import check_manifests, read_manifest
from asmlaunch.errors import CodeObjectError

PLAIN = Path(__file__).parents[2] / "fixtures" / "codeobject" / "plain_gfx900.co"


def test_both_spellings_and_comments(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    first.write_text("\ufefftile_m,knl_name,co_name\n# note\n128, k1 ,k1.co\n\n", encoding="utf-8")
    second.write_text("knl_name,knl_file,ps\nk2,k2.co,1\n")
    (row,) = read_manifest(first).rows
    assert (row.kernel, row.file, row.attributes, row.line) == ("k1", "k1.co", {"tile_m": "128"}, 3)
    (row,) = read_manifest(second).rows
    assert (row.kernel, row.file, row.attributes) == ("k2", "k2.co", {"ps": "1"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "columns of m.csv: got a, b, need knl_name"),
        ("knl_name,co_name\nk\n", "line 2: got 1 cells, need 2"),
    ],
)
def test_manifests_that_cannot_be_read(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(CodeObjectError, match=says):
        read_manifest(path)
    with pytest.raises(CodeObjectError, match="cannot read"):
        read_manifest(tmp_path / "absent.csv")


def test_report(tmp_path: Path) -> None:
    for name in ("listed.co", "other.co", "sub/deep.co"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PLAIN, tmp_path / name)
    (tmp_path / "m.csv").write_text(
        "knl_name,co_name\nnothing,listed.co\nnothing,listed.co\nwrong,deep.co\nnothing,gone.co\n"
    )
    (tmp_path / "empty.csv").write_text("# nothing\n")
    report = check_manifests(tmp_path)
    assert report.missing == (("m.csv", "gone.co"),)
    assert report.unlisted == ("other.co",)
    assert report.repeated == ("listed.co",)
    assert report.misnamed == (("m.csv", "deep.co"),)
    assert json.loads(json.dumps(report.to_json()))["missing"] == [["m.csv", "gone.co"]]
    assert "2 manifests, 4 rows" in str(report)
    assert "gone.co is not there" in str(report)
    assert check_manifests(tmp_path, open_objects=False).misnamed == ()


def test_the_wheels_manifests(aiter_kernels: Path) -> None:
    report = check_manifests(aiter_kernels)
    assert len(report.manifests) == 75
    assert report.misnamed == ()
    listed = sum(len(manifest.rows) for manifest in report.manifests)
    assert len(report.unlisted) + listed - len(report.missing) >= 2501
    assert any(name.startswith("gfx942/layer_norm") for name in report.unlisted)
