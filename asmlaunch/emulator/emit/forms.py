"""Vector instructions that compute, as helpers: one function a form, shared by all kernels.

Two instructions have one form when they differ in register numbers only. The function of a form is compiled once, and
well, for every kernel of this process and, through the cache on disk, of later ones; a kernel's blocks are then little
more than calls with register places, which LLVM compiles fast. A kernel of the amd-aiter wheel has about a hundred
forms, and shares most of them with the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from llvmlite import ir

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator import program
from asmlaunch.emulator.build import Code
from asmlaunch.emulator.decode import NAMED_SGPRS, Instruction, Operand, Register
from asmlaunch.emulator.emit.arithmetic import Arithmetic
from asmlaunch.emulator.emit.registers import SIZE, Key, Registers
from asmlaunch.emulator.isa.table import Compute, find
from asmlaunch.emulator.lower import I64, PTR
from asmlaunch.emulator.mode import Mode
from asmlaunch.emulator.native.helpers import VOID, helpers

#: SGPRs from here on have names (VCC, M0, EXEC...). Definitions read and write them implicitly: they keep their place.
_NAMED = min(first for first, _ in NAMED_SGPRS.values())

#: Distance between the first registers of two places of a form: no operand is longer.
_SPACE = 16


@dataclass(frozen=True)
class Form:
    """An instruction without its register numbers.

    Attributes:
        operands: with places instead of register numbers.
        first: for each place, the first register that lies there in the instruction.
    """

    operands: tuple[Operand, ...]
    first: tuple[Key, ...]


@lru_cache(maxsize=1 << 14)
def form_of(operands: tuple[Operand, ...]) -> Form:
    """Take an instruction's operands apart; registers that overlap share a place."""
    spans: list[list[Any]] = []  # file, first, end: of each place
    for operand in operands:
        if isinstance(operand, Register) and not (operand.file == "s" and operand.index >= _NAMED):
            span = [operand.file, operand.index, operand.index + operand.count]
            for other in [one for one in spans if one[0] == span[0] and one[1] < span[2] and span[1] < one[2]]:
                spans.remove(other)
                span[1:] = min(span[1], other[1]), max(span[2], other[2])
            spans.append(span)

    def placed(operand: Operand) -> Operand:
        if isinstance(operand, Register):
            for number, (file, first, end) in enumerate(spans):
                if file == operand.file and first <= operand.index < end:
                    return replace(operand, index=number * _SPACE + operand.index - first)
        return operand

    return Form(tuple(map(placed, operands)), tuple(Key(file, first) for file, first, _ in spans))


class Forms:
    """The helpers for one kernel's instructions."""

    def __init__(self, kernel: KernelInfo) -> None:
        self._kernel = kernel
        self._known: dict[tuple[object, ...], str] = {}

    def need(self, instruction: Instruction, form: Form, mode: Mode) -> str:
        """The symbol of the helper of a form; built if it is new.

        Raises:
            UnsupportedInstructionError: a modifier or operand that the definition does not allow.
        """
        key = (instruction.mnemonic, instruction.encoding, form.operands, str(instruction.modifiers), mode)
        if key not in self._known:
            identity = repr((self._kernel.target.processor, *key))
            name = f"{instruction.mnemonic}_{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
            self._known[key] = helpers().need(name, partial(self._build, instruction, form, mode))
        return self._known[key]

    def _build(self, instruction: Instruction, form: Form, mode: Mode, module: ir.Module, symbol: str) -> None:
        code, (wave, *places) = Code.function(module, symbol, VOID, [PTR, *[I64] * len(form.first)])
        block = program.Block(0, [replace(instruction, operands=form.operands)], mode=mode)
        _Body(self._kernel, block, code, wave, {}, {}).compile(_Placed(code, wave, places))


class _Body(Arithmetic):
    """The function of one form."""

    def compile(self, registers: Registers) -> None:
        """Emit it, on registers that lie where its arguments say."""
        self._registers = registers
        (instruction,) = self._block.instructions
        definition = find(instruction.mnemonic)
        assert isinstance(definition, Compute)
        self._compute(instruction, definition)
        registers.flush()
        self._build.ret_void()


class _Placed(Registers):
    """Registers that lie where the arguments of a function say."""

    def __init__(self, code: Code, wave: ir.Value, places: Sequence[ir.Value]) -> None:
        super().__init__(code, wave)
        self._places = places

    def address(self, key: Key) -> ir.Value:
        """Where the register lies in memory."""
        if key.file not in SIZE or (key.file == "s" and key.number >= _NAMED):
            return super().address(key)
        number, step = divmod(key.number, _SPACE)
        return self._code.at(self._code.at(self._wave, self._places[number]), step * SIZE[key.file])
