"""Checks of a run: what is wrong with a kernel or its arguments, found while it executes and named.

A check that is off adds nothing to the compiled code. What a check keeps lies in memory of its own, the shadow: which
lanes of a register are defined, who wrote a dword last, which loads are still on their way.
"""

from __future__ import annotations

from collections.abc import Sequence

from asmlaunch.errors import LaunchError

#: The checks, and what each finds.
CHECKS = {
    "bounds": "reads, writes and LDS accesses outside the arrays and the LDS allocation",
    "uninitialised": "values nobody wrote that reach a store, an address or a branch",
    "kernarg": "argument bytes read that the caller never set",
    "registers": "registers beyond the kernel's allocation",
    "alignment": "accesses that are not aligned as the hardware wants them",
    "waits": "values used before an s_waitcnt makes sure that they have arrived",
    "races": "accesses of two waves or workgroups to the same bytes that nothing orders",
    "barriers": "waves of a workgroup that pass different numbers of barriers",
    "numerics": "NaNs and denormals that come out of clean inputs",
}

#: Checks that need code of their own in the compiled kernel.
COMPILED = ("uninitialised", "kernarg", "alignment", "waits", "races", "barriers", "numerics")


def select(names: str | Sequence[str]) -> tuple[str, ...]:
    """The checks that a launch asks for, in the order of ``CHECKS``.

    Args:
        names: "all", "off" (what cannot be switched off stays on, without being asked to report it), or names of
            checks, in a sequence or separated by commas.

    Raises:
        LaunchError: a name that is no check.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    if wanted == ["all"]:
        return tuple(CHECKS)
    if wanted in (["off"], []):
        return ()
    unknown = [name for name in wanted if name not in CHECKS]
    if unknown:
        raise LaunchError("checks", got=", ".join(unknown), need=f"all, off, or some of {', '.join(CHECKS)}")
    return tuple(name for name in CHECKS if name in wanted)
