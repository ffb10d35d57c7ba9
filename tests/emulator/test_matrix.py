"""Every matrix instruction against numpy's products, with the layouts written out element by element."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from emulator.toolkit import build
from numpy.typing import NDArray

from asmlaunch.emulator.isa.table import Mfma, find, mnemonics

BITS = {
    "f64": 64,
    "f32": 32,
    "xf32": 32,
    "f16": 16,
    "bf16": 16,
    "i8": 8,
    "fp8": 8,
    "bf8": 8,
    "fp6": 6,
    "bf6": 6,
    "fp4": 4,
}
MX = ("fp8", "bf8", "fp6", "bf6", "fp4")
TYPES = {
    "f64": np.float64, "f32": np.float32, "xf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn, "fp8_fnuz": ml_dtypes.float8_e4m3fnuz,
    "bf8_fnuz": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip
A, B, C, SCALES = 4, 20, 40, 100  # first registers


@dataclass(frozen=True)
class Operand:
    """Codes and values of an operand, (blocks, rows or columns, k), and its registers."""

    registers: NDArray[np.uint32]
    values: NDArray[np.float64]


def random_codes(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Finite numbers of a format: codes and values."""
    bits = BITS[kind.removesuffix("_fnuz")]
    if kind == "i8":
        numbers = rng.integers(-128, 128, shape).astype(np.int8)
        return numbers.view(np.uint8), numbers.astype(np.float64)
    if bits > 8:
        numbers = rng.normal(0, 1, shape).astype(TYPES[kind])
        if kind == "xf32":  # the low 13 bits are cut off
            numbers = (numbers.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return numbers.view(f"u{bits // 8}"), numbers.astype(np.float64)
    codes = rng.integers(0, 1 << bits, shape).astype(np.uint8)
    values = codes.view(TYPES[kind]).astype(np.float64)
    strange = ~np.isfinite(values)
    codes[strange], values[strange] = 0, 0
    return codes, values


def operand(one: Mfma, size: int, kind: str, rng: np.random.Generator) -> Operand:
    """A random operand with ``size`` rows or columns (the manual's layout of inputs)."""
    codes, values = random_codes(kind, (one.blocks, size, one.k), rng)
    return Operand(packed(one, size, kind, codes), values)


def packed(one: Mfma, size: int, kind: str, codes: NDArray) -> NDArray[np.uint32]:
    """The registers of an operand, from its codes (blocks, ``size`` rows or columns, k)."""
    bits = BITS[kind.removesuffix("_fnuz")]
    groups = 64 // (size * one.blocks)
    lanes = np.zeros((64, one.k // groups * bits), np.uint8)
    for block, row, k in np.ndindex(codes.shape):
        if one.a == "mx" and bits == 8:
            group, item = k // 16 % groups, 16 * (k // (16 * groups)) + k % 16
        else:
            group, item = k // (one.k // groups), k % (one.k // groups)
        lane = row + size * (block + one.blocks * group)
        code = int(codes[block, row, k])
        lanes[lane, item * bits : (item + 1) * bits] = [code >> bit & 1 for bit in range(bits)]
    rows = np.packbits(lanes.reshape(64, -1, 8), axis=2, bitorder="little").reshape(64, -1)
    return np.ascontiguousarray(rows).view(np.uint32).T.copy()


def result_place(one: Mfma, block: int, i: int) -> tuple[int, int]:
    """Register (pair) and first lane of a row of C and D (the manual's layout of outputs)."""
    if one.result == "f64":
        return (i // 4, 16 * (i % 4)) if one.blocks == 1 else (0, 16 * i + 4 * block)
    if one.m == 32:
        return 4 * (i // 8) + i % 4 + 16 * block, 32 * (i // 4 % 2)
    if one.m == 16:
        return i % 4 + 4 * block, 16 * (i // 4)
    return i, 4 * block


def span(first: int, count: int) -> str:
    """A register operand."""
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def launch(
    one: Mfma, registers: dict[int, NDArray[np.uint32]], text: str, count: int, processor: str, **options: str
) -> NDArray:
    """Load registers, run ``text``, give back ``count`` registers from C on; options are the launch's."""
    load, inputs = "", []
    for first, rows in registers.items():
        for number, row in enumerate(rows):
            load += f"""
    global_load_dword v{first + number}, v1, s[4:5]
    s_add_u32 s4, s4, 256
    s_addc_u32 s5, s5, 0"""
            inputs.append(row)
    store = "".join(
        f"""
    global_store_dword v1, v{C + number}, s[6:7]
    s_add_u32 s6, s6, 256
    s_addc_u32 s7, s7, 0"""
        for number in range(count)
    )
    body = f"""
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    {load}
    s_waitcnt vmcnt(0)
    {text}
    s_nop 15
    {store}"""
    out = np.zeros((count, 64), np.uint32)
    kernel = build(body, "x:ptr out:ptr", processor=processor, vgprs=128)
    kernel.launch({"x": np.array(inputs, np.uint32), "out": out}, grid=(1, 1, 1), block=(64, 1, 1), **options)
    return out


def check(name: str, kinds: tuple[str, str] | None = None, modifiers: str = "", processor: str = "gfx950") -> None:
    """Run the instruction on random operands and compare every element."""
    rng = np.random.default_rng(1)
    one = find(name)
    assert isinstance(one, Mfma)
    kind_a, kind_b = kinds or (one.a, one.b)
    a, b = operand(one, one.m, kind_a, rng), operand(one, one.n, kind_b, rng)
    count = one.m * one.n * one.blocks // 64 * (2 if one.result == "f64" else 1)
    c = {
        "f32": lambda: rng.normal(0, 1, (count, 64)).astype(np.float32).view(np.uint32),
        "i32": lambda: rng.integers(0, 1 << 32, (count, 64), dtype=np.uint32),
        "f64": lambda: np.ascontiguousarray(rng.normal(0, 1, (count // 2, 64)).view(np.uint32).reshape(-1, 64, 2)
                                            .transpose(0, 2, 1)).reshape(count, 64),
    }[one.result]()  # fmt: skip
    registers = {A: a.registers, B: b.registers, C: c}
    scales = ""
    if one.scaled:
        exponents = rng.integers(118, 136, (2, 64)).astype(np.uint32)
        registers[SCALES] = exponents << 16 | 0x7F  # the byte that op_sel_hi chooses, and another
        scales = f", v{SCALES}, v{SCALES + 1} op_sel_hi:[1,1,0]"
        for block in range(one.k // 32):
            for values, size, row in ((a.values, one.m, exponents[0]), (b.values, one.n, exponents[1])):
                factors = 2.0 ** (row[size * block : size * (block + 1)].astype(float) - 127)
                values[0, :, 32 * block : 32 * block + 32] *= factors[:, None]
    d = span(C, count)
    text = f"{name} {d}, {span(A, len(a.registers))}, {span(B, len(b.registers))}, {d}{scales} {modifiers}"
    out = launch(one, registers, text, count, processor)
    for block, i in np.ndindex(one.blocks, one.m):
        register, lane = result_place(one, block, i)
        columns = slice(lane, lane + one.n)
        products = a.values[block, i] @ b.values[block].T
        if one.result == "i32":
            want = (c[register, columns].astype(np.int64) + products.astype(np.int64)) & 0xFFFFFFFF
            np.testing.assert_array_equal(out[register, columns], want)
            continue
        before, after = (as_numbers(one, rows, register)[columns] for rows in (c, out))
        size = np.abs(a.values[block, i]) @ np.abs(b.values[block].T) + np.abs(before)
        assert np.all(np.abs(after - (before + products)) <= size * (2.0**-50 if one.result == "f64" else 2.0**-21))


def as_numbers(one: Mfma, rows: NDArray[np.uint32], register: int) -> NDArray[np.float64]:
    """A register (pair) of C or D as numbers."""
    if one.result == "f32":
        return rows[register].view(np.float32).astype(np.float64)
    low, high = (rows[2 * register + half].astype(np.uint64) for half in range(2))
    return (low | high << np.uint64(32)).view(np.float64)


PLAIN = [name for name in mnemonics() if isinstance(one := find(name), Mfma) and one.a != "mx"]
MIXED = [name for name in mnemonics() if isinstance(one := find(name), Mfma) and one.a == "mx"]


@pytest.mark.parametrize("name", PLAIN)
def test_products(name: str) -> None:
    check(name, processor="gfx942" if "xf32" in name else "gfx950")


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("first", range(5))
def test_mixed_formats(name: str, first: int) -> None:
    second = (first + 1) % 5
    check(name, (MX[first], MX[second]), f"cbsz:{first} blgp:{second}")


def test_fp4_on_both_sides_takes_the_fast_path_and_agrees() -> None:
    check("v_mfma_scale_f32_16x16x128_f8f6f4", ("fp4", "fp4"), "cbsz:4 blgp:4")


def test_8_bit_formats_are_fnuz_on_gfx942() -> None:
    check("v_mfma_f32_16x16x32_fp8_bf8", ("fp8_fnuz", "bf8_fnuz"), processor="gfx942")


@pytest.mark.parametrize(("cbsz", "abid"), [(1, 0), (1, 1), (2, 3)])
def test_broadcast_of_a(cbsz: int, abid: int) -> None:
    """CBSZ = 1, ABID = 1: blocks 1, 1, 3, 3 (AMD matrix instruction calculator)."""
    rng = np.random.default_rng(2)
    one = find("v_mfma_f32_16x16x1_4b_f32")
    assert isinstance(one, Mfma)
    a, b = operand(one, 16, "f32", rng), operand(one, 16, "f32", rng)
    text = f"v_mfma_f32_16x16x1_4b_f32 v[40:55], v4, v20, 0 cbsz:{cbsz} abid:{abid}"
    out = launch(one, {A: a.registers, B: b.registers}, text, 16, "gfx950").view(np.float32)
    for block, i in np.ndindex(4, 16):
        source = {(1, 0): (0, 0, 2, 2), (1, 1): (1, 1, 3, 3), (2, 3): (3, 3, 3, 3)}[cbsz, abid][block]
        register, lane = result_place(one, block, i)
        want = (a.values[source, i] * b.values[block].T).astype(np.float32).ravel()
        np.testing.assert_array_equal(out[register, lane : lane + 16], want)


def test_lane_groups_of_b() -> None:
    """BLGP = 1: both halves of the lanes see B's lower half."""
    rng = np.random.default_rng(3)
    one = find("v_mfma_f32_32x32x2_f32")
    assert isinstance(one, Mfma)
    a, b = operand(one, 32, "f32", rng), operand(one, 32, "f32", rng)
    text = "v_mfma_f32_32x32x2_f32 v[40:55], v4, v20, 0 blgp:1"
    out = launch(one, {A: a.registers, B: b.registers}, text, 16, "gfx950").view(np.float32)
    seen = np.repeat(b.values[0, :, :1], 2, axis=1)
    for i in range(32):
        register, lane = result_place(one, 0, i)
        np.testing.assert_allclose(out[register, lane : lane + 32], a.values[0, i] @ seen.T, rtol=1e-5, atol=1e-6)


def test_negated_f64() -> None:
    check_negated = find("v_mfma_f64_16x16x4_f64")
    assert isinstance(check_negated, Mfma)
    rng = np.random.default_rng(4)
    a, b = operand(check_negated, 16, "f64", rng), operand(check_negated, 16, "f64", rng)
    text = "v_mfma_f64_16x16x4_f64 v[40:47], v[4:5], v[20:21], 0 neg:[1,0,0]"
    out = launch(check_negated, {A: a.registers, B: b.registers}, text, 8, "gfx950")
    for i in range(16):
        register, lane = result_place(check_negated, 0, i)
        got = as_numbers(check_negated, out, register)[lane : lane + 16]
        np.testing.assert_allclose(got, -a.values[0, i] @ b.values[0].T, rtol=1e-12, atol=1e-14)


def test_an_e8m0_scale_of_255_is_not_a_number() -> None:
    one = find("v_mfma_scale_f32_32x32x64_f8f6f4")
    assert isinstance(one, Mfma)
    rng = np.random.default_rng(5)
    a, b = operand(one, 32, "fp8", rng), operand(one, 32, "fp8", rng)
    scales = np.full((2, 64), 127, np.uint32)
    scales[0, 3] = 255  # row 3, first K block
    text = "v_mfma_scale_f32_32x32x64_f8f6f4 v[40:55], v[4:11], v[20:27], 0, v100, v101 op_sel_hi:[0,0,0]"
    out = launch(one, {A: a.registers, B: b.registers, SCALES: scales}, text, 16, "gfx950").view(np.float32)
    for i in range(32):
        register, lane = result_place(one, 0, i)
        assert np.isnan(out[register, lane : lane + 32]).all() == (i == 3)
