"""A Triton .hsaco: two pointers more than the kernel's signature, and preloaded arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.abi import audit, bind, schema_from_metadata
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import ArgumentError

PATH = Path(__file__).parents[2] / "fixtures" / "codeobject" / "triton_scale.hsaco"


@pytest.fixture
def kernel() -> KernelInfo:
    return codeobject.read(PATH).kernels["scale"]


def test_what_it_holds(kernel: KernelInfo) -> None:
    schema = schema_from_metadata(kernel)
    assert [(field.name, field.type, field.offset) for field in schema.fields] == [
        ("arg0", "pointer", 0),
        ("arg1", "pointer", 8),
        ("arg2", "raw32", 16),
        ("arg3", "raw32", 20),
        ("arg4", "pointer", 24),
        ("arg5", "pointer", 32),
    ]
    assert kernel.descriptor.kernarg_preload_spec_length == 10
    assert any("10 dwords from dword 0 come preloaded" in finding.message for finding in audit(kernel).findings)


def test_the_trailing_pointers_may_be_null_and_may_not_be_left_out(kernel: KernelInfo) -> None:
    schema = schema_from_metadata(kernel)
    given = {"arg0": 0x7F0000001000, "arg1": 0x7F0000002000, "arg2": 1000, "arg3": 0.5}
    values, _ = bind(schema, {**given, "arg4": None, "arg5": None})
    assert schema.pack(values).hex() == "00100000007f000000200000007f0000e80300000000003f" + "00" * 16
    assert audit(kernel, values=values).ok
    with pytest.raises(ArgumentError, match="argument 4 of scale is missing: arg4: need a pointer for offset 24"):
        bind(schema, given)
