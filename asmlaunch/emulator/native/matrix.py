"""Native helpers for matrix-core instructions.

4-bit operands, doubled, are small integers: a 32-element K-block is an exact integer dot product, made of steps that
multiply four bytes a lane. Where the host has VNNI each step is one instruction; elsewhere LLVM makes what it can of
the same arithmetic.

Registers are read as they lie (``isa.matrix`` states the layout): 16 lanes of one VGPR are one host vector.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from asmlaunch.emulator import jit
from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.isa.matrix import FP4_DOUBLED
from asmlaunch.emulator.isa.table import Mfma
from asmlaunch.emulator.lower import I8, I32, I64, LANES_I32, PTR, call, splat
from asmlaunch.emulator.native.helpers import ROW, helpers

F32, F64 = ir.FloatType(), ir.DoubleType()
V16 = ir.VectorType(I32, 16)
V64B = ir.VectorType(I8, 64)
V16F, V16D = ir.VectorType(F32, 16), ir.VectorType(F64, 16)
ROWS, BLOCKS, STEPS = 16, 4, 8  # rows of A; K-blocks of 32; steps of four elements in a K-block

#: Added to B's bytes so that they are unsigned, as the hosts' byte dot product wants one factor; taken off again a
#: block.
BIAS = max(FP4_DOUBLED)

#: Scale exponents for which products and sums of scales stay normal f32 numbers, whatever the other operand's.
FAST_SCALES = (65, 189)

#: Arguments of the helper: D, A, B, C and the two scale registers, and the bit positions of the scale bytes.
ARGS = [PTR, PTR, PTR, PTR, PTR, PTR, I32, I32]


def scaled_fp4(definition: Mfma, vnni: bool | None = None) -> str:
    """``void (D, A, B, C, scale A, scale B, shift A, shift B)`` for 16x16x128 with both operands FP4.

    Args:
        vnni: use the host's byte dot product; None asks the host.
    """
    assert (definition.m, definition.n, definition.k, definition.scaled) == (16, 16, 128, True)
    use = {"avx512vnni", "avx512bw"} <= jit.host().features if vnni is None else vnni
    return helpers().need(
        f"{definition.mnemonic}_fp4_fp4{'' if use else '_portable'}", lambda module, name: _build(module, name, use)
    )


@dataclass
class _Operands:
    """Decoded operands: A's dwords and corrections in memory (read one at a time), B's vectors a block and step."""

    a: ir.Value
    correction: ir.Value
    b: list[list[ir.Value]]


def _build(module: ir.Module, name: str, vnni: bool) -> None:
    code, (d, a, b, c, scale_a, scale_b, shift_a, shift_b) = Code.function(module, name, ir.VoidType(), ARGS)
    build = code.builder
    operands = _decode(code, a, b, vnni)
    rows = [code.load(code.at(c, _place(i)), V16F, 64) for i in range(ROWS)]
    exponents_a, exponents_b = _exponents(code, scale_a, shift_a), _exponents(code, scale_b, shift_b)
    low, high = FAST_SCALES
    normal = build.and_(*(_all_between(code, exponents, low, high) for exponents in (exponents_a, exponents_b)))
    with build.if_else(normal) as (usual, extreme):
        with usual:
            sums = _accumulate_f32(code, operands, rows, exponents_a, exponents_b, vnni)
            _store_rows(code, d, sums)
        with extreme:
            sums = _accumulate_f64(code, operands, rows, exponents_a, exponents_b, vnni)
            _store_rows(code, d, sums)
    build.ret_void()


def _place(row: int) -> int:
    """Byte offset of row ``row`` of C and D in the register file: VGPR row % 4, lanes from 16 * (row / 4)."""
    return (row % 4) * ROW + (row // 4) * 64


def _store_rows(code: Code, d: ir.Value, rows: list[ir.Value]) -> None:
    for i, row in enumerate(rows):
        code.store(row, code.at(d, _place(i)), 64)


def _exponents(code: Code, register: ir.Value, shift: ir.Value) -> ir.Value:
    """The scale byte of each lane: lane 16 * block + row."""
    build = code.builder
    return build.and_(build.lshr(code.load(register, LANES_I32, 64), splat(build, shift)), splat(build, i32(0xFF)))


def _all_between(code: Code, vector: ir.Value, low: int, high: int) -> ir.Value:
    build = code.builder
    distance = build.sub(vector, splat(build, i32(low)))
    worst = call(build, "llvm.vector.reduce.umax.v64i32", I32, [distance])
    return build.icmp_unsigned("<=", worst, i32(high - low))


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
    data = build.bitcast(dwords, V64B)
    mask = splat(build, ir.Constant(I8, 15), 64)
    return build.and_(data, mask), build.lshr(data, splat(build, ir.Constant(I8, 4), 64))


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


def _decode(code: Code, a: ir.Value, b: ir.Value, vnni: bool) -> _Operands:
    """Nibbles to bytes. Step 2v+h of a K-block takes the nibbles h of the four bytes of VGPR v: the same order for
    both.
    """
    build = code.builder
    signed = [*FP4_DOUBLED, *(-value for value in FP4_DOUBLED)]
    biased = [value + BIAS for value in signed]
    a_bytes, correction = code.local(V16, BLOCKS * STEPS), code.local(V16, BLOCKS)
    b_vectors: list[list[ir.Value]] = []
    for block in range(BLOCKS):
        b_vectors.append([])
        total = splat(build, i32(0), 16)
        for register in range(STEPS // 2):
            place = register * ROW + block * 64
            for half, codes in enumerate(_nibbles(code, code.load(code.at(a, place), V16, 64))):
                decoded = build.bitcast(_lookup(code, signed, codes, vnni), V16)
                code.store(decoded, code.at(a_bytes, (block * STEPS + 2 * register + half) * 64), 64)
                total = _dot4(code, total, splat(build, i32(BIAS * 0x01010101), 16), decoded, vnni)
            for codes in _nibbles(code, code.load(code.at(b, place), V16, 64)):
                b_vectors[block].append(build.bitcast(_lookup(code, biased, codes, vnni), V16))
        code.store(build.sub(splat(build, i32(0), 16), total), code.at(correction, block * 64), 64)
    return _Operands(a_bytes, correction, b_vectors)


def _element(code: Code, memory: ir.Value, vector: int, row: int, kind: ir.Type) -> ir.Value:
    """Element ``row`` of the ``vector``-th vector in memory, in all 16 places."""
    size = 8 if kind == F64 else 4
    return splat(code.builder, code.load(code.at(memory, (vector * 16 + row) * size), kind, size), 16)


def _block_dot(code: Code, operands: _Operands, block: int, row: int, vnni: bool) -> ir.Value:
    """Four times the exact dot product of row ``row`` of A with 16 columns of B over one K-block."""
    total = _element(code, operands.correction, block, row, I32)
    for step in range(STEPS):
        factor = _element(code, operands.a, block * STEPS + step, row, I32)
        total = _dot4(code, total, operands.b[block][step], factor, vnni)
    return total


# ---------------------------------------------------------------- sums


def _part(code: Code, vector: ir.Value, block: int) -> ir.Value:
    order = ir.Constant(V16, list(range(16 * block, 16 * block + 16)))
    return code.builder.shuffle_vector(vector, vector, order)


def _accumulate_f32(
    code: Code, operands: _Operands, rows: list[ir.Value], exponents_a: ir.Value, exponents_b: ir.Value, vnni: bool
) -> list[ir.Value]:
    """One fused multiply-add a K-block: product and scale are exact, so the block is rounded once."""
    build = code.builder
    scales = code.local(V16F, BLOCKS)
    vector = ir.VectorType(F32, 64)
    shift = splat(build, i32(23))
    code.store(build.bitcast(build.shl(exponents_a, shift), vector), scales, 64)
    # The doubled operands made the dot product four times too large: two off the exponent.
    quarter = build.bitcast(build.shl(build.sub(exponents_b, splat(build, i32(2))), shift), vector)
    sums = list(rows)
    for block in range(BLOCKS):
        scale_b = _part(code, quarter, block)
        for row in range(ROWS):
            dot = build.sitofp(_block_dot(code, operands, block, row, vnni), V16F)
            scale = build.fmul(scale_b, _element(code, scales, block, row, F32))
            sums[row] = call(build, "llvm.fma.v16f32", V16F, [dot, scale, sums[row]])
    return sums


def _accumulate_f64(
    code: Code, operands: _Operands, rows: list[ir.Value], exponents_a: ir.Value, exponents_b: ir.Value, vnni: bool
) -> list[ir.Value]:
    """The same for scales outside f32's normal range: each sum is made in f64 and then rounded to f32.

    f64 has more than twice f32's bits, so the two roundings give what one would.
    """
    build = code.builder
    wide, doubles = ir.VectorType(I64, 64), ir.VectorType(F64, 64)

    def factors(exponents: ir.Value, divisor_log2: int) -> ir.Value:
        number = build.zext(exponents, wide)
        biased = build.add(number, splat(build, i64(1023 - 127 - divisor_log2)))
        value = build.bitcast(build.shl(biased, splat(build, i64(52))), doubles)
        not_a_number = splat(build, ir.Constant(F64, float("nan")))
        return build.select(build.icmp_unsigned("==", number, splat(build, i64(255))), not_a_number, value)

    scales = code.local(V16D, BLOCKS)
    code.store(factors(exponents_a, 0), scales, 64)
    quarter = factors(exponents_b, 2)
    sums = list(rows)
    for block in range(BLOCKS):
        scale_b = _part(code, quarter, block)
        for row in range(ROWS):
            dot = build.sitofp(_block_dot(code, operands, block, row, vnni), V16D)
            scale = build.fmul(scale_b, _element(code, scales, block, row, F64))
            total = build.fadd(build.fmul(dot, scale), build.fpext(sums[row], V16D))
            sums[row] = build.fptrunc(total, V16F)
    return sums
