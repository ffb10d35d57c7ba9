"""The language in which instructions are defined: typed expressions, the same for every machine that runs them.

A definition is a Python function over these values::

    def v_mul_hi_u32(s0: U32, s1: U32) -> U32:
        return ((s0.to(U64) * s1.to(U64)) >> 32).to(U32)

Calling it builds a tree of ``Value`` nodes and computes nothing. A tree says what one lane (or the scalar unit)
does; how many lanes a host vector holds, or whether the host is a CPU at all, is the business of whoever lowers it:
LLVM for the emulator (``emulator.lower``), numpy for tests and for constant lane patterns (``isa.evaluate``).
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

T = TypeVar("T", bound="Value")
V = TypeVar("V", bound="Value")


class Value:
    """A node: an operation, its arguments and an attribute; the class is the type.

    Attributes:
        op: name of the operation, such as "add" or "operand".
        args: the values it works on.
        attr: what is neither value nor type (a constant, an operand's name).
    """

    bits: ClassVar[int]
    __slots__ = ("args", "attr", "op")

    def __init__(self, op: str, args: tuple[Value, ...] = (), attr: Any = None) -> None:
        self.op, self.args, self.attr = op, args, attr

    def __repr__(self) -> str:
        if self.op == "const":
            return f"{self.attr!r}"
        inner = ", ".join([*([str(self.attr)] if self.attr is not None else []), *map(repr, self.args)])
        return f"{self.op}({inner})"

    @classmethod
    def const(cls: type[T], value: Any) -> T:
        """A constant of this type."""
        return cls("const", (), value)

    def bits_as(self, to: type[V]) -> V:
        """The same bits read as another type of the same width."""
        assert self.bits == to.bits, (type(self), to)
        return to("bitcast", (self,))

    def to(self, to: type[V]) -> V:
        """The same number in another type: integers truncate or extend by their own sign, floats round to nearest
        even.
        """
        if isinstance(self, F64) and to is F16:
            return rounded_to_odd(self).to(to)
        return to("convert", (self,))

    def _other(self: T, other: T | int | float) -> T:
        return other if isinstance(other, Value) else type(self).const(other)

    def _same(self: T, op: str, other: T | int | float) -> T:
        return type(self)(op, (self, self._other(other)))

    def _compare(self: T, op: str, other: T | int | float) -> Bool:
        return Bool(op, (self, self._other(other)))

    def __eq__(self: T, other: T | int | float) -> Bool:  # type: ignore[override]
        return self._compare("eq", other)

    def __ne__(self: T, other: T | int | float) -> Bool:  # type: ignore[override]
        return self._compare("ne", other)

    __hash__ = object.__hash__


class Number(Value):
    """Integers and floats."""

    def __add__(self: T, other: T | int | float) -> T:
        return self._same("add", other)

    def __sub__(self: T, other: T | int | float) -> T:
        return self._same("sub", other)

    def __mul__(self: T, other: T | int | float) -> T:
        return self._same("mul", other)

    def __rsub__(self: T, other: int | float) -> T:
        return self._other(other)._same("sub", self)

    def __lt__(self: T, other: T | int | float) -> Bool:
        return self._compare("lt", other)

    def __le__(self: T, other: T | int | float) -> Bool:
        return self._compare("le", other)

    def __gt__(self: T, other: T | int | float) -> Bool:
        return self._compare("gt", other)

    def __ge__(self: T, other: T | int | float) -> Bool:
        return self._compare("ge", other)


class Bits(Value):
    """Whatever has bitwise operations."""

    def __and__(self: T, other: T | int) -> T:
        return self._same("and", other)

    def __or__(self: T, other: T | int) -> T:
        return self._same("or", other)

    def __xor__(self: T, other: T | int) -> T:
        return self._same("xor", other)

    def __invert__(self: T) -> T:
        return self._same("xor", -1)


class Integer(Number, Bits):
    """Two's complement; ``>>`` extends by the type's sign. Shift counts must be below the width: mask them."""

    signed: ClassVar[bool]

    def __lshift__(self: T, other: T | int) -> T:
        return self._same("shl", other)

    def __rshift__(self: T, other: T | int) -> T:
        return self._same("shr", other)


class Float(Number):
    """IEEE 754 binary; arithmetic rounds to nearest even."""


class Bool(Bits):
    """One bit a lane: a condition, or a lane's bit of a 64-bit mask."""

    bits = 1


class U8(Integer):
    bits, signed = 8, False


class I8(Integer):
    bits, signed = 8, True


class U16(Integer):
    bits, signed = 16, False


class I16(Integer):
    bits, signed = 16, True


class U32(Integer):
    bits, signed = 32, False


class I32(Integer):
    bits, signed = 32, True


class U64(Integer):
    bits, signed = 64, False


class I64(Integer):
    bits, signed = 64, True


class F16(Float):
    bits = 16


class F32(Float):
    bits = 32


class F64(Float):
    bits = 64


# Operands that a signature names by what they are. Reading `scc: Scc` or returning `Scc` is how a definition says
# that it uses the scalar condition code: dependencies are read off signatures, nowhere else.


class Scc(Bool):
    """The scalar condition code."""


class Mask(Bool):
    """This lane's bit of a 64-bit SGPR-pair operand (VCC among them); lanes that EXEC disables read and write 0."""


class Vcc(Bool):
    """This lane's bit of VCC where the assembler does not write it out."""


class VccMask(U64):
    """VCC as one 64-bit number, where the assembler does not write it out."""


class Exec(U64):
    """The EXEC mask as one 64-bit number."""


class Active(Bool):
    """This lane's bit of EXEC."""


class M0(U32):
    """The M0 register."""


class Simm16(I32):
    """The signed 16-bit immediate of a SOPK instruction, extended to 32 bits."""


class Sgpr(U32):
    """A result of a vector instruction that goes to one SGPR."""


class Clock(U64):
    """A counter that grows while the wave runs."""


# Constants of the kernel or of the instruction, known when the kernel is prepared.


class ModeRegister(U32):
    """The MODE register."""


class Ieee(Bool):
    """MODE.IEEE."""


class Ovfl(Bool):
    """MODE.FP16_OVFL: conversions that overflow give the largest finite number."""


class Fnuz(Bool):
    """Whether 8-bit floats are FNUZ (gfx942) and not OCP (gfx950)."""


class OpSel(U32):
    """The four OP_SEL bits of a VOP3 instruction."""


class Modifier(U32):
    """A number that the assembler writes as a modifier; the parameter is named like it."""


def active(condition: Bool) -> Active:
    """A condition as this lane's bit of EXEC."""
    return condition.bits_as(Active)


def scc(condition: Bool) -> Scc:
    """A condition as the new SCC."""
    return condition.bits_as(Scc)


def mask(condition: Bool) -> Mask:
    """A condition as this lane's bit of a mask."""
    return condition.bits_as(Mask)


IMPLICIT = (Scc, Vcc, VccMask, Exec, Active, M0, Clock, ModeRegister, Ieee, Ovfl, Fnuz, OpSel, Modifier)


def select(condition: Bool, yes: T, no: T) -> T:
    """``condition ? yes : no``."""
    return type(yes)("select", (condition, yes, no))


def fma(a: T, b: T, c: T) -> T:
    """``a * b + c`` with one rounding."""
    if isinstance(a, F16) and isinstance(b, F16) and isinstance(c, F16):
        return _fma_of_halves(a, b, c)  # type: ignore[return-value]
    return type(a)("fma", (a, b, c))


def rounded_to_odd(value: F64) -> F32:
    """As f32, with a last bit of 1 where digits were lost: a further rounding is then the only one."""
    narrow = value.to(F32)
    back, bits = narrow.to(F64), narrow.bits_as(U32)
    towards = select((value > back) ^ (value > 0.0), bits - 1, bits + 1)
    inexact = (back < value) | (back > value)
    return select(inexact & ((bits & 1) == 0), towards, bits).bits_as(F32)


def _fma_of_halves(a: F16, b: F16, c: F16) -> F16:
    """In f32, where the product is exact, with the sum rounded to odd so that the rounding to f16 is the only one."""
    product, addend = a.to(F32) * b.to(F32), c.to(F32)
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    bits = total.bits_as(U32)
    towards = select((lost > 0.0) ^ (total > 0.0), bits - 1, bits + 1)
    inexact = (lost > 0.0) | (lost < 0.0)
    return select(inexact & ((bits & 1) == 0), towards, bits).bits_as(F32).to(F16)


def divide(a: T, b: T) -> T:
    """a / b, correctly rounded."""
    return type(a)("div", (a, b))


def reciprocal(a: T) -> T:
    """1 / a, correctly rounded."""
    return divide(type(a).const(1.0), a)


def square_root(a: T) -> T:
    """Correctly rounded."""
    return type(a)("sqrt", (a,))


def round_down(a: T) -> T:
    """The integer at or below."""
    return type(a)("floor", (a,))


def round_up(a: T) -> T:
    """The integer at or above."""
    return type(a)("ceil", (a,))


def round_to_zero(a: T) -> T:
    """The integer part."""
    return type(a)("trunc", (a,))


def round_to_even(a: T) -> T:
    """The nearest integer, the even one of two."""
    return type(a)("rint", (a,))


def truncate(a: Float, to: type[T]) -> T:
    """A float towards zero to an integer type; NaN gives 0, values outside the range saturate."""
    return to("truncate", (a,))


def is_nan(a: Float) -> Bool:
    """True for a NaN."""
    return Bool("ne", (a, a))


def is_negative(a: Float) -> Bool:
    """The sign bit."""
    return (pattern(a) >> (a.bits - 1)) != 0


def pattern(a: Value) -> Any:
    """The bits as an unsigned integer of the same width."""
    return a.bits_as({8: U8, 16: U16, 32: U32, 64: U64}[a.bits])


def magnitude(a: T) -> T:
    """A float without its sign; NaNs keep their payload."""
    return (pattern(a) & ((1 << (a.bits - 1)) - 1)).bits_as(type(a))


def negate(a: T) -> T:
    """A float with its sign turned; NaNs too."""
    return (pattern(a) ^ (1 << (a.bits - 1))).bits_as(type(a))


def lane() -> U32:
    """The number of this lane in its wavefront, 0..63."""
    return U32("lane")


def shuffle(value: T, source: U32) -> T:
    """The ``value`` that lane ``source`` holds."""
    return type(value)("shuffle", (value, source))


def read_lane(value: T, source: U32) -> T:
    """The ``value`` of one lane, the same for the whole wavefront."""
    return type(value)("read_lane", (value, source))


def count_ones(value: T) -> T:
    """Number of one bits."""
    return type(value)("ctpop", (value,))


def reverse_bits(value: T) -> T:
    """Bit 0 becomes the highest."""
    return type(value)("bitreverse", (value,))


def count_leading_zeros(value: T) -> T:
    """Number of zero bits above the highest one; the width where there is no one."""
    return type(value)("ctlz", (value,))


def count_trailing_zeros(value: T) -> T:
    """Number of zero bits below the lowest one; the width where there is no one."""
    return type(value)("cttz", (value,))


def concat(low: U32, high: U32) -> U64:
    """A 64-bit number from its two dwords."""
    return low.to(U64) | (high.to(U64) << 32)


def u32(value: int) -> U32:
    """A constant dword."""
    return U32.const(value & 0xFFFFFFFF)
