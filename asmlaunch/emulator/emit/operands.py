"""Reading operands and machine state as typed values, and writing results, within one block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llvmlite import ir

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.decode import EXEC, M0, VCC, Immediate, Instruction, Operand, Register, Word
from asmlaunch.emulator.emit.outline import evaluate
from asmlaunch.emulator.emit.registers import Key, Registers
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.memory import PRIVATE_BASE, SHARED_BASE
from asmlaunch.emulator.lower import I1, I32, I64, LANES_I32, Cell, Lowering, call, given, lanes
from asmlaunch.emulator.mode import Mode, hardware_register
from asmlaunch.emulator.native.helpers import ROW
from asmlaunch.emulator.program import Block
from asmlaunch.emulator.state import LANES, WAVE
from asmlaunch.errors import UnsupportedInstructionError

#: Constants that have names (AMD CDNA3 ISA manual, "Scalar ALU operands").
_APERTURES = {"src_shared_base": SHARED_BASE, "src_private_base": PRIVATE_BASE}
_LIMITS = {"src_shared_limit": SHARED_BASE, "src_private_limit": PRIVATE_BASE}


class Operands:
    """What the code of a block works on, and what the compilers of the kinds of instructions share.

    All registers are read through ``_read``, ``_relative`` and ``_lane_bits`` and all state through ``_state``; all
    results of computations are written through ``_write``, ``_write_mask`` and ``_write_state``. Whoever instruments a
    kernel overrides these.
    """

    def __init__(
        self, kernel: KernelInfo, block: Block, code: Code, wave: ir.Value, numbers: Mapping[int, int],
        addresses: Mapping[int, int], numerics: str = "exact",
    ) -> None:  # fmt: skip
        self._block_addresses, self._numerics = addresses, numerics
        self._kernel, self._block, self._code, self._wave, self._numbers = kernel, block, code, wave, numbers
        self._build: ir.IRBuilder = code.builder
        self._registers = Registers(code, wave)
        self._mode: Mode = block.mode  # what is known before the instruction at hand

    def _call(self, symbol: str, arguments: list[ir.Value]) -> None:
        """Call a native helper."""
        call(self._build, symbol, ir.VoidType(), arguments)

    # ------------------------------------------------------------ refusals

    def _unsupported(self, instruction: Instruction, reason: str) -> UnsupportedInstructionError:
        """The error for an instruction that has no meaning here."""
        return UnsupportedInstructionError(
            f"kernel {self._kernel.name} at {instruction.address:#x}: `{instruction.text}`: {reason}",
            hint="the emulator defines no meaning for it; run the kernel on a GPU",
        )

    def _allow_modifiers(self, instruction: Instruction, *names: str) -> None:
        """Refuse any other modifier."""
        unknown = sorted(set(instruction.modifiers) - set(names))
        if unknown:
            raise self._unsupported(instruction, f"modifier {', '.join(unknown)}")

    # ------------------------------------------------------------ registers and state

    def _keys(self, register: Register) -> list[Key]:
        """The registers that an operand covers."""
        return [Key(register.file, register.index + number) for number in range(register.count)]

    def _register(self, instruction: Instruction, operand: Operand, files: str) -> Register:
        """An operand that must be a register of one of ``files``."""
        if not isinstance(operand, Register) or operand.file not in files:
            raise self._unsupported(instruction, "an operand of another kind than defined")
        return operand

    @property
    def _full(self) -> bool:
        """Whether EXEC is known to be all ones."""
        return self._mode.full_exec

    def _exec(self) -> ir.Value:
        """The EXEC mask as i64."""
        return i64(-1) if self._full else self._pair(Register("s", EXEC, 2))

    def _pair(self, register: Register) -> ir.Value:
        """Two SGPRs as i64."""
        low, high = (given(isa.U32, self._registers.read(key)) for key in self._keys(register))
        result: ir.Value = Lowering(self._build)(isa.concat, low, high).ir
        return result

    def _mask_bits(self, number: ir.Value) -> Cell:
        """An i64 as one bit a lane."""
        return Cell(self._build.bitcast(number, ir.VectorType(I1, LANES)))

    def _state(self, kind: type[isa.Value], instruction: Instruction, name: str) -> isa.Value:
        """What a parameter of a machine-state type stands for."""
        if kind is isa.Scc:
            return given(kind, self._registers.read(Key("scc", 0)))
        if kind is isa.Exec:
            return given(kind, self._exec())
        if kind is isa.Active:
            return given(kind, self._mask_bits(self._exec()))
        if kind is isa.M0:
            return given(kind, self._registers.read(Key("s", M0)))
        if kind is isa.Vcc:
            return given(kind, self._mask_bits(self._pair(Register("s", VCC, 2))))
        if kind is isa.VccMask:
            return given(kind, self._pair(Register("s", VCC, 2)))
        if kind is isa.Clock:
            return given(kind, self._code.get(self._wave, WAVE, "executed"))
        if kind is isa.ModeRegister:
            return kind.const(self._mode.mode)
        if kind is isa.OpSel:
            return kind.const(op_sel(instruction))
        if kind is isa.Modifier:
            return kind.const(int(instruction.modifiers.get(name, 0)))
        constants: dict[type[isa.Value], bool] = {
            isa.Ieee: self._mode.ieee, isa.Ovfl: self._mode.fp16_overflow,
            isa.Fnuz: self._kernel.target.processor != "gfx950",
        }  # fmt: skip
        return kind.const(int(constants[kind]))

    # ------------------------------------------------------------ sources

    def _read(self, key: Key) -> isa.U32:
        """One SGPR or VGPR."""
        return given(isa.U32, self._registers.read(key))

    def _lane_bits(self, kind: type[isa.Value], register: Register) -> isa.Value:
        """Two SGPRs as one bit a lane."""
        return given(kind, self._mask_bits(self._pair(register)))

    def _dwords(self, operand: Register, role: str) -> list[isa.U32]:
        """The registers of an operand; relative ones where ``role`` is indexed."""
        if role in self._mode.indexed and operand.file in "va":
            return [self._relative(operand, number) for number in range(operand.count)]
        return [self._read(key) for key in self._keys(operand)]

    def _source(self, instruction: Instruction, operand: Operand, kind: type[isa.Value], role: str = "") -> isa.Value:
        """An operand as a value of the type its definition names, without modifiers."""
        if isinstance(operand, Word):
            return self._named(instruction, operand, kind)
        if isinstance(operand, Immediate):
            return immediate(operand, kind)
        if kind is isa.Mask:
            return self._lane_bits(kind, operand)
        return assembled(self._dwords(operand, role), kind)

    def _named(self, instruction: Instruction, operand: Word, kind: type[isa.Value]) -> isa.Value:
        """Operands with names: apertures, and conditions as numbers."""
        name = operand.text
        if name in _APERTURES:
            return isa.U64.const(_APERTURES[name]).to(kind) if kind.bits == 64 else kind.const(_APERTURES[name] >> 32)
        if name in _LIMITS:
            value = _LIMITS[name] | 0xFFFFFFFF
            return isa.U64.const(value).to(kind) if kind.bits == 64 else kind.const(value & 0xFFFFFFFF)
        if name in ("src_vccz", "vccz"):
            vcc = given(isa.U64, self._pair(Register("s", VCC, 2)))
            return (vcc == 0).to(isa.U32).to(kind)
        if name in ("src_execz", "execz"):
            return (given(isa.U64, self._exec()) == 0).to(isa.U32).to(kind)
        if name in ("src_scc", "scc"):
            return given(isa.Scc, self._registers.read(Key("scc", 0))).to(isa.U32).to(kind)
        if name.startswith("hwreg("):
            register, first, width = hardware_register(instruction, operand)
            if register == "HW_REG_MODE":
                return kind.const(self._mode.mode >> first & ((1 << width) - 1))
        raise self._unsupported(instruction, f"operand {name}")

    def _scalar(self, instruction: Instruction, operand: Operand) -> ir.Value:
        """An SGPR or a constant as i32."""
        return Lowering(self._build).cell(self._source(instruction, operand, isa.U32)).ir

    def _relative_number(self, operand: Register, number: int) -> tuple[ir.Value, ir.Value]:
        """The number of a relative VGPR, and whether it exists."""
        build = self._build
        step = build.and_(self._registers.read(Key("s", M0)).ir, i32(0xFF))
        index = build.add(step, i32(operand.index + number))
        return index, build.icmp_unsigned("<", index, i32(256))

    def _row(self, operand: Register, index: ir.Value) -> ir.Value:
        first = self._registers.address(Key(operand.file, 0))
        return self._code.at(first, self._build.mul(self._build.zext(index, I64), i64(ROW)))

    def _relative(self, operand: Register, number: int) -> isa.U32:
        """A VGPR whose number has M0[7:0] added; beyond the last register, register 0 is read (manual, "VGPR
        indexing").
        """
        self._registers.flush_file(operand.file)
        index, exists = self._relative_number(operand, number)
        index = self._build.select(exists, index, i32(0))
        return given(isa.U32, self._code.load(self._row(operand, index), LANES_I32, 64))

    # ------------------------------------------------------------ results

    def _write_state(self, kind: type[isa.Value], value: isa.Value) -> None:
        """A result of a machine-state type."""
        cell = Lowering(self._build).cell(value)
        if kind is isa.Scc:
            self._registers.write(Key("scc", 0), cell)
            return
        bits = cell.ir
        if kind is isa.Active:
            bits = self._build.and_(self._build.bitcast(lanes(self._build, cell), I64), self._exec())
        assert kind in (isa.Active, isa.Exec)
        self._write_pair(Key("s", EXEC), bits)

    def _write_pair(self, key: Key, bits: ir.Value) -> None:
        for number in range(2):
            part = self._build.trunc(self._build.lshr(bits, i64(32 * number)), I32)
            self._registers.write(Key(key.file, key.number + number), Cell(part))

    def _write_mask(self, instruction: Instruction, operand: Operand, value: isa.Value) -> None:
        """One bit a lane to an SGPR pair; lanes that EXEC disables give 0."""
        register = self._register(instruction, operand, "s")
        bits = self._build.bitcast(lanes(self._build, Lowering(self._build).cell(value)), I64)
        if not self._full:
            bits = self._build.and_(bits, self._exec())
        self._write_pair(self._keys(register)[0], bits)

    def _write(
        self, instruction: Instruction, operand: Operand, value: isa.Value, written: ir.Value | None, role: str = ""
    ) -> None:
        """A result to SGPRs, or to VGPRs in the lanes ``written`` (64 x i1; None: all)."""
        if not isinstance(operand, Register):
            raise self._unsupported(instruction, "its destination")
        bits: Any = isa.pattern(value)
        if bits.bits < 32:
            bits = bits.to(isa.U32)
        bits = given(type(bits), evaluate(self._build, bits))
        low = Lowering(self._build)
        parts = [bits] if bits.bits == 32 else [bits.to(isa.U32), (bits >> 32).to(isa.U32)]
        if len(parts) != operand.count:
            raise self._unsupported(instruction, f"a destination of {operand.count} registers")
        for number, part in enumerate(parts):
            cell = low.cell(part)
            if operand.file in "va" and role in self._mode.indexed:
                self._write_relative(operand, number, cell, written)
                continue
            key = Key(operand.file, operand.index + number)
            if key.file in "va" and written is not None:
                old = lanes(self._build, self._registers.read(key))
                cell = Cell(self._build.select(written, lanes(self._build, cell), old))
            self._registers.write(key, cell)

    def _write_relative(self, operand: Register, number: int, cell: Cell, written: ir.Value | None) -> None:
        """To a relative VGPR; one that does not exist is not written."""
        build = self._build
        self._registers.flush_file(operand.file)
        index, exists = self._relative_number(operand, number)
        with build.if_then(exists):
            row = self._row(operand, index)
            value = lanes(build, cell)
            if written is not None:
                value = build.select(written, value, self._code.load(row, LANES_I32, 64))
            self._code.store(value, row, 64)
        self._registers.forget_file(operand.file)


def assembled(dwords: list[isa.U32], kind: type[isa.Value]) -> isa.Value:
    """Dwords as a value of a type; one narrower than a dword is in its lowest bits."""
    if kind.bits < 32:
        narrow: Any = dwords[0].to(isa.U16)
        return narrow if kind is isa.U16 else narrow.bits_as(kind)
    bits: isa.Value = dwords[0] if kind.bits == 32 else isa.concat(dwords[0], dwords[1])
    return bits if type(bits) is kind else bits.bits_as(kind)


def immediate(operand: Immediate, kind: type[isa.Value]) -> isa.Value:
    """A constant operand: an inline float has the operand's width, a literal is 32 bits (of an f64, the high ones)."""
    if kind is isa.Simm16:
        return isa.Simm16.const((operand.as_int() & 0xFFFF ^ 0x8000) - 0x8000)
    number, bits = operand.as_float(), operand.as_int()
    if number is not None:
        if kind.bits == 64:
            return isa.F64.const(number) if issubclass(kind, isa.Float) else isa.F64.const(number).bits_as(kind)
        if kind.bits == 16:
            return isa.F16.const(number) if kind is isa.F16 else isa.F16.const(number).bits_as(kind)
    if issubclass(kind, isa.Float):
        if kind.bits == 64 and operand.text.startswith("0x"):
            bits <<= 32
        unsigned: Any = {16: isa.U16, 32: isa.U32, 64: isa.U64}[kind.bits]
        return unsigned.const(bits & ((1 << kind.bits) - 1)).bits_as(kind)
    return kind.const(bits)


def op_sel(instruction: Instruction) -> int:
    """The four OP_SEL bits. The assembler writes one a source and then the destination's, which is bit 3."""
    written = instruction.modifiers.get("op_sel", ())
    bits = dict(enumerate(written))
    if len(written) == 3 and len(instruction.operands) == 3:
        bits = {0: written[0], 1: written[1], 3: written[2]}
    return sum(bit << position for position, bit in bits.items())
