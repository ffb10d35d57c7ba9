"""Number formats against the specification's tables, ml_dtypes, and exact rational rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import (
    FORMATS,
    ROUNDINGS,
    decode_e8m0,
    decode_fp4,
    encode_e8m0,
    encode_fp4,
    pack_fp4,
    pack_fp6,
    unpack_fp4,
    unpack_fp6,
)
from asmlaunch.layouts.e8m0 import f32_rule
from asmlaunch.layouts.formats import E2M1, E4M3FN

ML_DTYPES = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2": ml_dtypes.float8_e5m2,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


@pytest.mark.parametrize("name", ML_DTYPES)
def test_every_code_decodes_as_in_ml_dtypes_and_comes_back(name):
    fmt = FORMATS[name]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    expected = codes.view(ML_DTYPES[name]).astype(np.float32)
    values = fmt.decode(codes)
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.array_equal(np.signbit(values), np.signbit(expected)) or name.endswith("fnuz")
    number = ~np.isnan(values)
    assert np.array_equal(fmt.encode(values)[number], codes[number])
    assert np.isnan(fmt.decode(fmt.encode(values[~number]))).all()


@pytest.mark.parametrize("name", ML_DTYPES)
def test_rounding_is_that_of_ml_dtypes_within_the_range(name):
    fmt = FORMATS[name]
    table = np.sort(np.unique(fmt.table[np.isfinite(fmt.table)])).astype(np.float64)
    middles = (table[1:] + table[:-1]) / 2
    x = middles.astype(np.float32)
    x = np.concatenate(
        [x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf)), np.float32(table)]
    )
    expected = x.astype(ML_DTYPES[name]).astype(np.float32)
    assert np.array_equal(fmt.decode(fmt.encode(x)), expected)
    # float64 is rounded once, not by way of float32 (where ml_dtypes loses these).
    assert np.array_equal(fmt.decode(fmt.encode(np.nextafter(middles, np.inf))), table[1:])
    assert np.array_equal(fmt.decode(fmt.encode(np.nextafter(middles, -np.inf))), table[:-1])


@pytest.mark.parametrize(
    ("name", "largest", "power"),
    [("e2m1", 6, 2), ("e2m3", 7.5, 2), ("e3m2", 28, 4), ("e4m3fn", 448, 8), ("e4m3fnuz", 240, 7), ("e5m2", 57344, 15)],
)
def test_largest_values(name, largest, power):
    fmt = FORMATS[name]
    assert (fmt.max, fmt.max_power) == (largest, power)
    assert fmt.decode(fmt.encode(np.array([1e30, -1e30]))).tolist() == [largest, -largest]


def test_infinity_and_nan():
    special = np.array([np.inf, -np.inf, np.nan])
    assert FORMATS["e5m2"].encode(special[:2]).tolist() == [0x7C, 0xFC]
    assert E4M3FN.encode(special[:2]).tolist() == [0x7F, 0xFF]
    assert FORMATS["e4m3fnuz"].encode(special).tolist() == [0x80, 0x80, 0x80]
    assert encode_fp4(special).tolist() == [7, 15, 7]


@pytest.mark.parametrize(("name", "dtype"), [("int4", ml_dtypes.int4), ("int8", np.int8)])
def test_integers(name, dtype):
    fmt = FORMATS[name]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8)
    values = fmt.decode(codes)
    assert sorted(values) == list(range(-int(fmt.max) - 1, int(fmt.max) + 1))
    assert np.array_equal(values, (codes.view(np.int8) << (8 - fmt.bits) >> (8 - fmt.bits)).astype(np.float32))
    assert np.array_equal(values.astype(dtype).astype(np.float32), values)
    assert np.array_equal(fmt.encode(values), codes)
    low, high = -fmt.max - 1, fmt.max
    wild = fmt.encode(np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 0.5, 1.5, -2.5]))
    assert fmt.decode(wild).tolist() == [high, low, high, low, 0, 0, 2, -2]
    assert fmt.decode(np.array([3], np.int8)).tolist() == [3]
    assert FORMATS["int8"].decode(np.array([-3], np.int8)).tolist() == [-3]


def test_element_roundings():
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert encode_fp4(ties, "NearestAway").tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert encode_fp4(-ties, "NearestAway").tolist() == [9, 10, 11, 12, 13, 14, 15]
    assert encode_fp4(ties, "TowardZero").tolist() == [0, 1, 2, 3, 4, 5, 6]
    below = np.nextafter(np.float32(0.25), np.float32(0))
    assert encode_fp4(np.float32([below]), "NearestAway").tolist() == [0]
    assert FORMATS["int8"].decode(FORMATS["int8"].encode(np.array([-1.9, 1.9]), "TowardZero")).tolist() == [-1, 1]
    with pytest.raises(LayoutError, match="NearestEven, NearestAway, TowardZero"):
        encode_fp4(ties, "Up")


def test_fp4_table_and_ties():
    assert decode_fp4(np.arange(8)).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert encode_fp4(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])).tolist() == [0, 2, 2, 4, 4, 6, 6]
    assert encode_fp4(np.array([-0.0, 0.0, 7, -7, 1e-40])).tolist() == [8, 0, 7, 15, 0]
    assert np.signbit(decode_fp4(np.array([8]))).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_input_type(dtype):
    assert encode_fp4(np.array([0.5, -6.0, 2.5], dtype)).tolist() == [1, 15, 4]


def test_nibble_order():
    assert pack_fp4(encode_fp4(np.array([0.5, 6.0]))).tolist() == [0x71]
    assert unpack_fp4(np.array([0x71], np.uint8)).tolist() == [1, 7]
    packed = np.array([[0x71, 0x2F]], np.uint8)
    assert unpack_fp4(packed).dtype == np.uint8
    # ml_dtypes has an unpacked FP4 whose codes are the same.
    assert np.array_equal(
        decode_fp4(unpack_fp4(packed)), unpack_fp4(packed).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    )


@given(st.lists(st.integers(0, 15), max_size=64).filter(lambda codes: len(codes) % 2 == 0))
def test_pack_and_unpack_are_inverse(codes):
    assert unpack_fp4(pack_fp4(np.array(codes, np.int64))).tolist() == codes


@pytest.mark.parametrize("size", [1 << 14, (1 << 18) + 34, 3 << 18])
def test_large_arrays_are_packed_alike(size):
    codes = np.random.default_rng(size).integers(0, 16, (2, size), dtype=np.uint8)
    packed = pack_fp4(codes)
    assert np.array_equal(packed, codes[:, ::2] | codes[:, 1::2] << 4)
    assert np.array_equal(unpack_fp4(packed), codes)
    assert np.array_equal(unpack_fp4(packed[:, ::-1]), np.flip(codes.reshape(2, -1, 2), axis=1).reshape(2, -1))
    for place in (0, size - 1, size // 2):
        bad = codes.copy()
        bad[1, place] = 16
        with pytest.raises(LayoutError, match=r"0\.\.16"):
            pack_fp4(bad)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pack_fp4(np.zeros(3, np.uint8)), "even"),
        (lambda: pack_fp4(np.array([1, 16])), r"0\.\.15"),
        (lambda: pack_fp4(np.array([-1, 1])), r"0\.\.15"),
        (lambda: pack_fp4(np.zeros(2)), "encode_fp4"),
        (lambda: unpack_fp4(np.zeros(2, np.uint16)), "one byte"),
        (lambda: unpack_fp4(np.uint8(3)), "scalar"),
        (lambda: decode_fp4(np.array([16])), r"0\.\.15"),
        (lambda: decode_fp4(np.array([1.0])), "integers"),
        (lambda: encode_fp4(np.array([1, 2])), "float64, float32"),
        (lambda: decode_e8m0(np.array([1.0])), "one byte"),
        (lambda: encode_e8m0(np.array([1.0]), "Up"), "RoundDown, RoundUp, Even"),
        (lambda: encode_e8m0(np.array([-1.0])), ">= 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(LayoutError, match=message):
        call()


def test_fp6_is_a_stream_of_six_bit_numbers():
    codes = np.random.default_rng(0).integers(0, 64, (3, 40), dtype=np.uint8)
    packed = pack_fp6(codes)
    for row, out in zip(codes, packed, strict=True):
        stream = sum(int(code) << 6 * i for i, code in enumerate(row))
        assert out.tobytes() == stream.to_bytes(30, "little")
    assert np.array_equal(unpack_fp6(packed), codes)
    bad = [
        lambda: pack_fp6(codes[:, :3]),
        lambda: pack_fp6(codes * 1.0),
        lambda: pack_fp6(codes + 64),
        lambda: unpack_fp6(packed[:, :4]),
    ]
    for call in bad:
        with pytest.raises(LayoutError, match="FP6"):
            call()


def test_e8m0_values():
    codes = np.arange(256, dtype=np.uint8)
    values = decode_e8m0(codes)
    assert np.array_equal(values, codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), equal_nan=True)
    assert values[:1].view(np.uint32).tolist() == [0x00400000]
    assert np.array_equal(decode_e8m0(codes.view(ml_dtypes.float8_e8m0fnu)), values, equal_nan=True)


AMAX = [1, 1.5, 1.75, 3.5, 6, 6.5, 7, 448, 3.0e38, np.inf, np.nan, 0]


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [
        ("RoundDown", [125, 125, 125, 126, 127, 127, 127, 133, 252, 255, 255, 0]),
        ("RoundUp", [125, 125, 126, 127, 127, 128, 128, 134, 253, 255, 255, 0]),
        ("Even", [125, 125, 126, 127, 127, 127, 128, 134, 254, 255, 255, 0]),
        ("EvenRaw", [125, 125, 126, 127, 127, 127, 128, 134, 255, 255, 255, 0]),
        ("Ceil", [125, 126, 126, 127, 128, 128, 128, 134, 253, 255, 255, 0]),
    ],
)
def test_scale_rounding_modes(rounding, expected):
    assert rounding in ROUNDINGS
    for dtype in (np.float32, np.float64):
        assert encode_e8m0(np.array(AMAX, dtype), rounding).tolist() == expected


def scale_by_f32_bits(amax: np.ndarray, rounding: str) -> np.ndarray:
    """The published rules, word for word, on normal f32 whose scale is a normal f32."""
    bits = amax.view(np.uint32).astype(np.int64)
    if rounding == "EvenRaw":
        return ((bits + 0x200000) & 0xFF800000) // (1 << 23) - 2
    power = bits >> 23
    if rounding == "RoundDown":
        return power - 2
    if rounding == "Ceil":
        return power + (bits % (1 << 23) != 0) - 2
    sixth = (amax / np.float32(6)).view(np.uint32).astype(np.int64)
    return (sixth >> 23) + (sixth % (1 << 23) != 0)


@pytest.mark.parametrize("rounding", ["RoundDown", "RoundUp", "EvenRaw", "Ceil"])
def test_scale_rules_on_f32_bits(rounding):
    rng = np.random.default_rng(7)
    near = np.ldexp(np.float32([1, 1.5, 1.75, 1.25]), rng.integers(-100, 100, (500, 1))).astype(np.float32).ravel()
    amax = np.concatenate([near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(0))])
    amax = np.concatenate([amax, np.abs(rng.standard_normal(5000)).astype(np.float32)])
    assert np.array_equal(encode_e8m0(amax, rounding), scale_by_f32_bits(amax, rounding))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", ["e2m1", "e2m3", "e4m3fn", "e5m2"])
def test_the_rule_for_f32_bits_is_the_same_rule(rounding, name):
    fmt = FORMATS[name]
    carry, top, saturates = f32_rule(rounding, fmt)
    bits = np.arange(0, 0x7F800000, 4001, dtype=np.uint32)
    bits = np.concatenate([bits, np.arange(0x7F700000, 0x7F800000, 97, dtype=np.uint32)])
    power = ((bits + carry) >> 23).astype(int)
    byte = np.where(power == 255, top, np.clip(power - fmt.max_power, 0, 254))
    assert np.array_equal(encode_e8m0(bits.view(np.float32), rounding, fmt), byte)
    # All codes of the format's grid without end: whether one above the largest is the nearest to a scaled magnitude.
    step = 2.0 ** (fmt.max_power - fmt.mantissa_bits)
    scaled = bits[(power > fmt.max_power) & (power < 255)].view(np.float32).astype(np.float64)
    scaled = np.ldexp(scaled, 127 - byte[(power > fmt.max_power) & (power < 255)])
    assert (np.rint(scaled / step).max() * step > fmt.max) == saturates


def test_scale_of_other_elements():
    amax = np.float32([448, 449, 240, 241, 480])
    assert encode_e8m0(amax[:2], "RoundUp", E4M3FN).tolist() == [127, 128]
    assert encode_e8m0(amax[2:4], "RoundUp", FORMATS["e4m3fnuz"]).tolist() == [127, 128]
    # f32 bits plus 0x80000 carry from 1.9375 on.
    assert encode_e8m0(np.float32([1.93, 1.9375]) * 256, "Even", E4M3FN).tolist() == [127, 128]
    assert encode_e8m0(np.float32([1e-45, 2.0**-126, 2.0**-124]), "RoundUp", E2M1).tolist() == [0, 0, 1]
