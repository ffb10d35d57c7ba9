"""Two kernels compared."""

from __future__ import annotations

import dataclasses
import io
import json

from rich.console import Console

from asmlaunch.abi import diff_kernels
from asmlaunch.codeobject import CodeObject, KernelInfo


def test_the_same_kernel_twice(split_kernel: KernelInfo) -> None:
    result = diff_kernels(split_kernel, split_kernel)
    assert not result
    assert str(result).endswith("same argument layout")


def test_an_argument_that_moved_comes_first(two_kernels: CodeObject) -> None:
    before = two_kernels.kernels["scale"]
    moved = [dataclasses.replace(a, offset=a.offset + 8) if a.name == "factor" else a for a in before.arguments]
    moved = [argument for argument in moved if argument.name != "n"]
    after = dataclasses.replace(
        before, arguments=tuple(moved), vgpr_count=64, code=before.code + b"\0\0\0\0", required_workgroup_size=None
    )
    result = diff_kernels(before, after)
    assert [str(change) for change in result.changes] == [
        "argument n: raw32 at 16 -> absent",
        "argument factor: raw32 at 20 -> raw32 at 28",
        "resource vgpr_count: 40 -> 64",
        "resource required_workgroup_size: (64, 2, 1) -> None",
        "code bytes: 24 bytes -> 28 bytes, first difference at 24",
    ]
    assert result.layout_changed
    assert "argument layout changed" in str(result)


def test_split_k_against_plain(split_kernel: KernelInfo, plain_kernel: KernelInfo) -> None:
    result = diff_kernels(plain_kernel, split_kernel)
    assert [(change.name, change.a) for change in result.changes if change.part == "argument"] == [
        ("log2_k_split", "absent")
    ]
    assert ("kernarg_size", "368", "384") in [(c.name, c.a, c.b) for c in result.changes]
    assert any(change.part == "code" for change in result.changes)


def test_other_generations_and_output(split_kernel: KernelInfo, two_kernels: CodeObject) -> None:
    result = diff_kernels(split_kernel, dataclasses.replace(two_kernels.kernels["scale"], target=two_kernels.target))
    out = io.StringIO()
    Console(file=out, width=160).print(result)
    assert "resource" in out.getvalue()
    assert json.loads(json.dumps(result.to_json()))["layout_changed"] is True
    other = dataclasses.replace(split_kernel, target=dataclasses.replace(split_kernel.target, processor="gfx942"))
    assert [str(change) for change in diff_kernels(split_kernel, other).changes] == ["target id: gfx950 -> gfx942"]
