"""Matrix instructions: which elements of the result are defined, and NaNs that come out of clean accumulators.

Element (i, j) needs row i of A, column j of B and their scales, and its own element of C. The layouts are those of
``isa.matrix``: lane l holds row (column) l % m of A (B); D and C of the shapes with one block hold rows in groups of
four.
"""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.checks.native import NOTE_ARGS, note
from asmlaunch.emulator.checks.numbers import nans
from asmlaunch.emulator.checks.state import Kind
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I32, I64, PTR, call
from asmlaunch.emulator.native.helpers import ROW, VOID, helpers
from asmlaunch.emulator.state import LANES

ALL = i64(-1)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)


def result_shadows(definition: Mfma, count: int, accumulates: bool) -> str:
    """``void (rows, columns, C, D)``: the shadows of the ``count`` result registers.

    Args:
        accumulates: whether C is registers; a constant is defined.

    ``rows`` and ``columns`` are the conjunctions (i64 of lanes) of the shadows of A's and B's registers, with their
    scales'; C and D point to the shadows of their registers.
    """
    shape = f"{definition.m}x{definition.n}"

    def build_it(module: ir.Module, name: str) -> None:
        code, (rows, columns, c, d) = Code.function(module, name, VOID, [I64, I64, PTR, PTR])
        build = code.builder
        old = [code.load(code.at(c, 8 * number), I64, 8) if accumulates else ALL for number in range(count)]
        for number, product in enumerate(_products(build, definition, rows, columns, count)):
            code.store(build.and_(product, old[number]), code.at(d, 8 * number), 8)
        build.ret_void()

    return helpers().need(f"check_matrix_{shape}_{count}{'' if accumulates else '_constant'}", build_it)


def _products(build: ir.IRBuilder, definition: Mfma, rows: ir.Value, columns: ir.Value, count: int) -> list[ir.Value]:
    """Where row times column is defined, a mask of lanes a result register."""
    size = definition.m
    one_block = size == definition.n and size in (16, 32) and size * size == LANES * count
    if not one_block:
        whole = build.sext(build.icmp_signed("==", build.and_(rows, columns), ALL), I64)
        return [whole] * count
    rows, columns = _fold(build, rows, size), _fold(build, columns, size)
    repeat = sum(1 << position for position in range(0, LANES, size))
    everywhere = build.mul(columns, i64(repeat))
    return [build.and_(_spread(build, rows, size, number), everywhere) for number in range(count)]


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


def remember_nans() -> str:
    """``void (registers, masks, count)``: which lanes of each register hold an f32 NaN (i64 each)."""
    return helpers().need("check_remember_nans", _build_remember)


def _build_remember(module: ir.Module, name: str) -> None:
    code, (registers, masks, count) = Code.function(module, name, VOID, [PTR, PTR, I32])
    with code.loop(count) as number:
        code.store(_nans_of(code, registers, number), _element(code, masks, number, 8), 8)
    code.builder.ret_void()


def new_nans() -> str:
    """``void (wave, instruction, registers, masks, count)``: note lanes that hold a NaN where the mask has none."""
    return helpers().need("check_new_nans", _build_new)


def _build_new(module: ir.Module, name: str) -> None:
    code, (wave, index, registers, masks, count) = Code.function(module, name, VOID, [PTR, I32, PTR, PTR, I32])
    build = code.builder
    bad = code.local(I64)
    code.store(i64(0), bad, 8)
    with code.loop(count) as number:
        before = code.load(_element(code, masks, number, 8), I64, 8)
        fresh = build.and_(_nans_of(code, registers, number), build.xor(before, ALL))
        code.store(build.or_(code.load(bad, I64, 8), fresh), bad, 8)
    found = code.load(bad, I64, 8)
    with build.if_then(build.icmp_unsigned("!=", found, i64(0))):
        arguments = [wave, index, i32(Kind.NAN), found, i64(0), i32(0), i32(0), i32(0)]
        assert [argument.type for argument in arguments] == NOTE_ARGS
        call(build, note(), VOID, arguments)
    build.ret_void()


def _element(code: Code, base: ir.Value, number: ir.Value, size: int) -> ir.Value:
    return code.at(base, code.builder.mul(code.builder.zext(number, I64), i64(size)))


def _nans_of(code: Code, registers: ir.Value, number: ir.Value) -> ir.Value:
    return nans(code.builder, code.load(_element(code, registers, number, ROW), _FLOATS, 64))
