"""Jumps through registers: function calls and returns.

Compilers make a function's address from the program counter and a constant, so the targets of calls can be read off
the code around them (LLVM emits s_getpc_b64, s_add_u32, s_addc_u32, s_swappc_b64). A return may go to the instruction
after any call. Where a wave really goes is decided when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from asmlaunch.emulator.decode import Immediate, Instruction, Operand, Register
from asmlaunch.emulator.flow import writes
from asmlaunch.emulator.isa.table import Control, find

_MASK = 0xFFFFFFFF


def action(instruction: Instruction) -> str:
    """What a control instruction does; "" for others."""
    definition = find(instruction.mnemonic)
    return definition.action if isinstance(definition, Control) else ""


def jumps(instruction: Instruction) -> bool:
    """Whether control goes on at an address in a register."""
    return action(instruction) in ("jump", "call")


def indirect_targets(instructions: Mapping[int, Instruction]) -> set[int]:
    """Where jumps through registers may go: to known addresses, and back to after each call."""
    return constant_targets(instructions) | {one.end for one in instructions.values() if action(one) == "call"}


def constant_targets(instructions: Mapping[int, Instruction]) -> set[int]:
    """Addresses that jumps through registers are known to go to.

    Constants are followed through instructions in the order of their addresses, from each ``s_getpc_b64`` on.
    """
    known: dict[int, int] = {}  # SGPR -> its value
    carry: int | None = None
    found = set()
    for _, instruction in sorted(instructions.items()):
        name, operands = instruction.mnemonic, instruction.operands
        if jumps(instruction):
            source = operands[-1]
            assert isinstance(source, Register)
            low, high = (known.get(source.index + half) for half in range(2))
            if low is not None and high is not None:
                found.add(high << 32 | low)
        result: dict[int, int] = {}
        target = operands[0].index if operands and isinstance(operands[0], Register) else 0
        if action(instruction) in ("pc", "call"):
            result = {target: instruction.end & _MASK, target + 1: instruction.end >> 32}
        elif name in ("s_add_u32", "s_addc_u32", "s_sub_u32", "s_subb_u32", "s_mov_b32"):
            values = [_value(operand, known) for operand in operands[1:]]
            taken = carry if name in ("s_addc_u32", "s_subb_u32") else 0
            if None not in values and taken is not None:
                first, second = (*values, 0)[:2]
                assert first is not None
                assert second is not None
                total = first - second - taken if "sub" in name else first + second + taken
                result = {target: total & _MASK}
                carry = int(not 0 <= total <= _MASK)
        for place in writes(instruction):
            if place.file == "s":
                known.pop(place.number, None)
            elif place.file == "scc" and not result:
                carry = None
        known |= result
    return found


def _value(operand: Operand, known: Mapping[int, int]) -> int | None:
    if isinstance(operand, Immediate):
        return operand.as_int() & _MASK
    if isinstance(operand, Register) and operand.file == "s":
        return known.get(operand.index)
    return None
