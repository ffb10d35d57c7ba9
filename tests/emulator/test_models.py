"""Instructions without pseudocode, and operand modifiers, against models written from the manual with numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulator.wave import LANES, Result, Wave
from numpy.typing import NDArray

LANE = np.arange(LANES)
SPECIAL = np.array(
    [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0xBF800000, 1, 0x807FFFFF, 0x7F7FFFFF, 0x43E00000,
     0x43E80000, 0x43E80001, 0x47600000, 0x3E800000, 0x3F400000, 0x40200000, 0x40A00000, 0xC0C00000, 0x477FE000],
    np.uint32,
)  # fmt: skip


def floats(seed: int, scale: float = 4.0) -> NDArray[np.uint32]:
    """64 f32 patterns: special ones, and random ones of many sizes."""
    rng = np.random.default_rng(seed)
    values = (rng.normal(0, 1, LANES) * np.exp2(rng.uniform(-scale, scale, LANES))).astype(np.float32)
    patterns = values.view(np.uint32)
    patterns[: len(SPECIAL)] = rng.permutation(SPECIAL)
    return patterns


def integers(seed: int) -> NDArray[np.uint32]:
    """64 random dwords."""
    return np.random.default_rng(seed).integers(0, 1 << 32, LANES, dtype=np.uint32)


def f32(patterns: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Patterns as numbers."""
    return patterns.view(np.float32)


def run(
    cases: list[str], registers: dict[int, NDArray[np.uint32]], sgprs: dict[int, int] | None = None, **options: Any
) -> list[Result]:
    """Results of the cases."""
    with np.errstate(all="ignore"):
        return Wave(cases, full="exec" not in options, **{k: v for k, v in options.items() if k != "exec"}).run(
            registers, sgprs
        )


def equal(got: NDArray[np.uint32], want: NDArray[Any]) -> None:
    """Equal patterns; NaNs equal each other."""
    bits = want.astype(np.float32).view(np.uint32) if want.dtype.kind == "f" else want.astype(np.uint32)
    both_nan = np.isnan(f32(got)) & np.isnan(f32(bits)) if want.dtype.kind == "f" else np.zeros(LANES, bool)
    wrong = np.flatnonzero((got != bits) & ~both_nan)
    assert wrong.size == 0, [(int(lane), hex(got[lane]), hex(bits[lane])) for lane in wrong[:5]]


# ---------------------------------------------------------------- transcendental functions

FUNCTIONS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "exp": np.exp2, "log": np.log2, "rcp": lambda x: 1 / x, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
    "sin": lambda x: np.sin(2 * np.pi * (x - np.round(x))), "cos": lambda x: np.cos(2 * np.pi * (x - np.round(x))),
}  # fmt: skip


def _ulps(got: NDArray[Any], want: NDArray[np.float64], size: type) -> NDArray[np.float64]:
    """Distance in units in the last place of the wanted number."""
    with np.errstate(all="ignore"):
        unit = np.abs(np.spacing(want.astype(size)).astype(np.float64))
        apart = np.abs(got.astype(np.float64) - want) / unit
    same = (got == want.astype(size)) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0, apart)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transcendental_functions_are_within_the_manual_s_bound(name: str) -> None:
    """1 ulp of f32 (AMD CDNA4 ISA manual, V_EXP_F32 and its neighbours); denormals count as zero."""
    for seed in range(3):
        x = floats(seed, 6.0 if name in ("exp", "sin", "cos") else 60.0)
        x[np.abs(f32(x)) < 2.0**-126] &= 0x80000000
        result = run([f"v_{name}_f32 v10, v2"], {2: x})[0]
        with np.errstate(all="ignore"):
            want = FUNCTIONS[name](f32(x).astype(np.float64))
        want[np.abs(want) < 2.0**-126] *= 0.0
        got = f32(result.vgprs[0])
        if name in ("sin", "cos"):  # near zero the bound is absolute
            close = np.abs(got - want) < 2.0**-24
            assert np.all(close | (np.isnan(got) & np.isnan(want)))
        else:
            assert np.all(_ulps(got, want, np.float32) <= 1.0), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transcendental_functions_of_f16(name: str) -> None:
    x = np.random.default_rng(5).normal(0, 4, LANES).astype(np.float16)
    result = run([f"v_{name}_f16 v10, v2"], {2: x.view(np.uint16).astype(np.uint32)})[0]
    got = result.vgprs[0].astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x.astype(np.float64))
    if name in ("sin", "cos"):
        assert np.all(np.abs(got - want) < 2.0**-10)
    else:
        assert np.all(_ulps(got, want, np.float16) <= 1.0)


# ---------------------------------------------------------------- conversions


def _as(values: NDArray[np.float32], kind: Any) -> NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        return values.astype(kind).view(np.uint8)


