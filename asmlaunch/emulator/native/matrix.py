"""Native helpers for matrix-core instructions.

4-bit operands, doubled, are small integers: a 32-element K-block is an exact integer dot product, made of steps that
multiply four bytes a lane. Where the host has VNNI each step is one instruction; elsewhere LLVM makes what it can of
the same arithmetic.

An operand is decoded from nibbles to bytes once and then used by every instruction of the block that reads it.
Registers are read as they lie (``isa.matrix`` states the layout): 16 lanes of one VGPR are one host vector.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from asmlaunch.emulator import jit
from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.isa.matrix import FP4_DOUBLED
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I8, I32, I64, LANES_I32, PTR, call, splat
from asmlaunch.emulator.native.helpers import ROW, VOID, helpers

F32, F64 = ir.FloatType(), ir.DoubleType()
V16 = ir.VectorType(I32, 16)
V64B = ir.VectorType(I8, 64)
V16F, V16D = ir.VectorType(F32, 16), ir.VectorType(F64, 16)
ROWS, BLOCKS, STEPS = 16, 4, 8  # rows of A; K-blocks of 32; steps of four elements in a K-block
VECTOR = 64  # bytes of a host vector: 16 lanes of one VGPR

#: Added to B's bytes so that they are unsigned, as the hosts' byte dot product wants one factor; taken off again a
#: block.
BIAS = max(FP4_DOUBLED)

#: Scale exponents for which products and sums of scales stay normal f32 numbers, whatever the other operand's.
FAST_SCALES = (65, 189)

# A decoded operand: a vector of bytes a step and K-block; behind A's, the corrections for B's bias, one vector a block.
OPERAND_BYTES = (STEPS * BLOCKS + BLOCKS) * VECTOR
_CORRECTIONS = STEPS * BLOCKS * VECTOR

# A decoded scale register: factors (f32), exponents (i32), and whether all exponents are in FAST_SCALES.
SCALE_BYTES = 2 * ROW + VECTOR
_EXPONENTS, _NORMAL = ROW, 2 * ROW


def decoded_operand(side: str, vnni: bool | None = None) -> str:
    """``void (decoded, first VGPR)``: the four VGPRs of an FP4 operand, "a" or "b", as bytes."""
    use = _use_vnni(vnni)

    def build_it(module: ir.Module, name: str) -> None:
        code, (target, registers) = Code.function(module, name, VOID, [PTR, PTR])
        (_decode_a if side == "a" else _decode_b)(code, target, registers, use)
        code.builder.ret_void()

    return helpers().need(f"fp4_decode_{side}{_suffix(use)}", build_it)


def decoded_scale(side: str) -> str:
    """``void (decoded, VGPR, bit position)``: the scale byte of each lane, for operand "a" or "b"."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (target, register, shift) = Code.function(module, name, VOID, [PTR, PTR, I32])
        build = code.builder
        byte = build.lshr(code.load(register, LANES_I32, 64), splat(build, shift))
        exponents = build.and_(byte, splat(build, i32(0xFF)))
        # The doubled operands make the dot product four times too large: two off B's exponent.
        scaled = exponents if side == "a" else build.sub(exponents, splat(build, i32(2)))
        code.store(build.shl(scaled, splat(build, i32(23))), target, 64)
        code.store(exponents, code.at(target, _EXPONENTS), 64)
        low, high = FAST_SCALES
        distance = build.sub(exponents, splat(build, i32(low)))
        worst = call(build, "llvm.vector.reduce.umax.v64i32", I32, [distance])
        normal = build.icmp_unsigned("<=", worst, i32(high - low))
        code.store(build.zext(normal, I32), code.at(target, _NORMAL), 4)
        build.ret_void()

    return helpers().need(f"e8m0_decode_{side}", build_it)


#: Arguments of the product: D, decoded A and B, C, decoded scales of A and B.
ARGS = [PTR, PTR, PTR, PTR, PTR, PTR]


def scaled_fp4(definition: Mfma, vnni: bool | None = None) -> str:
    """``void (D, decoded A, decoded B, C, scales A, scales B)`` for 16x16x128 with both operands FP4.

    Args:
        vnni: use the host's byte dot product; None asks the host.
    """
    assert (definition.m, definition.n, definition.k, definition.scaled) == (16, 16, 128, True)
    use = _use_vnni(vnni)
    extreme = helpers().need(
        f"fp4_product_extreme{_suffix(use)}", lambda module, name: _build(module, name, _accumulate_f64, use, None)
    )
    return helpers().need(
        f"fp4_product{_suffix(use)}", lambda module, name: _build(module, name, _accumulate_f32, use, extreme)
    )


