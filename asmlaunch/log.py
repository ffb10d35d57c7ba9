"""``ASMLAUNCH_LOG``: one line on standard error for every launch.

``launch`` says what was launched where, ``args`` adds the arguments by name, ``bytes`` adds the packed segment as hex.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asmlaunch.abi.diff import show
from asmlaunch.errors import ArgumentError

if TYPE_CHECKING:
    from asmlaunch.abi import KernargSchema

VARIABLE = "ASMLAUNCH_LOG"
_LEVELS = ("launch", "args", "bytes")


def log_launch(name: str, device: str, shape: Mapping[str, Any], schema: KernargSchema, kernarg: bytes) -> None:
    """Print the line for a launch, if the environment asks for one.

    Raises:
        ArgumentError: a level that does not exist.
    """
    level = os.environ.get(VARIABLE)
    if not level:
        return
    if level not in _LEVELS:
        raise ArgumentError(f"environment variable {VARIABLE}", got=repr(level), need=f"one of {', '.join(_LEVELS)}")
    line = [f"asmlaunch: {name} on {device}", *(f"{what}={value}" for what, value in shape.items())]
    if level != "launch":
        line += [f"{name}={show(schema[name], value)}" for name, value in schema.unpack(kernarg).items()]
    if level == "bytes":
        line.append(f"bytes={kernarg.hex()}")
    print(*line, file=sys.stderr)
