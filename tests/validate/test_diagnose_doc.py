"""docs/diagnose.md: its sessions run, and say what is quoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sessions import quoted, require

DOCUMENT = Path(__file__).parents[2] / "docs" / "diagnose.md"


@pytest.mark.usefixtures("aiter_kernels")
def test_the_sessions() -> None:
    names: dict[str, Any] = {}
    blocks = DOCUMENT.read_text().split("```python\n")[1:]
    assert len(blocks) == 7
    for block in blocks:
        code, _, rest = block.partition("```")
        require(code, quoted(rest), names)
