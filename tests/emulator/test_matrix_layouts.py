"""Matrix instructions run from assembly, against a model written from the manual.

Layouts are section 7.1.4's, element by element; numbers come from ml_dtypes, sums from float64.
"""

from __future__ import annotations

import re
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from emulator.toolkit import build

from asmlaunch.emulator.isa import table
from asmlaunch.errors import UnsupportedInstructionError

FORMATS = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i8": np.int8,
    "fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2,
    "fp8_fnuz": ml_dtypes.float8_e4m3fnuz, "bf8_fnuz": ml_dtypes.float8_e5m2fnuz,
    "fp6": ml_dtypes.float6_e2m3fn, "bf6": ml_dtypes.float6_e3m2fn, "fp4": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
BITS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "fp6": 6, "bf6": 6, "fp4": 4}
ANY = ("fp8", "bf8", "fp6", "bf6", "fp4")
A, B, C, D, SCALES = 32, 48, 64, 96, 60


@cache
def kernel(instruction: str, processor: str):  # type: ignore[no-untyped-def]
    """Loads 32 rows into v32..v63 and 16 into v64..v79, runs the instruction, stores v96..v111."""
    after = "s_add_u32 s{0}, s{0}, 0x100\n s_addc_u32 s{1}, s{1}, 0"
    load = [f"global_load_dword v{A + n}, v255, s[4:5]\n {after.format(4, 5)}" for n in range(48)]
    store = [f"global_store_dword v255, v{D + n}, s[6:7]\n {after.format(6, 7)}" for n in range(16)]
    body = "\n".join(
        ["s_load_dwordx4 s[4:7], s[0:1], 0x0", "v_lshlrev_b32 v255, 2, v0", "s_waitcnt lgkmcnt(0)", *load,
         "s_waitcnt vmcnt(0)", instruction, "s_nop 15", *store]
    )  # fmt: skip
    return build(body, "input output", processor=processor, vgprs=256)


def execute(instruction: str, registers: np.ndarray, processor: str) -> np.ndarray:
    out = np.zeros((16, 64), np.uint32)
    kernel(instruction, processor).launch({"input": registers, "output": out}, grid=1, block=64)
    return out


