"""A kernel's blocks -> native code.

Each block becomes one function ``i32 block(wave)`` that returns the index of the next block. Inside a block
registers are SSA values, read from the wave's register file at first use and written back at the end; memory and
matrix instructions call helpers that work on the register file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from llvmlite import ir

from asmlaunch.emulator import calls, jit, mode, program
from asmlaunch.emulator.build import Code, i32, i64, new_module
from asmlaunch.emulator.decode import EXEC, M0, Instruction, Word
from asmlaunch.emulator.emit.arithmetic import Arithmetic
from asmlaunch.emulator.emit.forms import Forms, form_of
from asmlaunch.emulator.emit.matrix import Matrix
from asmlaunch.emulator.emit.memory import Memory
from asmlaunch.emulator.emit.registers import Key, place
from asmlaunch.emulator.flow import EXEC_PLACE, Place, writes
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.table import Access, Branch, Compute, Control, Mfma, find
from asmlaunch.emulator.lower import I32, I64, PTR, Lowering, given
from asmlaunch.emulator.state import LANES, WAVE, Status
from asmlaunch.errors import UnsupportedInstructionError


def compile_blocks(parsed: program.Program, compiler: Callable[..., BlockCompiler] | None = None) -> str:
    """LLVM IR of a module with one function a block, ``block0`` the entry (``emulator.prepare`` makes code of it).

    Args:
        compiler: what makes the compiler of a block; None compiles without checks.

    Raises:
        UnsupportedInstructionError: a modifier or mode that the emulator does not define.
    """
    kernel = parsed.kernel
    if kernel.wavefront_size != LANES:
        raise UnsupportedInstructionError(
            f"wavefront size of kernel {kernel.name}", got=kernel.wavefront_size, need=f"{LANES} (gfx9)"
        )
    module = new_module(jit.host().triple, jit.host().layout)
    numbers = {instruction.address: number for number, instruction in enumerate(parsed.accesses)}
    addresses = {block.index: block.address for block in parsed.blocks}
    make = compiler or partial(CallingCompiler, Forms(kernel))
    for block in parsed.blocks:
        code, (wave,) = Code.function(module, f"block{block.index}", I32, [PTR])
        make(kernel, block, code, wave, numbers, addresses, parsed.numerics).compile()
    return str(module)


class BlockCompiler(Arithmetic, Memory, Matrix):
    """Compiles one block, instruction by instruction."""

    def compile(self) -> None:
        """Emit the block's function."""
        following: ir.Value | None = None
        status = Status.READY
        for skippable, group in self._runs():
            if skippable:
                self._unless_skipped(group)
                continue
            for instruction in group:
                definition = find(instruction.mnemonic)
                if isinstance(definition, Branch):
                    following = self._branch(instruction, definition)
                elif calls.jumps(instruction):
                    following = self._jump(instruction)
                elif isinstance(definition, Control):
                    status = self._control(instruction, definition) or status
                else:
                    self._emit(instruction)
                self._mode = mode.after(instruction, self._mode)
        self._finish(following, status)

    def _runs(self) -> Iterator[tuple[bool, Sequence[Instruction]]]:
        """The block's instructions in runs that VSKIP may skip as a whole, and others."""
        state, marked = self._block.mode, []
        for instruction in self._block.instructions:
            marked.append((state.may_skip and is_vector(instruction), instruction))
            state = mode.after(instruction, state)
        for skippable, run in groupby(marked, key=lambda pair: pair[0]):
            yield skippable, [instruction for _, instruction in run]

    def _unless_skipped(self, group: Sequence[Instruction]) -> None:
        """Vector instructions that are not issued while MODE.VSKIP is set; registers pass through memory."""
        registers = self._registers
        skip = registers.read(Key("skip", 0)).ir
        registers.flush()
        before = self._mode
        with self._build.if_then(self._build.not_(skip)):
            for instruction in group:
                self._emit(instruction)
                self._mode = mode.after(instruction, self._mode)
            registers.flush()
        registers.forget_all()
        self._mode = replace(self._mode, full_exec=self._mode.full_exec and before.full_exec)

    def _emit(self, instruction: Instruction) -> None:
        definition = find(instruction.mnemonic)
        if self._mode.rounding and not isinstance(definition, Access):
            raise self._unsupported(
                instruction, f"rounding mode {self._mode.rounding:#x}; the emulator defines 0 (nearest even)"
            )
        if isinstance(definition, Compute):
            self._compute(instruction, definition)
        elif isinstance(definition, Access):
            self._access(instruction, definition)
        else:
            assert isinstance(definition, Mfma)
            self._mfma(instruction, definition)

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

    def _branch(self, instruction: Instruction, definition: Branch) -> ir.Value:
        target = i32(self._block.target if self._block.target is not None else 0)
        if definition.condition is None:
            return target
        values = [self._state(kind, instruction, name) for name, kind in definition.sources]
        taken = Lowering(self._build)(definition.condition, *values).ir
        assert self._block.fallthrough is not None
        return self._build.select(taken, target, i32(self._block.fallthrough))

    def _jump(self, instruction: Instruction) -> ir.Value:
        """To an address in SGPRs; a call leaves the address of the next instruction. Where no code is known the wave
        stops.
        """
        operand = self._register(instruction, instruction.operands[-1], "s")
        address = self._pair(operand)
        if calls.action(instruction) == "call":
            self._write_program_counter(instruction)
        build, following = self._build, i32(-1)
        for index, start in self._block_addresses.items():
            if index in self._block.indirect:
                there = build.icmp_unsigned("==", address, i64(start))
                following = build.select(there, i32(index), following)
        lost = build.icmp_signed("<", following, i32(0))
        with build.if_then(lost):
            self._code.put(self._wave, WAVE, "status", i32(Status.LOST))
        return build.select(lost, i32(self._block.index), following)

    def _write_program_counter(self, instruction: Instruction) -> None:
        """The address of the next instruction, to an SGPR pair (manual, S_GETPC_B64, S_SWAPPC_B64)."""
        target = self._register(instruction, instruction.operands[0], "s")
        self._write_pair(self._keys(target)[0], i64(instruction.end))

    def _control(self, instruction: Instruction, definition: Control) -> Status | None:
        if definition.action == "end":
            return Status.ENDED
        if definition.action == "barrier":
            return Status.BARRIER
        if definition.action == "index_on":
            source, roles = instruction.operands
            self._set_index(given(isa.U32, self._scalar(instruction, source)), roles)
        elif definition.action == "index_number":
            self._set_index(given(isa.U32, self._scalar(instruction, instruction.operands[0])), None)
        elif definition.action == "index_roles":
            self._set_index(None, instruction.operands[0])
        elif definition.action == "skip":
            self._set_skip(instruction)
        elif definition.action == "pc":
            self._write_program_counter(instruction)
        return None

    def _set_index(self, index: isa.U32 | None, roles: object) -> None:
        """M0[7:0] = the index, M0[15:12] = the roles; other bits of M0 stay (manual, S_SET_GPR_IDX_*)."""
        registers = self._registers
        m0: isa.U32 = given(isa.U32, registers.read(Key("s", M0)))
        if index is not None:
            m0 = (m0 & 0xFFFFFF00) | (index & 0xFF)
        if isinstance(roles, Word):
            names = roles.text.removeprefix("gpr_idx(").removesuffix(")").split(",")
            bits = sum(1 << position for position, name in enumerate(("SRC0", "SRC1", "SRC2", "DST")) if name in names)
            m0 = (m0 & 0xFFFF0FFF) | (bits << 12)
        registers.write(Key("s", M0), Lowering(self._build).cell(m0))

    def _set_skip(self, instruction: Instruction) -> None:
        """MODE.VSKIP = S0[S1[4:0]] (manual, S_SETVSKIP)."""
        value, bit = (self._source(instruction, operand, isa.U32) for operand in instruction.operands)
        assert isinstance(value, isa.U32)
        assert isinstance(bit, isa.U32)
        skip = ((value >> (bit & 31)) & 1) != 0
        self._registers.write(Key("skip", 0), Lowering(self._build).cell(skip))