@pytest.mark.parametrize(
    ("name", "processor", "kind"),
    [
        ("fp8", "gfx950", ml_dtypes.float8_e4m3fn), ("bf8", "gfx950", ml_dtypes.float8_e5m2),
        ("fp8", "gfx942", ml_dtypes.float8_e4m3fnuz), ("bf8", "gfx942", ml_dtypes.float8_e5m2fnuz),
    ],
)  # fmt: skip
def test_8_bit_floats(name: str, processor: str, kind: Any) -> None:
    a, b, old = floats(1, 12), floats(2, 12), integers(3)
    cases = [
        f"v_cvt_pk_{name}_f32 v10, v2, v4", f"v_cvt_pk_{name}_f32 v10, v2, v4 op_sel:[0,0,1]",
        f"v_cvt_f32_{name} v10, v6", f"v_cvt_f32_{name}_sdwa v10, v6 src0_sel:BYTE_2",
        f"v_cvt_pk_f32_{name}_sdwa v[10:11], v6 src0_sel:WORD_1",
    ]  # fmt: skip
    results = run(cases, {2: a, 4: b, 6: old, 8: old, 9: old}, processor=processor)
    codes = _as(f32(a), kind).astype(np.uint32), _as(f32(b), kind).astype(np.uint32)
    nan = [np.isnan(f32(x)) for x in (a, b)]
    pair = codes[0] | codes[1] << 8
    for result, shift in ((results[0], 0), (results[1], 16)):
        got = result.vgprs[0] >> shift & 0xFFFF
        kept = 0xFFFF0000 if shift == 0 else 0xFFFF
        assert np.all(result.vgprs[0] & kept == old & kept)
        for byte in range(2):
            mine, theirs = got >> (8 * byte) & 0xFF, pair >> (8 * byte) & 0xFF
            as_numbers = [x.astype(np.uint8).view(kind) for x in (mine, theirs)]
            ok = (mine == theirs) | (nan[byte] & np.isnan(as_numbers[0].astype(np.float32)))
            ok |= np.isnan(as_numbers[0].astype(np.float32)) & np.isnan(as_numbers[1].astype(np.float32))
            assert ok.all(), (hex(mine[~ok][0]), hex(theirs[~ok][0]))
    source = np.ascontiguousarray(old).view(np.uint8).reshape(LANES, 4)
    for result, register, byte in ((results[2], 0, 0), (results[3], 0, 2), (results[4], 0, 2), (results[4], 1, 3)):
        equal(result.vgprs[register], np.ascontiguousarray(source[:, byte]).view(kind).astype(np.float32))


NARROW = {"fp8": ml_dtypes.float8_e4m3fn, "bf8": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn}
WIDE = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("name", NARROW)
def test_conversions_with_a_scale(name: str) -> None:
    """Down: x / 2**(e - 127), up: x * 2**(e - 127), each rounded once; finite numbers in range."""
    rng = np.random.default_rng(7)
    exponent = rng.integers(120, 134, LANES).astype(np.uint32)
    scale = exponent << 23 | rng.integers(0, 1 << 23, LANES, dtype=np.uint32)  # the mantissa must not matter
    factor = np.exp2(exponent.astype(np.float64) - 127)
    largest = float(ml_dtypes.finfo(NARROW[name]).max)
    numbers = [(rng.uniform(-1, 1, LANES) * largest * factor * 0.9).astype(np.float32) for _ in range(2)]
    code, old, bits = integers(8), integers(9), 4 if name == "fp4" else 8
    position, count = ("0,0,1,0", 1) if name == "fp4" else ("0,0,0", 0)
    down = (
        f"v_cvt_scalef32_pk_{name}_f32 v10, v2, v3, v4 op_sel:[{position}]"
        if name == "fp4"
        else (f"v_cvt_scalef32_pk_{name}_f32 v10, v2, v3, v4")
    )
    up = [f"v_cvt_scalef32_pk_f32_{name} v[10:11], v5, v4"] + [
        f"v_cvt_scalef32_pk_{wide}_{name} v10, v5, v4" for wide in ("f16", "bf16")
    ]
    registers = {2: numbers[0].view(np.uint32), 3: numbers[1].view(np.uint32), 4: scale, 5: code, 8: old, 9: old}
    results = run([down, *up], registers)
    want = np.zeros(LANES, np.uint32)
    for place, x in enumerate(numbers):
        want |= ((x.astype(np.float64) / factor).astype(NARROW[name]).view(np.uint8).astype(np.uint32)) << (
            bits * place
        )
    shift = 8 * count if name == "fp4" else 0
    mask = (1 << 2 * bits) - 1
    np.testing.assert_array_equal(results[0].vgprs[0] >> shift & mask, want)
    np.testing.assert_array_equal(results[0].vgprs[0] & ~np.uint32(mask << shift), old & ~np.uint32(mask << shift))
    parts = [(code >> (bits * place) & ((1 << bits) - 1)).astype(np.uint8).view(NARROW[name]) for place in range(2)]
    with np.errstate(all="ignore"):
        scaled = [part.astype(np.float64) * factor for part in parts]
        equal(results[1].vgprs[0], scaled[0].astype(np.float32))
        equal(results[1].vgprs[1], scaled[1].astype(np.float32))
        for result, wide in ((results[2], "f16"), (results[3], "bf16")):
            for place in range(2):
                got = (result.vgprs[0] >> (16 * place) & 0xFFFF).astype(np.uint16).view(WIDE[wide]).astype(np.float32)
                expected = scaled[place].astype(np.float32).astype(WIDE[wide]).astype(np.float32)
                np.testing.assert_array_equal(got, expected)


def test_16_bit_floats_in_pairs() -> None:
    a, b = floats(1, 20), floats(2, 20)
    results = run(
        ["v_cvt_pk_bf16_f32 v10, v2, v4", "v_cvt_pk_f16_f32 v10, v2, v4", "v_cvt_pkrtz_f16_f32 v10, v2, v4"],
        {2: a, 4: b},
    )
    for place, x in enumerate((f32(a), f32(b))):
        with np.errstate(all="ignore"):
            halves = [(result.vgprs[0] >> (16 * place) & 0xFFFF).astype(np.uint16) for result in results]
            bf16 = halves[0].view(ml_dtypes.bfloat16).astype(np.float32)
            np.testing.assert_array_equal(bf16, x.astype(ml_dtypes.bfloat16).astype(np.float32))
            np.testing.assert_array_equal(halves[1].view(np.float16), x.astype(np.float16))
            nearest = x.astype(np.float16)
            away = np.abs(nearest.astype(np.float64)) > np.abs(x.astype(np.float64))
            towards_zero = np.where(away, np.nextafter(nearest, np.float16(0)), nearest)
            np.testing.assert_array_equal(halves[2].view(np.float16), towards_zero)


