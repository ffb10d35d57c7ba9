"""Vector comparisons: one bit a lane to VCC or an SGPR pair, and to EXEC in the V_CMPX forms (AMD CDNA4 ISA manual,
VOPC opcodes).
"""

from collections.abc import Callable
from typing import Any

from asmlaunch.emulator.isa.language import (
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    U16,
    U32,
    U64,
    Active,
    Bool,
    Mask,
    Value,
    active,
    is_nan,
    is_negative,
    magnitude,
    mask,
    pattern,
    select,
)
from asmlaunch.emulator.isa.table import compute

Compare = Callable[[Any, Any], Any]

#: What scalar, integer and float comparisons have in common.
ORDER: dict[str, Compare] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}

INTEGER: dict[str, Compare] = {
    "f": lambda a, b: Bool.const(0),
    **ORDER,
    "ne": lambda a, b: a != b,
    "t": lambda a, b: Bool.const(1),
}


def _negated(compare: Compare) -> Compare:
    return lambda a, b: ~compare(a, b)


#: False where an operand is a NaN; each has a negation, which is true there.
_ORDERED: dict[str, Compare] = {**ORDER, "lg": lambda a, b: (a < b) | (a > b)}

FLOAT: dict[str, Compare] = {
    "f": lambda a, b: Bool.const(0),
    **_ORDERED,
    "o": lambda a, b: ~(is_nan(a) | is_nan(b)),
    "u": lambda a, b: is_nan(a) | is_nan(b),
    **{f"n{name}": _negated(compare) for name, compare in _ORDERED.items()},
    "tru": lambda a, b: Bool.const(1),
}


def _define(stem: str, first: type[Value], second: type[Value], compare: Compare, **properties: Any) -> None:
    def to_mask(s0: first, s1: second) -> Mask:  # type: ignore[valid-type]
        return mask(compare(s0, s1))

    def to_mask_and_exec(s0: first, s1: second) -> tuple[Mask, Active]:  # type: ignore[valid-type]
        result = compare(s0, s1)
        return mask(result), active(result)

    compute("valu", f"v_cmp_{stem}", to_mask, **properties)
    compute("valu", f"v_cmpx_{stem}", to_mask_and_exec, **properties)


def _class(value: Any, chosen: Any) -> Any:
    """Whether ``value`` is of one of the classes whose bits are set (manual, V_CMP_CLASS_F32)."""
    digits = {16: 10, 32: 23, 64: 52}[value.bits]
    size = pattern(magnitude(value))
    infinite = ((1 << (value.bits - 1 - digits)) - 1) << digits
    quiet = (size >> (digits - 1)) & 1
    negative = is_negative(value)

    def signed(minus: int, plus: int) -> Any:
        return select(negative, U32.const(minus), U32.const(plus))

    number = select(
        size > infinite,
        select(quiet != 0, U32.const(1), U32.const(0)),
        select(
            size == infinite,
            signed(2, 9),
            select(size >= (1 << digits), signed(3, 8), select(size != 0, signed(4, 7), signed(5, 6))),
        ),
    )
    return ((chosen >> number) & 1) != 0


for _kind in (I16, U16, I32, U32, I64, U64):
    for _name, _compare in INTEGER.items():
        _define(f"{_name}_{'i' if _kind.signed else 'u'}{_kind.bits}", _kind, _kind, _compare)
for _float in (F16, F32, F64):
    for _name, _compare in FLOAT.items():
        _define(f"{_name}_f{_float.bits}", _float, _float, _compare)
    _define(f"class_f{_float.bits}", _float, U32, _class, denormals="keep")
