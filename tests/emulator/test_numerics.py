"""``numerics="cdna3"``: matrix instructions against a model of rational numbers, and examples that MMA-Sim computed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from emulator import cdna3
from emulator.test_matrix import A, B, C, launch, packed, result_place, span
from emulator.toolkit import build

from asmlaunch.emulator.isa.table import Mfma, find, mnemonics
from asmlaunch.errors import LaunchError, UnsupportedInstructionError

F16, BF16 = "v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_bf16"
XF32, F32 = "v_mfma_f32_16x16x8_xf32", "v_mfma_f32_16x16x4_f32"
FP8, BF8 = "v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_f32_16x16x32_bf8_bf8"
ONE, TWO_24 = 0x3F800000, 0x4B800000
NAN = cdna3.NAN


@dataclasses.dataclass(frozen=True)
class Example:
    """Row 0 of A and column 0 of B as {k: code}, C's and D's pattern; other elements are 0."""

    name: str
    a: dict[int, int]
    b: dict[int, int]
    c: int
    d: int


#: What MMA-Sim computes for a CDNA3 GPU.
EXAMPLES = {
    "a tiny C does nothing": Example(F16, {0: 0x3C00}, {0: 0x3C00}, 0x0D800000, ONE),
    "a tiny negative C is rounded down": Example(F16, {0: 0x3C00}, {0: 0x3C00}, 0x8D800000, 0x3F7FFFFF),
    "products are cut off": Example(
        F16, {0: 0x3C00, 1: 0x0C00, 2: 0x0C00, 3: 0x0C00}, {0: 0x3C00, 1: 0x0800, 2: 0x0800, 3: 0x0800}, 0, ONE
    ),
    "their sum is rounded down, then to even": Example(F16, {0: 0x0C00, 1: 4}, {0: 0x0C00, 1: 4}, ONE, ONE),
    "two groups of 8": Example(F16, {0: 0x3C00, 8: 0x3C00}, {0: 0x3C00, 8: 0x3C00}, TWO_24, TWO_24),
    "one group of 8": Example(F16, {0: 0x3C00, 1: 0x3C00}, {0: 0x3C00, 1: 0x3C00}, TWO_24, TWO_24 + 1),
    "f16 denormals": Example("v_mfma_f32_32x32x8_f16", {0: 1}, {0: 1}, 0, 0x27800000),
    "a product of 2**128": Example(BF16, {0: 0x5F80, 1: 0xDF80}, {0: 0x5F80, 1: 0x5F00}, 0, 0x7F800000),
    "two that overflow": Example(BF16, {0: 0x7F00, 1: 0xFF00}, {0: 0x4000, 1: 0x4000}, 0, NAN),
    "a denormal result": Example(BF16, {0: 0x0D80}, {0: 0x2B80}, 0, 0x00000200),
    "xf32 operands are cut off": Example(XF32, {0: 0xBF803000}, {0: ONE}, 0, 0xBF802000),
    "two groups of 4": Example(XF32, {0: ONE, 4: ONE}, {0: ONE, 4: ONE}, TWO_24, TWO_24),
    "fp8: C is rounded down": Example(FP8, {0: 0x40}, {0: 0x40}, 0xB3000000, 0x3F7FFFFF),
    "fp8: C is left out": Example(FP8, {0: 0x40}, {0: 0x40}, 0xB2800000, ONE),
    "bf8: the sum of odd k is rounded down": Example(BF8, {0: 0x40, 1: 0x81}, {0: 0x40, 1: 0x18}, 0, 0x3F7FFFFF),
    "bf8: even k are one sum": Example(BF8, {0: 0x40, 2: 0x81}, {0: 0x40, 2: 0x18}, 0, ONE),
    "two groups of 16": Example(FP8, {0: 0x40, 16: 0x40}, {0: 0x40, 16: 0x40}, TWO_24, TWO_24),
    "one group of 16": Example(FP8, {0: 0x40, 15: 0x40}, {0: 0x40, 15: 0x40}, TWO_24, TWO_24 + 1),
    "f32: one by one": Example(F32, dict.fromkeys(range(4), ONE), dict.fromkeys(range(4), ONE), TWO_24, TWO_24),
    "f32: fused": Example(F32, {0: 0xBF800000, 1: 0x3F800800}, {0: ONE, 1: 0x3F7FF000}, 0, 0xB3800000),
}  # fmt: skip


def product(one: Mfma, a: np.ndarray, b: np.ndarray, c: np.ndarray, numerics: str = "cdna3") -> np.ndarray:
    """D's patterns [blocks, m, n] from codes [blocks, m or n, k] and C's patterns, on gfx942."""
    count = one.m * one.n * one.blocks // 64
    places = {(block, i): result_place(one, block, i) for block, i in np.ndindex(one.blocks, one.m)}
    before = np.zeros((count, 64), np.uint32)
    for (block, i), (register, lane) in places.items():
        before[register, lane : lane + one.n] = c[block, i]
    rows, columns = packed(one, one.m, one.a, a), packed(one, one.n, one.b, b)
    d = span(C, count)
    text = f"{one.mnemonic} {d}, {span(A, len(rows))}, {span(B, len(columns))}, {d}"
    out = launch(one, {A: rows, B: columns, C: before}, text, count, "gfx942", numerics=numerics)
    return np.array(
        [
            [out[register, lane : lane + one.n] for register, lane in (places[block, i] for i in range(one.m))]
            for block in range(one.blocks)
        ]
    )


def defined(name: str) -> Mfma:
    one = find(name)
    assert isinstance(one, Mfma)
    return one


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_worked_examples(example: Example) -> None:
    one = defined(example.name)
    codes = np.uint32 if one.a == "f32" else cdna3.FORMATS[one.a][0]
    a, b = np.zeros((1, one.m, one.k), codes), np.zeros((1, one.n, one.k), codes)
    for operand, given in ((a, example.a), (b, example.b)):
        for k, code in given.items():
            operand[0, 0, k] = code
    c = np.zeros((1, one.m, one.n), np.uint32)
    c[0, 0, 0] = example.c
    got = int(product(one, a, b, c)[0, 0, 0])
    if example.d == NAN:
        assert np.isnan(np.uint32(got).view(np.float32))
    else:
        assert got == example.d
    if one.a != "f32":  # what the other tests compare with gives the same
        assert cdna3.element(one.a, one.b, a[0, 0].tolist(), b[0, 0].tolist(), example.c) == example.d


def test_f64_is_fused() -> None:
    text = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 3, v0
    s_waitcnt lgkmcnt(0)
    global_load_dwordx2 v[4:5], v1, s[4:5]
    global_load_dwordx2 v[6:7], v1, s[4:5] offset:512
    s_waitcnt vmcnt(0)
    v_mfma_f64_16x16x4_f64 v[8:15], v[4:5], v[6:7], 0
    s_nop 15
    global_store_dwordx2 v1, v[8:9], s[6:7]"""
    a, b = np.zeros((2, 4, 16))  # lane 16 k + i
    a[:2, 0] = np.array([0xBFF0000000000000, 0x3FF0000000400000], np.uint64).view(np.float64)
    b[:2, 0] = np.array([0x3FF0000000000000, 0x3FEFFFFFFF800000], np.uint64).view(np.float64)
    out = np.zeros(64)
    kernel = build(text, "x:ptr out:ptr", processor="gfx942")
    kernel.launch({"x": np.array([a, b]), "out": out}, grid=1, block=64, numerics="cdna3")
    assert out.view(np.uint64)[0] == 0xBC30000000000000