def test_stochastic_rounding_truncates_after_adding_the_random_bits() -> None:
    x = np.random.default_rng(1).uniform(1, 8, LANES).astype(np.float32)
    seeds = integers(2)
    results = run(
        [
            "v_cvt_sr_fp8_f32 v10, v2, v4",
            "v_cvt_sr_bf8_f32 v10, v2, v4 op_sel:[0,0,1,1]",
            "v_cvt_sr_bf16_f32 v10, v2, v4",
        ],
        {2: x.view(np.uint32), 4: seeds, 8: integers(3)},
    )
    bits = x.view(np.uint32).astype(np.uint64)
    fp8 = ((bits + (seeds >> 12)) >> 20) - ((127 - 7) << 3)
    np.testing.assert_array_equal(results[0].vgprs[0] & 0xFF, fp8)
    bf8 = ((bits + (seeds >> 11)) >> 21) - ((127 - 15) << 2)
    np.testing.assert_array_equal(results[1].vgprs[0] >> 24, bf8)
    np.testing.assert_array_equal(results[2].vgprs[0] & 0xFFFF, (bits + (seeds >> 16)) >> 16)


def test_table_of_small_integers() -> None:
    x = integers(1)
    result = run(["v_cvt_off_f32_i4 v10, v2", "v_cvt_off_f32_i4_sdwa v10, v2 src0_sel:BYTE_3"], {2: x})
    for got, nibble in ((result[0], x & 15), (result[1], x >> 24 & 15)):
        equal(got.vgprs[0], (np.where(nibble > 7, nibble.astype(np.int64) - 16, nibble) / 16).astype(np.float32))


# ---------------------------------------------------------------- lanes

DPP: dict[str, Callable[[int], int | None]] = {
    "quad_perm:[3,1,0,2]": lambda n: n // 4 * 4 + (3, 1, 0, 2)[n % 4],
    "row_shl:3": lambda n: n + 3 if n % 16 + 3 < 16 else None,
    "row_shr:5": lambda n: n - 5 if n % 16 >= 5 else None,
    "row_ror:4": lambda n: n // 16 * 16 + (n - 4) % 16,
    "wave_shl:1": lambda n: n + 1 if n < 63 else None,
    "wave_rol:1": lambda n: (n + 1) % 64,
    "wave_shr:1": lambda n: n - 1 if n else None,
    "wave_ror:1": lambda n: (n - 1) % 64,
    "row_mirror": lambda n: n // 16 * 16 + 15 - n % 16,
    "row_half_mirror": lambda n: n // 8 * 8 + 7 - n % 8,
    "row_bcast:15": lambda n: n // 16 * 16 - 1 if n >= 16 else None,
    "row_bcast:31": lambda n: 31 if n >= 32 else None,
    "row_newbcast:6": lambda n: n // 16 * 16 + 6,
}


@pytest.mark.parametrize("full", [True, False])
def test_dpp(full: bool) -> None:
    """A lane without a source keeps its value, or reads 0 where BOUND_CTRL is set; so does one whose source is off."""
    exec_mask = (1 << 64) - 1 if full else 0x7FFF_F0F3_FFFF_0FFD
    x, y, old = integers(1), integers(2), integers(3)
    masks = ((15, 15, False), (15, 15, True), (0b1010, 0b0111, False))
    cases = [
        f"v_xor_b32_dpp v10, v2, v4 {control} row_mask:{rows:#x} bank_mask:{banks:#x}{' bound_ctrl:0' * bound}"
        for control in DPP
        for rows, banks, bound in masks
    ]
    results = iter(Wave(cases, full=full).run({2: x, 4: y, 8: old}, {18: exec_mask & 0xFFFFFFFF, 19: exec_mask >> 32}))
    for control, source in DPP.items():
        for rows, banks, bound in masks:
            want = old.copy()
            for n in range(LANES):
                chosen = exec_mask >> n & 1 and rows >> n // 16 & 1 and banks >> n % 16 // 4 & 1
                there = source(n)
                exists = there is not None and exec_mask >> there & 1
                if chosen and (exists or bound):
                    want[n] = (x[there] if exists else 0) ^ y[n]
            got = next(results).vgprs[0]
            np.testing.assert_array_equal(got, want, err_msg=f"{control} {rows} {banks} {bound}")


