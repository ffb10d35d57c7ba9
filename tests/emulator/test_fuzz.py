"""A short run of ``tests/corpus/emulator_fuzz.py``, alone in a process: an access outside the arrays would end it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "corpus" / "emulator_fuzz.py"


@pytest.mark.parametrize("options", [["60", "3"], ["18", "4", "--checks"]], ids=["bounds", "all checks"])
def test_mutated_code_and_arguments_end_well(options: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    ends = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", done.stdout.partition(": ")[2])}
    assert sum(ends.values()) == int(options[0])
    assert ends["result"] > 0
