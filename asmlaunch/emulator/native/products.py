"""Native helpers for matrix-core instructions of every format but scaled FP4 (``native.matrix``).

An operand is decoded once: every item of every lane as a number of the type that the products are made in, one vector
of 64 lanes an item. A row of C is then one host vector, to which multiples of B's rows are added. ``isa.matrix`` states
where elements lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.isa import floats
from asmlaunch.emulator.isa.language import F16, F32, F64, I32, U32, concat
from asmlaunch.emulator.isa.matrix import FORMAT_BITS, broadcast_lane, place, result_place, source_block
from asmlaunch.emulator.isa.modifiers import flushed
from asmlaunch.emulator.isa.numerics import Fused, fused
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I32 as IR32
from asmlaunch.emulator.lower import I64, LANES_I32, PTR, Lowering, call, given, lanes, overload, splat
from asmlaunch.emulator.native.helpers import ROW, VOID, helpers
from asmlaunch.emulator.state import LANES

_NUMBERS: dict[str, ir.Type] = {"f32": ir.FloatType(), "f64": ir.DoubleType()}
_FORMATS = {
    "fp8": floats.FP8_OCP, "bf8": floats.BF8_OCP, "fp8_fnuz": floats.FP8_FNUZ, "bf8_fnuz": floats.BF8_FNUZ,
    "fp6": floats.FP6, "bf6": floats.BF6, "fp4": floats.FP4,
}  # fmt: skip

#: The exponent of each format's smallest normal number, and of a zero (``isa.numerics.Fused``).
_LOWEST = {"f16": -14, "bf16": -126, "xf32": -126, **{kind: 1 - form.bias for kind, form in _FORMATS.items()}}
_OF_ZERO = -126

#: A finite product this large is infinite in ``isa.numerics.Fused``; only formats with the exponents of f32 have any.
_OVERFLOW, _OVERFLOWING = 2.0**128, ("bf16", "xf32")


@dataclass(frozen=True)
class Operand:
    """How an operand is read.

    Attributes:
        kind: format of its elements; "fp8_fnuz" and "bf8_fnuz" on gfx942.
        items: elements a lane.
        number: "f32" or "f64": what the elements become.
        blgp: which lanes' values a lane sees.
        negated: whether they are negated (f64).
        flush: whether denormals of f32 become zeros.
    """

    kind: str
    items: int
    number: str
    blgp: int = 0
    negated: bool = False
    flush: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded operand."""
        return self.items * LANES * (8 if self.number == "f64" else 4)

    def __str__(self) -> str:
        marks = (f"_lanes{self.blgp}" if self.blgp else "") + "_neg" * self.negated + "_flush" * self.flush
        return f"{self.kind}_{self.items}_{self.number}{marks}"


def number_of(definition: Mfma) -> str:
    """The type that products are made in: f32 where sums of them are exact in it, or where single steps are rounded."""
    return "f32" if definition.a in ("i8", "f32") else "f64"


