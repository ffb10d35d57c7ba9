"""What is known, at each point of a program, of the state that changes what instructions mean.

EXEC is followed as far as it is all ones, also by way of SGPRs that are set to that and copied to it later. MODE and
the relative indexing of VGPRs are followed too, because they decide which code is made; a kernel in which they depend
on the path taken is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.decode import EXEC, Immediate, Instruction, Register, Word
from asmlaunch.emulator.flow import writes
from asmlaunch.errors import UnsupportedInstructionError

#: MODE's denormal setting (for f32, and for f16 with f64): bit 0 lets denormal inputs pass, bit 1 denormal results.
FLUSH_INPUTS, FLUSH_RESULTS = 1, 2

_ROLES = ("SRC0", "SRC1", "SRC2", "DST")


@dataclass(frozen=True)
class Mode:
    """State known at a point.

    Attributes:
        full_exec: EXEC is all ones on every path here.
        may_skip: VSKIP may be set, so vector instructions may be skipped.
        indexed: operand roles whose VGPR numbers are relative to M0.
        mode: the MODE register, bits 0..27 (AMD CDNA4 ISA manual, "Mode register").
        ones: numbers of the SGPRs that are all ones on every path here.
    """

    full_exec: bool
    may_skip: bool = False
    indexed: frozenset[str] = frozenset()
    mode: int = 0
    ones: frozenset[int] = frozenset()

    @property
    def denormals_32(self) -> int:
        """The denormal setting of f32."""
        return self.mode >> 4 & 3

    @property
    def denormals_16_64(self) -> int:
        """The denormal setting of f16 and f64."""
        return self.mode >> 6 & 3

    @property
    def rounding(self) -> int:
        """The rounding settings of f32 (bits 1:0) and of f16 and f64 (bits 3:2); 0 is to nearest even."""
        return self.mode & 15

    @property
    def dx10_clamp(self) -> bool:
        """Whether CLAMP turns a NaN into 0."""
        return bool(self.mode >> 8 & 1)

    @property
    def ieee(self) -> bool:
        """Whether minima and maxima quiet signalling NaNs."""
        return bool(self.mode >> 9 & 1)

    @property
    def fp16_overflow(self) -> bool:
        """Whether conversions that overflow give the largest finite number."""
        return bool(self.mode >> 23 & 1)


def at_entry(kernel: KernelInfo, full_exec: bool) -> Mode:
    """The mode that the kernel's descriptor sets."""
    descriptor = kernel.descriptor
    fields = (
        (descriptor.float_round_mode_32, 0), (descriptor.float_round_mode_16_64, 2),
        (descriptor.float_denorm_mode_32, 4), (descriptor.float_denorm_mode_16_64, 6),
        (descriptor.enable_dx10_clamp, 8), (descriptor.enable_ieee_mode, 9), (descriptor.fp16_ovfl, 23),
    )  # fmt: skip
    return Mode(full_exec, mode=sum(value << position for value, position in fields))


def writes_exec(instruction: Instruction) -> bool:
    """Whether EXEC is written: as a destination by name, or by an instruction whose name says so."""
    name = instruction.mnemonic
    if "saveexec" in name or "wrexec" in name or name.startswith("v_cmpx"):
        return True
    first = instruction.operands[0] if instruction.operands else None
    return isinstance(first, Register) and first.file == "s" and first.index + first.count > EXEC


def _moves_ones(instruction: Instruction, mode: Mode) -> bool:
    """Whether this is a scalar move of all ones: the constant -1, or SGPRs that hold it."""
    if instruction.mnemonic not in ("s_mov_b32", "s_mov_b64"):
        return False
    source = instruction.operands[1]
    if isinstance(source, Register):
        return source.file == "s" and mode.ones.issuperset(range(source.index, source.index + source.count))
    return isinstance(source, Immediate) and source.as_int() == -1


