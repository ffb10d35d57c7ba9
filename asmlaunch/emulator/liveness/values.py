"""What is known of a register's value: a constant, or half of a pointer into the kernarg segment.

Constants go through the instructions' own definitions; the rules for pointers are the few ways in which code moves
and offsets one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.evaluate import NotConstantError, evaluate
from asmlaunch.emulator.isa.table import Compute, find

ONES = 0xFFFFFFFF


@dataclass(frozen=True)
class Low:
    """The low dword of kernarg base + ``offset`` bytes."""

    offset: int


@dataclass(frozen=True)
class High:
    """The high dword of a pointer into the kernarg segment."""


Value = int | Low | High
HIGH = High()

#: Bytes that the kernarg segment is aligned to at least (LLVM's AMDGPU guide, "Kernel dispatch": 16).
ALIGNMENT = 16


def signed(value: int) -> int:
    """A dword as a signed number."""
    return value - (1 << 32) if value >> 31 else value


def move(a: Value | None) -> Value | None:
    """A copy."""
    return a


def add(a: Value | None, b: Value | None) -> Value | None:
    """A dword sum; pointer plus constant moves the pointer."""
    if isinstance(a, int) and isinstance(b, int):
        return (a + b) & ONES
    if isinstance(a, Low) and isinstance(b, int):
        return Low(a.offset + signed(b))
    return add(b, a) if isinstance(b, Low) and isinstance(a, int) else None


def subtract(a: Value | None, b: Value | None) -> Value | None:
    """A dword difference; pointer minus constant moves the pointer."""
    return add(a, -b & ONES) if isinstance(b, int) else None


def add_high(a: Value | None, b: Value | None) -> Value | None:
    """The high dword of a 64-bit sum or difference: the pointer's, when the other is the sign of a short offset."""
    for pointer, other in ((a, b), (b, a)):
        if isinstance(pointer, High) and other in (0, ONES):
            return pointer
    return None


def bit_and(a: Value | None, b: Value | None) -> Value | None:
    """Conjunction: constants, and masks that leave what matters of a pointer (48 bits of address, its alignment)."""
    if a == 0 or b == 0:
        return 0
    if isinstance(a, int) and isinstance(b, int):
        return a & b
    for pointer, mask in ((a, b), (b, a)):
        if isinstance(mask, int):
            if isinstance(pointer, High) and mask & 0xFFFF == 0xFFFF:
                return pointer
            cleared = ~mask & ONES
            if isinstance(pointer, Low) and cleared < ALIGNMENT:
                return Low(pointer.offset & ~cleared)
    return None


def bit_or(a: Value | None, b: Value | None) -> Value | None:
    """Disjunction: constants, and bits above the 48 of an address (a buffer resource's stride)."""
    if ONES in (a, b):
        return ONES
    if isinstance(a, int) and isinstance(b, int):
        return a | b
    for pointer, extra in ((a, b), (b, a)):
        if isinstance(extra, int) and (extra == 0 or (isinstance(pointer, High) and extra & 0xFFFF == 0)):
            return pointer
    return None


def shift_add(a: Value | None, count: Value | None, b: Value | None) -> Value | None:
    """``(a << count) + b``, low dwords."""
    if isinstance(count, int):
        if isinstance(a, int):
            return add((a << (count & 63)) & ONES, b)
        if count == 0:
            return add(a, b)
    return None


def shift_add_high(a: Value | None, count: Value | None, b: Value | None) -> Value | None:
    """``(a << count) + b``, high dwords of short offsets."""
    return add_high(a, b) if count == 0 or a == 0 else None


Rule = Callable[..., Value | None]

#: Mnemonic -> rule for a dword.
DWORD: dict[str, Rule] = {
    "s_mov_b32": move, "v_mov_b32": move, "v_accvgpr_read_b32": move, "v_accvgpr_write_b32": move,
    "v_readfirstlane_b32": move,
    "s_add_u32": add, "s_add_i32": add, "v_add_u32": add, "v_add_i32": add, "v_add_co_u32": add,
    "s_sub_u32": subtract, "v_sub_u32": subtract, "v_sub_co_u32": subtract,
    "s_addc_u32": add_high, "v_addc_co_u32": add_high, "s_subb_u32": add_high, "v_subb_co_u32": add_high,
    "s_and_b32": bit_and, "v_and_b32": bit_and, "s_or_b32": bit_or, "v_or_b32": bit_or,
}  # fmt: skip

#: Mnemonic -> rules for the low and the high dword.
QWORD: dict[str, tuple[Rule, Rule]] = {
    "s_mov_b64": (move, move), "v_mov_b64": (move, move),
    "s_and_b64": (bit_and, bit_and), "s_or_b64": (bit_or, bit_or),
    "v_lshl_add_u64": (shift_add, shift_add_high),
}  # fmt: skip


@lru_cache(maxsize=1 << 14)
def fold(mnemonic: str, sources: tuple[int, ...], scc: int | None) -> tuple[int | None, int | None]:
    """Result and SCC of a scalar dword instruction on constants, by its definition; None where they are not known.

    An instruction that reads its destination has that value first among ``sources``.
    """
    definition = find(mnemonic)
    if not isinstance(definition, Compute) or definition.unit != "salu":
        return None, None
    given = list(sources)
    values: list[isa.Value] = []
    for _, kind in definition.sources:
        if kind is isa.Scc:
            if scc is None:
                return None, None
            values.append(isa.Scc("ne", (isa.u32(scc), isa.u32(0))))
        elif kind.bits != 32 or not given:
            return None, None
        else:
            number = given.pop(0)
            # A 16-bit immediate is printed as its pattern; the definition takes the number.
            values.append(kind.const((number & 0xFFFF ^ 0x8000) - 0x8000 if kind is isa.Simm16 else number & ONES))
    results = definition.meaning(*values)
    results = results if isinstance(results, tuple) else (results,)
    answer: int | None = None
    condition: int | None = None
    for kind, result in zip(definition.results, results, strict=True):
        found = _evaluated(result)
        if kind is isa.Scc:
            condition = found
        elif kind.bits == 32:
            answer = found
    return answer, condition


def _evaluated(value: isa.Value) -> int | None:
    try:
        return int(evaluate(value)[0].astype(np.int64)) & ONES
    except NotConstantError:
        return None


def constants(values: Sequence[Value | None]) -> tuple[int, ...] | None:
    """The values when all are constants, else None."""
    found = tuple(value for value in values if isinstance(value, int))
    return found if len(found) == len(values) else None
