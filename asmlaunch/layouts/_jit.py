"""Compile LLVM IR text for the host with llvmlite, where that is installed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

THREADED = 1 << 18
"""Units of work (elements or bytes) from which on threads share it."""


@cache
def available() -> bool:
    """True if llvmlite can be imported (the extra ``emulator`` installs it)."""
    try:
        import llvmlite.binding  # noqa: F401
    except ImportError:
        return False
    return True


# Machine code must live as long as the functions made of it.
_loaded: list[Any] = []


def compile_ir(text: str, name: str, arguments: Sequence[Any]) -> Callable[..., None]:
    """The function ``name`` of a module in IR ``text`` as a ctypes function returning nothing; it releases the GIL."""
    from asmlaunch.emulator import jit

    code = jit.Loaded(jit.compile_object(text, 3))
    _loaded.append(code)
    return ctypes.CFUNCTYPE(None, *arguments)(code.address(name))


@cache
def _pool(processes: int) -> ThreadPoolExecutor:
    # Keyed by the process: threads do not survive a fork.
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="asmlaunch-layouts")


def share(count: int, work: int, run: Callable[[int, int], None]) -> None:
    """Call ``run(start, stop)`` so that ``range(count)`` is covered, in several threads if ``work`` is worth it."""
    parts = min(os.cpu_count() or 1, count) if work >= THREADED else 1
    if parts <= 1:
        run(0, count)
        return
    cuts = [count * i // parts for i in range(parts + 1)]
    for future in [_pool(os.getpid()).submit(run, a, b) for a, b in pairwise(cuts)]:
        future.result()
