"""What follows from a launch's values."""

from __future__ import annotations

import json

import pytest

from asmlaunch.abi import expected_segment
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import ArgumentError


def test_strides_follow_for_arrays_without_padding(split_kernel: KernelInfo) -> None:
    family = family_of(split_kernel)
    assert family is not None
    schema = family.schema(split_kernel)
    segment = expected_segment(schema, {"K": 1664, "N": 512})
    values = {
        f.name: int.from_bytes(segment.data[f.offset : f.end], "little") for f in schema.fields if f.type == "u32"
    }
    assert (values["stride_A0"], values["stride_B0"], values["stride_C0"]) == (1664, 1664, 512)
    # 52 columns of scales, padded to 56
    assert (values["stride_ScaleA0"], values["stride_ScaleB0"]) == (56, 56)
    known = {f.name for f in schema.fields if segment.is_known(f.offset, f.end)}
    assert {"M", "ptr_D", "ptr_A"} & known == set()
    assert {"alpha", "stride_D0", "log2_k_split", "K"} <= known
    given = expected_segment(schema, {"stride_ScaleB0": 64})
    assert not given.is_known(schema["stride_A0"].offset, schema["stride_A0"].end)
    with pytest.raises(ArgumentError, match="did you mean M"):
        expected_segment(schema, {"m": 1})


def test_schemas_as_json(split_kernel: KernelInfo) -> None:
    family = family_of(split_kernel)
    assert family is not None
    described = json.loads(json.dumps(family.schema(split_kernel).to_json()))
    first = described["fields"][0]
    assert (described["size"], first["name"], first["aliases"], first["live"]) == (372, "ptr_D", ["D"], True)
