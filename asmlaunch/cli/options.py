"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of .co files. Default: $ASMLAUNCH_KERNEL_PATH, else the amd-aiter wheel."),
]
Device = Annotated[
    str | None, typer.Option(help="emulator, hip or hip:N. Default: a GPU that can run it, else emulator.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random operands.")]
