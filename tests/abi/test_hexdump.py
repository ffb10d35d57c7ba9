"""AITER's dump format, and comparing dumps by field."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmlaunch.abi import Dump, Field, KernargSchema, diff, hexdump, parse_hexdump
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import DumpError


@given(st.binary(min_size=1, max_size=100))
def test_written_dumps_read_back(data: bytes) -> None:
    assert parse_hexdump(hexdump(data)) == Dump(data, ((0, len(data)),))


def test_written_lines_are_the_published_ones(public_dump: str) -> None:
    dump = parse_hexdump(public_dump)
    written = hexdump(dump.data).splitlines()
    assert [line for line in public_dump.splitlines() if line != "[...]" and line not in written] == []


def test_public_dump(public_dump: str) -> None:
    dump = parse_hexdump(public_dump)
    assert len(dump) == 372
    assert dump.known == ((0, 32), (336, 372))
    assert dump.is_known(336, 340)
    assert not dump.is_known(28, 36)
    assert dump.data[336] == 0x80


def test_public_dump_by_field(public_dump: str, plain_kernel: KernelInfo) -> None:
    family = family_of(plain_kernel)
    assert family is not None
    schema = family.schema(plain_kernel)
    numbers = dict.fromkeys(schema.names, 0) | {
        "stride_ScaleB0": 128,
        "alpha": 0.0,
        "beta": 0.0,
        "ptr_D": 0x7FAB6D200000,
    }
    same = diff(parse_hexdump(public_dump), schema.pack(numbers), schema)
    assert not same
    assert [entry.field.name for entry in same.fields if entry.same] == [
        "ptr_D",
        "ptr_C",
        "stride_ScaleB0",
        "stride_ScaleB1",
        "log2_k_split",
    ]
    other = diff(parse_hexdump(public_dump), schema.pack(numbers | {"stride_ScaleB0": 32, "M": 7}), schema)
    assert other
    (entry,) = other.differences
    assert (entry.field.name, entry.a, entry.b) == ("stride_ScaleB0", 128, 32)
    assert re.search(r"4 of 5 known fields are equal\n 336 +stride_ScaleB0 +128 != 32", str(other))


def test_diff_is_by_bits_and_prints_pointers_in_hex() -> None:
    schema = KernargSchema(
        [Field("p", 0, "pointer"), Field("x", 8, "f32"), Field("pad", 12, "u32", role="padding")], 16
    )
    nan = schema.pack({"p": 16, "x": float("nan")})
    assert not diff(nan, nan, schema)
    changed = diff(nan, schema.pack({"p": 32, "x": 0.0}), schema)
    assert "0x10 != 0x20" in str(changed)
    assert "nan != 0.0" in str(changed)
    assert [entry.field.name for entry in changed.fields] == ["p", "x"]
    parsed = json.loads(json.dumps(changed.to_json(), allow_nan=True))
    assert parsed["differs"] is True
    assert parsed["fields"][0]["name"] == "p"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no hexdump found"),
        ("nothing here", "no hexdump found"),
        ("0000   | 00 01\n0001   | 02", "offset 1 twice"),
        ("99999999   | 00", "at most 1048576 bytes"),
    ],
)
def test_dumps_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(DumpError, match=says):
        parse_hexdump(text)