def test_moves_between_lanes() -> None:
    x, y = integers(1), integers(2)
    index = (np.random.default_rng(3).integers(0, 300, LANES)).astype(np.uint32)
    exec_mask = 0xFFFF_0F0F_FFF1_FFFD
    cases = [
        "v_readlane_b32 s20, v2, s10", "v_writelane_b32 v10, s8, 9", "v_readfirstlane_b32 s20, v2",
        "ds_bpermute_b32 v10, v6, v2 offset:12", "ds_permute_b32 v10, v6, v2 offset:12",
        "ds_swizzle_b32 v10, v2 offset:0x8039", "ds_swizzle_b32 v10, v2 offset:0x1c7f",
        "ds_swizzle_b32 v10, v2 offset:0xc0a3", "ds_swizzle_b32 v10, v2 offset:0xe003",
        "ds_swizzle_b32 v10, v2 offset:swizzle(SWAP,16)", "v_mbcnt_lo_u32_b32 v10, -1, 3",
    ]  # fmt: skip
    sgprs = {8: 77, 10: 64 + 37, 18: exec_mask & 0xFFFFFFFF, 19: exec_mask >> 32}
    results = Wave(cases).run({2: x, 4: y, 6: index, 8: y}, sgprs)
    on = np.array([exec_mask >> n & 1 for n in range(LANES)], bool)
    assert results[0].sdst & 0xFFFFFFFF == x[37]
    want = y.copy()
    want[9] = 77
    np.testing.assert_array_equal(results[1].vgprs[0], want)
    assert results[2].sdst & 0xFFFFFFFF == x[0]
    source = (index + 12) // 4 % 64
    visible = np.where(on, x, 0)
    np.testing.assert_array_equal(results[3].vgprs[0], np.where(on, visible[source], y))
    sent = np.zeros(LANES, np.uint32)
    for n in range(LANES):
        if on[n]:
            sent[source[n]] = x[n]
    np.testing.assert_array_equal(results[4].vgprs[0], np.where(on, sent, y))
    half, within = LANE & 32, LANE & 31
    reverse = np.array([int(f"{n:05b}"[::-1], 2) for n in within])
    patterns = [
        (LANE & ~3) + np.array([1, 2, 3, 0])[LANE & 3],
        half | (((within & 31) | 3) ^ 7),
        half | (within & 3) | ((within + 5) & 28),
        half | (reverse >> 2) | (within & 3),
        half | (within ^ 16),
    ]
    for result, pattern in zip(results[5:10], patterns, strict=True):
        np.testing.assert_array_equal(result.vgprs[0], np.where(on, visible[pattern], y))
    np.testing.assert_array_equal(results[10].vgprs[0], np.where(on, 3 + np.minimum(LANE, 32), y))


def test_exchanges_of_rows() -> None:
    d, s = integers(1), integers(2)
    results = run(
        ["v_permlane16_swap_b32 v10, v11", "v_permlane32_swap_b32 v10, v11", "v_swap_b32 v10, v11"], {8: d, 9: s}
    )
    dr, sr = d.reshape(4, 16), s.reshape(4, 16)
    wants = [
        (np.concatenate([dr[0], sr[0], dr[2], sr[2]]), np.concatenate([dr[1], sr[1], dr[3], sr[3]])),
        (np.concatenate([dr[0], dr[1], sr[0], sr[1]]), np.concatenate([dr[2], dr[3], sr[2], sr[3]])),
        (s, d),
    ]
    for result, (first, second) in zip(results, wants, strict=True):
        np.testing.assert_array_equal(result.vgprs[0], first)
        np.testing.assert_array_equal(result.vgprs[1], second)


# ---------------------------------------------------------------- modifiers


def test_modifiers_of_floats() -> None:
    a, b = floats(1), floats(2)
    x, y = f32(a), f32(b)
    cases = [
        "v_add_f32_e64 v10, -v2, |v4|", "v_add_f32_e64 v10, -|v2|, v4", "v_mul_f32_e64 v10, v2, v4 mul:2",
        "v_mul_f32_e64 v10, v2, v4 mul:4", "v_mul_f32_e64 v10, v2, v4 div:2", "v_add_f32_e64 v10, v2, v4 clamp",
        "v_cndmask_b32_e64 v10, -v2, v4, s[16:17]",
    ]  # fmt: skip
    results = run(cases, {2: a, 4: b}, {16: 0x0F0F1234, 17: 0xFFFF0000})
    with np.errstate(all="ignore"):
        wants = [np.abs(y) - x, y - np.abs(x), x * y * 2, x * y * 4, x * y / 2]
        total = x + y
        wants.append(np.where(np.isnan(total), total, np.clip(total, 0, 1) + np.float32(0)))
    mask = np.array([0xFFFF00000F0F1234 >> n & 1 for n in range(LANES)], bool)
    for result, want in zip(results, wants, strict=False):
        equal(result.vgprs[0], want.astype(np.float32))
    np.testing.assert_array_equal(results[-1].vgprs[0], np.where(mask, b, a ^ 0x80000000))


def test_clamp_of_integers_saturates() -> None:
    a, b = integers(1), integers(2)
    cases = ["v_add_u32_e64 v10, v2, v4 clamp", "v_sub_u32_e64 v10, v2, v4 clamp", "v_add_i32 v10, v2, v4 clamp"]
    results = run(cases, {2: a, 4: b})
    x, y = a.astype(np.int64), b.astype(np.int64)
    np.testing.assert_array_equal(results[0].vgprs[0], np.minimum(x + y, 0xFFFFFFFF))
    np.testing.assert_array_equal(results[1].vgprs[0], np.maximum(x - y, 0))
    signed = a.view(np.int32).astype(np.int64) + b.view(np.int32)
    want = np.clip(signed, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)
    np.testing.assert_array_equal(results[2].vgprs[0], want)


def _sdwa(x: NDArray[np.uint32], selector: str, sext: bool) -> NDArray[np.uint32]:
    if selector == "DWORD":
        return x
    kind, number = selector.split("_")
    size = 8 if kind == "BYTE" else 16
    field = (x >> (size * int(number)) & ((1 << size) - 1)).astype(np.int64)
    if sext:
        field = np.where(field >> (size - 1), field - (1 << size), field)
    return (field & 0xFFFFFFFF).astype(np.uint32)


