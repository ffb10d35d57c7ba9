"""One kernel of what ``tests/corpus/probes.py`` does with all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from corpus import probes


def test_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "probes.json"
    monkeypatch.setattr(sys, "argv", ["probes.py", "_BpreShuffle_32x128", "--json", str(file)])
    assert probes.main() == 0
    text = capsys.readouterr().out
    assert "| BpreShuffle_32x128 | ScaleA: scales_32x8 | ScaleB: scales_32x8 | B: weights_16x16 |" in text
    assert "| BpreShuffle_32x128 | m: 1 from 1 | n: 32 from 32 | k: 8 from 8 | nothing |" in text
    (row,) = json.loads(file.read_text())
    assert row["layout_seconds"] < 60
    assert "alpha" in row["args"]["dead"]
