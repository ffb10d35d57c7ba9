"""Which elements of a matrix instruction's result are defined.

Element (i, j) needs row i of A, column j of B and their scales, and its own element of C. The layouts are those of
``isa.matrix``: lane l holds row (column) l % m of A (B); D and C of the shapes with one block hold rows in groups of
four.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from asmlaunch.emulator.build import i64
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I64
from asmlaunch.emulator.state import LANES

ALL = i64(-1)


def result_shadows(
    build: ir.IRBuilder, definition: Mfma, operands: Sequence[Sequence[ir.Value]], count: int
) -> list[ir.Value]:
    """The shadows of the ``count`` result registers.

    Args:
        operands: the shadows (i64 of lanes) of each operand's registers, D first; [] for a constant.
    """
    _, a, b, c, *scales = operands
    rows = _all(build, [*a, *(scales[0] if scales else [])])
    columns = _all(build, [*b, *(scales[1] if len(scales) > 1 else [])])
    old = [*c, *[ALL] * count][:count]
    one_block = (
        definition.m == definition.n and LANES % definition.m == 0 and definition.m * definition.n == (LANES * count)
    )
    if not one_block or definition.m not in (16, 32):
        whole = build.sext(build.icmp_signed("==", build.and_(rows, columns), ALL), I64)
        return [build.and_(whole, mask) for mask in old]
    rows, columns = _fold(build, rows, definition.m), _fold(build, columns, definition.n)
    repeat = sum(1 << position for position in range(0, LANES, definition.m))
    everywhere = build.mul(columns, i64(repeat))
    return [
        build.and_(build.and_(_spread(build, rows, definition.m, number), everywhere), mask)
        for number, mask in enumerate(old)
    ]


def _all(build: ir.IRBuilder, masks: Sequence[ir.Value]) -> ir.Value:
    total: ir.Value = ALL
    for mask in masks:
        total = mask if total is ALL else build.and_(total, mask)
    return total


def _fold(build: ir.IRBuilder, mask: ir.Value, size: int) -> ir.Value:
    """Bit i: whether all lanes that hold row i are defined."""
    distance = LANES // 2
    while distance >= size:
        mask = build.and_(mask, build.lshr(mask, i64(distance)))
        distance //= 2
    return build.and_(mask, i64((1 << size) - 1))


def _spread(build: ir.IRBuilder, rows: ir.Value, size: int, register: int) -> ir.Value:
    """The lanes of a result register r whose row is defined: row 4 * group + r where there are 16 rows, 8 * (r // 4)
    + 4 * group + r % 4 where there are 32.
    """
    first = 8 * (register // 4) + register % 4 if size == 32 else register
    total: ir.Value = i64(0)
    for group in range(LANES // size):
        row = build.lshr(rows, i64(first + 4 * group))
        bit = build.and_(row, i64(1))
        total = build.or_(total, build.shl(build.mul(bit, i64((1 << size) - 1)), i64(size * group)))
    return total
