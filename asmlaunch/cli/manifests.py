"""``asmlaunch manifests``: AITER's CSV files against the objects beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from asmlaunch import abi
from asmlaunch.cli.output import console, print_json
from asmlaunch.kernels import aiter_folder


def manifests(
    folder: Annotated[Path | None, typer.Argument(help="Folder of objects; the amd-aiter wheel's by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Check the CSV manifests below a folder: files that rows name and are not there, objects that no row names.

    The exit status is 1 when a file is missing or holds another kernel than its row says.
    """
    report = abi.check_manifests(folder or aiter_folder())
    if as_json:
        print_json(report.to_json())
    else:
        console.print(str(report), highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(1 if report.missing or report.misnamed else 0)