def test_sdwa() -> None:
    a, b, old = integers(1), integers(2), integers(3)
    cases, wants = [], []
    for dst, unused in (
        ("DWORD", "PAD"),
        ("BYTE_1", "PAD"),
        ("WORD_1", "SEXT"),
        ("BYTE_2", "PRESERVE"),
        ("WORD_0", "SEXT"),
    ):
        for first, second, sext in (
            ("BYTE_3", "WORD_1", False),
            ("WORD_0", "BYTE_2", True),
            ("DWORD", "BYTE_0", False),
        ):
            source = "sext(v2)" if sext else "v2"
            cases.append(
                f"v_add_u32_sdwa v10, {source}, v4 dst_sel:{dst} dst_unused:UNUSED_{unused} src0_sel:{first} "
                f"src1_sel:{second}"
            )
            total = _sdwa(a, first, sext) + _sdwa(b, second, False)
            if dst == "DWORD":
                wants.append(total)
                continue
            size = 8 if dst.startswith("BYTE") else 16
            shift, field = size * int(dst[-1]), (1 << size) - 1
            part = total & field
            if unused == "PRESERVE":
                wants.append(old & ~np.uint32(field << shift) | part << shift)
            elif unused == "SEXT":
                negative = part >> (size - 1) != 0
                above = np.uint32((0xFFFFFFFF << (shift + size)) & 0xFFFFFFFF)
                wants.append(part << shift | np.where(negative, above, np.uint32(0)))
            else:
                wants.append(part << shift)
    for case, result, want in zip(cases, run(cases, {2: a, 4: b, 8: old}), wants, strict=True):
        np.testing.assert_array_equal(result.vgprs[0], want, err_msg=case)


def test_op_sel() -> None:
    rng = np.random.default_rng(1)
    halves = [rng.normal(0, 4, (LANES, 2)).astype(np.float16) for _ in range(3)]
    a, b, c = (half.view(np.uint32).ravel().copy() for half in halves)
    x, y, z = halves
    old = integers(4)
    cases = [
        "v_pk_add_f16 v10, v2, v4 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0] neg_hi:[0,1]",
        "v_mad_f16 v10, v2, v4, v6 op_sel:[1,0,1,1]", "v_pk_mul_f16 v10, v2, 2.0 op_sel_hi:[1,0]",
        "v_fma_mix_f32 v10, v2, v4, v6 op_sel:[1,0,0] op_sel_hi:[1,1,1]",
        "v_fma_mixhi_f16 v10, v2, v4, v6 op_sel_hi:[1,1,1]", "v_min3_i16 v10, v2, v4, v6 op_sel:[1,1,1,0]",
    ]  # fmt: skip
    results = run(cases, {2: a, 4: b, 6: c, 8: old})
    low, high = -x[:, 1] + y[:, 0], x[:, 0] - y[:, 1]
    pair = np.stack([low, high], 1).astype(np.float16).view(np.uint32).ravel()
    np.testing.assert_array_equal(results[0].vgprs[0], pair)
    want = (x[:, 1] * y[:, 0] + z[:, 1]).astype(np.float16).view(np.uint16).astype(np.uint32)
    np.testing.assert_array_equal(results[1].vgprs[0], old & 0xFFFF | want << 16)
    doubled = (x * np.float16(2)).astype(np.float16).view(np.uint32).ravel()
    np.testing.assert_array_equal(results[2].vgprs[0], doubled)
    exact = x[:, 1].astype(np.float64) * y[:, 0] + z[:, 0]
    equal(results[3].vgprs[0], exact.astype(np.float32))
    mixed = (x[:, 0].astype(np.float64) * y[:, 0] + z[:, 0]).astype(np.float32).astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(results[4].vgprs[0], old & 0xFFFF | mixed.astype(np.uint32) << 16)
    words = [(v >> 16).astype(np.uint16).view(np.int16) for v in (a, b, c)]
    smallest = np.minimum(np.minimum(*words[:2]), words[2]).view(np.uint16).astype(np.uint32)
    np.testing.assert_array_equal(results[5].vgprs[0], old & 0xFFFF0000 | smallest)


def test_packed_f32() -> None:
    a, b, c, d = (np.random.default_rng(seed).normal(0, 3, LANES).astype(np.float32) for seed in range(4))
    registers = {2: a, 3: b, 4: c, 5: d}
    results = run(
        ["v_pk_mul_f32 v[10:11], v[2:3], v[4:5]", "v_pk_add_f32 v[10:11], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[1,0]",
         "v_pk_fma_f32 v[10:11], v[2:3], v[4:5], v[2:3] neg_lo:[1,0,0]", "v_pk_mul_f32 v[10:11], v[2:3], s[8:9]",
         "v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[1,0]"],
        {number: value.view(np.uint32) for number, value in registers.items()},
        {8: int(np.float32(2.5).view(np.uint32)), 9: int(np.float32(-3).view(np.uint32))},
    )  # fmt: skip
    fused = [(-a.astype(np.float64) * c + a).astype(np.float32), (b.astype(np.float64) * d + b).astype(np.float32)]
    wants = [(a * c, b * d), (b + c, b + c), fused, (a * np.float32(2.5), b * np.float32(-3)), (b, c)]
    for result, (low, high) in zip(results, wants, strict=True):
        equal(result.vgprs[0], low)
        equal(result.vgprs[1], high)


# ---------------------------------------------------------------- state that changes instructions


def test_denormals_follow_mode() -> None:
    tiny = np.array([1, 0x80000001, 0x007FFFFF, 0x3F800000] * 16, np.uint32)
    small = np.full(LANES, 0x00800000, np.uint32)  # the smallest normal number
    half = np.full(LANES, 0x3F000000, np.uint32)
    cases = ["v_add_f32 v10, v2, v2", "v_mul_f32 v10, v4, v6", "v_mov_b32 v10, v2", "v_cvt_f32_f16 v10, v2"]
    for mode, flush_in, flush_out in ((0, True, True), (1, False, True), (2, True, False), (3, False, False)):
        setup = f"    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {mode}"
        results = run(cases, {2: tiny, 4: small, 6: half}, setup=setup)
        seen = np.where((tiny & 0x7F800000 == 0) & flush_in, tiny & 0x80000000, tiny)
        total = (f32(seen) + f32(seen)).view(np.uint32)
        total = np.where((total & 0x7F800000 == 0) & flush_out, total & 0x80000000, total)
        np.testing.assert_array_equal(results[0].vgprs[0], total, err_msg=str(mode))
        np.testing.assert_array_equal(results[1].vgprs[0], 0 if flush_out else 0x00400000)
        np.testing.assert_array_equal(results[2].vgprs[0], tiny)


