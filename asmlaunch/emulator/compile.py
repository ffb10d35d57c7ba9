"""A kernel's blocks -> native code.

Each block becomes one function ``i32 block(wave)`` that returns the index of the next block. Inside a block
registers are SSA values, read from the wave's register file at first use and written back at the end; memory and
matrix instructions call helpers that work on the register file itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator import jit, program
from asmlaunch.emulator.build import Code, i32, i64, new_module
from asmlaunch.emulator.decode import EXEC, M0, VCC, Immediate, Instruction, Operand, Register, Word
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.matrix import FP4
from asmlaunch.emulator.isa.table import Access, Branch, Compute, Control, Mfma, find, is_implicit
from asmlaunch.emulator.lower import (
    I1,
    I8,
    I32,
    I64,
    LANES_I32,
    PTR,
    Cell,
    Lowering,
    call,
    given,
    lanes,
    splat,
)
from asmlaunch.emulator.native import buffer, lds, matrix, scalar
from asmlaunch.emulator.native.helpers import ROW
from asmlaunch.emulator.state import LANES, WAVE, Status, offset
from asmlaunch.errors import UnsupportedInstructionError

#: MODE's denormal setting for f32 that flushes neither inputs nor results.
KEEP_DENORMALS = 3

_FIRST = {"s": offset(WAVE, "sgpr"), "v": offset(WAVE, "vgpr"), "a": offset(WAVE, "vgpr") + 256 * ROW}


class Key(NamedTuple):
    """One register: file "s", "v" or "a" and number; ``("scc", 0)`` is the scalar condition code."""

    file: str
    number: int


class Registers:
    """The registers of the wave within one block: SSA values over the register file in memory."""

    def __init__(self, code: Code, wave: ir.Value) -> None:
        self._code, self._wave = code, wave
        self._cells: dict[Key, Cell] = {}
        self._versions: Counter[Key] = Counter()
        self._dirty: dict[Key, None] = {}  # in order of writing, so that equal kernels compile to equal code

    def address(self, key: Key) -> ir.Value:
        """Where the register lies in memory."""
        if key.file == "scc":
            return self._code.at(self._wave, offset(WAVE, "scc"))
        size = 4 if key.file == "s" else ROW
        return self._code.at(self._wave, _FIRST[key.file] + key.number * size)

    def read(self, key: Key) -> Cell:
        """The register's value: i1 for SCC, i32 for an SGPR, i32 or 64 of them for a VGPR."""
        if key not in self._cells:
            if key.file in "va":
                value = self._code.load(self.address(key), LANES_I32, 64)
            else:
                value = self._code.load(self.address(key), I32, 4)
            if key.file == "scc":
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
                elif key.file == "scc":
                    self._code.store(self._code.builder.zext(cell.ir, I32), place, 4)
                else:
                    self._code.store(cell.ir, place, 4)

    def flush_file(self, file: str) -> None:
        """Bring memory up to date for one register file."""
        self.flush([key for key in self._dirty if key.file == file])

    def forget(self, keys: list[Key]) -> None:
        """Memory has new values for these registers."""
        for key in keys:
            self._cells.pop(key, None)
            self._dirty.pop(key, None)
            self._versions[key] += 1


@dataclass
class CompiledKernel:
    """Native code of one kernel for one way of stopping.

    Attributes:
        kernel: what it was made from.
        program: its blocks.
        table: addresses of the block functions.
        models: arithmetic models of the matrix instructions it uses.
        atomics: whether it has memory atomics, whose order may show in the result.
    """

    kernel: KernelInfo
    program: program.Program
    table: NDArray[np.uint64]
    models: tuple[str, ...]
    atomics: bool
    code: jit.Compiled = field(repr=False)


