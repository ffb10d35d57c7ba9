"""Expressions -> LLVM IR for the host.

A value that is the same in all lanes is one LLVM scalar; any other is a vector of 64 elements. Scalars become
vectors only where they meet one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir

from asmlaunch.emulator.isa.evaluate import evaluate
from asmlaunch.emulator.isa.language import F16, F32, Bool, Float, Integer, T, Value
from asmlaunch.emulator.state import LANES

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
PTR = ir.PointerType()
LANES_I1, LANES_I32 = ir.VectorType(I1, LANES), ir.VectorType(I32, LANES)
_FLOATS = {16: ir.HalfType(), 32: ir.FloatType(), 64: ir.DoubleType()}


@dataclass(frozen=True)
class Cell:
    """A lowered value: an LLVM scalar, the same in all lanes, or a vector of 64."""

    ir: ir.Value

    @property
    def uniform(self) -> bool:
        """Whether it is one scalar for all lanes."""
        return not isinstance(self.ir.type, ir.VectorType)


def scalar_type(kind: type[Value]) -> ir.Type:
    """The LLVM type of one element."""
    return _FLOATS[kind.bits] if issubclass(kind, Float) else ir.IntType(kind.bits)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, args: list[ir.Value]) -> ir.Value:
    """Call an external function or intrinsic, declaring it on first use."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    if isinstance(result, ir.VoidType):
        return builder._insert(_Line(builder.block, f"call void @{name}({', '.join(map(_argument, args))})"))
    return builder.call(function, args)


def _argument(value: ir.Value) -> str:
    return f"{value.type} {value.get_reference()}"


class _Line(ir.Instruction):
    """An instruction without a value, as text. Most of a kernel's code is calls of helpers: llvmlite takes ten times as
    long to check and to print one.
    """

    def __init__(self, block: ir.Block, text: str) -> None:
        self.parent, self._text = block, text

    def __str__(self) -> str:
        return self._text


def overload(kind: ir.Type) -> str:
    """LLVM's suffix of an overloaded intrinsic, such as ``v64f32``."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{overload(kind.element)}"
    return {"half": "f16", "float": "f32", "double": "f64"}.get(str(kind), str(kind))


class TextConstant(ir.Constant):
    """A constant whose text is made once: 64 elements written out for every use would be most of a module."""

    def __init__(self, kind: ir.Type, elements: Any, text: str | None = None) -> None:
        super().__init__(kind, elements)
        self._text = super().get_reference() if text is None else text

    def get_reference(self) -> str:
        """LLVM's spelling."""
        return self._text


def splat(builder: ir.IRBuilder, scalar: ir.Value, count: int = LANES) -> ir.Value:
    """A vector with ``scalar`` in every element."""
    vector = ir.VectorType(scalar.type, count)
    if isinstance(scalar, ir.Constant):
        return TextConstant(vector, ir.Undefined, f"splat ({scalar.type} {scalar.get_reference()})")
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, count), None))


@cache
def _lane_constant(values: tuple[int, ...], kind: ir.Type) -> ir.Constant:
    """A vector of 64 different integers; its text is made once."""
    vector = ir.VectorType(kind, LANES)
    return TextConstant(vector, list(values))


def lanes(builder: ir.IRBuilder, cell: Cell) -> ir.Value:
    """The value as a vector of 64."""
    return splat(builder, cell.ir) if cell.uniform else cell.ir


def given(kind: type[T], value: ir.Value | Cell) -> T:
    """An LLVM value as a leaf of an expression."""
    return kind("given", (), value if isinstance(value, Cell) else Cell(value))