def test_dx10_clamp_and_ieee() -> None:
    nan = np.full(LANES, 0x7FC00000, np.uint32)
    signalling = np.full(LANES, 0x7F800001, np.uint32)
    one = np.full(LANES, 0x3F800000, np.uint32)
    cases = ["v_add_f32_e64 v10, v2, v4 clamp", "v_max_f32 v10, v6, v4"]
    plain = run(cases, {2: nan, 4: one, 6: signalling})
    set_both = run(cases, {2: nan, 4: one, 6: signalling}, setup="    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 8, 2), 3")
    assert np.isnan(f32(plain[0].vgprs[0])).all()
    assert (plain[1].vgprs[0] == one).all()
    assert (set_both[0].vgprs[0] == 0).all()
    assert (set_both[1].vgprs[0] == 0x7FC00001).all()


def test_vskip() -> None:
    """VSKIP = S0[S1]: vector instructions are not issued, scalar ones are."""
    x, old = integers(1), integers(2)
    case = """s_setvskip s8, {bit}
    v_mov_b32 v10, v2
    v_cmp_eq_u32 s[20:21], v2, v2
    s_mov_b32 m0, 77
    v_add_u32 v11, v2, v2
    s_setvskip 0, 0
    v_mov_b32 v12, v2"""
    results = run([case.format(bit=3), case.format(bit=4)], {2: x, 8: old, 9: old}, {8: 0b01000, 14: 5})
    np.testing.assert_array_equal(results[0].vgprs, [old, old, x])
    assert (results[0].sdst, results[0].m0) == (5, 77)
    np.testing.assert_array_equal(results[1].vgprs, [x, x + x, x])
    assert (results[1].sdst, results[1].m0) == ((1 << 64) - 1, 77)


def test_relative_registers() -> None:
    """The number in M0 is added to VGPR operands of the named roles; others are as they are written."""
    registers = {number: integers(number) for number in range(2, 10)}
    cases = [
        "s_set_gpr_idx_on s8, gpr_idx(SRC0)\n    v_mov_b32 v10, v2\n    s_set_gpr_idx_off",
        "s_set_gpr_idx_on s8, gpr_idx(SRC1)\n    v_sub_u32 v10, v2, v3\n    s_set_gpr_idx_off",
        "s_set_gpr_idx_on s10, gpr_idx(DST)\n    v_mov_b32 v9, v2\n    s_set_gpr_idx_off",
        "s_set_gpr_idx_on s10, gpr_idx(SRC0)\n    s_set_gpr_idx_idx s8\n    v_mov_b32 v10, v2\n    s_set_gpr_idx_off",
        "s_set_gpr_idx_on s12, gpr_idx(SRC0)\n    v_mov_b32 v10, v2\n    s_set_gpr_idx_off",
    ]
    results = Wave(cases).run(registers, {8: 3, 10: 2, 12: 254})
    np.testing.assert_array_equal(results[0].vgprs[0], registers[5])
    np.testing.assert_array_equal(results[1].vgprs[0], registers[2] - registers[6])
    np.testing.assert_array_equal(results[2].vgprs[1], registers[2])
    np.testing.assert_array_equal(results[3].vgprs[0], registers[5])
    assert results[0].m0 & 0xF0FF == 0x1003
    assert results[2].m0 & 0xF0FF == 0x8002
    np.testing.assert_array_equal(results[4].vgprs[0], LANE)  # v256 does not exist: v0, the work-item


# ---------------------------------------------------------------- the rest


def test_accumulation_registers() -> None:
    x = integers(1)
    results = run(
        ["v_accvgpr_write_b32 a3, v2\n    v_accvgpr_mov_b32 a9, a3\n    v_accvgpr_read_b32 v10, a9",
         "v_accvgpr_write_b32 a3, -16\n    v_accvgpr_read_b32 v10, a3"], {2: x}
    )  # fmt: skip
    np.testing.assert_array_equal(results[0].vgprs[0], x)
    assert (results[1].vgprs[0] == 0xFFFFFFF0).all()


def test_minimum_and_maximum_of_three_pass_nans_on() -> None:
    a, b, c = (floats(seed) for seed in (1, 2, 3))
    results = run([f"v_{name}3_f32 v10, v2, v4, v6" for name in ("minimum", "maximum")], {2: a, 4: b, 6: c})
    for result, operation in zip(results, (np.minimum, np.maximum), strict=True):
        with np.errstate(all="ignore"):
            want = operation(operation(f32(a), f32(b)), f32(c))
        both = (f32(result.vgprs[0]) == want) | (np.isnan(want) & np.isnan(f32(result.vgprs[0])))
        assert both.all()
    halves = [np.random.default_rng(seed).normal(0, 2, 2 * LANES).astype(np.float16) for seed in range(3)]
    packed = run(
        [f"v_pk_{name}3_f16 v10, v2, v4, v6" for name in ("minimum", "maximum")],
        {2 + 2 * number: half.view(np.uint32) for number, half in enumerate(halves)},
    )
    for result, operation in zip(packed, (np.minimum, np.maximum), strict=True):
        want = operation(operation(halves[0], halves[1]), halves[2])
        np.testing.assert_array_equal(result.vgprs[0], want.view(np.uint32))