def compile_kernel(kernel: KernelInfo, *, waits: bool, full_exec: bool) -> CompiledKernel:
    """Decode, check and compile a kernel.

    Args:
        waits: let waves stop at every ``s_waitcnt``.
        full_exec: every wave starts with all 64 lanes on.

    Raises:
        CodeObjectError: damaged machine code.
        UnsupportedInstructionError: an instruction, modifier or mode that the emulator does not define; names all of
        them.
    """
    parsed = program.build(kernel, waits=waits, full_exec=full_exec)
    _check_modes(kernel)
    module = new_module(jit.host().triple, jit.host().layout)
    numbers = {instruction.address: number for number, instruction in enumerate(parsed.accesses)}
    for block in parsed.blocks:
        code, (wave,) = Code.function(module, f"block{block.index}", I32, [PTR])
        _BlockCompiler(kernel, block, code, wave, numbers).compile()
    compiled = jit.Compiled(str(module), 1)
    table = np.array([compiled.address(f"block{block.index}") for block in parsed.blocks], np.uint64)
    definitions = [find(one.mnemonic) for one in parsed.instructions()]
    models = sorted({definition.model for definition in definitions if isinstance(definition, Mfma)})
    atomics = any(isinstance(definition, Access) and definition.kind == "atomic" for definition in definitions)
    return CompiledKernel(kernel, parsed, table, tuple(models), atomics, compiled)


def _check_modes(kernel: KernelInfo) -> None:
    descriptor = kernel.descriptor
    if descriptor.float_round_mode_32 or descriptor.float_round_mode_16_64:
        raise UnsupportedInstructionError(
            f"rounding mode of kernel {kernel.name}",
            got=f"{descriptor.float_round_mode_32} (f32), {descriptor.float_round_mode_16_64} (f16, f64)",
            need="0 (nearest even): the emulator defines no other",
        )
    if kernel.wavefront_size != LANES:
        raise UnsupportedInstructionError(
            f"wavefront size of kernel {kernel.name}", got=kernel.wavefront_size, need=f"{LANES} (gfx9)"
        )


