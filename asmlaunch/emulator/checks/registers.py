"""Definedness of values: a shadow value for every value, following the same expressions.

A value that is the same in all lanes has a shadow of bits, an i64 with a 1 for each defined bit (and ones beyond its
width); a value that differs by lane has a shadow of lanes, a bit a lane. Selections take the shadow of what they
select, moves between lanes move it, bitwise operations on scalars work bit by bit; whatever else has an undefined
operand is undefined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llvmlite import ir

from asmlaunch.emulator.build import Code, i64
from asmlaunch.emulator.checks.state import SHADOW
from asmlaunch.emulator.decode import EXEC
from asmlaunch.emulator.emit.registers import Key
from asmlaunch.emulator.isa.language import Bool, Value
from asmlaunch.emulator.lower import I1, I32, I64, Lowering, splat
from asmlaunch.emulator.state import LANES, offset

_BITS = ir.VectorType(I1, LANES)
_FIRST = {"s": offset(SHADOW, "sgpr"), "v": offset(SHADOW, "vgpr"), "a": offset(SHADOW, "vgpr") + 256 * 8}
ALL = i64(-1)


def _is_all(value: ir.Value) -> bool:
    return isinstance(value, ir.Constant) and value.constant == -1


@dataclass(frozen=True)
class Shadow:
    """Definedness of one value: ``ir`` is an i64 of lanes, or of bits where ``uniform``."""

    ir: ir.Value
    uniform: bool = False

    @property
    def known(self) -> bool:
        """Whether all of it is defined, for sure."""
        return _is_all(self.ir)


DEFINED = Shadow(ALL, uniform=True)


class ShadowRegisters:
    """The shadows of the wave's registers within one block: SSA values over the shadow in memory.

    Args:
        shadow: the wave's.
        followed: whether definedness is followed; else everything is defined.
    """

    def __init__(self, code: Code, shadow: ir.Value, followed: bool) -> None:
        self._code, self.shadow, self._followed = code, shadow, followed
        self._values: dict[Key, ir.Value] = {}
        self._dirty: dict[Key, None] = {}

    def address(self, key: Key) -> ir.Value:
        """Where the register's shadow lies in memory."""
        if key.file == "scc":
            return self._code.at(self.shadow, offset(SHADOW, "scc"))
        return self._code.at(self.shadow, _FIRST[key.file] + key.number * (4 if key.file == "s" else 8))

    def read(self, key: Key) -> ir.Value:
        """i32 for an SGPR, i64 for a VGPR and SCC."""
        if key not in self._values:
            kind = I32 if key.file == "s" else I64
            self._values[key] = self._code.load(self.address(key), kind, 4 if key.file == "s" else 8)
        return self._values[key]

    def of(self, key: Key) -> Shadow:
        """The register's shadow as a value's. EXEC is defined: what enters it is tested."""
        if not self._followed or key.file == "skip" or (key.file == "s" and key.number >= EXEC):
            return DEFINED
        value = self.read(key)
        if key.file != "s":
            return Shadow(value, uniform=key.file == "scc")
        # Ones beyond the width.
        return Shadow(self._wide(value), uniform=True)

    def _wide(self, value: ir.Value) -> ir.Value:
        build = self._code.builder
        if isinstance(value, ir.Constant) and value.constant in (-1, 0xFFFFFFFF):
            return ALL
        return build.or_(build.zext(value, I64), i64(0xFFFFFFFF << 32 & (1 << 64) - 1))

    def forget_all(self) -> None:
        """Memory may have new shadows for every register."""
        self.forget(list(self._values))

    def write(self, key: Key, value: ir.Value) -> None:
        """Give the register a new shadow."""
        self._values[key] = value
        self._dirty.pop(key, None)
        self._dirty[key] = None

    def flush(self, keys: list[Key] | None = None) -> None:
        """Bring memory up to date for some registers, or for all."""
        for key in list(self._dirty) if keys is None else keys:
            if key in self._dirty:
                del self._dirty[key]
                self._code.store(self._values[key], self.address(key), 4 if key.file == "s" else 8)

    def forget(self, keys: list[Key]) -> None:
        """Memory has new shadows for these registers."""
        for key in keys:
            self._values.pop(key, None)
            self._dirty.pop(key, None)


