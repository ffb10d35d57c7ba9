"""Operands and results with their shadows: what an instruction reads is seeded, what it writes is followed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.checks import native
from asmlaunch.emulator.checks.numbers import new_specials
from asmlaunch.emulator.checks.plan import Plan
from asmlaunch.emulator.checks.registers import ALL, DEFINED, Definedness, Shadow, ShadowRegisters
from asmlaunch.emulator.checks.state import Kind
from asmlaunch.emulator.compile import BlockCompiler
from asmlaunch.emulator.decode import EXEC, VCC, Instruction, Operand, Register
from asmlaunch.emulator.emit.registers import Key, Registers
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.lower import I32, I64, Cell, Lowering
from asmlaunch.emulator.state import WAVE


class _CheckedRegisters(Registers):
    """Registers that remember the shadow of each value they give out."""

    def __init__(self, code: Code, wave: ir.Value, shadows: ShadowRegisters) -> None:
        super().__init__(code, wave)
        self._shadows = shadows
        self.cells: dict[int, tuple[object, Shadow]] = {}

    def read(self, key: Key) -> Cell:
        cell = super().read(key)
        if id(cell) not in self.cells:
            self.cells[id(cell)] = cell, self._shadows.of(key)
        return cell

    def flush(self, keys: list[Key] | None = None) -> None:
        super().flush(keys)
        if keys is None:
            self._shadows.flush()

    def forget_all(self) -> None:
        super().forget_all()
        self._shadows.forget_all()


class ShadowedOperands(BlockCompiler):
    """A block's compiler that keeps the shadow of registers and state."""

    def __init__(self, plan: Plan, *args: Any) -> None:
        super().__init__(*args)
        self._plan = plan
        self._shadow = self._code.get_pointer(self._wave, WAVE, "shadow")
        self._shadows = ShadowRegisters(self._code, self._shadow, followed=plan.definedness)
        self._registers = self._checked = _CheckedRegisters(self._code, self._wave, self._shadows)
        self._values: dict[int, tuple[object, Shadow]] = {}
        self._at: Instruction = self._block.instructions[0]

    # ------------------------------------------------------------ notes

    def _number(self, instruction: Instruction) -> ir.Constant:
        """The instruction's place in the plan."""
        return i32(self._plan.numbers[instruction.address])

    def _note_if(
        self, condition: ir.Value, instruction: Instruction, kind: Kind, lanes: ir.Value, value: int = 0
    ) -> None:
        """Note a finding where ``condition`` (i1) holds."""
        with self._build.if_then(condition, likely=False):
            arguments = [self._wave, self._number(instruction), i32(kind), lanes, i64(0), i32(value), i32(0), i32(0)]
            self._call(native.note(), arguments)

    def _note_lanes(self, instruction: Instruction, kind: Kind, bad: ir.Value) -> None:
        """Note the lanes of ``bad`` (i64) if there are any."""
        if not isinstance(bad, ir.Constant) or bad.constant != 0:
            self._note_if(self._build.icmp_unsigned("!=", bad, i64(0)), instruction, kind, bad)

    # ------------------------------------------------------------ reading

    def _logic(self) -> Definedness:
        """Shadows of expressions over what has been read."""
        return Definedness(Lowering(self._build), self._values, self._checked.cells)

    def _seed(self, value: isa.Value, shadow: Shadow) -> None:
        if self._plan.definedness:
            self._values[id(value)] = value, shadow

    def _bits(self, first: int, count: int) -> ir.Value:
        """The shadow of one or two SGPRs as bits; ones beyond the width."""
        low, high = (self._shadows.of(Key("s", first + number)).ir if number < count else ALL for number in range(2))
        if low is ALL and high is ALL:
            return ALL
        low = self._build.and_(low, i64(0xFFFFFFFF))
        return self._build.or_(low, self._build.shl(high, i64(32)))

    def _state(self, kind: type[isa.Value], instruction: Instruction, name: str) -> isa.Value:
        """As without checks; the conditions in VCC have their bits' shadows."""
        value = super()._state(kind, instruction, name)
        if kind in (isa.Vcc, isa.VccMask):
            self._seed(value, Shadow(self._bits(VCC, 2), uniform=kind is isa.VccMask))
        return value

    def _lane_bits(self, kind: type[isa.Value], register: Register) -> isa.Value:
        """As without checks; a mask has its bits' shadows."""
        value = super()._lane_bits(kind, register)
        if register.index < EXEC:
            self._seed(value, Shadow(self._bits(register.index, 2)))
        return value

    def _relative(self, operand: Register, number: int) -> isa.U32:
        """As without checks; the shadow is that of the register found."""
        value = super()._relative(operand, number)
        if self._plan.definedness:
            self._shadows.flush()
            index, exists = self._relative_number(operand, number)
            index = self._build.select(exists, index, i32(0))
            first = self._shadows.address(Key(operand.file, 0))
            place = self._code.at(first, self._build.mul(self._build.zext(index, I64), i64(8)))
            self._seed(value, Shadow(self._code.load(place, I64, 8)))
        return value

    # ------------------------------------------------------------ writing

    def _write_state(self, kind: type[isa.Value], value: isa.Value) -> None:
        """As without checks; EXEC takes nothing undefined."""
        shadow = self._logic().of(value) if self._plan.definedness else DEFINED
        super()._write_state(kind, value)
        if not self._plan.definedness:
            return
        if kind is isa.Scc:
            self._shadows.write(Key("scc", 0), self._logic().whole(shadow))
        else:
            self._note_lanes(self._at, Kind.UNDEFINED_BRANCH, self._build.xor(shadow.ir, ALL))

    def _write_mask(self, instruction: Instruction, operand: Operand, value: isa.Value) -> None:
        """As without checks; lanes that EXEC disables are defined zeros."""
        shadow = self._logic().of(value) if self._plan.definedness else DEFINED
        off = self._build.xor(self._exec(), ALL)
        super()._write_mask(instruction, operand, value)
        if self._plan.definedness and isinstance(operand, Register):
            lanes = self._logic().lanes(shadow)
            self._write_bits(instruction, operand, lanes if lanes is ALL else self._build.or_(lanes, off))

    def _write(
        self, instruction: Instruction, operand: Operand, value: isa.Value, written: ir.Value | None, role: str = ""
    ) -> None:
        """As without checks; the destination takes the shadow of ``value``."""
        if "numerics" in self._plan.checks:
            self._check_numbers(instruction, value, written)
        shadow = self._logic().of(value) if self._plan.definedness else DEFINED
        super()._write(instruction, operand, value, written, role)
        if not self._plan.definedness or not isinstance(operand, Register):
            return
        if operand.file == "s":
            self._write_bits(instruction, operand, shadow.ir if shadow.uniform else self._logic().whole(shadow))
        elif role not in self._mode.indexed:
            lanes = self._logic().lanes(shadow)
            for key in self._keys(operand):
                self._shadows.write(key, self._merged(lanes, self._shadows.of(key).ir, written))

    def _merged(self, new: ir.Value, old: ir.Value, written: ir.Value | None) -> ir.Value:
        if written is None or new is old:
            return new
        mask = self._build.bitcast(written, I64)
        kept = self._build.and_(old, self._build.xor(mask, ALL))
        return self._build.or_(kept, mask if new is ALL else self._build.and_(new, mask))

    def _write_bits(self, instruction: Instruction, operand: Register, bits: ir.Value) -> None:
        """Shadows of SGPRs; EXEC takes no undefined bits."""
        for number, key in enumerate(self._keys(operand)):
            part = bits if bits is ALL or not number else self._build.lshr(bits, i64(32))
            part = i32(-1) if bits is ALL else self._build.trunc(part, I32)
            if key.number < EXEC:
                self._shadows.write(key, part)
            elif bits is not ALL:
                self._note_if(self._build.icmp_signed("!=", part, i32(-1)), instruction, Kind.UNDEFINED_BRANCH, i64(0))

    def _check_numbers(self, instruction: Instruction, value: isa.Value, written: ir.Value | None) -> None:
        for kind, bad in new_specials(self._build, value):
            lanes = bad if written is None else self._build.and_(bad, self._build.bitcast(written, I64))
            self._note_lanes(instruction, kind, lanes)
