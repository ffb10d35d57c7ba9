"""Comparing segments by field."""

from __future__ import annotations

import io
import json
import re
import struct
from typing import Any

import pytest
from rich.console import Console

from asmlaunch.abi import Field, KernargSchema, diff, parse_hexdump
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo

SCHEMA = KernargSchema(
    [
        Field("D", 0, "pointer"),
        Field("C", 8, "pointer"),
        Field("alpha", 16, "f32"),
        Field("beta", 20, "f32"),
        Field("dead", 24, "u32", live=False),
        Field("M", 28, "u32"),
        Field("N", 32, "u32"),
        Field("pad", 36, "u32", role="padding"),
    ],
    40,
)
VALUES: dict[str, Any] = {"D": 0x7F0000001000, "C": 0, "alpha": 1.0, "beta": 0.5, "dead": 0, "M": 300, "N": 2048}


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


def changed(**values: Any) -> Any:
    return diff(SCHEMA.pack(VALUES), SCHEMA.pack({**VALUES, **values}), SCHEMA)


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({"D": 0x7E0000002300}, "equivalent"),
        ({"D": 0x7E0000002310}, "differs"),
        ({"D": 0}, "differs"),
        ({"C": 0x7E0000002300}, "differs"),
        ({"dead": 7}, "dead"),
        ({"M": 301}, "differs"),
    ],
)
def test_statuses(values: dict[str, Any], status: str) -> None:
    (name,) = values
    result = changed(**values)
    assert {entry.field.name: entry.status for entry in result.fields if not entry.same} == {name: status}
    assert bool(result) == (status == "differs")


def test_exact_and_strict() -> None:
    a, b = SCHEMA.pack(VALUES), SCHEMA.pack({**VALUES, "D": 0x7E0000002300, "dead": 7})
    assert not diff(a, b, SCHEMA)
    assert [entry.field.name for entry in diff(a, b, SCHEMA).tolerated] == ["D", "dead"]
    assert [entry.field.name for entry in diff(a, b, SCHEMA, exact=True).differences] == ["D"]
    assert [entry.field.name for entry in diff(a, b, SCHEMA, strict=True).differences] == ["dead"]
    text = str(diff(a, b, SCHEMA))
    assert (
        "5 of 7 known fields are equal, 1 pointers to other places, 1 different where the kernel does not look" in text
    )
    assert re.search(r"24 +dead +0 != 7 +\(dead\)", text)


def test_a_two_byte_alpha_is_recognised() -> None:
    """A half-precision alpha written into a 4-byte slot moves everything after it, as in a public report."""
    right = SCHEMA.pack(VALUES)
    wrong = right[:16] + struct.pack("<e", 1.0) + right[20:]
    for a, b, side in ((right, wrong, "b"), (wrong, right, "a")):
        assert diff(a, b, SCHEMA).shift == (
            f"alpha is 2 bytes short in {side}: every field after it is 2 bytes early there (alpha at 16 takes 4 bytes)"
        )
    assert "2 bytes early" in str(diff(right, wrong, SCHEMA))


def test_a_value_that_differs_is_no_shift() -> None:
    assert changed(alpha=2.0).shift == ""
    assert changed(M=1, N=2).shift == ""
    assert changed(D=0).shift == ""


def test_natural_alignment_against_the_compilers() -> None:
    """{y, x, a, n} at 0, 8, 16, 24 against n at 20: only bytes 20 to 27 differ."""
    schema = KernargSchema(
        [Field("y", 0, "pointer"), Field("x", 8, "pointer"), Field("a", 16, "f32"), Field("n", 24, "i32")], 28
    )
    right = schema.pack({"y": 16, "x": 32, "a": 1.0, "n": 5})
    wrong = right[:20] + struct.pack("<ii", 5, 0)
    assert [i for i in range(28) if right[i] != wrong[i]] == [20, 24]
    assert [(entry.field.name, entry.b) for entry in diff(right, wrong, schema).differences] == [("n", 0)]
    assert "n is" not in diff(right, wrong, schema).shift


def test_rich_and_json() -> None:
    result = changed(D=0x7E0000002300, M=1)
    out = io.StringIO()
    Console(file=out, width=100).print(result)
    assert "equivalent" in out.getvalue()
    assert "0x7e0000002300" in out.getvalue()
    parsed = json.loads(json.dumps(result.to_json()))
    assert [entry["status"] for entry in parsed["fields"] if not entry["same"]] == ["equivalent", "differs"]
