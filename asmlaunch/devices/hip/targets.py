"""Whether a device can run an object of a target id.

Source: LLVM's "User Guide for AMDGPU Backend", sections "Target ID" and "Generic processors".
"""

from __future__ import annotations

from asmlaunch.codeobject import TargetId

#: Generic processor -> the processors that run its code.
GENERIC = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11-generic": (
        "gfx1100",
        "gfx1101",
        "gfx1102",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    ),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}


def runs_on(wanted: TargetId, device: TargetId) -> bool:
    """Whether code built for ``wanted`` runs on ``device``: same processor (or a generic one that covers it), and
    every feature that the code sets is set so on the device."""
    processors = GENERIC.get(wanted.processor, (wanted.processor,))
    settings = ((wanted.xnack, device.xnack), (wanted.sramecc, device.sramecc))
    return device.processor in processors and all(
        need in ("any", "unsupported") or need == have for need, have in settings
    )
