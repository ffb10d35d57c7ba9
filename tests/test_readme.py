"""The examples of README.md and docs/ do what they say: the Python runs, and prints what stands below it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("document", "examples"), [("README.md", 2), ("docs/torch.md", 1)])
def test_the_python_examples_print_what_is_shown(
    document: str,
    examples: int,
    f4gemm_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert len(found) == examples
    monkeypatch.chdir(f4gemm_folder)
    names: dict[str, object] = {}
    for code, shown in found:
        exec(compile(code, document, "exec"), names)
        assert capsys.readouterr().out.rstrip() == shown.rstrip()
