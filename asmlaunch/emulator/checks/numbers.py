"""NaNs and denormals that an expression makes out of operands that have none."""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir

from asmlaunch.emulator.build import i64
from asmlaunch.emulator.checks.state import Kind
from asmlaunch.emulator.isa.language import Float, Value
from asmlaunch.emulator.lower import I64, Lowering, lanes, splat
from asmlaunch.emulator.state import LANES

ALL = i64(-1)

#: LLVM's float types: bits, and bits of the fraction.
_FRACTIONS = {"half": (16, 10), "float": (32, 23), "double": (64, 52)}


def new_specials(build: ir.IRBuilder, value: Value) -> Iterator[tuple[Kind, ir.Value]]:
    """For each kind of special number the lanes (i64) in which ``value`` has one and no float operand does."""
    low = Lowering(build)
    for result in _outermost_floats(value):
        operands = _innermost_floats(result)
        if not operands or any(operand is result for operand in operands):
            continue
        for kind, test in ((Kind.NAN, nans), (Kind.DENORMAL, denormals)):
            bad = test(build, lanes(build, low.cell(result)))
            for operand in operands:
                bad = build.and_(bad, build.xor(test(build, lanes(build, low.cell(operand))), ALL))
            yield kind, bad


def nans(build: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    """The lanes (i64) that hold a NaN."""
    return build.bitcast(build.fcmp_unordered("uno", vector, vector), I64)


def denormals(build: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    """The lanes (i64) that hold a number other than 0 with an exponent of 0."""
    bits, fraction = _FRACTIONS[str(vector.type.element)]
    integer = ir.IntType(bits)

    def everywhere(number: int) -> ir.Value:
        return splat(build, ir.Constant(integer, number))

    pattern = build.and_(build.bitcast(vector, ir.VectorType(integer, LANES)), everywhere((1 << (bits - 1)) - 1))
    # One less than the pattern: 0 becomes the largest number, and denormals stay below the smallest normal one.
    below = build.icmp_unsigned("<", build.sub(pattern, everywhere(1)), everywhere((1 << fraction) - 1))
    return build.bitcast(below, I64)


def _outermost_floats(value: Value) -> list[Value]:
    found: dict[int, Value] = {}

    def visit(node: Value) -> None:
        if isinstance(node, Float):
            found[id(node)] = node
        else:
            for argument in node.args:
                visit(argument)

    visit(value)
    return list(found.values())


def _innermost_floats(value: Value) -> list[Value]:
    """Float nodes with no float below them: operands."""
    below: dict[int, bool] = {}
    found: dict[int, Value] = {}

    def visit(node: Value) -> bool:
        if id(node) not in below:
            under = [visit(argument) for argument in node.args]
            if isinstance(node, Float) and not any(under) and node.op != "const":
                found[id(node)] = node
            below[id(node)] = isinstance(node, Float) or any(under)
        return below[id(node)]

    visit(value)
    return list(found.values())