class Lowering:
    """Lowers expression trees at the builder's position; shared subtrees are lowered once."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder
        self._done: dict[int, tuple[Value, Cell]] = {}  # the node is kept: an id is good while its object lives
        self._known: dict[int, tuple[Value, bool, bool]] = {}

    def know(self, value: Value, cell: Cell) -> None:
        """Use ``cell`` for a node."""
        self._done[id(value)] = value, cell

    def cell(self, value: Value) -> Cell:
        """The lowered value."""
        if id(value) not in self._done:
            handler = _pattern if self._varies_by_lane_only(value) else _HANDLERS.get(value.op)
            assert handler is not None, f"no lowering for {value!r}"
            self._done[id(value)] = value, handler(self, value)
        return self._done[id(value)][1]

    def __call__(self, meaning: Callable[..., Any], *args: Value) -> Any:
        """Apply a defining function and lower what it gives: one cell, or a tuple of cells."""
        result = meaning(*args)
        return tuple(map(self.cell, result)) if isinstance(result, tuple) else self.cell(result)

    def _varies_by_lane_only(self, value: Value) -> bool:
        """Whether the value is made of lane numbers and constants: a pattern known when the kernel is prepared."""
        known, has_lane = self._made_of(value)
        return known and has_lane and isinstance(value, Integer | Bool)

    def _made_of(self, value: Value) -> tuple[bool, bool]:
        """Whether there is nothing but lane numbers and constants in it, and whether there are lane numbers."""
        if id(value) not in self._known:
            parts = [self._made_of(arg) for arg in value.args]
            leaf = value.op in ("lane", "const")
            known = leaf or (bool(parts) and all(part[0] for part in parts))
            has_lane = value.op == "lane" or any(part[1] for part in parts)
            self._known[id(value)] = value, known, has_lane
        _, known, has_lane = self._known[id(value)]
        return known, has_lane

    def together(self, *values: Value) -> tuple[list[ir.Value], bool]:
        """The arguments as all scalars, or all vectors; and which (True: scalars)."""
        cells = [self.cell(value) for value in values]
        uniform = all(cell.uniform for cell in cells)
        return [cell.ir if uniform else lanes(self.builder, cell) for cell in cells], uniform

    def typed(self, kind: type[Value], uniform: bool) -> ir.Type:
        """LLVM's type of a value of ``kind``."""
        element = scalar_type(kind)
        return element if uniform else ir.VectorType(element, LANES)


def _pattern(low: Lowering, value: Value) -> Cell:
    return Cell(_lane_constant(tuple(int(element) for element in evaluate(value)), scalar_type(type(value))))


def _const(low: Lowering, value: Value) -> Cell:
    kind = scalar_type(type(value))
    if isinstance(value, Integer):
        return Cell(ir.Constant(kind, value.attr & ((1 << value.bits) - 1)))
    return Cell(ir.Constant(kind, value.attr & 1 if isinstance(value, Bool) else float(value.attr)))


_INTEGER_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and_", "or": "or_", "xor": "xor", "shl": "shl"}
_FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _in_f32(low: Lowering, value: Value) -> Cell:
    """An operation on f16 done in f32 and rounded: for sums, products, quotients and roots the result is the same."""
    wide = F32(value.op, tuple(arg.to(F32) for arg in value.args), value.attr)
    return low.cell(wide.to(F16))


def _binary(low: Lowering, value: Value) -> Cell:
    if isinstance(value, F16):
        return _in_f32(low, value)
    (a, b), _ = low.together(*value.args)
    if isinstance(value, Float):
        method = _FLOAT_OPS[value.op]
    elif value.op == "shr":
        method = "ashr" if isinstance(value, Integer) and value.signed else "lshr"
    else:
        method = _INTEGER_OPS[value.op]
    return Cell(getattr(low.builder, method)(a, b))


def _compare(low: Lowering, value: Value) -> Cell:
    if isinstance(value.args[0], F16):
        value = Bool(value.op, tuple(arg.to(F32) for arg in value.args))
    (a, b), _ = low.together(*value.args)
    predicate, kind = _PREDICATES[value.op], value.args[0]
    if isinstance(kind, Float):
        # Ordered, except that a NaN is "not equal" to everything.
        compare = low.builder.fcmp_unordered if value.op == "ne" else low.builder.fcmp_ordered
        return Cell(compare(predicate, a, b))
    signed = isinstance(kind, Integer) and kind.signed
    return Cell((low.builder.icmp_signed if signed else low.builder.icmp_unsigned)(predicate, a, b))


def _select(low: Lowering, value: Value) -> Cell:
    condition = low.cell(value.args[0])
    (yes, no), uniform = low.together(*value.args[1:])
    if condition.uniform:
        return Cell(low.builder.select(condition.ir, yes, no))
    if uniform:
        yes, no = splat(low.builder, yes), splat(low.builder, no)
    return Cell(low.builder.select(condition.ir, yes, no))