FUSED = [name for name in mnemonics() if isinstance(one := find(name), Mfma) and one.cdna3 and one.a in cdna3.FORMATS]


def codes(kind: str, shape: tuple[int, ...], spread: int | None, rng: np.random.Generator) -> np.ndarray:
    """Random patterns; with ``spread``, of numbers from 2**-spread to 2**spread, a few of them zero."""
    patterns, numbers, _ = cdna3.FORMATS[kind]
    if spread is None:
        return rng.integers(0, 1 << (8 * patterns(0).itemsize), shape).astype(patterns)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape) * (rng.random(shape) < 0.9)
    return values.astype(np.float32).astype(numbers).view(patterns)


@pytest.mark.parametrize("spread", [None, 0, 3, 12], ids=["any bits", "alike", "near", "far"])
@pytest.mark.parametrize("name", FUSED)
def test_against_rational_numbers(name: str, spread: int | None) -> None:
    one = defined(name)
    rng = np.random.default_rng(0 if spread is None else spread + 1)
    a = codes(one.a, (one.blocks, one.m, one.k), spread, rng)
    b = codes(one.b, (one.blocks, one.n, one.k), spread, rng)
    c = codes("xf32", (one.blocks, one.m, one.n), spread, rng)
    c &= rng.choice(np.array([0xFFFFFFFF, 0xFFF80000], np.uint32), c.shape)  # some short ones
    got = product(one, a, b, c)
    for block, i, j in zip(*(rng.integers(0, size, 48) for size in got.shape), strict=True):
        want = cdna3.element(one.a, one.b, a[block, i].tolist(), b[block, j].tolist(), int(c[block, i, j]))
        if want == NAN:
            assert np.isnan(got[block, i, j].view(np.float32))
        else:
            assert hex(got[block, i, j]) == hex(want), (block, i, j)