def test_bitwise_functions_of_three() -> None:
    """Bit 4a + 2b + c of the table is the result for bits a, b, c."""
    a, b, c, old = (integers(seed) for seed in range(4))
    results = run(["v_bitop3_b32 v10, v2, v4, v6 bitop3:0x6c", "v_bitop3_b16 v10, v2, v4, v6 bitop3:0x1e"],
                  {2: a, 4: b, 6: c, 8: old})  # fmt: skip
    for result, table, width in ((results[0], 0x6C, 32), (results[1], 0x1E, 16)):
        want = np.zeros(LANES, np.uint32)
        for bit in range(width):
            index = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
            want |= (table >> index & 1).astype(np.uint32) << np.uint32(bit)
        np.testing.assert_array_equal(result.vgprs[0], want if width == 32 else old & 0xFFFF0000 | want)


def test_sums_of_differences() -> None:
    a, b, c = (integers(seed) for seed in range(3))
    results = run([f"v_sad_{name} v10, v2, v4, v6" for name in ("u8", "hi_u8", "u16", "u32")], {2: a, 4: b, 6: c})

    def total(kind: type) -> NDArray[np.uint32]:
        parts = [x.view(kind).reshape(LANES, -1).astype(np.int64) for x in (a, b)]
        return (np.abs(parts[0] - parts[1]).sum(1) & 0xFFFFFFFF).astype(np.uint32)

    wants = [total(np.uint8) + c, (total(np.uint8) << 16) + c, total(np.uint16) + c, total(np.uint32) + c]
    for result, want in zip(results, wants, strict=True):
        np.testing.assert_array_equal(result.vgprs[0], want)


def test_scaling_of_f16_by_powers_of_two() -> None:
    x = np.random.default_rng(1).normal(0, 4, LANES).astype(np.float16)
    x[:4] = [0, -0.0, np.inf, 6e-8]
    exponent = np.random.default_rng(2).integers(-30, 30, LANES).astype(np.int16)
    exponent[:4] = [20000, 20000, -5, 20]
    result = run(["v_ldexp_f16 v10, v2, v4"], {
        2: x.view(np.uint16).astype(np.uint32), 4: exponent.view(np.uint16).astype(np.uint32),
    })[0]  # fmt: skip
    with np.errstate(all="ignore"):
        want = np.ldexp(x.astype(np.float64), exponent.astype(np.int32)).astype(np.float16)
    np.testing.assert_array_equal(result.vgprs[0], want.view(np.uint16))


def test_hardware_registers_and_time() -> None:
    results = run(["s_getreg_b32 s20, hwreg(HW_REG_MODE, 4, 4)", "s_memtime s[20:21]", "s_memrealtime s[20:21]"], {})
    assert results[0].sdst & 0xFFFFFFFF == 0b1111  # denormals are kept
    assert all(result.sdst < 1 << 32 for result in results[1:])


@pytest.mark.parametrize("wide", ["f16", "bf16"])
@pytest.mark.parametrize("name", NARROW)
def test_conversions_of_16_bit_floats_with_a_scale(name: str, wide: str) -> None:
    rng = np.random.default_rng(11)
    exponent = rng.integers(124, 130, LANES).astype(np.uint32)
    factor = np.exp2(exponent.astype(np.float64) - 127)
    largest = min(float(ml_dtypes.finfo(NARROW[name]).max), 1000.0)
    pair = (rng.uniform(-1, 1, (LANES, 2)) * largest * factor[:, None] * 0.9).astype(WIDE[wide])
    old, bits = integers(12), 4 if name == "fp4" else 8
    sel = "op_sel:[0,0,1,1]" if name == "fp4" else "op_sel:[0,0,1]"
    shift = 24 if name == "fp4" else 16
    result = run([f"v_cvt_scalef32_pk_{name}_{wide} v10, v2, v4 {sel}"],
                 {2: pair.view(np.uint32).ravel().copy(), 4: exponent << 23, 8: old})[0]  # fmt: skip
    codes = (pair.astype(np.float64) / factor[:, None]).astype(NARROW[name]).view(np.uint8).astype(np.uint32)
    want = codes[:, 0] | codes[:, 1] << bits
    field = np.uint32((1 << 2 * bits) - 1 << shift)
    np.testing.assert_array_equal(result.vgprs[0], old & ~field | want << np.uint32(shift))


@pytest.mark.parametrize("name", ["fp8", "bf8"])
def test_single_conversions_with_a_scale(name: str) -> None:
    code, old = integers(1), integers(2)
    exponent = np.random.default_rng(3).integers(120, 134, LANES).astype(np.uint32)
    results = run([f"v_cvt_scalef32_f32_{name} v10, v2, v4 op_sel:[1,1,0]",
                   f"v_cvt_scalef32_f16_{name} v10, v2, v4 op_sel:[0,1,1]"],
                  {2: code, 4: exponent << 23, 8: old})  # fmt: skip
    parts = np.ascontiguousarray(code).view(np.uint8).reshape(LANES, 4)
    with np.errstate(all="ignore"):
        scaled = [np.ascontiguousarray(parts[:, byte]).view(NARROW[name]).astype(np.float64)
                  * np.exp2(exponent.astype(np.float64) - 127) for byte in (3, 2)]  # fmt: skip
        equal(results[0].vgprs[0], scaled[0].astype(np.float32))
        got = (results[1].vgprs[0] >> 16).astype(np.uint16).view(np.float16)
        np.testing.assert_array_equal(got, scaled[1].astype(np.float16))
    np.testing.assert_array_equal(results[1].vgprs[0] & 0xFFFF, old & 0xFFFF)


