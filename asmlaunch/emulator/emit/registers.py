"""The registers of a wave within one block: SSA values over the register file in memory."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from llvmlite import ir

from asmlaunch.emulator.build import Code
from asmlaunch.emulator.lower import I1, I32, LANES_I32, Cell, lanes
from asmlaunch.emulator.native.helpers import ROW
from asmlaunch.emulator.state import WAVE, offset

_FIRST = {"s": offset(WAVE, "sgpr"), "v": offset(WAVE, "vgpr"), "a": offset(WAVE, "vgpr") + 256 * ROW}

#: Bytes from one register of a file to the next.
SIZE = {"s": 4, "v": ROW, "a": ROW}


class Key(NamedTuple):
    """One register: file "s", "v" or "a" and number; ``("scc", 0)`` is the scalar condition code, ``("skip", 0)``
    MODE.VSKIP.
    """

    file: str
    number: int


def place(key: Key) -> int:
    """Bytes from the wave to an SGPR or VGPR."""
    return _FIRST[key.file] + key.number * SIZE[key.file]


class Registers:
    """The registers of the wave within one block: SSA values over the register file in memory."""

    def __init__(self, code: Code, wave: ir.Value) -> None:
        self._code, self._wave = code, wave
        self._cells: dict[Key, Cell] = {}
        self._versions: Counter[Key] = Counter()
        self._dirty: dict[Key, None] = {}  # in order of writing, so that equal kernels compile to equal code

    def address(self, key: Key) -> ir.Value:
        """Where the register lies in memory."""
        if key.file in ("scc", "skip"):
            return self._code.at(self._wave, offset(WAVE, key.file))
        return self._code.at(self._wave, place(key))

    def read(self, key: Key) -> Cell:
        """The register's value: i1 for SCC, i32 for an SGPR, i32 or 64 of them for a VGPR."""
        if key not in self._cells:
            if key.file in "va":
                value = self._code.load(self.address(key), LANES_I32, 64)
            else:
                value = self._code.load(self.address(key), I32, 4)
            if key.file in ("scc", "skip"):
                value = self._code.builder.trunc(value, I1)
            self._cells[key] = Cell(value)
        return self._cells[key]

    def write(self, key: Key, cell: Cell) -> None:
        """Give the register a value; the caller has applied EXEC."""
        self._cells[key] = cell
        self._dirty.pop(key, None)
        self._dirty[key] = None
        self._versions[key] += 1

    def version(self, key: Key) -> int:
        """A number that changes with the register's value."""
        return self._versions[key]

    def flush(self, keys: list[Key] | None = None) -> None:
        """Bring memory up to date for some registers, or for all."""
        for key in list(self._dirty) if keys is None else keys:
            if key in self._dirty:
                del self._dirty[key]
                cell, place = self._cells[key], self.address(key)
                if key.file in "va":
                    self._code.store(lanes(self._code.builder, cell), place, 64)
                elif key.file in ("scc", "skip"):
                    self._code.store(self._code.builder.zext(cell.ir, I32), place, 4)
                else:
                    self._code.store(cell.ir, place, 4)

    def flush_file(self, file: str) -> None:
        """Bring memory up to date for one register file."""
        self.flush([key for key in self._dirty if key.file == file])

    def forget_file(self, file: str) -> None:
        """Memory may have new values for a whole register file."""
        self.forget([key for key in self._cells if key.file == file])

    def forget_all(self) -> None:
        """Memory may have new values for every register."""
        self.forget(list(self._cells))

    def forget(self, keys: list[Key]) -> None:
        """Memory has new values for these registers."""
        for key in keys:
            self._cells.pop(key, None)
            self._dirty.pop(key, None)
            self._versions[key] += 1