class CallingCompiler(BlockCompiler):
    """Compiles one block, in which instructions that compute are calls of their forms."""

    def __init__(self, forms: Forms, *args: Any) -> None:
        super().__init__(*args)
        self._called = forms

    def _compute(self, instruction: Instruction, definition: Compute) -> None:
        # LLVM's fast instruction selection knows scalars: as they stand they run faster and compile as fast.
        if self._mode.indexed or definition.unit == "salu":
            super()._compute(instruction, definition)
            return
        form = form_of(instruction.operands)
        symbol = self._called.need(instruction, form, replace(self._mode, may_skip=False))
        self._registers.flush()
        self._call(symbol, [self._wave, *(i64(place(key)) for key in form.first)])
        self._registers.forget([key for written in writes(instruction) for key in _keys(written)])


def _keys(place: Place) -> list[Key]:
    """The registers of a place."""
    return [Key("s", EXEC), Key("s", EXEC + 1)] if place == EXEC_PLACE else [Key(*place)]


def is_vector(instruction: Instruction) -> bool:
    """Whether VSKIP keeps the instruction from being issued: VALU, matrix, vector memory and LDS (manual, "VSKIP")."""
    definition = find(instruction.mnemonic)
    if isinstance(definition, Compute):
        return definition.unit == "valu"
    if isinstance(definition, Access):
        return not definition.space.startswith("scalar")
    return isinstance(definition, Mfma)