class Definedness:
    """Shadows of expressions at the builder's position.

    Args:
        low: lowers the conditions of selections.
        values: shadows of operands, by ``id`` of the value; ``cells`` likewise, by ``id`` of what a leaf holds.
    """

    def __init__(
        self, low: Lowering, values: Mapping[int, tuple[object, Shadow]], cells: Mapping[int, tuple[object, Shadow]]
    ) -> None:
        self._low, self._build = low, low.builder
        self._values, self._cells = values, cells
        self._done: dict[int, tuple[Value, Shadow]] = {}

    def of(self, value: Value) -> Shadow:
        """The shadow of ``value``."""
        if id(value) in self._values:
            return self._values[id(value)][1]
        if id(value) not in self._done:
            self._done[id(value)] = value, self._compute(value)
        return self._done[id(value)][1]

    def both(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Conjunction."""
        if _is_all(a) or a is b:
            return b
        return a if _is_all(b) else self._build.and_(a, b)

    def whole(self, shadow: Shadow) -> ir.Value:
        """All ones where every bit (or lane) is defined, else 0."""
        if shadow.known:
            return ALL
        return self._build.sext(self._build.icmp_signed("==", shadow.ir, ALL), I64)

    def lanes(self, shadow: Shadow) -> ir.Value:
        """The shadow a lane, of a value of either sort."""
        return self.whole(shadow) if shadow.uniform else shadow.ir

    def _compute(self, value: Value) -> Shadow:
        if value.op == "given":
            return self._cells.get(id(value.attr), (None, DEFINED))[1]
        if not value.args or self._cancels(value):
            return DEFINED
        if value.op == "select":
            return self._select(value)
        if value.op == "shuffle":
            return self._shuffle(value)
        if value.op == "read_lane":
            return self._read_lane(value)
        shadows = [self.of(argument) for argument in value.args if not self._merges(value, argument)]
        if all(shadow.known for shadow in shadows):
            return DEFINED
        if value.op == "and" and isinstance(value, Bool) and any(shadow.uniform for shadow in shadows):
            return self._conjunction(value, shadows)
        if value.op in ("and", "or", "xor", "bitcast", "convert") and all(shadow.uniform for shadow in shadows):
            return self._bitwise(value, shadows)
        return self._joined(shadows)

    def _cancels(self, value: Value) -> bool:
        """x ^ x and x - x: a way to make a zero."""
        if value.op not in ("xor", "sub"):
            return False
        a, b = value.args
        return a is b or (a.op == b.op == "given" and a.attr is b.attr)

    def _merges(self, value: Value, argument: Value) -> bool:
        """Whether the argument is the rest of a register of which ``value`` writes a part: nobody reads that yet."""
        if value.op != "or" or argument is not value.args[0] or argument.op != "and":
            return False
        old, mask = argument.args
        return old.op == "given" and mask.op == "const"

    def _joined(self, shadows: list[Shadow]) -> Shadow:
        """Defined where all are: wholly in scalars, lane by lane otherwise."""
        uniform = all(shadow.uniform for shadow in shadows)
        total = ALL
        for shadow in shadows:
            total = self.both(total, self.lanes(shadow))
        return Shadow(total, uniform)

    def _conjunction(self, value: Value, shadows: list[Shadow]) -> Shadow:
        """Of conditions: where one that is the same in all lanes is false, the other's value does not matter."""
        total, uniform = self._joined(shadows).ir, True
        for argument, shadow in zip(value.args, shadows, strict=True):
            cell = self._low.cell(argument)
            uniform &= cell.uniform
            if cell.uniform:
                false = self._build.sext(self._build.not_(cell.ir), I64)
                total = self._build.or_(total, self._build.and_(self.lanes(shadow), false))
        return Shadow(total, uniform)

    def _bitwise(self, value: Value, shadows: list[Shadow]) -> Shadow:
        """Bit by bit; a 0 of a conjunction decides its bit, and so does a 1 of a disjunction."""
        total = ALL
        for shadow in shadows:
            total = self.both(total, shadow.ir)
        cells = [self._low.cell(argument) for argument in value.args]
        if value.op in ("and", "or") and len(shadows) == len(cells) and all(cell.uniform for cell in cells):
            build = self._build
            for cell, shadow in zip(cells, shadows, strict=True):
                wide = cell.ir if cell.ir.type == I64 else build.zext(cell.ir, I64)
                decided = build.xor(wide, ALL) if value.op == "and" else wide
                total = build.or_(total, build.and_(shadow.ir, decided))
        return Shadow(total, uniform=True)

    def _select(self, value: Value) -> Shadow:
        condition, yes, no = (self.of(argument) for argument in value.args)
        if condition.known and yes.known and no.known:
            return DEFINED
        if yes.ir is no.ir and yes.uniform == no.uniform:
            # Whatever is chosen: the condition need not be computed again.
            return self._joined([condition, yes])
        cell = self._low.cell(value.args[0])
        if cell.uniform and yes.uniform and no.uniform:
            picked = self._build.select(cell.ir, yes.ir, no.ir)
            return Shadow(self.both(self.whole(condition), picked), uniform=True)
        chosen = self._build.sext(cell.ir, I64) if cell.uniform else self._build.bitcast(cell.ir, I64)
        new = self.lanes(yes)
        if self._moves_scalar(value.args[0]) and yes.uniform and not yes.known:
            # Compilers keep masks there of which a part was never written; that part is masked off when they come back.
            new = self._build.sext(self._build.icmp_signed("!=", yes.ir, self._unwritten(value)), I64)
        picked = self._pick(chosen, new, self.lanes(no))
        return Shadow(self.both(self.lanes(condition), picked))

    def _moves_scalar(self, condition: Value) -> bool:
        """Whether a selection puts a scalar into one lane (V_WRITELANE)."""
        return condition.op == "eq" and condition.args[0].op == "lane"

    def _unwritten(self, value: Value) -> ir.Constant:
        """The shadow of a scalar of this width that nobody has written."""
        return ir.Constant(I64, ~((1 << value.bits) - 1))

    def _pick(self, chosen: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        build = self._build
        return build.or_(build.and_(a, chosen), build.and_(b, build.xor(chosen, ALL)))

    def _shuffle(self, value: Value) -> Shadow:
        source, pattern = (self.of(argument) for argument in value.args)
        if source.uniform or (source.known and pattern.known):
            return self._joined([source, pattern]) if not pattern.known else source
        order = self._low.cell(value.args[1]).ir
        if not isinstance(order, ir.Constant):
            if source.known:
                return Shadow(self.lanes(pattern))
            numbers = self._build.zext(order, ir.VectorType(I64, LANES))
            everywhere = splat(self._build, source.ir)
            moved = self._build.trunc(self._build.lshr(everywhere, numbers), _BITS)
            return Shadow(self.both(self._build.bitcast(moved, I64), self.lanes(pattern)))
        bits = self._build.bitcast(source.ir, _BITS)
        return Shadow(self._build.bitcast(self._build.shuffle_vector(bits, bits, order), I64))

    def _read_lane(self, value: Value) -> Shadow:
        source, index = (self.of(argument) for argument in value.args)
        if source.uniform:
            return Shadow(self.both(source.ir, self.whole(index)), uniform=True)
        if source.known and index.known:
            return DEFINED
        lane = self._build.zext(self._low.cell(value.args[1]).ir, I64)
        bit = self._build.trunc(self._build.lshr(source.ir, lane), I1)
        return Shadow(self.both(self._build.sext(bit, I64), self.whole(index)), uniform=True)
