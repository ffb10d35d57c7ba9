"""What operand and output modifiers mean, as expressions (AMD CDNA4 ISA manual, "VALU Operands", SDWA, DPP, VOP3P)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.emulator.isa.language import (
    I8,
    I16,
    U8,
    U16,
    U32,
    Bool,
    Float,
    Integer,
    T,
    is_nan,
    lane,
    magnitude,
    negate,
    pattern,
    select,
)

LANES = 64

# ---------------------------------------------------------------- sources


def signed_source(value: T, *, neg: bool, absolute: bool) -> T:
    """ABS, then NEG. They work on the sign bit: a dword that is no float is treated as one (v_cndmask_b32)."""
    result: Any = value
    if absolute:
        result = magnitude(result)
    if neg:
        result = negate(result)
    answer: T = result
    return answer


#: SDWA selectors: type of the part, with and without sign, and the bit where it starts.
SDWA_PARTS: Mapping[str, tuple[type[Integer], type[Integer], int]] = {
    "BYTE_0": (U8, I8, 0), "BYTE_1": (U8, I8, 8), "BYTE_2": (U8, I8, 16), "BYTE_3": (U8, I8, 24),
    "WORD_0": (U16, I16, 0), "WORD_1": (U16, I16, 16),
}  # fmt: skip


def sdwa_source(dword: U32, selector: str, sext: bool) -> U32:
    """The selected part of a source, extended to a dword."""
    if selector == "DWORD":
        return dword
    unsigned, signed, start = SDWA_PARTS[selector]
    return (dword >> start).to(signed if sext else unsigned).to(U32)


def sdwa_result(value: U32, old: U32, selector: str, unused: str) -> U32:
    """A result put into the selected part of a destination; the rest is zeroed, sign-extended or preserved."""
    if selector == "DWORD":
        return value
    unsigned, signed, start = SDWA_PARTS[selector]
    mask = ((1 << unsigned.bits) - 1) << start
    if unused == "UNUSED_PRESERVE":
        return (old & ~U32.const(mask)) | ((value << start) & mask)
    if unused == "UNUSED_SEXT":
        return value.to(signed).to(U32) << start
    return (value << start) & mask


# ---------------------------------------------------------------- DPP

_ROW = 16


def _shifted(distance: Callable[[NDArray[Any], int], NDArray[Any]]) -> Callable[..., tuple[Any, Any]]:
    def pattern_of(lanes: NDArray[Any], amount: int) -> tuple[Any, Any]:
        source = distance(lanes, amount)
        return source % LANES, source // _ROW == lanes // _ROW

    return pattern_of


def _always(source: Callable[[NDArray[Any], int], NDArray[Any]]) -> Callable[..., tuple[Any, Any]]:
    return lambda lanes, amount: (source(lanes, amount), np.ones(LANES, bool))


#: Control -> (lanes, its number) -> source lanes, and which of them exist.
_DPP: Mapping[str, Callable[..., tuple[Any, Any]]] = {
    "row_shl": _shifted(lambda n, amount: n + amount),
    "row_shr": _shifted(lambda n, amount: n - amount),
    "row_ror": _always(lambda n, amount: n // _ROW * _ROW + (n - amount) % _ROW),
    "wave_shl": lambda n, amount: ((n + 1) % LANES, n != LANES - 1),
    "wave_rol": _always(lambda n, amount: (n + 1) % LANES),
    "wave_shr": lambda n, amount: ((n - 1) % LANES, n != 0),
    "wave_ror": _always(lambda n, amount: (n - 1) % LANES),
    "row_mirror": _always(lambda n, amount: n // _ROW * _ROW + _ROW - 1 - n % _ROW),
    "row_half_mirror": _always(lambda n, amount: n // 8 * 8 + 7 - n % 8),
    "row_newbcast": _always(lambda n, amount: n // _ROW * _ROW + amount),
    "row_bcast": lambda n, amount: (
        (n // _ROW * _ROW - 1) % LANES if amount == 15 else np.full(LANES, 31), n >= amount + 1
    ),
}  # fmt: skip

DPP_NAMES = frozenset(("quad_perm", *_DPP))


def dpp_pattern(modifiers: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The lane that each lane reads its first source from, and whether there is one."""
    lanes = np.arange(LANES)
    if "quad_perm" in modifiers:
        return lanes // 4 * 4 + np.array(modifiers["quad_perm"])[lanes % 4], np.ones(LANES, bool)
    name = next(name for name in _DPP if name in modifiers)
    source, valid = _DPP[name](lanes, int(modifiers[name]))
    return source.astype(np.int64), valid.astype(np.bool_)


def dpp_written(modifiers: Mapping[str, Any]) -> NDArray[np.bool_]:
    """The lanes that ROW_MASK and BANK_MASK leave to be written."""
    lanes = np.arange(LANES)
    rows, banks = modifiers.get("row_mask", 15), modifiers.get("bank_mask", 15)
    written: NDArray[np.bool_] = ((rows >> lanes // _ROW & 1) & (banks >> lanes % _ROW // 4 & 1)) != 0
    return written


def lane_table(values: NDArray[Any]) -> U32:
    """A constant that differs from lane to lane."""
    return U32("table", (lane(),), tuple(int(value) for value in values))


def lane_flags(values: NDArray[np.bool_]) -> Bool:
    """A constant condition that differs from lane to lane."""
    return lane_table(values) != 0


# ---------------------------------------------------------------- results

_OMOD = {("mul", 2): 2.0, ("mul", 4): 4.0, ("div", 2): 0.5}


def output_modified(value: T, modifiers: Mapping[str, Any]) -> T:
    """OMOD: a float result times 2, 4 or 1/2."""
    for (name, number), factor in _OMOD.items():
        if isinstance(value, Float) and modifiers.get(name) == number:
            value = value * factor
    return value


def clamped(value: T, dx10: bool) -> T:
    """CLAMP of a float result: into 0..1; a NaN becomes 0 where MODE.DX10_CLAMP is set and else stays."""
    if not isinstance(value, Float):
        return value
    kind = type(value)
    result: Any = select(value > 1.0, kind.const(1.0), select(value > 0.0, value, kind.const(0.0)))
    answer: T = result if dx10 else select(is_nan(value), value, result)
    return answer


def flushed(value: T) -> T:
    """A denormal becomes a zero of its sign."""
    if not isinstance(value, Float):
        return value
    bits: Any = pattern(value)
    digits = {16: 10, 32: 23, 64: 52}[value.bits]
    exponent = ((1 << (value.bits - 1 - digits)) - 1) << digits
    result: T = select((bits & exponent) == 0, bits & (1 << (value.bits - 1)), bits).bits_as(type(value))
    return result