def sets_full_exec(instruction: Instruction, mode: Mode) -> bool:
    """Whether this is ``s_mov_b64 exec, -1``, or from SGPRs that hold -1."""
    return writes_exec(instruction) and instruction.mnemonic == "s_mov_b64" and _moves_ones(instruction, mode)


def after(instruction: Instruction, mode: Mode) -> Mode:
    """What is known after an instruction.

    Raises:
        UnsupportedInstructionError: a change of MODE that is not known when the kernel is prepared.
    """
    written = frozenset(place.number for place in writes(instruction) if place.file == "s")
    ones = mode.ones | written if _moves_ones(instruction, mode) else mode.ones - written
    changed = _after(instruction, mode)
    return changed if ones == changed.ones else replace(changed, ones=ones)


def _after(instruction: Instruction, mode: Mode) -> Mode:
    """:func:`after` without ``ones``."""
    name = instruction.mnemonic
    if name == "s_set_gpr_idx_on":
        roles = instruction.operands[1]
        assert isinstance(roles, Word)
        named = roles.text.removeprefix("gpr_idx(").removesuffix(")").split(",")
        return replace(mode, indexed=frozenset(named) & frozenset(_ROLES))
    if name == "s_set_gpr_idx_mode":
        word = instruction.operands[0]
        assert isinstance(word, Word)
        named = word.text.removeprefix("gpr_idx(").removesuffix(")").split(",")
        return replace(mode, indexed=frozenset(named) & frozenset(_ROLES)) if mode.indexed else mode
    if name == "s_set_gpr_idx_off":
        return replace(mode, indexed=frozenset())
    if name == "s_setvskip":
        return replace(mode, may_skip=_may_set_skip(instruction))
    if name in ("s_setreg_b32", "s_setreg_imm32_b32"):
        return _set_register(instruction, mode)
    if writes_exec(instruction):
        return replace(mode, full_exec=sets_full_exec(instruction, mode))
    return mode


def _may_set_skip(instruction: Instruction) -> bool:
    """Whether S0[S1] can be 1: known where both are constants."""
    value, bit = instruction.operands
    if isinstance(value, Immediate) and isinstance(bit, Immediate):
        return bool(value.as_int() >> (bit.as_int() & 31) & 1)
    return True


def hardware_register(instruction: Instruction, word: Word) -> tuple[str, int, int]:
    """Name, first bit and width of ``hwreg(NAME, offset, width)``."""
    match = re.fullmatch(r"hwreg\((\w+)(?:, *(\d+), *(\d+))?\)", word.text)
    assert match is not None, instruction.text
    return match[1], int(match[2] or 0), int(match[3] or 32)


def _set_register(instruction: Instruction, mode: Mode) -> Mode:
    word, source = instruction.operands
    assert isinstance(word, Word)
    name, first, width = hardware_register(instruction, word)
    if name != "HW_REG_MODE" or not isinstance(source, Immediate):
        raise UnsupportedInstructionError(
            f"`{instruction.text}` at {instruction.address:#x}",
            got=f"{name} set to {'a constant' if isinstance(source, Immediate) else 'what a register holds'}",
            need="HW_REG_MODE set to a constant",
            hint="run the kernel on a GPU",
        )
    mask = (1 << width) - 1 << first
    return replace(mode, mode=mode.mode & ~mask | source.as_int() << first & mask)


def join(one: Mode, other: Mode, address: int) -> Mode:
    """What is known where two paths meet.

    Raises:
        UnsupportedInstructionError: MODE or the relative operands differ.
    """
    if (one.indexed, one.mode) != (other.indexed, other.mode):
        raise UnsupportedInstructionError(
            f"the paths that meet at {address:#x}",
            got=f"MODE {one.mode:#x} and {other.mode:#x}, relative operands {sorted(one.indexed)} and "
            f"{sorted(other.indexed)}",
            need="the same on all paths",
            hint="run the kernel on a GPU",
        )
    return replace(
        one,
        full_exec=one.full_exec and other.full_exec,
        may_skip=one.may_skip or other.may_skip,
        ones=one.ones & other.ones,
    )