def test_an_infinite_c_wins_over_products_that_overflow() -> None:
    one = defined(BF16)
    a, b = np.zeros((1, 16, 16), np.uint16), np.zeros((1, 16, 16), np.uint16)
    a[0, 0, 0], b[0, 0, 0] = 0x7F00, 0x4000  # 2**128
    c = np.full((1, 16, 16), 0xFF800000, np.uint32)
    assert product(one, a, b, c)[0, 0, 0] == 0xFF800000


class TestChoice:
    """Choosing a model, and what reports say of it."""

    def run(self, processor: str, text: str, numerics: str = "cdna3") -> str:
        body = f"{text}\ns_nop 15"
        kernel = build(body, "", processor=processor, vgprs=128)
        result = kernel.launch({}, grid=1, block=64, numerics=numerics)
        assert result.fidelity.to_json()["numerics"] == numerics
        return str(result.fidelity)

    def test_reports_name_it(self) -> None:
        text = f"{F16} v[40:43], v[4:5], v[20:21], 0"
        assert "(cdna3): CDNA3 (MMA-Sim, arXiv 2511.10909): groups of 8" in self.run("gfx942", text)
        assert "nobody has compared with gfx950" in self.run("gfx950", text)
        assert "(exact): products of a group of 8" in self.run("gfx942", text, "exact")

    def test_integers_are_the_same_in_both(self) -> None:
        text = "v_mfma_i32_16x16x64_i8 v[40:43], v[4:7], v[20:23], 0"
        assert "(cdna3): exact, modulo 2**32" in self.run("gfx950", text)

    @pytest.mark.parametrize(
        "text",
        [
            "v_mfma_f32_16x16x32_f16 v[40:43], v[4:7], v[20:23], 0",
            "v_mfma_scale_f32_16x16x128_f8f6f4 v[40:43], v[4:7], v[20:23], 0, v1, v2 cbsz:4 blgp:4",
        ],
    )
    def test_what_cdna4_added_is_refused(self, text: str) -> None:
        with pytest.raises(UnsupportedInstructionError, match="got numerics 'cdna3', need numerics 'exact'"):
            self.run("gfx950", text)

    def test_a_model_there_is_not(self) -> None:
        with pytest.raises(LaunchError, match=r"numerics.*need one of exact, cdna3"):
            self.run("gfx942", "s_nop 0", "cdna4")
