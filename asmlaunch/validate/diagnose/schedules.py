"""Results that depend on the order in which waves run: the same launch under several schedules of the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from asmlaunch.validate.diagnose.emulated import Emulator, Launch, Relaunch

#: Options of the emulator, and the order in words.
ORDERS: Mapping[str, Mapping[str, Any]] = {
    "each wave runs to its next barrier, workgroups one after the other": {"schedule": "barrier", "threads": 1},
    "the waves of a workgroup advance together": {"schedule": "lockstep", "threads": 1},
    "four workgroups are alive at once": {"schedule": "lockstep", "resident": 4, "threads": 1},
}


def hypotheses(emulator: Emulator) -> Iterator[Relaunch]:
    """One an order that gives another result than the launch as it should be."""
    for words, options in ORDERS.items():
        launch = replace(emulator.right, options=options)
        results = emulator.run(launch)
        if results is None or _same(results, emulator.results):
            continue
        races = [text for text in emulator.findings("races") if text.startswith("races")]
        text = f"the result depends on the order of waves: this is the one when {words}" + (
            f"; {races[0]}" if races else ""
        )
        needed = ", ".join(f"{name}={value!r}" for name, value in (emulator.right.options or {}).items())
        fix = f"kernel.launch(..., {needed})" if needed else ""
        yield Relaunch("race", "schedule", text, fix, 1, partial(_ordered, options=options))


def _ordered(launch: Launch, options: Mapping[str, Any]) -> Launch:
    return replace(launch, options=options)


def _same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
