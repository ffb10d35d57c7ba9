"""docs/findings.md: every command in it is one, and the quickest show what they are said to."""

from __future__ import annotations

import itertools
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import asmlaunch
from asmlaunch.cli import app
from asmlaunch.kernels import PATH_VARIABLE
from asmlaunch.validate.problems import get

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
COMMANDS = re.findall(r"^asmlaunch verify (.*)$", PAGE, re.M) + re.findall(r"\| `(.*?)` \|$", PAGE, re.M)


@pytest.fixture(autouse=True)
def kernels(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(aiter_kernels))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_kernels_and_sizes_there_are(command: str) -> None:
    family, *options = shlex.split(command)
    given = dict(itertools.pairwise(options))
    definition = get(family)
    objects = [path for path in definition.objects() if given.get("--kernel", "") in path.as_posix()]
    kernel = asmlaunch.load(objects[0], device="emulator").kernel
    first = definition.cases(definition.parameters(kernel.info))[0]
    assert first.changed(given.get("--problem", "")) != first or {"--schedule", "--checks"} & given.keys()


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 15


def test_a_layer_norm_that_subtracts_no_mean() -> None:
    result = CliRunner().invoke(app, ["verify", "layer_norm", "--problem", "mean=200", "--checks", "off"])
    assert result.exit_code == 0, result.output


def test_waves_that_do_not_advance_together() -> None:
    command = ["verify", "layer_norm", "--problem", "m=2", "--schedule", "barrier", "--checks", "races"]
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, command)
    assert result.exit_code == 1
    assert "races: kernel layer_norm_kernel_func" in result.output
    assert "with nothing to order the two" in result.output
