"""The tutorial in docs/checks.md: its code runs, and the tool says what is quoted."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from asmlaunch.errors import AsmlaunchError

DOCUMENT = Path(__file__).parents[2] / "docs" / "checks.md"


def steps() -> list[tuple[str, str]]:
    """The code blocks of the section on the four facts, each with the quotation that follows it, as one line."""
    section = DOCUMENT.read_text().partition("## Four facts")[2].partition("\n## ")[0]
    found = []
    for part in section.split("```python\n")[1:]:
        code, _, rest = part.partition("```")
        quoted = [line.removeprefix("> ") for line in rest.splitlines() if line.startswith("> ")]
        found.append((code, " ".join(quoted)))
    return found


@pytest.mark.usefixtures("f4gemm_folder")
def test_the_four_facts() -> None:
    names: dict[str, Any] = {}
    setup, *facts = steps()
    exec(setup[0], names)
    assert len(facts) == 4
    for code, quoted in facts:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                exec(code, names)
            except AsmlaunchError as error:
                print(f"{type(error).__name__}: {error}")
        pattern = re.escape(quoted).replace(re.escape("[...]"), ".*")
        assert re.search(pattern, " ".join(said.getvalue().split())), said.getvalue()
