"""Schemas: packing and unpacking against construct and against bytes worked out by hand."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmlaunch.abi import Field, KernargSchema, bind
from asmlaunch.abi.types import TYPES, bf16_bits, bf16_value
from asmlaunch.errors import ArgumentError, DumpError

NATURAL = KernargSchema(
    [Field("y", 0, "pointer"), Field("x", 8, "pointer"), Field("a", 16, "f32"), Field("n", 24, "i32")], 28, "saxpy"
)
VALUES: dict[str, Any] = {"y": 0x7F0000001000, "x": 1, "a": 1.0, "n": -2}


def test_bytes_are_where_the_offsets_say() -> None:
    expected = bytes.fromhex("00100000007f0000 0100000000000000 0000803f 00000000 feffffff")
    assert NATURAL.pack(VALUES) == expected
    assert NATURAL.unpack(expected) == VALUES
    assert NATURAL.construct.build(VALUES).ljust(28, b"\0") == expected


def test_pack_into_writes_only_the_segment() -> None:
    buffer = bytearray(b"\xee" * 40)
    NATURAL.pack_into(buffer, 4, VALUES)
    assert buffer == b"\xee" * 4 + NATURAL.pack(VALUES) + b"\xee" * 8
    NATURAL.pack_into(buffer, 4, {**VALUES, "y": None})
    assert buffer[4:12] == bytes(8)
    with pytest.raises(ArgumentError, match="kernarg buffer: got 20 bytes, need 28 bytes"):
        NATURAL.pack_into(bytearray(24), 4, VALUES)


def test_one_field() -> None:
    schema = KernargSchema([Field("n", 4, "u16")], 8)
    assert schema.pack({"n": 0x1234}) == bytes.fromhex("0000000034120000")


def test_no_fields() -> None:
    assert KernargSchema([], 4).pack({}) == bytes(4)


def test_defaults_aliases_padding_and_hidden() -> None:
    fields = [
        Field("ptr_D", 0, "pointer", aliases=("D",)),
        Field("alpha", 8, "f32", default=1.0),
        Field("pad@0xc", 12, "u32", role="padding"),
        Field("hidden_block_count_x", 16, "u32", role="hidden"),
    ]
    schema = KernargSchema(fields, 24)
    assert schema.names == ("ptr_D", "alpha")
    assert schema.pack({"D": 16}) == struct.pack("<QfIQ", 16, 1.0, 0, 0)
    assert schema.pack({"D": 16, "pad@0xc": 7, "hidden_block_count_x": 3}) == struct.pack("<QfIQ", 16, 1.0, 7, 3)
    assert schema.unpack(schema.pack({"D": 16})) == {"ptr_D": 16, "alpha": 1.0, "hidden_block_count_x": 0}
    assert "D" in schema
    assert "E" not in schema
    assert "alpha" in repr(schema)
    with pytest.raises(ArgumentError, match="two values, the second as 'D'"):
        schema.pack({"ptr_D": 1, "D": 2})


def test_unknown_and_missing_arguments_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"argument of saxpy: got 'b', need one of y, x, a, n"):
        NATURAL.pack({**VALUES, "b": 1})
    with pytest.raises(ArgumentError, match="did you mean ptr_D"):
        KernargSchema([Field("ptr_D", 0, "pointer")], 8).pack({"ptr_d": 1})
    with pytest.raises(ArgumentError, match="argument 3 of saxpy is missing: n: need a i32 for offset 24, 4 bytes"):
        NATURAL.pack({"y": 1, "x": 1, "a": 1.0})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("u32", -1),
        ("u32", 1 << 32),
        ("i32", 1 << 31),
        ("i32", -(1 << 31) - 1),
        ("pointer", 1 << 64),
        ("u8", 256),
        ("i8", 128),
        ("u16", 65536),
        ("i16", -32769),
        ("u64", -1),
        ("i64", 1 << 63),
        ("raw8", 256),
        ("raw32", -(1 << 31) - 1),
    ],
)
def test_integers_out_of_range_are_refused(kind: str, value: int) -> None:
    with pytest.raises(ArgumentError, match=f"need an integer from .* to {TYPES[kind].range[1]}"):
        KernargSchema([Field("n", 0, kind)], 8).pack({"n": value})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("u32", 1.0),
        ("u32", "3"),
        ("u32", None),
        ("u32", np.float32(2)),
        ("f32", "x"),
        ("f32", 1e39),
        ("f16", 70000.0),
        ("raw16", 1.0),
        ("bytes", b"123"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(kind: str, value: Any) -> None:
    field = Field("n", 0, kind, size=4) if kind == "bytes" else Field("n", 0, kind)
    with pytest.raises(ArgumentError, match="n"):
        KernargSchema([field], 8).pack({"n": value})


@pytest.mark.parametrize("scalar", [np.int32(-5), np.int64(-5), np.int8(-5)])
def test_numpy_integers(scalar: Any) -> None:
    assert NATURAL.pack({**VALUES, "n": scalar}) == NATURAL.pack({**VALUES, "n": -5})


@pytest.mark.parametrize("scalar", [np.float16(1.5), np.float32(1.5), np.float64(1.5), 1.5])
def test_narrow_floats_widen_to_the_slot(scalar: Any) -> None:
    assert NATURAL.pack({**VALUES, "a": scalar})[16:20] == bytes.fromhex("0000c03f")


def test_a_bfloat16_scalar_widens() -> None:
    import ml_dtypes

    scalar = ml_dtypes.bfloat16(1.5)
    assert NATURAL.pack({**VALUES, "a": scalar})[16:20] == bytes.fromhex("0000c03f")
    assert NATURAL.pack(bind(NATURAL, {**VALUES, "a": scalar})[0])[16:20] == bytes.fromhex("0000c03f")
    with pytest.raises(ArgumentError, match="argument n"):
        NATURAL.pack({**VALUES, "n": scalar})


def test_alpha_one_is_four_bytes() -> None:
    assert NATURAL.pack({**VALUES, "a": np.float16(1)})[16:20].hex(" ") == "00 00 80 3f"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("raw32", 1.0, "0000803f"),
        ("raw32", -1, "ffffffff"),
        ("raw32", 0xFFFFFFFF, "ffffffff"),
        ("raw64", 1.0, "000000000000f03f"),
        ("raw16", 0x3C00, "003c"),
        ("raw8", -1, "ff"),
        ("f16", 1.0, "003c"),
        ("bf16", 1.0, "803f"),
        ("f64", 1.0, "000000000000f03f"),
        ("bytes", b"\1\2\3", "010203"),
        ("bytes", 0, "000000"),
    ],
)
def test_types(kind: str, value: Any, expected: str) -> None:
    size = 3 if kind == "bytes" else TYPES[kind].size
    schema = KernargSchema([Field("v", 0, kind, size=size)], size)
    assert schema.pack({"v": value}).hex() == expected


def test_bf16_rounds_to_nearest_even() -> None:
    import ml_dtypes

    rng = np.random.default_rng(1)
    values = [float(v) for v in rng.standard_normal(300).astype(np.float32)] + [0.0, -0.0, math.inf, 1.00390625, 3.0e38]
    for value in values:
        assert bf16_bits(value) == int(np.float32(value).astype(ml_dtypes.bfloat16).view(np.uint16))
        assert bf16_value(bf16_bits(value)) == float(np.float32(value).astype(ml_dtypes.bfloat16))
    assert math.isnan(bf16_value(bf16_bits(math.nan)))
    schema = KernargSchema([Field("v", 0, "bf16")], 2)
    assert schema.unpack(schema.pack({"v": 1.5})) == {"v": 1.5}


def test_overlapping_fields_are_packed_in_order() -> None:
    schema = KernargSchema([Field("lo", 0, "u32"), Field("hi", 2, "u32")], 8)
    assert schema.pack({"lo": 0x11111111, "hi": 0x22222222}).hex() == "1111222222220000"


def test_a_segment_that_is_too_short_names_the_first_argument_not_covered() -> None:
    with pytest.raises(
        DumpError, match=r"12 bytes short: got 16 bytes, need 28.*not covered is 2, argument a \(f32 at"
    ):
        NATURAL.unpack(bytes(16))
    dead = KernargSchema([Field("y", 0, "u32"), Field("z", 4, "u32", live=False)], 8)
    assert dead.unpack(bytes(4)) == {"y": 0}
    assert NATURAL.unpack(bytes(40)) == {"y": 0, "x": 0, "a": 0.0, "n": 0}


def test_schemas_that_make_no_sense() -> None:
    with pytest.raises(ArgumentError, match="two fields named x"):
        KernargSchema([Field("x", 0, "u32"), Field("y", 4, "u32", aliases=("x",))], 8)
    with pytest.raises(ArgumentError, match="end 12, need at most 8"):
        KernargSchema([Field("x", 8, "u32")], 8)
    with pytest.raises(ArgumentError, match="at most 1048576"):
        KernargSchema([], 1 << 32)


def test_with_fields_changes_a_copy() -> None:
    changed = NATURAL.with_fields({"a": {"live": False}})
    assert changed["a"].live is False
    assert NATURAL["a"].live is None


@given(
    st.lists(st.sampled_from([name for name in TYPES if name not in ("bytes", "bf16")]), min_size=1, max_size=12),
    st.data(),
)
def test_any_layout_packs_as_construct_builds_it(kinds: list[str], data: st.DataObject) -> None:
    fields, offset = [], 0
    for index, kind in enumerate(kinds):
        offset += data.draw(st.integers(0, 9))
        fields.append(Field(f"f{index}", offset, kind))
        offset += TYPES[kind].size
    schema = KernargSchema(fields, offset + data.draw(st.integers(0, 5)))
    values: dict[str, Any] = {}
    for field in fields:
        if TYPES[field.type].kind == "float":
            values[field.name] = data.draw(st.floats(width=16, allow_nan=False))
        else:
            low, high = TYPES[field.type].range
            values[field.name] = data.draw(st.integers(max(low, 0) if field.type.startswith("raw") else low, high))
    packed = schema.pack(values)
    assert packed == schema.construct.build(values).ljust(schema.size, b"\0")
    assert schema.unpack(packed) == values
    assert schema.pack(schema.unpack(packed)) == packed
