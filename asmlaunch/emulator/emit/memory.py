"""Memory instructions: operands to the arguments of a native helper."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.decode import M0, Instruction, Operand, Register, Word
from asmlaunch.emulator.emit.operands import Operands
from asmlaunch.emulator.emit.registers import Key
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I64, Lowering, given
from asmlaunch.emulator.native import buffer, flat, lds, scalar

#: How caches are to treat an access: no result depends on it.
_CACHE = ("glc", "slc", "scc", "sc0", "sc1", "nt")


class Memory(Operands):
    """Compiles memory instructions."""

    def _access(self, instruction: Instruction, definition: Access) -> None:
        """Emit one instruction."""
        emit = {
            "scalar": self._scalar_access, "scalar_buffer": self._scalar_access, "buffer": self._buffer_access,
            "global": self._flat_access, "flat": self._flat_access, "scratch": self._flat_access,
            "lds": self._lds_access,
        }[definition.space]  # fmt: skip
        emit(instruction, definition, i32(self._numbers[instruction.address]))

    def _helper(self, symbol: str, number: ir.Value, arguments: list[ir.Value]) -> None:
        self._call(symbol, [self._wave, number, *arguments])

    def _anywhere(self) -> ir.Value:
        """An address for an argument that is not used."""
        return self._registers.address(Key("v", 0))

    def _first(self, register: Register | None) -> ir.Value:
        return self._registers.address(self._keys(register)[0]) if register else self._anywhere()

    def _sync(self, read: list[Register | None], loaded: Register | None, definition: Access) -> None:
        """Bring memory up to date with the registers that the helper reads, or leaves in part."""
        registers = self._registers
        registers.flush([key for register in read if register for key in self._keys(register)])
        if loaded and (not self._full or definition.half):
            registers.flush(self._keys(loaded))  # lanes that EXEC disables, or the other half, keep their old values

    def _loaded(self, register: Register | None) -> None:
        if register:
            self._registers.forget(self._keys(register))

    def _scalar_access(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction, "offset", *_CACHE)
        build = self._build
        data = self._register(instruction, instruction.operands[0], "s")
        base_register = self._register(instruction, instruction.operands[1], "s")
        words = [given(isa.U32, self._registers.read(key)) for key in self._keys(base_register)]
        low = Lowering(build)
        limit: ir.Value = i64(-1)
        if definition.space == "scalar_buffer":
            base = low(memory.buffer_base, words[0], words[1]).ir
            limit = low(memory.scalar_buffer_size, words[1], words[2]).ir
        else:
            base = low(isa.concat, words[0], words[1]).ir
        distance = self._scalar_offset(instruction)
        returns = _returns(instruction, definition)
        if definition.kind != "load":
            self._registers.flush(self._keys(data))
        self._helper(scalar.scalar(definition, returns), number, [self._first(data), base, distance, limit])
        if definition.kind == "load" or returns:
            self._loaded(data)

    def _scalar_offset(self, instruction: Instruction) -> ir.Value:
        """An SGPR counts unsigned, an immediate signed."""
        build = self._build
        total: ir.Value = i64(instruction.modifiers.get("offset", 0))
        operand = instruction.operands[2]
        value = self._scalar(instruction, operand)
        wide = build.zext(value, I64) if isinstance(operand, Register) else build.sext(value, I64)
        return build.add(total, wide)

    def _buffer_access(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction, "offen", "idxen", "lds", "offset", *_CACHE)
        modifiers = instruction.modifiers
        returns = _returns(instruction, definition)
        form = buffer.BufferForm("offen" in modifiers, "idxen" in modifiers, "lds" in modifiers, returns)
        operands = list(instruction.operands)
        data = None if form.lds else self._register(instruction, operands.pop(0), "va")
        address, resource, soffset = operands
        source = self._register(instruction, address, "v") if form.offen or form.idxen else None
        words = [self._registers.read(key).ir for key in self._keys(self._register(instruction, resource, "s"))]
        distance = self._scalar(instruction, soffset)
        loads = definition.kind == "load"
        self._sync([source, None if loads else data], data if loads else None, definition)
        arguments = {
            "registers": self._first(data),
            "address": self._first(source),
            **{f"word{index}": word for index, word in enumerate(words)},
            "soffset": distance,
            "offset": i32(modifiers.get("offset", 0)),
            "mask": self._exec(),
            "m0": self._registers.read(Key("s", M0)).ir if form.lds else i32(0),
        }
        self._helper(buffer.buffer(definition, form), number, [arguments[name] for name in buffer.BUFFER_ARGS])
        if loads or returns:
            self._loaded(data)

    def _flat_access(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction, "offset", *_CACHE)
        operands = list(instruction.operands)
        returns = _returns(instruction, definition)
        loads = definition.kind == "load"
        has_result = returns or (loads and not definition.to_lds)
        result = self._register(instruction, operands.pop(0), "va") if has_result else None
        where = operands.pop(0)
        bare = definition.space == "scratch" and isinstance(where, Word)  # "off"
        address = None if bare else self._register(instruction, where, "v")
        data = self._register(instruction, operands.pop(0), "va") if not loads else None
        base, based = self._flat_base(instruction, operands)
        self._sync([address, data], result, definition)
        arguments = {
            "registers": self._first(result if loads else data),
            "returned": self._first(result),
            "address": self._first(address),
            "base": base,
            "offset": i32(instruction.modifiers.get("offset", 0)),
            "mask": self._exec(),
            "m0": self._registers.read(Key("s", M0)).ir if definition.to_lds else i32(0),
        }
        symbol = flat.flat(definition, flat.FlatForm(based, returns, bare))
        self._helper(symbol, number, [arguments[name] for name in flat.FLAT_ARGS])
        self._loaded(result)

    def _flat_base(self, instruction: Instruction, operands: list[Operand]) -> tuple[ir.Value, bool]:
        """The SGPR base of a global (a pair) or scratch instruction, and whether there is one (``off``: none)."""
        if not operands or isinstance(operands[0], Word):
            return i64(0), False
        base = self._register(instruction, operands[0], "s")
        if base.count == 1:
            return self._build.zext(self._registers.read(self._keys(base)[0]).ir, I64), True
        return self._pair(base), True

    def _lds_access(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction, "offset", "offset0", "offset1")
        operands = list(instruction.operands)
        loads = definition.kind == "load"
        result = self._register(instruction, operands.pop(0), "va") if loads or definition.returns else None
        address = self._register(instruction, operands.pop(0), "v")
        stored = [self._register(instruction, operand, "va") for operand in operands]
        self._sync([address, *stored], result, definition)
        modifiers = instruction.modifiers
        names = ("offset0", "offset1") if definition.pair else ("offset", "")
        offsets = lds.unit_offsets(definition, (modifiers.get(names[0], 0), modifiers.get(names[1], 0)))
        data = result if loads else stored[0]
        arguments = {
            "data": self._first(data),
            "data2": self._first(stored[-1] if stored else data),
            "returned": self._first(result),
            "address": self._first(address),
            "offset0": offsets[0],
            "offset1": offsets[1],
            "mask": self._exec(),
        }
        self._helper(lds.lds(definition), number, [arguments[name] for name in lds.LDS_ARGS])
        self._loaded(result)
        if definition.tile and result:
            self._transpose(instruction, definition, result)

    def _transpose(self, instruction: Instruction, definition: Access, result: Register) -> None:
        """Exchange the loaded elements between lanes."""
        if not self._full:
            raise self._unsupported(instruction, "a transposing read where EXEC may not be all ones")
        keys = self._keys(result)
        dwords = [given(isa.U32, self._registers.read(key)) for key in keys]
        low = Lowering(self._build)
        for key, value in zip(keys, memory.transposed(dwords, definition.tile), strict=True):
            cell = low.cell(value)
            self._registers.write(key, cell)


def _returns(instruction: Instruction, definition: Access) -> bool:
    """Whether an atomic gives back the old value: ``sc0`` (scalar: ``glc``), or its name in LDS."""
    if definition.kind != "atomic":
        return False
    return definition.returns or "sc0" in instruction.modifiers or "glc" in instruction.modifiers
