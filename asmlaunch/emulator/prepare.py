"""Getting a kernel ready to run: decoded and compiled, or loaded from what an earlier process compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator import cache, jit, program
from asmlaunch.emulator.checks.compiler import checked_compiler
from asmlaunch.emulator.checks.plan import Plan, make_plan
from asmlaunch.emulator.compile import compile_blocks
from asmlaunch.emulator.emit.outline import functions
from asmlaunch.emulator.isa.table import Access, find
from asmlaunch.emulator.native.helpers import helpers


@dataclass
class CompiledKernel:
    """Native code of one kernel for one way of stopping.

    Attributes:
        kernel: what it was made from.
        program: its blocks.
        table: addresses of the block functions.
        atomics: whether it has memory atomics, whose order may show in the result.
        plan: the checks compiled in, None without any.
    """

    kernel: KernelInfo
    program: program.Program
    table: NDArray[np.uint64]
    atomics: bool
    code: list[jit.Loaded] = field(repr=False)
    plan: Plan | None = None


def identity(
    kernel: KernelInfo, waits: bool, full_exec: bool, checks: tuple[str, ...], stops: frozenset[int], numerics: str
) -> tuple[object, ...]:
    """All that the compiled code of a kernel depends on."""
    return kernel.fingerprint, waits, full_exec, checks, tuple(sorted(stops)), numerics


def compile_kernel(
    kernel: KernelInfo,
    *,
    waits: bool,
    full_exec: bool,
    checks: tuple[str, ...] = (),
    stops: frozenset[int] = frozenset(),
    numerics: str = "exact",
) -> CompiledKernel:
    """Decode, check and compile a kernel, or load it from the cache on disk.

    Args:
        waits: let waves stop at every ``s_waitcnt``.
        full_exec: every wave starts with all 64 lanes on.
        checks: names of the checks to compile in (``emulator.checks.COMPILED``).
        stops: addresses before which a wave must be able to stop too.
        numerics: the model of matrix arithmetic (``isa.numerics``).

    Raises:
        CodeObjectError: damaged machine code.
        UnsupportedInstructionError: an instruction, modifier or mode that the emulator does not define; names all of
        them.
    """
    inputs = identity(kernel, waits, full_exec, checks, stops, numerics)
    entry = cache.load("kernel", inputs)
    if entry is None or not all(map(helpers().load, entry["needs"])):
        entry = _compile(kernel, waits, full_exec, checks, stops, numerics)
        cache.store("kernel", inputs, entry)
    parsed = program.from_cache(kernel, entry["program"], numerics)
    code = _load(entry)
    table = np.array([code[-1].address(f"block{block.index}") for block in parsed.blocks], np.uint64)
    plan = make_plan(parsed, checks) if checks else None
    return CompiledKernel(kernel, parsed, table, entry["atomics"], code, plan)


def _load(entry: dict[str, Any]) -> list[jit.Loaded]:
    """The operations of a checked kernel, and last the blocks, in memory.

    Other kernels have operations of the same names, and their code goes when they do: nobody may publish theirs before
    these blocks are linked to these operations.
    """
    with jit.LOCK:
        loaded = []
        if operations := entry["operations"]:
            loaded.append(jit.Loaded(operations["object"]))
            for name in operations["names"]:
                jit.publish(name, loaded[0].address(name))
        return [*loaded, jit.Loaded(entry["object"])]


def _compile(
    kernel: KernelInfo, waits: bool, full_exec: bool, checks: tuple[str, ...], stops: frozenset[int], numerics: str
) -> dict[str, Any]:
    with _no_collection():
        parsed = program.build(kernel, waits=waits, full_exec=full_exec, stops=stops, numerics=numerics)
        operations = None
        with jit.LOCK, helpers().noting() as needs:
            if not checks:
                text = compile_blocks(parsed)
            else:
                with functions() as made:
                    text = compile_blocks(parsed, checked_compiler(parsed, checks))
                operations = {"object": jit.compile_object(made.text(), 2), "names": made.names}
        definitions = [find(one.mnemonic) for one in parsed.instructions()]
        return {
            "program": program.to_cache(parsed),
            "atomics": any(isinstance(one, Access) and one.kind == "atomic" for one in definitions),
            # Blocks spend their time in helpers and operations: compiled without optimisation they run as fast.
            "object": jit.compile_object(text, 0),
            "operations": operations,
            "needs": list(needs),
        }


@contextmanager
def _no_collection() -> Iterator[None]:
    """A compilation makes a million objects and no garbage: collecting costs a tenth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
