"""The helper functions of this process: native code that compiled kernels call.

A helper is built and compiled the first time a kernel needs it and shared by all kernels of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from llvmlite import ir

from asmlaunch.emulator import jit
from asmlaunch.emulator.build import new_module
from asmlaunch.emulator.state import LANES

VOID = ir.VoidType()
ROW = LANES * 4  # bytes of one VGPR


class Helpers:
    """The helper functions of this process."""

    def __init__(self) -> None:
        self._compiled: dict[str, jit.Compiled] = {}

    def need(self, name: str, build: Callable[[ir.Module, str], None]) -> str:
        """Make sure that the helper ``name`` exists; returns its symbol."""
        symbol = f"asmlaunch_{name}"
        with jit.LOCK:
            if symbol not in self._compiled:
                module = new_module(jit.host().triple, jit.host().layout)
                build(module, symbol)
                self._compiled[symbol] = compiled = jit.Compiled(str(module), 3)
                jit.publish(symbol, compiled.address(symbol))
        return symbol

    def address(self, symbol: str) -> int:
        """Address of a helper that exists."""
        return self._compiled[symbol].address(symbol)


@cache
def helpers() -> Helpers:
    """The one instance."""
    return Helpers()