def test_stochastic_rounding_with_a_scale() -> None:
    """A seed of 0 truncates; one of all ones rounds away whatever is not exact in the dropped source bits."""
    rng = np.random.default_rng(4)
    exponent = rng.integers(124, 130, LANES).astype(np.uint32)
    factor = np.exp2(exponent.astype(np.float64) - 127)
    x = (rng.uniform(1, 6, LANES) * factor).astype(np.float32)
    zero, ones = np.zeros(LANES, np.uint32), np.full(LANES, 0xFFFFFFFF, np.uint32)
    for name, mantissa in (("fp8", 3), ("bf8", 2)):
        results = [
            run([f"v_cvt_scalef32_sr_{name}_f32 v10, v2, v6, v4"], {2: x.view(np.uint32), 4: exponent << 23, 6: seed})[
                0
            ]
            for seed in (zero, ones)
        ]
        down, up = ((r.vgprs[0] & 0xFF).astype(np.uint8).view(NARROW[name]).astype(np.float64) for r in results)
        value = x.astype(np.float64) / factor
        unit = np.exp2(np.floor(np.log2(value)) - mantissa)
        np.testing.assert_array_equal(down, np.floor(value / unit) * unit)
        np.testing.assert_array_equal(up, np.ceil(value / unit) * unit)


@pytest.mark.parametrize(
    ("name", "wide"), [(name, wide) for name in NARROW for wide in WIDE if name == "fp4" or wide != "f32"]
)
def test_random_bits_of_conversions_with_a_scale(name: str, wide: str) -> None:
    """The source's dropped digits plus the seed's highest bits, as many, decide whether the last digit goes up.

    The second element of a pair of 4-bit results takes the next number of V_PRNG_B32.
    """
    rng = np.random.default_rng(5)
    exponent = rng.integers(124, 130, LANES).astype(np.uint32)
    factor = np.exp2(exponent.astype(np.float64) - 127)
    mantissa = {"fp8": 3, "bf8": 2, "fp4": 1}[name]
    source_digits = {"f32": 23, "f16": 10, "bf16": 7}[wide]
    count = source_digits - mantissa
    pair = (rng.uniform(1, 3.9, (LANES, 2)) * factor[:, None]).astype(WIDE[wide])
    seed = integers(6)
    following = seed << 1 ^ np.where(seed >> 31, 197, 0).astype(np.uint32)
    old = integers(7)
    operands = "v2, v6, v4"
    registers = {4: exponent << 23, 6: seed, 8: old}
    if name == "fp4":
        sel, position, width, elements = "op_sel:[0,0,1,0]", 8, 4, 2
        operands = ("v[2:3]" if wide == "f32" else "v2") + ", v6, v4"
        text = f"v_cvt_scalef32_sr_pk_fp4_{wide} v10, {operands} {sel}"
    else:
        sel, position, width, elements = "op_sel:[0,0,1,1]", 24, 8, 1
        text = f"v_cvt_scalef32_sr_{name}_{wide} v10, {operands} {sel}"
    if wide == "f32":
        registers |= {2: pair[:, 0].view(np.uint32).copy(), 3: pair[:, 1].view(np.uint32).copy()}
    else:
        registers |= {2: np.ascontiguousarray(pair).view(np.uint32).ravel()}
    got = run([text], registers)[0].vgprs[0]
    field = np.uint32((1 << width * elements) - 1 << position)
    np.testing.assert_array_equal(got & ~field, old & ~field)
    for place, random in ((0, seed), (1, following))[:elements]:
        value = pair[:, place].astype(np.float64) / factor
        unit = np.exp2(np.floor(np.log2(value)) - mantissa)
        dropped = value / unit % 1
        up = dropped + (random >> np.uint32(32 - count)) / 2.0**count >= 1
        want = ((np.floor(value / unit) + up) * unit).astype(NARROW[name]).view(np.uint8)
        np.testing.assert_array_equal(got >> (position + width * place) & ((1 << width) - 1), want)


def test_random_bits_of_a_conversion_to_f16() -> None:
    x = np.random.default_rng(1).uniform(1, 8, LANES).astype(np.float32)
    seeds, old = integers(2), integers(3)
    results = run(
        ["v_cvt_sr_f16_f32 v10, v2, v4", "v_cvt_sr_f16_f32 v10, v2, v4 op_sel:[0,0,1]"],
        {2: x.view(np.uint32), 4: seeds, 8: old},
    )
    want = ((x.view(np.uint32).astype(np.uint64) + (seeds >> 19)) >> 13) - ((127 - 15) << 10)
    np.testing.assert_array_equal(results[0].vgprs[0], old & 0xFFFF0000 | want.astype(np.uint32))
    np.testing.assert_array_equal(results[1].vgprs[0], old & 0xFFFF | want.astype(np.uint32) << 16)


def test_a_mixed_fma_rounds_once_to_half_a_register() -> None:
    """Operands are f32, or the half of a register as f16, as OP_SEL_HI and OP_SEL say; the other half stays."""
    rng = np.random.default_rng(8)
    pairs = rng.normal(0, 2, (LANES, 2)).astype(np.float16)
    b, c = (rng.normal(0, 2, LANES).astype(np.float32) for _ in range(2))
    old = integers(9)
    registers = {2: pairs.view(np.uint32).ravel(), 4: b.view(np.uint32), 6: c.view(np.uint32), 8: old}
    results = run(
        [f"v_fma_mix{half}_f16 v10, v2, v4, v6 op_sel:[{sel},0,0] op_sel_hi:[1,0,0]"
         for half, sel in (("lo", 0), ("lo", 1), ("hi", 1))],
        registers,
    )  # fmt: skip
    for result, sel, shift in zip(results, (0, 1, 1), (0, 0, 16), strict=True):
        exact = pairs[:, sel].astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
        want = exact.astype(np.float16).view(np.uint16).astype(np.uint32)
        np.testing.assert_array_equal(result.vgprs[0] >> shift & 0xFFFF, want)
        kept = np.uint32(0xFFFF0000 if shift == 0 else 0xFFFF)
        np.testing.assert_array_equal(result.vgprs[0] & kept, old & kept)
