"""Sessions in documents: code runs, and what it prints is what is quoted after it."""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any

from asmlaunch.errors import AsmlaunchError


def words(text: str) -> str:
    """Text on one line."""
    return " ".join(text.split())


def quoted(text: str) -> str:
    """What the lines of ``text`` that begin with ``>`` say."""
    return words(" ".join(line.removeprefix(">") for line in text.splitlines() if line.startswith(">")))


def require(code: str, says: str, names: dict[str, Any]) -> None:
    """Run ``code`` among ``names``; what it prints, or the error it ends with, must have ``says`` in it, where
    ``[...]`` is anything.
    """
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            exec(code, names)
        except AsmlaunchError as error:
            print(f"{type(error).__name__}: {error}")
    pattern = re.escape(says).replace(re.escape("[...]"), ".*")
    assert re.search(pattern, words(said.getvalue())), said.getvalue()