def _bitcast(low: Lowering, value: Value) -> Cell:
    cell = low.cell(value.args[0])
    return Cell(low.builder.bitcast(cell.ir, low.typed(type(value), cell.uniform)))


def _convert(low: Lowering, value: Value) -> Cell:
    source, cell = value.args[0], low.cell(value.args[0])
    target = low.typed(type(value), cell.uniform)
    signed = isinstance(source, Integer) and source.signed
    build = low.builder
    if isinstance(source, Float):
        assert isinstance(value, Float), "a float becomes an integer by `truncate`"
        assert (source.bits, value.bits) != (64, 16), "two roundings"
        if value.bits == source.bits:
            return cell
        widen = build.fpext if value.bits > source.bits else build.fptrunc
        return Cell(widen(cell.ir, target))
    if isinstance(value, F16):
        return low.cell(source.to(F32).to(F16))
    if isinstance(value, Float):
        return Cell((build.sitofp if signed else build.uitofp)(cell.ir, target))
    if value.bits == source.bits:
        return cell
    if value.bits < source.bits:
        return Cell(build.trunc(cell.ir, target))
    return Cell((build.sext if signed else build.zext)(cell.ir, target))


def _fma(low: Lowering, value: Value) -> Cell:
    args, _ = low.together(*value.args)
    return Cell(call(low.builder, f"llvm.fma.{overload(args[0].type)}", args[0].type, args))


def _truncate(low: Lowering, value: Value) -> Cell:
    cell = low.cell(value.args[0])
    target = low.typed(type(value), cell.uniform)
    assert isinstance(value, Integer)
    name = f"llvm.fpto{'s' if value.signed else 'u'}i.sat.{overload(target)}.{overload(cell.ir.type)}"
    return Cell(call(low.builder, name, target, [cell.ir]))


def _shuffle(low: Lowering, value: Value) -> Cell:
    source, pattern = value.args
    cell = low.cell(source)
    if cell.uniform:
        return cell
    index = low.cell(pattern)
    if isinstance(index.ir, ir.Constant):
        return Cell(low.builder.shuffle_vector(cell.ir, cell.ir, lanes(low.builder, index)))
    return Cell(_gather(low.builder, cell.ir, lanes(low.builder, index)))


def _gather(build: ir.IRBuilder, source: ir.Value, index: ir.Value) -> ir.Value:
    """A shuffle whose pattern is known only at run time, element by element."""
    result: ir.Value = ir.Constant(source.type, ir.Undefined)
    for number in range(LANES):
        place = ir.Constant(I32, number)
        element = build.extract_element(source, build.extract_element(index, place))
        result = build.insert_element(result, element, place)
    return result


def _read_lane(low: Lowering, value: Value) -> Cell:
    cell, index = (low.cell(arg) for arg in value.args)
    return cell if cell.uniform else Cell(low.builder.extract_element(cell.ir, index.ir))


def _intrinsic(low: Lowering, value: Value) -> Cell:
    """Operations that LLVM has under the same name, of one argument and of its type."""
    if isinstance(value, F16):
        return _in_f32(low, value)
    cell = low.cell(value.args[0])
    extra = [ir.Constant(I1, 0)] if value.op in ("cttz", "ctlz") else []  # a zero is not undefined
    return Cell(call(low.builder, f"llvm.{value.op}.{overload(cell.ir.type)}", cell.ir.type, [cell.ir, *extra]))


_HANDLERS: dict[str, Callable[[Lowering, Value], Cell]] = {
    "const": _const,
    "given": lambda low, value: value.attr,
    **dict.fromkeys([*_INTEGER_OPS, *_FLOAT_OPS, "shr"], _binary),
    **dict.fromkeys(_PREDICATES, _compare),
    "select": _select,
    "bitcast": _bitcast,
    "convert": _convert,
    "fma": _fma,
    "truncate": _truncate,
    "shuffle": _shuffle,
    "read_lane": _read_lane,
    **dict.fromkeys(("cttz", "ctlz", "ctpop", "bitreverse", "sqrt", "floor", "ceil", "trunc", "rint"), _intrinsic),
}