class _BlockCompiler:
    """Compiles one block, instruction by instruction."""

    def __init__(
        self, kernel: KernelInfo, block: program.Block, code: Code, wave: ir.Value, numbers: dict[int, int]
    ) -> None:
        self._kernel, self._block, self._code, self._wave, self._numbers = kernel, block, code, wave, numbers
        self._build = code.builder
        self._registers = Registers(code, wave)
        self._full = block.full_exec
        self._decoded_operands: dict[tuple[object, ...], ir.Value] = {}
        self._indexed: frozenset[str] = frozenset()  # operand roles that s_set_gpr_idx_on makes relative

    def compile(self) -> None:
        following: ir.Value | None = None
        status = Status.READY
        for instruction in self._block.instructions:
            definition = find(instruction.mnemonic)
            if isinstance(definition, Compute):
                self._compute(instruction, definition)
            elif isinstance(definition, Access):
                self._access(instruction, definition)
            elif isinstance(definition, Mfma):
                self._mfma(instruction, definition)
            elif isinstance(definition, Branch):
                following = self._branch(instruction, definition)
            else:
                assert isinstance(definition, Control)
                status = self._control(instruction, definition) or status
            self._full = program.exec_after(instruction, self._full)
        if self._indexed:
            raise self._unsupported(
                self._block.instructions[-1], "relative VGPR indexing is still on at the block's end"
            )
        self._finish(following, status)

    def _finish(self, following: ir.Value | None, status: Status) -> None:
        code, build = self._code, self._build
        self._registers.flush()
        count = i64(len(self._block.instructions))
        for name, change in (("budget", build.sub), ("executed", build.add)):
            code.put(self._wave, WAVE, name, change(code.get(self._wave, WAVE, name), count))
        runs = code.at(code.get_pointer(self._wave, WAVE, "counts"), 8 * self._block.index)
        code.store(build.add(code.load(runs, I64, 8), i64(1)), runs, 8)
        if status is not Status.READY:
            # A fault inside the block has already stopped the wave.
            before = code.get(self._wave, WAVE, "status")
            ready = build.icmp_signed("==", before, i32(Status.READY))
            code.put(self._wave, WAVE, "status", build.select(ready, i32(status), before))
        if following is None:
            following = i32(self._block.fallthrough if self._block.fallthrough is not None else self._block.index)
        build.ret(following)

    def _unsupported(self, instruction: Instruction, reason: str) -> UnsupportedInstructionError:
        return UnsupportedInstructionError(
            f"kernel {self._kernel.name} at {instruction.address:#x}: `{instruction.text}`: {reason}",
            hint="the emulator defines no meaning for it; run the kernel on a GPU",
        )

    def _allow_modifiers(self, instruction: Instruction, *names: str) -> None:
        unknown = sorted(set(instruction.modifiers) - set(names))
        if unknown:
            raise self._unsupported(instruction, f"modifier {', '.join(unknown)}")

    # ------------------------------------------------------------ operands

    def _keys(self, register: Register) -> list[Key]:
        return [Key(register.file, register.index + number) for number in range(register.count)]

    def _exec(self) -> ir.Value:
        """The EXEC mask as i64."""
        return i64(-1) if self._full else self._pair(Register("s", EXEC, 2))

    def _pair(self, register: Register) -> ir.Value:
        low, high = (given(isa.U32, self._registers.read(key)) for key in self._keys(register))
        return Lowering(self._build)(isa.concat, low, high).ir

    def _mask_bits(self, number: ir.Value) -> Cell:
        return Cell(self._build.bitcast(number, ir.VectorType(I1, LANES)))

    def _state(self, kind: type[isa.Value]) -> Cell:
        """A piece of machine state."""
        if kind is isa.Scc:
            return self._registers.read(Key("scc", 0))
        if kind is isa.Exec:
            return Cell(self._exec())
        if kind is isa.M0:
            return self._registers.read(Key("s", M0))
        assert kind is isa.Vcc
        return self._mask_bits(self._pair(Register("s", VCC, 2)))

    def _source(self, instruction: Instruction, operand: Operand, kind: type[isa.Value], role: str) -> isa.Value:
        """An operand as a value of the type its definition names."""
        if isinstance(operand, Word):
            raise self._unsupported(instruction, f"operand {operand.text}")
        if operand.neg or operand.abs or operand.sext:
            raise self._unsupported(instruction, "neg, abs or sext on an operand")
        if isinstance(operand, Immediate):
            return self._immediate(operand, kind)
        if kind is isa.Mask:
            return given(kind, self._mask_bits(self._pair(operand)))
        if role in self._indexed and operand.file in "va":
            cells = [given(isa.U32, self._relative(operand))]
        else:
            cells = [given(isa.U32, self._registers.read(key)) for key in self._keys(operand)]
        bits: isa.Value = cells[0] if kind.bits == 32 else isa.concat(cells[0], cells[1])
        return bits if type(bits) is kind else bits.bits_as(kind)

    def _immediate(self, operand: Immediate, kind: type[isa.Value]) -> isa.Value:
        if kind is isa.Simm16:
            return isa.Simm16.const((operand.as_int() & 0xFFFF ^ 0x8000) - 0x8000)
        pattern = operand.as_int()
        if issubclass(kind, isa.Float):
            return isa.U32.const(pattern & 0xFFFFFFFF).bits_as(kind)
        return kind.const(pattern)

    def _relative(self, operand: Register) -> Cell:
        """A VGPR whose number has M0[7:0] added; beyond the last register, register 0 is read (manual, "VGPR
        indexing").
        """
        build = self._build
        self._registers.flush_file(operand.file)
        step = build.and_(self._registers.read(Key("s", M0)).ir, i32(0xFF))
        number = build.add(step, i32(operand.index))
        number = build.select(build.icmp_unsigned("<", number, i32(256)), number, i32(0))
        first = self._registers.address(Key(operand.file, 0))
        place = self._code.at(first, build.mul(build.zext(number, I64), i64(ROW)))
        return Cell(self._code.load(place, LANES_I32, 64))

    # ------------------------------------------------------------ computing

    def _compute(self, instruction: Instruction, definition: Compute) -> None:
        if instruction.encoding in ("sdwa", "dpp", "e64_dpp"):
            raise self._unsupported(instruction, f"encoding {instruction.encoding}")
        self._allow_modifiers(instruction)
        outputs = [kind for kind in definition.results if not is_implicit(kind)]
        destinations, sources = instruction.operands[: len(outputs)], list(instruction.operands[len(outputs) :])
        if instruction.mnemonic == "v_permlane16_swap_b32":
            destinations, sources = instruction.operands, [instruction.operands[1]]
        low = Lowering(self._build)
        values = []
        for name, kind in definition.sources:
            if is_implicit(kind):
                value = given(kind, self._state(kind))
            elif name == "d":
                value = self._source(instruction, instruction.operands[0], kind, "DST")
            else:
                value = self._source(instruction, sources.pop(0), kind, f"SRC{name[1:]}")
            values.append(self._flushed(value, definition))
        results = definition.meaning(*values)
        results = results if isinstance(results, tuple) else (results,)
        cells = [low.cell(self._flushed(result, definition)) for result in results]
        named = list(destinations)
        for kind, cell in zip(definition.results, cells, strict=True):
            if is_implicit(kind):
                self._write_state(kind, cell)
            else:
                self._write(instruction, named.pop(0), kind, cell)

    def _flushed(self, value: isa.Value, definition: Compute) -> isa.Value:
        """f32 denormals become zeros of their sign where MODE says so (the same setting for inputs and results
        here).
        """
        mode = self._kernel.descriptor.float_denorm_mode_32
        if not isinstance(value, isa.F32) or definition.denormals == "keep" or mode == KEEP_DENORMALS:
            return value
        bits = value.bits_as(isa.U32)
        return isa.select((bits & 0x7F800000) == 0, bits & 0x80000000, bits).bits_as(isa.F32)

    def _write_state(self, kind: type[isa.Value], cell: Cell) -> None:
        assert kind is isa.Scc
        self._registers.write(Key("scc", 0), cell)

    def _write(self, instruction: Instruction, operand: Operand, kind: type[isa.Value], cell: Cell) -> None:
        """Write a result to its destination: a mask, scalar registers, or vector registers under EXEC."""
        if not isinstance(operand, Register):
            raise self._unsupported(instruction, "its destination")
        build = self._build
        if kind is isa.Mask:
            bits = build.bitcast(lanes(build, cell), I64)
            cell = Cell(bits if self._full else build.and_(bits, self._exec()))
        elif isinstance(cell.ir.type, ir.FloatType) or (
            not cell.uniform and isinstance(cell.ir.type.element, ir.FloatType)
        ):
            cell = Cell(build.bitcast(cell.ir, I32 if cell.uniform else LANES_I32))
        for number, key in enumerate(self._keys(operand)):
            part = cell if operand.count == 1 else self._dword(cell, number)
            if key.file in "va" and not self._full:
                old, mask = self._registers.read(key), self._mask_bits(self._exec())
                part = Cell(build.select(mask.ir, lanes(build, part), lanes(build, old)))
            self._registers.write(key, part)

    def _dword(self, cell: Cell, number: int) -> Cell:
        wide = given(isa.U64, cell)
        return Lowering(self._build).cell((wide >> (32 * number)).to(isa.U32))

    def _branch(self, instruction: Instruction, definition: Branch) -> ir.Value:
        target = i32(self._block.target if self._block.target is not None else 0)
        if definition.condition is None:
            return target
        values = [given(kind, self._state(kind)) for _, kind in definition.sources]
        taken = Lowering(self._build)(definition.condition, *values).ir
        assert self._block.fallthrough is not None
        return self._build.select(taken, target, i32(self._block.fallthrough))

    def _control(self, instruction: Instruction, definition: Control) -> Status | None:
        if definition.action == "end":
            return Status.ENDED
        if definition.action == "barrier":
            return Status.BARRIER
        if definition.action == "index_on":
            self._index_on(instruction)
        elif definition.action == "index_off":
            self._indexed = frozenset()
        return None

    def _index_on(self, instruction: Instruction) -> None:
        """M0[7:0] = S0[7:0], M0[15:12] = the roles; other bits of M0 stay (manual, S_SET_GPR_IDX_ON)."""
        source, roles = instruction.operands
        assert isinstance(roles, Word)
        names = roles.text.removeprefix("gpr_idx(").removesuffix(")").split(",")
        if set(names) - {"SRC0", "SRC1", "SRC2"}:
            raise self._unsupported(instruction, "relative destinations")
        self._indexed = frozenset(names)
        bits = sum(1 << int(name[3]) for name in names)
        index = given(isa.U32, self._scalar(instruction, source))
        m0 = given(isa.U32, self._registers.read(Key("s", M0)))
        new = (m0 & 0xFFFF0F00) | (index & 0xFF) | (bits << 12)
        self._registers.write(Key("s", M0), Lowering(self._build).cell(new))

    # ------------------------------------------------------------ memory

    def _scalar(self, instruction: Instruction, operand: Operand) -> ir.Value:
        return Lowering(self._build).cell(self._source(instruction, operand, isa.U32, "")).ir

    def _access(self, instruction: Instruction, definition: Access) -> None:
        emit: Callable[[Instruction, Access, ir.Value], None] = {
            "scalar": self._scalar_load, "buffer": self._buffer, "lds": self._lds
        }[definition.space]  # fmt: skip
        emit(instruction, definition, i32(self._numbers[instruction.address]))

    def _register(self, instruction: Instruction, operand: Operand, files: str) -> Register:
        if not isinstance(operand, Register) or operand.file not in files:
            raise self._unsupported(instruction, "an operand of another kind than defined")
        return operand

    def _scalar_load(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction)
        target = self._register(instruction, instruction.operands[0], "s")
        base = self._pair(self._register(instruction, instruction.operands[1], "s"))
        distance = self._build.zext(self._scalar(instruction, instruction.operands[2]), I64)
        place = self._registers.address(Key("s", target.index))
        self._call(scalar.scalar_load(definition), [self._wave, number, place, base, distance])
        self._registers.forget(self._keys(target))

    def _buffer(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction, "offen", "idxen", "lds", "offset")
        modifiers = instruction.modifiers
        form = buffer.BufferForm("offen" in modifiers, "idxen" in modifiers, "lds" in modifiers)
        operands = list(instruction.operands)
        data = None if form.lds else self._register(instruction, operands.pop(0), "va")
        address, resource, soffset = operands
        source = None
        if form.offen or form.idxen:
            source = self._register(instruction, address, "v")
        words = [self._registers.read(key).ir for key in self._keys(self._register(instruction, resource, "s"))]
        distance = self._scalar(instruction, soffset)
        moved = self._keys(data) if data else []
        self._registers.flush([*(self._keys(source) if source else []), *(moved if definition.kind != "load" else [])])
        if definition.kind == "load" and not self._full:
            self._registers.flush(moved)  # lanes that EXEC disables keep their old values
        anywhere = self._registers.address(Key("v", 0))
        arguments = {
            "registers": self._registers.address(moved[0]) if moved else anywhere,
            "address": self._registers.address(self._keys(source)[0]) if source else anywhere,
            **{f"word{index}": word for index, word in enumerate(words)},
            "soffset": distance,
            "offset": i32(modifiers.get("offset", 0)),
            "mask": self._exec(),
            "m0": self._registers.read(Key("s", M0)).ir if form.lds else i32(0),
        }
        ordered = [arguments[name] for name in buffer.BUFFER_ARGS]
        self._call(buffer.buffer(definition, form), [self._wave, number, *ordered])
        if definition.kind == "load":
            self._registers.forget(moved)

    def _lds(self, instruction: Instruction, definition: Access, number: ir.Value) -> None:
        self._allow_modifiers(instruction, "offset")
        first, second = instruction.operands
        data_operand, address_operand = (first, second) if definition.kind == "load" else (second, first)
        data = self._register(instruction, data_operand, "va")
        address = self._register(instruction, address_operand, "v")
        loads = definition.kind == "load"
        self._registers.flush([*self._keys(address), *(self._keys(data) if not loads or not self._full else [])])
        arguments = [
            self._registers.address(self._keys(data)[0]),
            self._registers.address(self._keys(address)[0]),
            i32(instruction.modifiers.get("offset", 0)),
            self._exec(),
        ]
        self._call(lds.lds(definition), [self._wave, number, *arguments])
        if loads:
            self._registers.forget(self._keys(data))

    def _call(self, symbol: str, arguments: list[ir.Value]) -> None:
        call(self._build, symbol, ir.VoidType(), arguments)

    # ------------------------------------------------------------ matrix cores

    def _mfma(self, instruction: Instruction, definition: Mfma) -> None:
        self._allow_modifiers(instruction, "op_sel", "op_sel_hi", "cbsz", "blgp")
        formats = instruction.modifiers.get("cbsz", 0), instruction.modifiers.get("blgp", 0)
        if formats != (FP4, FP4):
            raise self._unsupported(instruction, f"operand formats {formats}; defined: FP4 ({FP4}) for both")
        d, a, b = (self._register(instruction, operand, "va") for operand in instruction.operands[:3])
        scales = [self._register(instruction, operand, "va") for operand in instruction.operands[4:6]]
        c = instruction.operands[3]
        read = [key for register in (a, b, *scales) for key in self._keys(register)]
        if isinstance(c, Register):
            read += self._keys(c)
            start = self._registers.address(self._keys(c)[0])
        else:
            assert isinstance(c, Immediate)
            start = self._constant_rows(c, d.count)
        self._registers.flush(read)
        low, high = (instruction.modifiers.get(name, (0, 0)) for name in ("op_sel", "op_sel_hi"))
        operands = [
            self._decoded(matrix.decoded_operand(side), matrix.OPERAND_BYTES, register)
            for side, register in (("a", a), ("b", b))
        ]
        factors = [
            self._decoded(matrix.decoded_scale(side), matrix.SCALE_BYTES, register, 8 * (2 * high[n] + low[n]))
            for n, (side, register) in enumerate(zip("ab", scales, strict=True))
        ]
        target = self._registers.address(self._keys(d)[0])
        self._call(matrix.scaled_fp4(definition), [target, *operands, start, *factors])
        self._registers.forget(self._keys(d))

    def _decoded(self, decoder: str, nbytes: int, register: Register, *arguments: int) -> ir.Value:
        """What ``decoder`` makes of registers in memory; made once in a block while the registers keep their values."""
        key = (decoder, arguments, *((key, self._registers.version(key)) for key in self._keys(register)))
        if key not in self._decoded_operands:
            place = self._decoded_operands[key] = self._code.local(ir.VectorType(I8, 64), nbytes // 64)
            source = self._registers.address(self._keys(register)[0])
            self._call(decoder, [place, source, *map(i32, arguments)])
        return self._decoded_operands[key]

    def _constant_rows(self, value: Immediate, count: int) -> ir.Value:
        """The accumulator's rows in memory, all elements an inline constant."""
        rows = self._code.local(LANES_I32, count)
        pattern = splat(self._build, i32(value.as_int()))
        for number in range(count):
            self._code.store(pattern, self._code.at(rows, number * ROW), 64)
        return rows
