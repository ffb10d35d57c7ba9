"""The tutorial in docs/checks.md: its code runs, and the tool says what is quoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sessions import quoted, require

DOCUMENT = Path(__file__).parents[2] / "docs" / "checks.md"


def steps() -> list[tuple[str, str]]:
    """The code blocks of the section on the four facts, each with the quotation that follows it, as one line."""
    section = DOCUMENT.read_text().partition("## Four facts")[2].partition("\n## ")[0]
    found = []
    for part in section.split("```python\n")[1:]:
        code, _, rest = part.partition("```")
        found.append((code, quoted(rest)))
    return found


@pytest.mark.usefixtures("f4gemm_folder")
def test_the_four_facts() -> None:
    names: dict[str, Any] = {}
    setup, *facts = steps()
    exec(setup[0], names)
    assert len(facts) == 4
    for code, says in facts:
        require(code, says, names)