def decoded(operand: Operand) -> str:
    """``void (decoded, first register)``: items of all lanes, one after the other."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (target, registers) = Code.function(module, name, VOID, [PTR, PTR])
        build, low = code.builder, Lowering(code.builder)
        bits = FORMAT_BITS[operand.kind.removesuffix("_fnuz")]
        count = -(-operand.items * bits // 32)
        dwords = [given(U32, code.load(code.at(registers, number * ROW), LANES_I32, 64)) for number in range(count)]
        size = LANES * (8 if operand.number == "f64" else 4)
        order = ir.Constant(ir.VectorType(IR32, LANES), [broadcast_lane(lane, operand.blgp) for lane in range(LANES)])
        for item in range(operand.items):
            value = lanes(build, low.cell(_number(operand, dwords, item)))
            if operand.blgp:
                value = build.shuffle_vector(value, value, order)
            code.store(value, code.at(target, item * size), 64)
        build.ret_void()

    return helpers().need(f"decode_{operand}", build_it)


def _number(operand: Operand, dwords: Sequence[U32], item: int) -> Any:
    """One item as a number."""
    kind, wide = operand.kind, F64 if operand.number == "f64" else F32
    if kind == "f64":
        value: Any = concat(dwords[2 * item], dwords[2 * item + 1]).bits_as(F64)
        return F64.const(-0.0) - value if operand.negated else value
    if kind in ("f32", "xf32"):
        bits = dwords[item] & 0xFFFFE000 if kind == "xf32" else dwords[item]
        value = bits.bits_as(F32)
        return (flushed(value) if operand.flush else value).to(wide)
    width = FORMAT_BITS[kind.removesuffix("_fnuz")]
    first = item * width
    field = dwords[first // 32] >> (first % 32)
    if first % 32 + width > 32:
        field = field | (dwords[first // 32 + 1] << (32 - first % 32))
    if kind == "i8":
        return ((field << 24).bits_as(I32) >> 24).to(wide)
    if kind == "f16":
        half: F16 = floats.f16_value(field)
        return half.to(F32).to(wide)
    if kind == "bf16":
        return floats.bf16_value(field).to(wide)
    return floats.decode(field, _FORMATS[kind]).to(wide)


@dataclass(frozen=True)
class Form:
    """What changes the helper of one instruction: formats of the operands (as in ``Operand``), A's broadcast (CBSZ,
    ABID), and the model of the arithmetic (``isa.numerics``).
    """

    a: str
    b: str
    cbsz: int = 0
    abid: int = 0
    numerics: str = "exact"


def product(definition: Mfma, form: Form) -> str:
    """``void (D, decoded A, decoded B, C, scale A, shift A, scale B, shift B)``.

    The scales are VGPRs and bit positions; instructions without them ignore these arguments.
    """

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Code.function(module, name, VOID, [PTR, PTR, PTR, PTR, PTR, IR32, PTR, IR32])
        _Product(code, definition, form, args).build()
        code.builder.ret_void()

    marks = f"{form.a}_{form.b}_{form.cbsz}_{form.abid}"
    marks += f"_{form.numerics}" if fused(definition, form.numerics) else ""
    return helpers().need(f"{definition.mnemonic}_{marks}", build_it)


class _Product:
    """All rows of all blocks; a loop over groups of rows that lie alike."""

    def __init__(self, code: Code, definition: Mfma, form: Form, args: Sequence[ir.Value]) -> None:
        self._code, self._definition, self._form = code, definition, form
        self._d, self._a, self._b, self._c, *scales = args
        self._number = _NUMBERS[number_of(definition)]
        self._size = 8 if number_of(definition) == "f64" else 4
        self._columns = ir.VectorType(self._number, definition.n)
        self._factors = self._scale_factors(scales) if definition.scaled else None
        self._fused = fused(definition, form.numerics)

    def build(self) -> None:
        """All blocks."""
        for block in range(self._definition.blocks):
            self._block(block)

    def _block(self, block: int) -> None:
        definition, code = self._definition, self._code
        b_rows = [self._b_row(block, k) for k in range(definition.k)]
        powers = [self._power(row, self._form.b) for row in b_rows] if self._fused else []
        rows, places = definition.m, [result_place(definition, block, i) for i in range(definition.m)]
        table = self._table([register * ROW * self._dwords() + lane * 4 for register, lane in places])
        with code.loop(rows) as i:
            offset = code.load(code.at(table, code.builder.mul(code.builder.zext(i, I64), i64(8))), I64, 8)
            total = self._load_row(offset)
            for first in range(0, definition.k, definition.group):
                if self._fused:
                    steps = [
                        (self._a_element(block, i, k), b_rows[k], powers[k])
                        for k in range(first, first + definition.group)
                    ]
                    total = self._fused_group(self._fused, steps, total)
                else:
                    total = self._group(block, i, first, b_rows, total)
            self._store_row(offset, total)

    def _dwords(self) -> int:
        return 2 if self._definition.result == "f64" else 1

    def _table(self, values: Sequence[int]) -> ir.Value:
        """Constants in memory, to be read by a running index."""
        kind = ir.ArrayType(I64, len(values))
        module = self._code.builder.module
        table = ir.GlobalVariable(module, kind, module.get_unique_name("places"))
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(kind, list(values))
        return self._code.builder.bitcast(table, PTR)

    def _b_row(self, block: int, k: int) -> ir.Value:
        """Row k of B: its columns are neighbouring lanes."""
        definition = self._definition
        group, item = place(definition, definition.n, self._form.b, k)
        lane = definition.n * (block + definition.blocks * group)
        address = self._code.at(self._b, (item * LANES + lane) * self._size)
        return self._code.load(address, self._columns, self._size)

    def _a_element(self, block: int, i: ir.Value, k: int) -> ir.Value:
        """A[i, k] in all columns."""
        definition, code, build = self._definition, self._code, self._code.builder
        group, item = place(definition, definition.m, self._form.a, k)
        source = source_block(block, self._form.cbsz, self._form.abid)
        lane = definition.m * (source + definition.blocks * group)
        step = build.mul(build.zext(i, I64), i64(self._size))
        address = code.at(code.at(self._a, (item * LANES + lane) * self._size), step)
        return splat(build, code.load(address, self._number, self._size), definition.n)

    def _fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return call(self._code.builder, f"llvm.fma.{overload(a.type)}", a.type, [a, b, c])

    def _group(self, block: int, i: ir.Value, first: int, b_rows: Sequence[ir.Value], total: ir.Value) -> ir.Value:
        """Add a group of K to a row of C."""
        definition, build = self._definition, self._code.builder
        steps = range(first, first + definition.group)
        if definition.group == 1:  # every step is rounded
            return self._fma(self._a_element(block, i, first), b_rows[first], total)
        summed: ir.Value = splat(build, ir.Constant(self._number, -0.0), definition.n)
        for k in steps:
            summed = self._fma(self._a_element(block, i, k), b_rows[k], summed)
        if definition.result == "i32":
            whole = build.fptosi(summed, ir.VectorType(IR32, definition.n))
            return build.add(total, whole)
        if self._factors is not None:
            summed = build.fmul(summed, self._scale(i, first // 32))
        exact = build.fadd(build.fpext(total, summed.type), summed)
        return build.fptrunc(exact, total.type)

    # ------------------------------------------------------------ isa.numerics.Fused

    def _constant(self, number: float) -> ir.Value:
        return splat(self._code.builder, ir.Constant(self._number, number), self._definition.n)

    def _intrinsic(self, name: str, *arguments: ir.Value) -> ir.Value:
        kind = arguments[0].type
        return call(self._code.builder, f"llvm.{name}.{overload(kind)}", kind, list(arguments))

    def _larger(self, a: ir.Value, b: ir.Value) -> ir.Value:
        build = self._code.builder
        return build.select(build.fcmp_ordered(">", a, b), a, b)

    def _power(self, value: ir.Value, kind: str) -> ir.Value:
        """2**e of the significand times 2**e that the model takes a number of a format for."""
        build, bits = self._code.builder, self._bits
        exponent = build.and_(build.bitcast(value, bits), self._word(0x7FF << 52))
        normal = self._larger(build.bitcast(exponent, value.type), self._constant(2.0 ** _LOWEST[kind]))
        zero = build.fcmp_ordered("==", value, self._constant(0.0))
        return build.select(zero, self._constant(2.0**_OF_ZERO), normal)

    @property
    def _bits(self) -> ir.Type:
        return ir.VectorType(I64, self._definition.n)

    def _word(self, number: int) -> ir.Value:
        return splat(self._code.builder, i64(number), self._definition.n)

    def _below(self, power: ir.Value, digits: int) -> ir.Value:
        """2**digits / power, for powers of two."""
        build = self._code.builder
        bits = build.sub(self._word((2 * 1023 + digits) << 52), build.bitcast(power, self._bits))
        return build.bitcast(bits, power.type)

    def _fused_group(
        self, rules: Fused, steps: Sequence[tuple[ir.Value, ir.Value, ir.Value]], total: ir.Value
    ) -> ir.Value:
        """Add a group of K, as (A, B, B's power), to a row of C.

        All in f64: a sum in units of its last digit is an integer of less than 53 bits.
        """
        build, c = self._code.builder, self._code.builder.fpext(total, self._columns)
        products = [build.fmul(a, b) for a, b, _ in steps]
        powers = [build.fmul(self._power(a, self._form.a), power) for a, _, power in steps]
        digits = rules.product_digits
        sums = [
            self._cut_sum(products[first :: rules.parities], powers[first :: rules.parities], digits)
            for first in range(rules.parities)
        ]
        summed, largest = sums[0]
        for other, power in sums[1:]:
            top = self._larger(largest, power)
            aligned = []
            for part, own in ((summed, largest), (other, power)):
                aligned.append(self._intrinsic("floor", build.fmul(build.fmul(part, own), self._below(top, 0))))
            summed, largest = build.fadd(*aligned), top
        c_power = self._power(c, "bf16")  # the exponents of f32 are bfloat16's
        top = self._larger(largest, c_power)
        finer = build.fmul(summed, build.fmul(largest, self._constant(2.0**-digits)))
        units = self._intrinsic("floor", build.fmul(finer, self._below(top, rules.sum_digits)))
        addend = self._intrinsic("floor", build.fmul(c, self._below(top, rules.addend_digits)))
        if rules.addend_reach is not None:
            reached = build.fmul(top, self._constant(2.0**-rules.addend_reach))
            addend = build.select(build.fcmp_ordered(">=", c_power, reached), addend, self._constant(0.0))
        addend = build.fmul(addend, self._constant(2.0 ** (rules.sum_digits - rules.addend_digits)))
        both = build.fadd(build.fadd(units, addend), self._constant(0.0))  # never a negative zero
        unit = build.fmul(top, self._constant(2.0**-rules.sum_digits))
        result = build.fptrunc(build.fmul(both, unit), total.type)
        return self._special(result, products, c)

    def _cut_sum(
        self, products: Sequence[ir.Value], powers: Sequence[ir.Value], digits: int
    ) -> tuple[ir.Value, ir.Value]:
        """The sum of products cut off ``digits`` digits below the largest power, in units of the last digit, and that
        power.
        """
        build = self._code.builder
        largest = powers[0]
        for power in powers[1:]:
            largest = self._larger(largest, power)
        scale, summed = self._below(largest, digits), self._constant(0.0)
        for product in products:
            summed = build.fadd(summed, self._intrinsic("trunc", build.fmul(product, scale)))
        return summed, largest

    def _special(self, result: ir.Value, products: Sequence[ir.Value], c: ir.Value) -> ir.Value:
        """NaN, infinities and products that overflow, in the place of a result."""
        build = self._code.builder
        if self._form.a in _OVERFLOWING:
            high, low = products[0], products[0]
            for product in products[1:]:
                high = self._larger(high, product)
                low = build.select(build.fcmp_ordered("<", low, product), low, product)
            infinity = self._constant(float("inf"))
            above = build.fcmp_ordered(">=", high, self._constant(_OVERFLOW))
            below = build.fcmp_ordered("<=", low, self._constant(-_OVERFLOW))
            nothing = self._constant(0.0)
            overflow = build.fsub(build.select(above, infinity, nothing), build.select(below, infinity, nothing))
            result = build.select(build.or_(above, below), build.fptrunc(overflow, result.type), result)
        plain = c
        for product in products:
            plain = build.fadd(plain, product)
        usual = build.fcmp_ordered("<", self._intrinsic("fabs", plain), self._constant(float("inf")))
        return build.select(usual, result, build.fptrunc(plain, result.type))

    # ------------------------------------------------------------ rows of C and D

    def _row_type(self) -> ir.Type:
        element = IR32 if self._definition.result == "i32" else _NUMBERS[self._definition.result]
        return ir.VectorType(element, self._definition.n)

    def _load_row(self, offset: ir.Value) -> ir.Value:
        code, build = self._code, self._code.builder
        address = code.at(self._c, offset)
        if self._definition.result != "f64":
            return code.load(address, self._row_type(), 4)
        half = ir.VectorType(IR32, self._definition.n)
        low, high = code.load(address, half, 4), code.load(code.at(address, ROW), half, 4)
        wide = ir.VectorType(I64, self._definition.n)
        shift = splat(build, i64(32), self._definition.n)
        bits = build.or_(build.zext(low, wide), build.shl(build.zext(high, wide), shift))
        return build.bitcast(bits, self._row_type())

    def _store_row(self, offset: ir.Value, row: ir.Value) -> None:
        code, build = self._code, self._code.builder
        address = code.at(self._d, offset)
        if self._definition.result != "f64":
            code.store(row, address, 4)
            return
        half, wide = ir.VectorType(IR32, self._definition.n), ir.VectorType(I64, self._definition.n)
        bits = build.bitcast(row, wide)
        code.store(build.trunc(bits, half), address, 4)
        high = build.lshr(bits, splat(build, i64(32), self._definition.n))
        code.store(build.trunc(high, half), code.at(address, ROW), 4)

    # ------------------------------------------------------------ scales

    def _scale_factors(self, scales: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """2**(e - 127) of both operands' scale bytes in memory, one a lane; NaN for 255."""
        code, build, low = self._code, self._code.builder, Lowering(self._code.builder)
        found = []
        for register, shift in (scales[0:2], scales[2:4]):
            dword = code.load(register, LANES_I32, 64)
            exponent = given(U32, build.lshr(dword, splat(build, shift))) & 0xFF
            memory = code.local(self._number, LANES)
            code.store(lanes(build, low.cell(floats.e8m0_value(exponent))), memory, 8)
            found.append(memory)
        return found[0], found[1]

    def _scale(self, i: ir.Value, k_block: int) -> ir.Value:
        """The product of both scales for row i and all columns of a K-block: lane row + m * block holds a row's."""
        assert self._factors is not None
        definition, code, build = self._definition, self._code, self._code.builder
        a, b = self._factors
        step = build.mul(build.zext(i, I64), i64(8))
        one = code.load(code.at(code.at(a, definition.m * k_block * 8), step), self._number, 8)
        columns = code.load(code.at(b, definition.n * k_block * 8), self._columns, 8)
        return build.fmul(splat(build, one, definition.n), columns)


def unused() -> list[ir.Value]:
    """Arguments in the place of scales."""
    nothing = ir.Constant(PTR, None)
    return [nothing, i32(0), nothing, i32(0)]
