"""Schemas from metadata."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.abi import hexdump, parse_hexdump, schema_from_metadata
from asmlaunch.codeobject import ArgumentInfo, CodeObject, KernelInfo
from asmlaunch.errors import ArgumentError


@pytest.fixture
def scale(two_kernels: CodeObject) -> KernelInfo:
    return two_kernels.kernels["scale"]


def test_fields_are_the_arguments(scale: KernelInfo) -> None:
    schema = schema_from_metadata(scale)
    assert schema.names == ("out", "in", "n", "factor")
    assert schema.size == 280
    assert schema["out"].access == "write_only"
    assert schema["in"].address_space == "global"
    assert [(f.name, f.offset, f.size, f.role) for f in schema.fields if f.role == "hidden"][:4] == [
        ("hidden_block_count_x", 24, 4, "hidden"),
        ("hidden_block_count_y", 28, 4, "hidden"),
        ("hidden_block_count_z", 32, 4, "hidden"),
        ("hidden_group_size_x", 36, 2, "hidden"),
    ]


def test_an_untyped_argument_takes_integers_and_floats(scale: KernelInfo) -> None:
    packed = schema_from_metadata(scale).pack({"out": 1, "in": 2, "n": -1, "factor": 1.0})
    assert packed[16:24].hex() == "ffffffff0000803f"
    assert packed[24:] == bytes(256)


def test_pads_and_repeated_names(scale: KernelInfo) -> None:
    def argument(name: str, offset: int, size: int = 4, **more: str) -> ArgumentInfo:
        return ArgumentInfo(name, offset, size, more.pop("value_kind", "by_value"), **more)  # type: ignore[arg-type]

    arguments = (
        argument("D", 0, 8, value_kind="global_buffer"),
        argument("pad", 8, 8),
        argument("k", 16, value_type="i32"),
        argument("pad", 20),
        argument("k", 24, value_type="f32"),
        argument("_pad1", 28),
        argument("lds", 32, 4, value_kind="dynamic_shared_pointer"),
        argument("blob", 36, 12),
    )
    schema = schema_from_metadata(dataclasses.replace(scale, arguments=arguments, kernarg_size=40))
    assert schema.names == ("D", "k@0x10", "k@0x18", "lds", "blob")
    assert [schema[name].type for name in schema.names] == ["pointer", "i32", "f32", "raw32", "bytes"]
    assert schema.size == 48
    with pytest.raises(ArgumentError, match="hand-written"):
        schema.pack({"D": 0, "k@0x10": 1.0, "k@0x18": 1.0, "lds": 0, "blob": bytes(12)})


def test_no_arguments(scale: KernelInfo) -> None:
    schema = schema_from_metadata(dataclasses.replace(scale, arguments=()))
    assert schema.pack({}) == bytes(280)


def test_every_object_of_the_wheel_packs_and_unpacks_to_the_same_bytes(aiter_kernels: Path) -> None:
    layouts = {}
    for path in aiter_kernels.rglob("*.co"):
        (kernel,) = codeobject.read(path).kernels.values()
        layouts[kernel.arguments, kernel.kernarg_size] = kernel
    assert len(layouts) > 30
    for kernel in layouts.values():
        schema = schema_from_metadata(kernel)
        values = {name: index + 1 for index, name in enumerate(schema.names)}
        packed = schema.pack(values)
        assert len(packed) >= kernel.kernarg_size
        assert schema.unpack(packed) == values
        assert schema.pack(schema.unpack(packed)) == packed
        assert parse_hexdump(hexdump(packed)).data == packed
        for argument in kernel.arguments:
            if argument.name in values:
                raw = packed[argument.offset : argument.offset + argument.size]
                assert int.from_bytes(raw, "little") == values[argument.name]
