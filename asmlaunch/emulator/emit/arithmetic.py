"""Arithmetic, logic and lane moves: operands with their modifiers in, the definition applied, results out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from asmlaunch.emulator.decode import Immediate, Instruction, Operand, Register
from asmlaunch.emulator.emit.operands import Operands, assembled, immediate, op_sel
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa import modifiers as mods
from asmlaunch.emulator.isa.table import Compute, is_implicit
from asmlaunch.emulator.lower import Lowering, given, lanes
from asmlaunch.emulator.mode import FLUSH_INPUTS, FLUSH_RESULTS

_OUTPUT = {"clamp", "mul", "div"}
_SDWA = {"dst_sel", "dst_unused", "src0_sel", "src1_sel"}
_DPP = {*mods.DPP_NAMES, "row_mask", "bank_mask", "bound_ctrl"}
_PACKED = {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"}


class Arithmetic(Operands):
    """Compiles what computes on registers."""

    def _compute(self, instruction: Instruction, definition: Compute) -> None:
        """Emit one instruction."""
        _refuse_unknown_modifiers(self, instruction, definition)
        form = Form(self, instruction, definition)
        results = form.packed_results() if definition.packed else form.applied(form.arguments(None))
        written = None if definition.unit == "salu" or definition.all_lanes else form.written_lanes()
        named = list(form.destinations)
        for kind, result in zip(definition.results, results, strict=True):
            if is_implicit(kind):
                self._write_state(kind, result)
            elif kind is isa.Mask:
                self._write_mask(instruction, named.pop(0), result)
            else:
                operand = named.pop(0)
                value = form.placed(operand, form.modified(result))
                self._write(instruction, operand, value, written, "DST" if definition.unit == "valu" else "")


def _refuse_unknown_modifiers(at: Operands, instruction: Instruction, definition: Compute) -> None:
    allowed = {name for name, kind in definition.sources if kind is isa.Modifier}
    if definition.unit == "valu":
        allowed |= _OUTPUT
        if instruction.encoding == "sdwa":
            allowed |= _SDWA
        elif "dpp" in instruction.encoding:
            allowed |= _DPP
        elif definition.packed or definition.mixed:
            allowed |= _PACKED
        else:
            allowed.add("op_sel")
            if definition.takes(isa.OpSel):
                allowed |= {"op_sel_hi", "bound_ctrl", "fi"}
    at._allow_modifiers(instruction, *allowed)


class Form:
    """One instruction's operands and results with its modifiers applied."""

    def __init__(self, at: Operands, instruction: Instruction, definition: Compute) -> None:
        self._at, self._instruction, self._definition = at, instruction, definition
        self._modifiers = instruction.modifiers
        self._op_sel = op_sel(instruction)
        self._dpp = "dpp" in instruction.encoding
        count = sum(not is_implicit(kind) for kind in definition.results)
        operands = instruction.operands
        self.destinations = operands if definition.exchanges else operands[:count]
        self._sources = operands[1:] if definition.exchanges else operands[count:]

    # ------------------------------------------------------------ the instruction

    def applied(self, arguments: Sequence[isa.Value]) -> tuple[isa.Value, ...]:
        definition = self._definition
        if definition.saturates and "clamp" in self._modifiers:
            return (self._saturated(arguments),)
        results = definition.meaning(*arguments)
        return results if isinstance(results, tuple) else (results,)

    def _saturated(self, arguments: Sequence[Any]) -> isa.Value:
        """CLAMP of an integer result: computed in 64 bits, then into the range of the type."""
        (kind,) = {kind for kind in self._definition.results if issubclass(kind, isa.Integer)}
        wide: Any = self._definition.meaning(*(argument.to(isa.I64) for argument in arguments))
        bits = kind.bits
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.signed else (0, (1 << bits) - 1)
        limited = isa.select(wide < low, isa.I64.const(low), isa.select(wide > high, isa.I64.const(high), wide))
        return limited.to(kind)

    def packed_results(self) -> tuple[isa.Value, ...]:
        """The definition once for the low and once for the high elements (manual, "Packed Math")."""
        results = [self.applied(self.arguments(high)) for high in (False, True)]
        (low,), (high,) = ([self.modified(one) for one in result] for result in results)
        if low.bits == 32:
            return (isa.concat(isa.pattern(low), isa.pattern(high)),)
        return (isa.pattern(low).to(isa.U32) | (isa.pattern(high).to(isa.U32) << 16),)

    def modified(self, result: isa.Value) -> isa.Value:
        if self._definition.unit == "salu":
            return result
        value = mods.output_modified(result, self._modifiers)
        if "clamp" in self._modifiers:
            if not isinstance(value, isa.Float) and not self._definition.saturates and not self._definition.packed:
                raise self._at._unsupported(self._instruction, "clamp of an integer result")
            value = mods.clamped(value, self._at._mode.dx10_clamp)
        return mods.flushed(value) if self._flushes(value, FLUSH_RESULTS) else value

    def _flushes(self, value: isa.Value, which: int) -> bool:
        """Whether MODE, or the instruction, makes denormals zeros."""
        if not isinstance(value, isa.Float) or self._definition.denormals == "keep":
            return False
        if self._definition.denormals == "flush" and value.bits == 32:
            return True
        mode = self._at._mode
        setting = mode.denormals_32 if value.bits == 32 else mode.denormals_16_64
        return not setting & which

    def written_lanes(self) -> ir.Value | None:
        """The lanes that get a result (64 x i1), or None for all."""
        mask: isa.Bool | None = None if self._at._full else given(isa.Active, self._at._mask_bits(self._at._exec()))
        if self._dpp:
            written = mods.dpp_written(self._modifiers)
            condition = None if written.all() else mods.lane_flags(written)
            if "bound_ctrl" not in self._modifiers:
                condition = _both(condition, self._dpp_source_exists())
            mask = _both(mask, condition)
        if mask is None:
            return None
        build = self._at._build
        return lanes(build, Lowering(build).cell(mask))

    def placed(self, operand: Operand, value: isa.Value) -> isa.Value:
        """Where in the destination a result narrower than it goes."""
        destination = operand if isinstance(operand, Register) else None
        if self._instruction.encoding == "sdwa" and "dst_sel" in self._modifiers and destination is not None:
            bits: Any = isa.pattern(value)
            if bits.bits > 32:
                return value
            selector, unused = self._modifiers["dst_sel"], self._modifiers.get("dst_unused", "UNUSED_PAD")
            if selector == "DWORD":
                return value
            old = self._at._dwords(destination, "DST")[0]
            return mods.sdwa_result(bits.to(isa.U32), old, selector, unused)
        if value.bits == 16 and destination is not None:
            bits = isa.pattern(value).to(isa.U32)
            if self._op_sel & 8 or self._definition.half == "high":
                return (self._at._dwords(destination, "DST")[0] & 0xFFFF) | (bits << 16)
            if self._definition.half in ("keep", "low"):
                return (self._at._dwords(destination, "DST")[0] & 0xFFFF0000) | bits
        return value

    # ------------------------------------------------------------ its arguments

    def arguments(self, high: bool | None) -> list[isa.Value]:
        """The values of the definition's parameters; of the high or low elements in packed instructions."""
        values: list[isa.Value] = []
        position = 0
        for name, kind in self._definition.sources:
            if is_implicit(kind):
                value = self._at._state(kind, self._instruction, name)
            elif name == "d":
                value = self._old_destination(kind, high)
            else:
                value = self._argument(position, self._sources[position], kind, high)
                position += 1
            values.append(mods.flushed(value) if self._flushes(value, FLUSH_INPUTS) else value)
        return values

    def _old_destination(self, kind: type[isa.Value], high: bool | None) -> isa.Value:
        operand = self._instruction.operands[0]
        if high is None or not isinstance(operand, Register):
            return self._at._source(self._instruction, operand, kind, "DST")
        return self._element(operand, kind, high, "DST")

    def _argument(self, position: int, operand: Operand, kind: type[isa.Value], high: bool | None) -> isa.Value:
        """One source with its modifiers."""
        role = f"SRC{position}" if self._definition.unit == "valu" else ""
        if high is not None:
            return self._packed_source(position, operand, kind, high, role)
        if self._definition.mixed:
            value = self._mixed_source(position, operand, role)
        elif isinstance(operand, Register) and self._instruction.encoding == "sdwa" and position < 2:
            value = self._sdwa_source(position, operand, kind, role)
        elif isinstance(operand, Register) and self._dpp and position == 0:
            value = assembled([self._permuted(dword) for dword in self._at._dwords(operand, role)], kind)
        elif isinstance(operand, Register) and kind.bits == 16 and self._op_sel >> position & 1:
            value = assembled([self._at._dwords(operand, role)[0] >> 16], kind)
        else:
            value = self._at._source(self._instruction, operand, kind, role)
        if isinstance(operand, Register | Immediate):
            return mods.signed_source(value, neg=operand.neg, absolute=operand.abs)
        return value

    def _sdwa_source(self, position: int, operand: Register, kind: type[isa.Value], role: str) -> isa.Value:
        if kind is isa.Mask or kind.bits > 32:
            return self._at._source(self._instruction, operand, kind, role)
        selector = self._modifiers.get(f"src{position}_sel", "DWORD")
        dword = self._at._dwords(operand, role)[0]
        return assembled([mods.sdwa_source(dword, selector, operand.sext)], kind)

    def _mixed_source(self, position: int, operand: Operand, role: str) -> isa.Value:
        """v_fma_mix: OP_SEL_HI says that a source is f16, OP_SEL which half of the register it is."""
        if not self._flag("op_sel_hi", position, 0):
            return self._at._source(self._instruction, operand, isa.F32, role)
        if not isinstance(operand, Register):
            half: Any = self._at._source(self._instruction, operand, isa.F16, role)
            return half.to(isa.F32)
        dword = self._at._dwords(operand, role)[0]
        narrow: Any = assembled([dword >> 16 if self._flag("op_sel", position, 0) else dword], isa.F16)
        return narrow.to(isa.F32)

    def _flag(self, name: str, position: int, default: int) -> int:
        written = self._modifiers.get(name)
        return default if written is None or position >= len(written) else written[position]

    def _packed_source(
        self, position: int, operand: Operand, kind: type[isa.Value], high: bool, role: str
    ) -> isa.Value:
        """The element that OP_SEL or OP_SEL_HI chooses, with NEG_LO or NEG_HI."""
        chosen = self._flag("op_sel_hi", position, 1) if high else self._flag("op_sel", position, 0)
        negated = self._flag("neg_hi" if high else "neg_lo", position, 0)
        if isinstance(operand, Register):
            value = self._element(operand, kind, bool(chosen), role)
        elif isinstance(operand, Immediate):
            value = immediate(operand, kind)
            if kind.bits == 16 and chosen:
                value = self._upper_half(operand, kind)
        else:
            raise self._at._unsupported(self._instruction, "its operand")
        return mods.signed_source(value, neg=bool(negated), absolute=False)

    def _upper_half(self, operand: Immediate, kind: type[isa.Value]) -> isa.Value:
        """Of a constant: an inline integer is extended by its sign, an inline float by zeros, a literal is 32 bits."""
        bits = 0 if operand.as_float() is not None else operand.as_int() >> 16
        return assembled([isa.U32.const(bits & 0xFFFF)], kind)

    def _element(self, operand: Register, kind: type[isa.Value], high: bool, role: str) -> isa.Value:
        dwords = self._at._dwords(operand, role)
        if kind.bits == 32:
            return assembled([dwords[high if operand.count > 1 else 0]], kind)
        return assembled([dwords[0] >> 16 if high else dwords[0]], kind)

    # ------------------------------------------------------------ DPP

    def _dpp_source_exists(self) -> isa.Bool | None:
        """Whether each lane's source lane exists and is on; None: all do."""
        source, valid = mods.dpp_pattern(self._modifiers)
        exists = None if valid.all() else mods.lane_flags(valid)
        if self._at._full:
            return exists
        on = isa.shuffle(given(isa.Active, self._at._mask_bits(self._at._exec())), mods.lane_table(source))
        return _both(exists, on)

    def _permuted(self, dword: isa.U32) -> isa.U32:
        """A source as DPP delivers it; where there is none, 0."""
        source, _ = mods.dpp_pattern(self._modifiers)
        value = dword if np.array_equal(source, np.arange(64)) else isa.shuffle(dword, mods.lane_table(source))
        exists = self._dpp_source_exists() if "bound_ctrl" in self._modifiers else None
        return value if exists is None else isa.select(exists, value, isa.U32.const(0))


def _both(one: isa.Bool | None, other: isa.Bool | None) -> isa.Bool | None:
    """Conjunction, where None is true."""
    if one is None or other is None:
        return other if one is None else one
    return isa.Bool("and", (one, other))
