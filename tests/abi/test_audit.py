"""The audit: each kind of fault, mostly from public reports, and what it says about it."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from asmlaunch.abi import (
    Audit,
    Buffer,
    Field,
    KernargSchema,
    LiveBytes,
    audit,
    bind,
    hidden_values,
    schema_from_metadata,
)
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import ArgumentInfo, CodeObject, KernelInfo
from asmlaunch.errors import ArgumentError


def example(**changes: Any) -> dict[str, Any]:
    values = {name: 0x7F0000001000 + 0x100000 * i for i, name in enumerate(("D", "A", "B", "ScaleA", "ScaleB"))}
    strides = {"stride_C0": 2048, "stride_A0": 1024, "stride_B0": 1024, "stride_ScaleA0": 32, "stride_ScaleB0": 32}
    return {**values, **strides, "M": 300, "N": 2048, "K": 1024, **changes}


def audit_example(kernel: KernelInfo, **changes: Any) -> Audit:
    family = family_of(kernel)
    assert family is not None
    values, buffers = bind(family.schema(kernel), example(**changes))
    return audit(kernel, values=values, buffers=buffers)


def messages(result: Audit, severity: str) -> list[str]:
    return [finding.message for finding in result.findings if finding.severity == severity]


def test_a_right_launch(split_kernel: KernelInfo) -> None:
    result = audit_example(split_kernel)
    assert result.ok
    assert messages(result, "error") == messages(result, "warning") == []
    assert messages(result, "note") == ["the caller passes 372 bytes of 384, 12 short; only padding is not covered"]
    assert result.states["stride_C0"] == "used"
    assert result.states["stride_D0"] == "no effect"


def test_only_stride_d0_set(split_kernel: KernelInfo) -> None:
    result = audit_example(split_kernel, stride_D0=2048)
    assert messages(result, "warning") == [
        "stride_D0 = 2048 has no effect in this kernel; set stride_C0, which is D's row stride too"
    ]
    assert result.ok


@pytest.mark.parametrize(
    ("changes", "severity", "says"),
    [
        ({"D": 1 << 48}, "error", "ptr_D = 0x1000000000000 does not fit 48 bits"),
        ({"A": 0}, "error", "ptr_A is null and the kernel uses it"),
        ({"B": 0x1002}, "warning", "ptr_B = 0x1002 is not a multiple of 4"),
        ({"C": 0x7F0000001000}, "warning", "ptr_C and the output ptr_D are the same memory, 0x7f0000001000"),
        ({"N": 2080}, "error", "N for .*got 2080, need a multiple of the tile's columns"),
        ({"log2_k_split": 2}, "error", "ptr_D of .* must hold zeros"),
    ],
)
def test_values(split_kernel: KernelInfo, changes: dict[str, Any], severity: str, says: str) -> None:

    found = messages(audit_example(split_kernel, **changes), severity)
    assert any(re.search(says, message) for message in found), found


def test_small_and_large_buffers(split_kernel: KernelInfo) -> None:
    result = audit_example(split_kernel, A=np.zeros((10, 512), np.uint8))
    assert any("array ptr_A: got 5120 bytes, need 153600 bytes" in message for message in messages(result, "error"))
    huge = Buffer("ptr_A", 4096, 1 << 32, True, None, (1 << 16, 1 << 16))
    long = Buffer("ptr_B", 4096, 1 << 31, True, None, (1 << 31,))
    found = audit(split_kernel, values={"ptr_A": 4096}, buffers={"ptr_A": huge, "ptr_B": long})
    assert [m for m in messages(found, "warning") if "wrap" in m] == [
        "ptr_A has 4294967296 bytes: 32-bit byte offsets wrap at 2^32",
        "ptr_B has 2147483648 elements: signed 32-bit indices wrap at 2^31",
    ]


def test_machine_code_decides_what_is_dead_and_what_is_short(split_kernel: KernelInfo) -> None:
    live = LiveBytes(loaded=((0, 8), (0x60, 0x64), (380, 384)), used=((0, 8),))
    result = audit(split_kernel, values=example(stride_D0=5), loaded=live)
    assert result.states["ptr_D"] == "used"
    assert result.states["stride_D0"] == "loaded, unused"
    assert result.states["M"] == "never loaded"
    assert any("the code loads bytes up to 384, the caller passes 372" in m for m in messages(result, "error"))
    shorter = audit(split_kernel, loaded=LiveBytes(((0, 372),), ((0, 372),)))
    assert messages(shorter, "error") == []
    assert LiveBytes((), ()).end == 0


def grown(kernel: KernelInfo, count: int) -> KernelInfo:
    arguments = tuple(ArgumentInfo(f"a{i}", 16 * i, 4, "by_value", value_type="u32") for i in range(count))
    return dataclasses.replace(kernel, name="unknown", arguments=arguments, kernarg_size=16 * count)


def test_a_segment_that_grew(split_kernel: KernelInfo) -> None:
    """208 bytes passed to a kernel that now takes 256: refused, with the first argument that is not covered."""
    old = schema_from_metadata(grown(split_kernel, 13))
    result = audit(grown(split_kernel, 16), schema=old)
    assert not result.ok
    assert any(
        "passes 208 bytes of 256, 48 short; the first argument not covered is 13, a13 at 208, 4 bytes" in message
        for message in messages(result, "error")
    )
    assert sum("declared nothing" in message for message in messages(result, "error")) == 3


def test_eight_arguments_for_nine(split_kernel: KernelInfo) -> None:
    schema = schema_from_metadata(grown(split_kernel, 9))
    with pytest.raises(ArgumentError, match="argument 8 of unknown is missing: a8: need a u32 for offset 128, 4 bytes"):
        schema.pack({f"a{i}": i for i in range(8)})


def test_an_explicit_schema_may_override_incomplete_metadata(two_kernels: CodeObject) -> None:
    """Hand-written metadata can lack arguments; the difference is printed, the schema is used."""
    kernel = two_kernels.kernels["add_one"]
    schema = KernargSchema([Field("x", 0, "pointer"), Field("n", 8, "u64")], 16)
    result = audit(kernel, schema=schema, values={"x": 64, "n": 1})
    assert messages(result, "error") == ["n at 8: declared number of 8 bytes, metadata nothing"]
    assert messages(result, "note") == ["the caller passes 16 bytes, the kernel's segment is 8"]


def test_overlaps_and_descriptor(two_kernels: CodeObject) -> None:
    kernel = two_kernels.kernels["scale"]
    result = audit(dataclasses.replace(kernel, kernarg_size=96))
    found = {finding.check: finding for finding in result.findings}
    assert "the descriptor says 280 bytes of arguments, the metadata 96" in found["descriptor"].message
    assert "3 dwords from dword 2 come preloaded" in found["preload"].message
    overlapping = KernargSchema([Field("a", 0, "u64"), Field("b", 4, "u32")], 8)
    assert any(
        "argument b (u32 at offset 4) begins inside argument a (u64 at offset 0), which ends at 8" in message
        for message in messages(audit(kernel, schema=overlapping), "error")
    )


def test_a_null_pointer_of_unknown_use_is_noted(two_kernels: CodeObject) -> None:
    """Compiled kernels have trailing pointers that may be null, such as a scratch buffer's."""
    result = audit(two_kernels.kernels["add_one"], values={"x": None})
    assert "x is null" in messages(result, "note")
    assert result.ok


