"""Matrix-core instructions: registers to memory, then a native helper."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from asmlaunch.emulator.build import i32
from asmlaunch.emulator.decode import Immediate, Instruction, Operand, Register
from asmlaunch.emulator.emit.operands import Operands, immediate
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.matrix import FP4
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I8, LANES_I32, Lowering, splat
from asmlaunch.emulator.native import matrix
from asmlaunch.emulator.native.helpers import ROW


class Matrix(Operands):
    """Compiles matrix instructions."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._decoded_operands: dict[tuple[object, ...], ir.Value] = {}

    def _mfma(self, instruction: Instruction, definition: Mfma) -> None:
        """One instruction."""
        self._allow_modifiers(instruction, "op_sel", "op_sel_hi", "cbsz", "blgp")
        formats = instruction.modifiers.get("cbsz", 0), instruction.modifiers.get("blgp", 0)
        if formats != (FP4, FP4):
            raise self._unsupported(instruction, f"operand formats {formats}; defined: FP4 ({FP4}) for both")
        d, a, b = (self._register(instruction, operand, "va") for operand in instruction.operands[:3])
        scales = [self._register(instruction, operand, "va") for operand in instruction.operands[4:6]]
        start = self._accumulator(instruction, instruction.operands[3], d.count)
        self._registers.flush([key for register in (a, b, *scales) for key in self._keys(register)])
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

    def _accumulator(self, instruction: Instruction, c: Operand, count: int) -> ir.Value:
        """Where C lies in memory: its registers, or rows of an inline constant."""
        if isinstance(c, Register):
            self._registers.flush(self._keys(c))
            return self._registers.address(self._keys(c)[0])
        if not isinstance(c, Immediate):
            raise self._unsupported(instruction, "its accumulator")
        code = self._code
        rows = code.local(LANES_I32, count)
        pattern = splat(self._build, Lowering(self._build).cell(immediate(c, isa.U32)).ir)
        for number in range(count):
            code.store(pattern, code.at(rows, number * ROW), 64)
        return rows

    def _decoded(self, decoder: str, nbytes: int, register: Register, *arguments: int) -> ir.Value:
        """What ``decoder`` makes of registers in memory; made once in a block while the registers keep their values."""
        registers, keys = self._registers, self._keys(register)
        key = (decoder, arguments, *((key, registers.version(key)) for key in keys))
        if key not in self._decoded_operands:
            place = self._decoded_operands[key] = self._code.local(ir.VectorType(I8, 64), nbytes // 64)
            self._call(decoder, [place, registers.address(keys[0]), *map(i32, arguments)])
        return self._decoded_operands[key]