def operand(registers: np.ndarray, form: str, size: int, depth: int, mixed: bool) -> np.ndarray:
    """The operand as a matrix [row or column, k] of float64, from its registers [number, lane]."""
    bits = BITS.get(form, 8)
    dense = np.unpackbits(np.ascontiguousarray(registers.T).view(np.uint8), axis=1, bitorder="little")
    items = dense[:, : dense.shape[1] // bits * bits].reshape(64, -1, bits)
    codes = (items.astype(np.uint32) << np.arange(bits, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
    if form == "xf32":
        values = (codes & 0xFFFFE000).view(np.float32)
    elif bits >= 8:
        values = codes.astype(f"u{bits // 8}").view(FORMATS[form])
    else:
        values = codes.astype(np.uint8).view(FORMATS[form])
    result, groups = np.empty((size, depth)), 64 // size
    for lane in range(64):
        row, group = lane % size, lane // size
        for item in range(depth // groups):
            # K goes up with the item, then with the lane group; F8F6F4's bytes alternate in chunks of 16.
            k = item + group * (depth // groups)
            if mixed and bits == 8:
                k = item // 16 * 16 * groups + 16 * group + item % 16
            result[row, k] = values[lane, item]
    return result


def rows(registers: np.ndarray, size: int) -> np.ndarray:
    """C or D as a matrix, from its registers."""
    lane, result = np.arange(64), np.empty((size, size), registers.dtype)
    for number in range(size * size // 64):
        if size == 16:
            result[4 * (lane // 16) + number, lane % 16] = registers[number]
        else:
            result[8 * (number // 4) + 4 * (lane // 32) + number % 4, lane % 32] = registers[number]
    return result


def random_registers(form_a: str, form_b: str, c: str, seed: int) -> np.ndarray:
    """Numbers of moderate size in A, B and C; any bits where the format has few of them."""
    random = np.random.default_rng(seed)
    registers = random.integers(0, 2**32, (48, 64), np.uint32)
    for first, form in ((0, form_a), (16, form_b)):
        if form in ("f16", "bf16", "f32", "xf32"):
            kind = FORMATS["f32" if form == "xf32" else form]
            numbers = random.standard_normal((8, 64 * 4 // np.dtype(kind).itemsize)).astype(kind)
            registers[first : first + 8] = numbers.view(np.uint32)
        elif form in ("fp8", "bf8", "fp8_fnuz", "bf8_fnuz"):
            numbers = (random.standard_normal((8, 256)) * 4).astype(FORMATS[form])
            registers[first : first + 8] = numbers.view(np.uint32)
    if c == "f32":
        registers[32:] = random.standard_normal((16, 64)).astype(np.float32).view(np.uint32)
    return registers


def span(first: int, number: int) -> str:
    return f"v{first}" if number == 1 else f"v[{first}:{first + number - 1}]"


def check(definition: table.Mfma, form_a: str, form_b: str, processor: str, modifiers: str = "") -> None:
    size, depth, mixed = definition.m, definition.k, definition.mnemonic.endswith("f8f6f4")
    count = {form: BITS.get(form, 8) * depth * size // 2048 for form in (form_a, form_b)}
    result = "i32" if definition.a == "i8" else "f32"
    registers = random_registers(form_a, form_b, result, size * 1000 + depth)
    scale_a, scale_b = SCALES - A, SCALES + 1 - A
    registers[scale_a : scale_b + 1] = np.random.default_rng(7).integers(110, 145, (2, 64)) * 0x01010101
    d = size * size // 64
    scales = f", v{SCALES}, v{SCALES + 1}" if definition.scaled else ""
    names = [span(D, d), span(A, count[form_a]), span(B, count[form_b]), span(C, d)]
    out = execute(f"{definition.mnemonic} {', '.join(names)}{scales} {modifiers}", registers, processor)
    a = operand(registers[: count[form_a]], form_a, size, depth, mixed)
    b = operand(registers[16 : 16 + count[form_b]], form_b, size, depth, mixed)
    c = rows(registers[32 : 32 + d].view(np.int32 if result == "i32" else np.float32), size)
    got = rows(out[:d].view(c.dtype), size)
    if result == "i32":
        want = (c.astype(np.int64) + (a @ b.T).astype(np.int64)).astype(np.int32)
        np.testing.assert_array_equal(got, want)
        return
    factors = np.ones((2, size, depth // 32 if mixed else 1))
    if definition.scaled:
        lane = np.arange(64)
        for side, number in enumerate((scale_a, scale_b)):
            exponents = (registers[number] & 255).astype(int) - 127
            factors[side, lane % size, lane // size] = np.ldexp(1.0, exponents)
    per_block = depth if not mixed else 32
    wide_a = a * np.repeat(factors[0], per_block, axis=1)
    wide_b = b * np.repeat(factors[1], per_block, axis=1)
    want, scale = wide_a @ wide_b.T + c, np.abs(wide_a) @ np.abs(wide_b).T + np.abs(c)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    steps = depth // (32 if mixed else definition.group)
    error = np.abs(got.astype(float) - want)
    assert (error <= steps * 2.0**-24 * scale)[finite].all()


DENSE = [name for name in table.mnemonics() if re.fullmatch(r"v_mfma_[fi]32_(16x16|32x32)x\d+_[a-z0-9_]+", name)
         and not re.search(r"f8f6f4|\db_", name)]  # fmt: skip


@pytest.mark.parametrize("mnemonic", DENSE)
def test_one_format(mnemonic: str) -> None:
    definition = table.find(mnemonic)
    assert isinstance(definition, table.Mfma)
    doubled = definition.k * definition.m > {"f16": 256, "bf16": 256, "i8": 512}.get(definition.a, 512)
    processors = ["gfx950"] if doubled else ["gfx942"] if definition.a == "xf32" else ["gfx942", "gfx950"]
    for processor in processors:
        fnuz = "_fnuz" if processor == "gfx942" else ""
        forms = [form + fnuz if form in ("fp8", "bf8") else form for form in (definition.a, definition.b)]
        check(definition, forms[0], forms[1], processor)


@pytest.mark.parametrize("shape", ["16x16x128", "32x32x64"])
@pytest.mark.parametrize(("a", "b"), [(a, b) for a in range(5) for b in range(5)])
def test_any_two_formats(shape: str, a: int, b: int) -> None:
    for scale in ("scale_", "") if a == b else ("scale_",):
        definition = table.find(f"v_mfma_{scale}f32_{shape}_f8f6f4")
        assert isinstance(definition, table.Mfma)
        check(definition, ANY[a], ANY[b], "gfx950", f"cbsz:{a} blgp:{b}")


def test_a_constant_accumulator() -> None:
    registers = random_registers("bf16", "bf16", "f32", 3)
    text = "v_mfma_f32_16x16x16_bf16 v[96:99], v[32:33], v[48:49]"
    zero = execute(f"{text}, 0", registers, "gfx950")[:4].view(np.float32)
    one = execute(f"{text}, 1.0", registers, "gfx950")[:4].view(np.float32)
    product = operand(registers[:2], "bf16", 16, 16, False) @ operand(registers[16:18], "bf16", 16, 16, False).T
    np.testing.assert_allclose(rows(zero, 16), product, rtol=0, atol=1e-5)
    np.testing.assert_allclose(rows(one, 16), product + 1, rtol=0, atol=1e-5)


def test_special_numbers() -> None:
    registers = np.zeros((48, 64), np.uint32)
    registers[0, :16] = np.array([np.inf, np.nan, -np.inf, 0, 1], np.float16).view(np.uint16)[np.arange(16) % 5]
    registers[16, :16] = np.array([1, 0], np.float16).view(np.uint16)[np.arange(16) % 2]
    out = rows(execute("v_mfma_f32_16x16x16_f16 v[96:99], v[32:33], v[48:49], 0", registers, "gfx942")[:4], 16)
    values = out.view(np.float32)
    assert values[0, 0] == np.inf
    assert np.isnan(values[0, 1])  # infinity times zero
    assert np.isnan(values[1]).all()
    assert values[2, 0] == -np.inf
    assert values[4, 0] == 1


def test_broadcasts_are_refused() -> None:
    with pytest.raises(UnsupportedInstructionError, match="cbsz"):
        execute(
            "v_mfma_f32_16x16x16_f16 v[96:99], v[32:33], v[48:49], 0 cbsz:1", np.zeros((48, 64), np.uint32), "gfx950"
        )
