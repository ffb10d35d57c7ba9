"""Matrix-core instructions: registers to memory, then a native helper."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from asmlaunch.emulator.build import i32
from asmlaunch.emulator.decode import Immediate, Instruction, Operand, Register
from asmlaunch.emulator.emit.operands import Operands, immediate
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.matrix import FP4, MX_FORMATS
from asmlaunch.emulator.isa.numerics import published
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I8, LANES_I32, Lowering, splat
from asmlaunch.emulator.mode import FLUSH_INPUTS
from asmlaunch.emulator.native import matrix, products
from asmlaunch.emulator.native.helpers import ROW
from asmlaunch.errors import UnsupportedInstructionError


class Matrix(Operands):
    """Compiles matrix instructions."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._decoded_operands: dict[tuple[object, ...], ir.Value] = {}

    def _mfma(self, instruction: Instruction, definition: Mfma) -> None:
        """One instruction."""
        if self._numerics == "cdna3" and not published(definition):
            raise UnsupportedInstructionError(
                f"kernel {self._kernel.name} at {instruction.address:#x}: `{instruction.text}`", got="numerics 'cdna3'",
                need="numerics 'exact'", hint="CDNA4 added the instruction, and nobody has published how it rounds",
            )  # fmt: skip
        self._allow_modifiers(instruction, "op_sel", "op_sel_hi", "cbsz", "abid", "blgp", "neg")
        d, a, b = (self._register(instruction, operand, "va") for operand in instruction.operands[:3])
        scales = [self._register(instruction, operand, "va") for operand in instruction.operands[4:6]]
        start = self._accumulator(instruction, instruction.operands[3], d.count)
        self._registers.flush([key for register in (a, b, *scales) for key in self._keys(register)])
        formats = instruction.modifiers.get("cbsz", 0), instruction.modifiers.get("blgp", 0)
        if definition.scaled and definition.m == 16 and formats == (FP4, FP4):
            self._scaled_fp4(instruction, definition, d, a, b, scales, start)
        else:
            self._product(instruction, definition, d, a, b, scales, start)
        self._registers.forget(self._keys(d))

    def _shifts(self, instruction: Instruction) -> list[int]:
        """The bit positions of both scale bytes: byte 2 * OP_SEL_HI + OP_SEL."""
        low, high = (instruction.modifiers.get(name, (0, 0)) for name in ("op_sel", "op_sel_hi"))
        return [8 * (2 * high[number] + low[number]) for number in range(2)]

    def _scaled_fp4(
        self, instruction: Instruction, definition: Mfma, d: Register, a: Register, b: Register,
        scales: list[Register], start: ir.Value,
    ) -> None:  # fmt: skip
        operands = [
            self._decoded(matrix.decoded_operand(side), matrix.OPERAND_BYTES, register)
            for side, register in (("a", a), ("b", b))
        ]
        factors = [
            self._decoded(matrix.decoded_scale(side), matrix.SCALE_BYTES, register, shift)
            for side, register, shift in zip("ab", scales, self._shifts(instruction), strict=True)
        ]
        target = self._registers.address(self._keys(d)[0])
        self._call(matrix.scaled_fp4(definition), [target, *operands, start, *factors])

    def _product(
        self, instruction: Instruction, definition: Mfma, d: Register, a: Register, b: Register,
        scales: list[Register], start: ir.Value,
    ) -> None:  # fmt: skip
        """Any other format."""
        reads, form = self._forms(instruction, definition)
        operands = [
            self._decoded(products.decoded(read), read.nbytes, register)
            for read, register in zip(reads, (a, b), strict=True)
        ]
        arguments = products.unused()
        if scales:
            places = [self._registers.address(self._keys(register)[0]) for register in scales]
            arguments = [
                part for pair in zip(places, map(i32, self._shifts(instruction)), strict=True) for part in pair
            ]
        target = self._registers.address(self._keys(d)[0])
        self._call(products.product(definition, form), [target, *operands, start, *arguments])

    def _forms(
        self, instruction: Instruction, definition: Mfma
    ) -> tuple[tuple[products.Operand, products.Operand], products.Form]:
        """How both operands are read, and the form of the product."""
        cbsz, abid, blgp = (instruction.modifiers.get(name, 0) for name in ("cbsz", "abid", "blgp"))
        negated = instruction.modifiers.get("neg", (0, 0, 0))
        kinds = [definition.a, definition.b]
        if definition.a == "mx":
            numbers = (cbsz, blgp)
            if max(numbers) >= len(MX_FORMATS):
                raise self._unsupported(instruction, f"operand formats {numbers}")
            kinds, cbsz, abid, blgp = [MX_FORMATS[number] for number in numbers], 0, 0, 0
        if negated[2] or (1 << cbsz) > definition.blocks or abid >= 1 << cbsz:
            raise self._unsupported(instruction, f"cbsz {cbsz}, abid {abid}, neg {negated}")
        ocp = self._kernel.target.processor == "gfx950"
        number = products.number_of(definition)
        reads = []
        for kind, size, lanes, minus in (
            (kinds[0], definition.m, 0, negated[0]), (kinds[1], definition.n, blgp, negated[1]),
        ):  # fmt: skip
            items = definition.k * size * definition.blocks // 64
            name = kind if ocp or kind not in ("fp8", "bf8") else f"{kind}_fnuz"
            flush = definition.a == "f32" and not self._mode.denormals_32 & FLUSH_INPUTS
            reads.append(products.Operand(name, items, number, lanes, bool(minus), flush))
        return (reads[0], reads[1]), products.Form(reads[0].kind, reads[1].kind, cbsz, abid, self._numerics)

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
