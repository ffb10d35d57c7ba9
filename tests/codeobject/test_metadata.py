"""The metadata note: damaged and odd ones."""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import pytest

from asmlaunch.codeobject.metadata import find_note, parse_metadata
from asmlaunch.errors import CodeObjectError


def note(name: bytes, kind: int, payload: bytes) -> bytes:
    padded = [part + bytes(-len(part) % 4) for part in (name, payload)]
    return struct.pack("<III", len(name), len(payload), kind) + b"".join(padded)


def kernel(**changes: Any) -> dict[str, Any]:
    return {".name": "k", ".symbol": "k.kd", ".kernarg_segment_size": 8, **changes}


def parse(root: Any) -> Any:
    return parse_metadata(msgpack.packb(root))


def test_the_note_is_found_among_others() -> None:
    notes = note(b"GNU\0", 3, b"12345") + note(b"AMDGPU\0", 32, b"payload") + note(b"AMDGPU\0", 32, b"later")
    assert find_note(notes) == b"payload"
    assert find_note(note(b"GNU\0", 3, b"12345")) is None
    assert find_note(b"short") is None


def test_code_object_v2_is_named() -> None:
    with pytest.raises(CodeObjectError, match="code object version: got 2, need 3 to 6"):
        find_note(note(b"AMD\0", 10, b"---\n"))


def test_truncated_note() -> None:
    with pytest.raises(CodeObjectError, match="note is truncated: got 4 bytes, need 7 bytes"):
        find_note(note(b"AMDGPU\0", 32, b"payload")[:-4])


def test_defaults_for_what_may_be_left_out() -> None:
    (entry,), target = parse({"amdhsa.kernels": [kernel()], "amdhsa.target": "amdgcn-amd-amdhsa--gfx942"})
    assert target == "amdgcn-amd-amdhsa--gfx942"
    assert (entry.arguments, entry.wavefront_size, entry.max_workgroup_size, entry.agpr_count) == ((), 64, 1024, 0)
    assert entry.required_workgroup_size is None


def test_unnamed_arguments_are_numbered() -> None:
    args = [
        {".offset": 0, ".size": 8, ".value_kind": "global_buffer"},
        {".offset": 8, ".size": 4, ".value_kind": "by_value"},
    ]
    (entry,), _ = parse({"amdhsa.kernels": [kernel(**{".args": args})]})
    assert [argument.name for argument in entry.arguments] == ["arg0", "arg1"]


@pytest.mark.parametrize(
    ("root", "says"),
    [
        (["list"], "metadata note: got list"),
        ({"amdhsa.kernels": {}}, "amdhsa.kernels: got dict"),
        ({"amdhsa.kernels": [3]}, "entry: got int"),
        ({"amdhsa.kernels": [kernel(**{".name": 3})]}, ".name: got int 3, need str"),
        ({"amdhsa.kernels": [{".name": "k", ".symbol": "k.kd"}]}, ".kernarg_segment_size: got NoneType"),
        ({"amdhsa.kernels": [kernel(**{".vgpr_count": -1})]}, ".vgpr_count: got -1"),
        ({"amdhsa.kernels": [kernel(**{".vgpr_count": True})]}, ".vgpr_count: got bool"),
        ({"amdhsa.kernels": [kernel(**{".reqd_workgroup_size": [64, 1]})]}, "need three numbers"),
        ({"amdhsa.kernels": [kernel(**{".args": [{".offset": 0, ".size": 4}]})]}, ".value_kind: got NoneType"),
    ],
)
def test_wrong_types_are_refused(root: Any, says: str) -> None:
    with pytest.raises(CodeObjectError, match=says):
        parse(root)


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\xdf\xff\xff\xff\xff", b"\x91" * 5000, b"\xa1\xff"])
def test_payload_that_is_not_msgpack(payload: bytes) -> None:
    with pytest.raises(CodeObjectError, match=r"msgpack|metadata"):
        parse_metadata(payload)