def _use_vnni(choice: bool | None) -> bool:
    return {"avx512vnni", "avx512bw"} <= jit.host().features if choice is None else choice


def _suffix(vnni: bool) -> str:
    return "" if vnni else "_portable"


def _build(module: ir.Module, name: str, accumulate: Accumulate, vnni: bool, otherwise: str | None) -> None:
    """The product by one way of adding; where a scale is not normal, ``otherwise`` is called instead."""
    code, arguments = Code.function(module, name, VOID, ARGS)
    d, a, b, c, scales_a, scales_b = arguments
    build = code.builder
    if otherwise is not None:
        normal = build.and_(*(code.load(code.at(scales, _NORMAL), I32, 4) for scales in (scales_a, scales_b)))
        with build.if_then(build.icmp_unsigned("==", normal, i32(0)), likely=False):
            call(build, otherwise, VOID, arguments)
            build.ret_void()
    rows = [code.load(code.at(c, _place(i)), V16F, 64) for i in range(ROWS)]
    for i, row in enumerate(accumulate(code, a, b, rows, scales_a, scales_b, vnni)):
        code.store(row, code.at(d, _place(i)), 64)
    build.ret_void()


def _place(row: int) -> int:
    """Byte offset of row ``row`` of C and D in the register file: VGPR row % 4, lanes from 16 * (row / 4)."""
    return (row % 4) * ROW + (row // 4) * VECTOR


# ---------------------------------------------------------------- operands


def _lookup(code: Code, table: list[int], codes: ir.Value, vnni: bool) -> ir.Value:
    """Byte by byte, ``table[code]`` for codes 0..15 in a vector of 64 bytes."""
    build = code.builder
    if vnni:
        vector = ir.Constant(V64B, [entry & 0xFF for entry in table] * 4)
        return call(build, "llvm.x86.avx512.pshuf.b.512", V64B, [vector, codes])
    result = splat(build, ir.Constant(I8, table[0] & 0xFF), 64)
    for number in range(1, 16):
        matches = build.icmp_unsigned("==", codes, splat(build, ir.Constant(I8, number), 64))
        result = build.select(matches, splat(build, ir.Constant(I8, table[number] & 0xFF), 64), result)
    return result


def _nibbles(code: Code, dwords: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The low and the high nibble of every byte, as bytes."""
    build = code.builder
    low = splat(build, i32(0x0F0F0F0F), 16)
    high = build.lshr(dwords, splat(build, i32(4), 16))
    return build.bitcast(build.and_(dwords, low), V64B), build.bitcast(build.and_(high, low), V64B)


def _dot4(code: Code, total: ir.Value, unsigned: ir.Value, signed: ir.Value, vnni: bool) -> ir.Value:
    """``total`` plus, in each dword, the sum of the four products of bytes."""
    build = code.builder
    if vnni:
        return call(build, "llvm.x86.avx512.vpdpbusd.512", V16, [total, unsigned, signed])
    for byte in range(4):
        left = build.and_(build.lshr(unsigned, splat(build, i32(8 * byte), 16)), splat(build, i32(0xFF), 16))
        right = build.ashr(build.shl(signed, splat(build, i32(24 - 8 * byte), 16)), splat(build, i32(24), 16))
        total = build.add(total, build.mul(left, right))
    return total


# Step 2v+h of a K-block takes the nibbles h of the four bytes of VGPR v: the same order for both operands.
SIGNED = [*FP4_DOUBLED, *(-value for value in FP4_DOUBLED)]


def _decode_a(code: Code, target: ir.Value, registers: ir.Value, vnni: bool) -> None:
    build = code.builder
    for block in range(BLOCKS):
        total = splat(build, i32(0), 16)
        for register in range(STEPS // 2):
            dwords = code.load(code.at(registers, register * ROW + block * VECTOR), V16, 64)
            for half, codes in enumerate(_nibbles(code, dwords)):
                decoded = build.bitcast(_lookup(code, SIGNED, codes, vnni), V16)
                code.store(decoded, code.at(target, (block * STEPS + 2 * register + half) * VECTOR), 64)
                total = _dot4(code, total, splat(build, i32(BIAS * 0x01010101), 16), decoded, vnni)
        correction = build.sub(splat(build, i32(0), 16), total)
        code.store(correction, code.at(target, _CORRECTIONS + block * VECTOR), 64)


def _decode_b(code: Code, target: ir.Value, registers: ir.Value, vnni: bool) -> None:
    biased = [value + BIAS for value in SIGNED]
    for block in range(BLOCKS):
        for register in range(STEPS // 2):
            dwords = code.load(code.at(registers, register * ROW + block * VECTOR), V16, 64)
            for half, codes in enumerate(_nibbles(code, dwords)):
                place = code.at(target, (block * STEPS + 2 * register + half) * VECTOR)
                code.store(_lookup(code, biased, codes, vnni), place, 64)


# ---------------------------------------------------------------- sums


def _element(code: Code, memory: ir.Value, vector: int, row: int, kind: ir.Type) -> ir.Value:
    """Element ``row`` of the ``vector``-th vector in memory, in all 16 places."""
    return splat(code.builder, code.load(code.at(memory, vector * VECTOR + row * 4), kind, 4), 16)


def _block_dots(code: Code, a: ir.Value, b: ir.Value, block: int, vnni: bool) -> list[ir.Value]:
    """A row of A each: four times the exact dot products with 16 columns of B over one K-block."""
    columns = [code.load(code.at(b, (block * STEPS + step) * VECTOR), V16, 64) for step in range(STEPS)]
    dots = []
    for row in range(ROWS):
        total = _element(code, code.at(a, _CORRECTIONS), block, row, I32)
        for step in range(STEPS):
            total = _dot4(code, total, columns[step], _element(code, a, block * STEPS + step, row, I32), vnni)
        dots.append(total)
    return dots


def _accumulate_f32(
    code: Code, a: ir.Value, b: ir.Value, rows: list[ir.Value], scales_a: ir.Value, scales_b: ir.Value, vnni: bool
) -> list[ir.Value]:
    """One fused multiply-add a K-block: product and scale are exact, so the block is rounded once."""
    build = code.builder
    sums = list(rows)
    for block in range(BLOCKS):
        scale_b = code.load(code.at(scales_b, block * VECTOR), V16F, 64)
        for row, dot in enumerate(_block_dots(code, a, b, block, vnni)):
            scale = build.fmul(scale_b, _element(code, scales_a, block, row, F32))
            sums[row] = call(build, "llvm.fma.v16f32", V16F, [build.sitofp(dot, V16F), scale, sums[row]])
    return sums


def _accumulate_f64(
    code: Code, a: ir.Value, b: ir.Value, rows: list[ir.Value], scales_a: ir.Value, scales_b: ir.Value, vnni: bool
) -> list[ir.Value]:
    """The same for scales outside f32's normal range: each sum is made in f64 and then rounded to f32.

    f64 has more than twice f32's bits, so the two roundings give what one would.
    """
    build = code.builder
    wide = ir.VectorType(I64, 16)

    def factors(exponents: ir.Value, divisor_log2: int) -> ir.Value:
        number = build.zext(exponents, wide)
        biased = build.add(number, splat(build, i64(1023 - 127 - divisor_log2), 16))
        value = build.bitcast(build.shl(biased, splat(build, i64(52), 16)), V16D)
        not_a_number = splat(build, ir.Constant(F64, float("nan")), 16)
        return build.select(build.icmp_unsigned("==", number, splat(build, i64(255), 16)), not_a_number, value)

    exponents_a, exponents_b = code.at(scales_a, _EXPONENTS), code.at(scales_b, _EXPONENTS)
    sums = list(rows)
    for block in range(BLOCKS):
        quarter = factors(code.load(code.at(exponents_b, block * VECTOR), V16, 64), 2)
        for row, dot in enumerate(_block_dots(code, a, b, block, vnni)):
            scale = build.fmul(quarter, factors(_element(code, exponents_a, block, row, I32), 0))
            total = build.fadd(build.fmul(build.sitofp(dot, V16D), scale), build.fpext(sums[row], V16D))
            sums[row] = build.fptrunc(total, V16F)
    return sums


Accumulate = Callable[[Code, ir.Value, ir.Value, list[ir.Value], ir.Value, ir.Value, bool], list[ir.Value]]
