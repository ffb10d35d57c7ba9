"""docs/diagnose.md: its sessions run, and say what is quoted."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from asmlaunch.errors import AsmlaunchError

DOCUMENT = Path(__file__).parents[2] / "docs" / "diagnose.md"


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.usefixtures("aiter_kernels")
def test_the_sessions() -> None:
    names: dict[str, Any] = {}
    blocks = DOCUMENT.read_text().split("```python\n")[1:]
    assert len(blocks) == 7
    for block in blocks:
        code, _, rest = block.partition("```")
        quoted = words(" ".join(line.removeprefix(">") for line in rest.splitlines() if line.startswith(">")))
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                exec(code, names)
            except AsmlaunchError as error:
                print(f"{type(error).__name__}: {error}")
        pattern = re.escape(quoted).replace(re.escape("[...]"), ".*")
        assert re.search(pattern, words(said.getvalue())), said.getvalue()