def test_text_rich_and_json(split_kernel: KernelInfo) -> None:
    result = audit_example(split_kernel, A=0, stride_D0=1)
    assert str(result).splitlines()[1].startswith("  error: domain:") or "error: pointer:" in str(result)
    assert "nothing found" in str(Audit("k", ()))
    out = io.StringIO()
    Console(file=out, width=160).print(result)
    assert "ptr_A is null" in out.getvalue()
    parsed = json.loads(json.dumps(result.to_json()))
    assert parsed["ok"] is False
    assert parsed["arguments"]["M"] == "used"


def test_hidden_arguments_take_the_launchs_values(two_kernels: CodeObject) -> None:
    schema = schema_from_metadata(two_kernels.kernels["scale"])
    hidden = hidden_values(schema, (3, 2, 1), (64, 2, 1), 512)
    packed = schema.pack({"out": 1, "in": 2, "n": 3, "factor": 4, **hidden})
    assert np.frombuffer(packed, "<u4", 3, 24).tolist() == [3, 2, 1]
    assert np.frombuffer(packed, "<u2", 6, 36).tolist() == [64, 2, 1, 0, 0, 0]
    assert np.frombuffer(packed, "<u2", 1, 88).tolist() == [3]
    assert "hidden_dynamic_lds_size" not in hidden


def test_a_partial_hidden_block_at_an_odd_offset(two_kernels: CodeObject) -> None:
    """Assembly kernels declare a few hidden arguments from byte 201 on; each goes where it says, the rest is zero."""
    kinds = [("hidden_global_offset_x", 201, 8), ("hidden_block_count_x", 209, 4), ("hidden_group_size_x", 213, 2)]
    arguments = tuple(ArgumentInfo("", offset, size, kind) for kind, offset, size in kinds)
    schema = schema_from_metadata(
        dataclasses.replace(two_kernels.kernels["scale"], arguments=arguments, kernarg_size=216)
    )
    packed = schema.pack(hidden_values(schema, (7, 1, 1), (256, 1, 1)))
    assert packed == bytes(209) + (7).to_bytes(4, "little") + (256).to_bytes(2, "little") + b"\0"
