"""Constants and kernarg pointers, as the rules of ``liveness.values`` combine them."""

from __future__ import annotations

import pytest

from asmlaunch.emulator.liveness import values
from asmlaunch.emulator.liveness.values import HIGH, ONES, Low, Value, fold

RULES: list[tuple[values.Rule, tuple[Value | None, ...], Value | None]] = [
    (values.add, (3, 4), 7),
    (values.add, (ONES, 2), 1),
    (values.add, (Low(16), ONES - 7), Low(8)),
    (values.add, (8, Low(16)), Low(24)),
    (values.add, (Low(16), Low(16)), None),
    (values.add, (None, 4), None),
    (values.subtract, (Low(16), 4), Low(12)),
    (values.subtract, (Low(16), None), None),
    (values.subtract, (9, 4), 5),
    (values.add_high, (HIGH, 0), HIGH),
    (values.add_high, (ONES, HIGH), HIGH),
    (values.add_high, (HIGH, 1), None),
    (values.add_high, (0, 0), None),
    (values.bit_and, (None, 0), 0),
    (values.bit_and, (12, 10), 8),
    (values.bit_and, (HIGH, 0xFFFF), HIGH),
    (values.bit_and, (HIGH, 0xFFF), None),
    (values.bit_and, (Low(22), ONES - 3), Low(20)),
    (values.bit_and, (Low(22), ONES - 31), None),
    (values.bit_and, (None, 3), None),
    (values.bit_or, (12, 3), 15),
    (values.bit_or, (None, ONES), ONES),
    (values.bit_or, (HIGH, 0x40000), HIGH),
    (values.bit_or, (HIGH, 1), None),
    (values.bit_or, (Low(4), 0), Low(4)),
    (values.bit_or, (Low(4), 8), None),
    (values.shift_add, (3, 2, Low(4)), Low(16)),
    (values.shift_add, (Low(4), 0, 8), Low(12)),
    (values.shift_add, (Low(4), 1, 8), None),
    (values.shift_add, (3, None, 8), None),
    (values.shift_add_high, (0, 2, HIGH), HIGH),
    (values.shift_add_high, (HIGH, 0, 0), HIGH),
    (values.shift_add_high, (None, 2, HIGH), None),
]


@pytest.mark.parametrize(("rule", "given", "expected"), RULES)
def test_rules(rule: values.Rule, given: tuple[Value | None, ...], expected: Value | None) -> None:
    assert rule(*given) == expected


@pytest.mark.parametrize(
    ("mnemonic", "sources", "scc", "expected"),
    [
        ("s_add_u32", (ONES, 2), None, (1, 1)),
        ("s_addc_u32", (1, 2), 1, (4, 0)),
        ("s_addc_u32", (1, 2), None, (None, None)),
        ("s_movk_i32", (0xFFFF,), None, (ONES, None)),
        ("s_addk_i32", (5, 0xFFFF), None, (4, 0)),
        ("s_cselect_b32", (5, 6), 0, (6, None)),
        ("s_mov_b64", (5,), None, (None, None)),
        ("v_add_u32", (5, 6), None, (None, None)),
        ("s_no_such_instruction", (), None, (None, None)),
    ],
)
def test_folding(
    mnemonic: str, sources: tuple[int, ...], scc: int | None, expected: tuple[int | None, int | None]
) -> None:
    assert fold(mnemonic, sources, scc) == expected
