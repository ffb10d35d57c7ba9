"""A few of the mutated bundles that ``bundles.py`` runs many of."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from fuzz import bundles


def test_mutated_bundles_raise_only_the_packages_errors() -> None:
    outcomes = Counter(bundles.campaign(400, seed=3))
    assert sum(outcomes.values()) == 400
    assert set(outcomes) <= {"accepted", "DumpError", "CodeObjectError", "KernelNotFoundError", "TargetError"}
    assert outcomes["accepted"] > 10


def test_the_watch_sees_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def writes(data: bytes) -> None:
        (tmp_path / "escaped").write_bytes(data)

    def removes(_: bytes) -> None:
        os.remove(tmp_path / "escaped")

    for use in (writes, removes):
        monkeypatch.setattr(bundles, "attempt", lambda _, data, use=use: use(data) or "accepted")
        with pytest.raises(AssertionError, match="escaped"):
            list(bundles.campaign(1, seed=1))
