"""The README's examples do what it says: its Python runs, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_python_examples_print_what_is_shown(
    f4gemm_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert len(examples) == 2
    monkeypatch.chdir(f4gemm_folder)
    names: dict[str, object] = {}
    for code, shown in examples:
        exec(compile(code, str(README), "exec"), names)
        assert capsys.readouterr().out.rstrip() == shown.rstrip()
