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


@cache
def _target() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def _machine() -> Any:
    """A target machine of its own for each module: an engine takes it over."""
    import llvmlite.binding as llvm

    return _target().create_target_machine(
        opt=3, cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), jit=True
    )


# Engines own the code they compiled, and must live as long as the functions made of it.
_engines: list[Any] = []


def compile_ir(text: str, name: str, arguments: Sequence[Any]) -> Callable[..., None]:
    """The function ``name`` of a module in IR ``text`` as a ctypes function returning nothing; it releases the GIL."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.verify()
    machine = _machine()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    _engines.append(engine)
    return ctypes.CFUNCTYPE(None, *arguments)(engine.get_function_address(name))


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
