"""Where the commands print: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

console = Console()
errors = Console(stderr=True)


def print_json(data: Any) -> None:
    """One JSON document on standard output, for other programs: no colour, no wrapping."""
    print(json.dumps(data, indent=2))
