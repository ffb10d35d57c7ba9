"""The helper functions of this process: native code that compiled kernels call.

A helper is built and compiled the first time a kernel needs it and shared by all kernels of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from asmlaunch.emulator import cache, jit
from asmlaunch.emulator.build import new_module
from asmlaunch.emulator.state import LANES

VOID = ir.VoidType()
ROW = LANES * 4  # bytes of one VGPR


class Helpers:
    """The helper functions of this process."""

    def __init__(self) -> None:
        self._loaded: dict[str, jit.Loaded] = {}
        self._noted: list[dict[str, None]] = []  # for each thing being built, the helpers it needs, in order

    def need(self, name: str, build: Callable[[ir.Module, str], None]) -> str:
        """Make sure that the helper ``name`` exists; returns its symbol."""
        symbol = f"asmlaunch_{name}"
        with jit.LOCK:
            if self._noted:
                self._noted[-1][symbol] = None
            if not self.load(symbol):
                module = new_module(jit.host().triple, jit.host().layout)
                with self.noting() as needs:
                    build(module, symbol)
                entry = {"object": jit.compile_object(str(module), 3), "needs": list(needs)}
                cache.store("helper", (symbol,), entry)
                self._publish(symbol, entry)
        return symbol

    @contextmanager
    def noting(self) -> Iterator[dict[str, None]]:
        """Notes the symbols of the helpers that are needed inside the ``with``."""
        self._noted.append({})
        try:
            yield self._noted[-1]
        finally:
            self._noted.pop()

    def load(self, symbol: str) -> bool:
        """Whether the helper exists in this process, if need be loaded from disk with all it calls."""
        with jit.LOCK:
            if symbol in self._loaded:
                return True
            entry = cache.load("helper", (symbol,))
            if entry is None or not all(map(self.load, entry["needs"])):
                return False
            self._publish(symbol, entry)
            return True

    def _publish(self, symbol: str, entry: dict[str, Any]) -> None:
        self._loaded[symbol] = code = jit.Loaded(entry["object"])
        jit.publish(symbol, code.address(symbol))

    def address(self, symbol: str) -> int:
        """Address of a helper that exists."""
        return self._loaded[symbol].address(symbol)


_THE_ONE = Helpers()


def helpers() -> Helpers:
    """The one instance."""
    return _THE_ONE
