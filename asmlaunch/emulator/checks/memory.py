"""Memory instructions compiled with checks: the shadow of memory learns of every access."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.checks import accesses
from asmlaunch.emulator.checks.operands import ShadowedOperands
from asmlaunch.emulator.checks.registers import ALL
from asmlaunch.emulator.checks.state import COUNTERS, SHADOW, Kind
from asmlaunch.emulator.checks.waits import counters
from asmlaunch.emulator.decode import EXEC, Instruction, Register
from asmlaunch.emulator.emit.registers import Key
from asmlaunch.emulator.flow import Place, memory_operands
from asmlaunch.emulator.isa.table import Access, find
from asmlaunch.emulator.lower import I1, I32, I64
from asmlaunch.emulator.native import buffer, flat
from asmlaunch.emulator.state import offset

_TEMPORARY = 16  # dwords that the longest scalar access moves


class ShadowedMemory(ShadowedOperands):
    """A block's compiler that lets the shadow of memory know of every access."""

    def _issued(self, place: Place) -> ir.Value:
        """Where the number of the load that a register waits for is kept: 4 * number + its counter's place in COUNTERS.

        A flat load is known by its number in vector memory.
        """
        name = "of_sgpr" if place.file == "s" else "of_vgpr"
        number = place.number + (256 if place.file == "a" else 0)
        return self._code.at(self._shadow, offset(SHADOW, name) + 8 * number)

    def _access(self, instruction: Instruction, definition: Access) -> None:
        """As without checks, once it is known whether the address is defined; the operation gets its number."""
        if self._plan.definedness:
            self._check_address(instruction, definition)
        self._issued_now: dict[str, ir.Value] = {}
        if "waits" in self._plan.checks:
            self._issue(instruction, definition)
        super()._access(instruction, definition)

    def _issue(self, instruction: Instruction, definition: Access) -> None:
        for name in counters(definition):
            number = self._build.add(self._code.get(self._shadow, SHADOW, f"issued_{name}"), i64(1))
            self._code.put(self._shadow, SHADOW, f"issued_{name}", number)
            self._issued_now[name] = number
        for place in memory_operands(instruction, definition).destination:
            if place in self._plan.suspects.tracked:
                name, number = next(iter(self._issued_now.items()))
                marked = self._build.or_(self._build.shl(number, i64(2)), i64(COUNTERS.index(name)))
                self._code.store(marked, self._issued(place), 8)

    def _check_address(self, instruction: Instruction, definition: Access) -> None:
        bad: ir.Value = i64(0)
        logic = self._logic()
        mask = i64(1) if definition.space.startswith("scalar") else self._exec()
        for place in memory_operands(instruction, definition).address:
            if place.file not in "sva":
                continue
            defined = logic.lanes(self._shadows.of(Key(place.file, place.number)))
            if defined is not ALL:
                bad = self._build.or_(bad, self._build.and_(self._build.xor(defined, ALL), mask))
        self._note_lanes(instruction, Kind.UNDEFINED_ADDRESS, bad)

    def _helper(self, symbol: str, number: ir.Value, arguments: list[ir.Value]) -> None:
        """The helper of a memory instruction; the shadow learns of the access first, with the same arguments."""
        definition = find(self._at.mnemonic)
        assert isinstance(definition, Access)
        if definition.space == "scratch":
            self._loaded_from_scratch(self._at, definition)
        elif any(vars(self._plan.memory).values()):
            self._observe(self._at, definition, arguments)
        super()._helper(symbol, number, arguments)

    def _loaded_from_scratch(self, instruction: Instruction, definition: Access) -> None:
        """What a lane keeps in its scratch memory is not followed: what comes back counts as written."""
        if self._plan.definedness:
            for place in memory_operands(instruction, definition).destination:
                key = Key(place.file, place.number)
                self._shadows.write(key, self._build.or_(self._shadows.of(key).ir, self._exec()))

    def _observe(self, instruction: Instruction, definition: Access, arguments: list[ir.Value]) -> None:
        on = self._plan.memory
        operands = memory_operands(instruction, definition)
        moved = operands.destination if definition.kind == "load" else operands.data
        keys = [Key(place.file, place.number) for place in moved]
        scalar = definition.space.startswith("scalar")
        self._shadows.flush(keys)
        shadows = self._scalar_shadows(keys) if scalar else self._shadow_row(keys)
        more = [shadows, self._pending(definition)]
        if definition.space == "lds":
            more.insert(1, self._shadow_row(keys[len(keys) // 2 :] if definition.pair else keys))
        symbol = self._symbol(instruction, definition, on)
        self._call(symbol, [self._wave, self._number(instruction), *arguments, *more])
        if self._plan.definedness:
            self._after(instruction, definition, keys, shadows)

    def _symbol(self, instruction: Instruction, definition: Access, on: accesses.On) -> str:
        modifiers = instruction.modifiers
        if definition.space == "buffer":
            form = buffer.BufferForm("offen" in modifiers, "idxen" in modifiers, "lds" in modifiers)
            return accesses.buffer_access(definition, form, on)
        if definition.space in ("global", "flat"):
            last = instruction.operands[-1]
            return accesses.flat_access(definition, flat.FlatForm(isinstance(last, Register) and last.file == "s"), on)
        if definition.space == "lds":
            return accesses.lds_access(definition, on)
        return accesses.scalar_access(definition, on)

    def _after(self, instruction: Instruction, definition: Access, keys: list[Key], shadows: ir.Value) -> None:
        """Registers that have been loaded have new shadows; an atomic's old value is defined."""
        scalar = definition.space.startswith("scalar")
        if definition.kind == "load":
            if scalar:
                self._store_scalar_shadows(keys, shadows)
            else:
                self._shadows.forget(keys)
            return
        for place in memory_operands(instruction, definition).destination:
            key = Key(place.file, place.number)
            if scalar:
                self._shadows.write(key, i32(-1))
            else:
                self._shadows.write(key, self._build.or_(self._shadows.of(key).ir, self._exec()))

    def _pending(self, definition: Access) -> ir.Value:
        """What marks the LDS that an operation writes until the wave has waited for it."""
        name = "lds" if definition.space == "lds" else "vm"
        if name not in self._issued_now or (name == "lds" and definition.kind == "load"):
            return i32(0)
        twice = self._build.shl(self._build.trunc(self._issued_now[name], I32), i32(1))
        return self._build.or_(twice, i32(int(name == "lds")))

    def _shadow_row(self, keys: list[Key]) -> ir.Value:
        return self._shadows.address(keys[0] if keys else Key("v", 0))

    def _scalar_shadows(self, keys: list[Key]) -> ir.Value:
        """Shadows of SGPRs as the observers want them: one i64 each."""
        place, logic = self._code.local(I64, _TEMPORARY), self._logic()
        for number, key in enumerate(keys):
            self._code.store(logic.whole(self._shadows.of(key)), self._code.at(place, 8 * number), 8)
        return place

    def _store_scalar_shadows(self, keys: list[Key], place: ir.Value) -> None:
        for number, key in enumerate(keys):
            first = self._build.trunc(self._code.load(self._code.at(place, 8 * number), I64, 8), I1)
            if key.number < EXEC:
                self._shadows.write(key, self._build.sext(first, I32))
