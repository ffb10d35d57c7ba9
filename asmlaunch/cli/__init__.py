"""The command line: ``asmlaunch inspect | hexdump | diff | audit | verify | sweep | layout | probe``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from asmlaunch.cli import (
    audit,
    bench,
    capture,
    diagnose,
    diff,
    disasm,
    hexdump,
    inspect,
    layout,
    manifests,
    probe,
    report,
    sweep,
    verify,
)
from asmlaunch.cli.map import kernarg_map
from asmlaunch.cli.output import errors
from asmlaunch.devices.base import Finding
from asmlaunch.errors import AsmlaunchError, EmulationError

USAGE_STATUS = 2  # as typer's own usage errors; status 1 says that a comparison failed


def _also(findings: Sequence[Finding]) -> None:
    """What was noticed until an error, a line a kind."""
    kinds = Counter(finding.kind for finding in findings)
    for finding in {finding.kind: finding for finding in reversed(findings)}.values():
        more = kinds[finding.kind] - 1
        errors.print(f"also noticed: {finding}" + (f"; and {more} more" if more else ""), markup=False, highlight=False)


class _Group(TyperGroup):
    """Turns the package's errors into a line on stderr, and what the emulator noticed before into more: a wrong file is
    not a reason for a traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AsmlaunchError as error:
            errors.print(f"[bold red]error:[/] {type(error).__name__}:", end=" ")
            errors.print(str(error), markup=False, highlight=False)
            if isinstance(error, EmulationError):
                _also(error.findings)
            raise typer.Exit(USAGE_STATUS) from error


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""
    Load, launch, emulate and verify AMD GPU kernels that come as code objects (.co files).

    A code object holds machine code and a description of its arguments, but no source. These commands show
    what is inside one (**inspect**), read and compare the argument bytes that a launch passes (**hexdump**,
    **diff**), say what is wrong with them (**audit**), and run a kernel to check its numbers (**verify**) or all of
    a family's (**sweep**), on the CPU when there is no AMD GPU. **diagnose** says why a result is wrong, **probe**
    finds out by experiment what is documented nowhere. **capture** records what another program launches, to look at
    it (**show**) or run it again (**replay**); **report** says what came of a launch that `verify --bundle` has kept.
    """,
)
app.command("inspect")(inspect.inspect)
app.command("disasm", no_args_is_help=True)(disasm.disasm)
app.command("hexdump")(hexdump.hexdump)
app.command("diff")(diff.diff)
app.command("audit")(audit.audit)
app.command("bench")(bench.bench)
app.command("diagnose", no_args_is_help=True)(diagnose.diagnose_command)
app.command("map")(kernarg_map)
app.command("manifests")(manifests.manifests)
app.command("capture", no_args_is_help=True, context_settings={"allow_interspersed_args": False})(capture.capture)
app.command("show")(capture.show)
app.command("bundle", no_args_is_help=True)(capture.bundle)
app.command("replay")(capture.replay)
app.command("report", no_args_is_help=True)(report.report_command)
app.add_typer(verify.app, name="verify")
app.command("sweep", no_args_is_help=True)(sweep.sweep)
app.add_typer(layout.app, name="layout")
app.add_typer(probe.app, name="probe")
