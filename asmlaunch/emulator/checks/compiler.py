"""Blocks compiled with checks: every instruction as without, and what the shadow has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.checks import matrix, native
from asmlaunch.emulator.checks.memory import ShadowedMemory
from asmlaunch.emulator.checks.plan import make_plan
from asmlaunch.emulator.checks.registers import ALL
from asmlaunch.emulator.checks.state import COUNTERS, SHADOW, Kind
from asmlaunch.emulator.checks.waits import NO_LIMIT, wait_of
from asmlaunch.emulator.decode import Instruction, Operand, Register
from asmlaunch.emulator.emit.registers import Key
from asmlaunch.emulator.flow import reads
from asmlaunch.emulator.isa.table import Branch, Control, Mfma
from asmlaunch.emulator.lower import I1, I64
from asmlaunch.emulator.program import Program
from asmlaunch.emulator.state import WAVE, Status


def checked_compiler(program: Program, checks: Sequence[str]) -> Callable[..., CheckedBlockCompiler]:
    """What makes the compilers of a program's blocks, for ``compile_blocks``."""
    return partial(CheckedBlockCompiler, make_plan(program, checks))


class CheckedBlockCompiler(ShadowedMemory):
    """Compiles one block with the checks of a plan."""

    def compile(self) -> None:
        """Emit the block's function."""
        if self._block.index == 0:
            executed = self._code.get(self._wave, WAVE, "executed")
            with self._build.if_then(self._build.icmp_unsigned("==", executed, i64(0))):
                self._call(native.enter(), [self._wave])
        super().compile()

    # ------------------------------------------------------------ waits

    def _begin(self, instruction: Instruction) -> None:
        """What is tested before an instruction: registers that may still be on their way."""
        self._at = instruction
        self._values.clear()
        for place, names in self._plan.suspects.uses.get(instruction.address, {}).items():
            marked = self._code.load(self._issued(place), I64, 8)
            issued, counter = self._build.lshr(marked, i64(2)), self._build.and_(marked, i64(3))
            early: ir.Value = ir.Constant(I1, 0)
            for name in names:
                done = self._code.get(self._shadow, SHADOW, f"done_{name}")
                outstanding = self._build.icmp_signed(">", issued, done)
                own = self._build.icmp_unsigned("==", counter, i64(COUNTERS.index(name)))
                early = self._build.or_(early, self._build.and_(own, outstanding))
            named = "sva".index(place.file) << 16 | place.number
            self._note_if(early, instruction, Kind.EARLY_REGISTER, i64(0), named)

    def _waited(self, instruction: Instruction) -> None:
        wait = wait_of(instruction)
        for name, limit in (("vm", wait.vm), ("lds", wait.lgkm), ("scalar", wait.lgkm)):
            if limit >= NO_LIMIT or (name == "scalar" and limit):
                continue
            issued = self._code.get(self._shadow, SHADOW, f"issued_{name}")
            arrived = self._build.sub(issued, i64(limit))
            done = self._code.get(self._shadow, SHADOW, f"done_{name}")
            later = self._build.icmp_signed(">", arrived, done)
            self._code.put(self._shadow, SHADOW, f"done_{name}", self._build.select(later, arrived, done))

    # ------------------------------------------------------------ control

    def _control(self, instruction: Instruction, definition: Control) -> Status | None:
        self._begin(instruction)
        status = super()._control(instruction, definition)
        if definition.action == "wait" and "waits" in self._plan.checks:
            self._waited(instruction)
        elif definition.action == "barrier":
            self._call(native.barrier_passed(), [self._wave])
        elif definition.action == "end" and "barriers" in self._plan.checks:
            self._call(native.ended(), [self._wave, self._number(instruction)])
        elif definition.action.startswith("index") and self._plan.definedness:
            self._require_defined(instruction, Kind.UNDEFINED_ADDRESS)
        return status

    def _jump(self, instruction: Instruction) -> ir.Value:
        self._begin(instruction)
        if self._plan.definedness:
            self._require_defined(instruction, Kind.UNDEFINED_BRANCH)
        return super()._jump(instruction)

    def _write_program_counter(self, instruction: Instruction) -> None:
        super()._write_program_counter(instruction)
        target = instruction.operands[0]
        if isinstance(target, Register):
            for key in self._keys(target):
                self._shadows.write(key, i32(-1))

    def _branch(self, instruction: Instruction, definition: Branch) -> ir.Value:
        self._begin(instruction)
        if self._plan.definedness:
            self._require_defined(instruction, Kind.UNDEFINED_BRANCH)
        return super()._branch(instruction, definition)

    def _require_defined(self, instruction: Instruction, kind: Kind) -> None:
        """Everything scalar that the instruction reads must be defined."""
        good = ALL
        logic = self._logic()
        for place in reads(instruction):
            if place.file in ("s", "scc"):
                good = logic.both(good, logic.whole(self._shadows.of(Key(place.file, place.number))))
        if good is not ALL:
            self._note_if(self._build.icmp_signed("!=", good, ALL), instruction, kind, i64(0))

    # ------------------------------------------------------------ the other instructions

    def _emit(self, instruction: Instruction) -> None:
        self._begin(instruction)
        super()._emit(instruction)

    def _mfma(self, instruction: Instruction, definition: Mfma) -> None:
        c, d = instruction.operands[3], instruction.operands[0]
        assert isinstance(d, Register)
        floats = instruction.mnemonic.startswith(("v_mfma_f32", "v_mfma_scale_f32"))
        numerics = floats and "numerics" in self._plan.checks
        masks = self._code.local(I64, d.count) if numerics else None
        if masks is not None:
            self._remember_nans(c, masks, d.count)
        if self._plan.definedness:
            self._follow_matrix(instruction, definition, d)
        super()._mfma(instruction, definition)
        if masks is not None:
            rows = self._registers.address(self._keys(d)[0])
            self._call(matrix.new_nans(), [self._wave, self._number(instruction), rows, masks, i32(d.count)])

    def _remember_nans(self, c: Operand, masks: ir.Value, count: int) -> None:
        if isinstance(c, Register):
            self._registers.flush(self._keys(c))
            self._call(matrix.remember_nans(), [self._registers.address(self._keys(c)[0]), masks, i32(count)])
        else:
            for number in range(count):
                self._code.store(i64(0), self._code.at(masks, 8 * number), 8)

    def _follow_matrix(self, instruction: Instruction, definition: Mfma, d: Register) -> None:
        """The result's shadows from the operands'."""
        _, a, b, c, *scales = instruction.operands
        rows, columns = (
            self._all_defined([operand, *scales[number : number + 1]]) for number, operand in enumerate((a, b))
        )
        keys = self._keys(d)
        accumulator = self._keys(c) if isinstance(c, Register) else keys
        self._shadows.flush(accumulator)
        symbol = matrix.result_shadows(definition, d.count, isinstance(c, Register))
        pointers = [self._shadows.address(accumulator[0]), self._shadows.address(keys[0])]
        self._call(symbol, [rows, columns, *pointers])
        self._shadows.forget(keys)

    def _all_defined(self, operands: Sequence[Operand]) -> ir.Value:
        """The lanes in which all registers of some operands are defined."""
        logic, total = self._logic(), ALL
        for operand in operands:
            if isinstance(operand, Register):
                for key in self._keys(operand):
                    total = logic.both(total, logic.lanes(self._shadows.of(key)))
        return total
