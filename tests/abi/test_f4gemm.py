"""The f4gemm family: layout, launch rule and domain."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asmlaunch import codeobject
from asmlaunch.abi import bind
from asmlaunch.abi.families import Family, family_of
from asmlaunch.codeobject import CodeObject, KernelInfo
from asmlaunch.errors import ArgumentError, AsmlaunchError, DomainError

#: The worked example: 300 x 2048 x 1024 with made-up addresses.
EXAMPLE = {
    "D": 0x7F0000001000,
    "A": 0x7F0000002000,
    "B": 0x7F0000003000,
    "ScaleA": 0x7F0000004000,
    "ScaleB": 0x7F0000005000,
    "C": 0,
    "alpha": 1,
    "beta": 0,
    "M": 300,
    "N": 2048,
    "K": 1024,
    "stride_C0": 2048,
    "stride_A0": 1024,
    "stride_B0": 1024,
    "stride_ScaleA0": 32,
    "stride_ScaleB0": 32,
}


def family(kernel: KernelInfo) -> Family:
    found = family_of(kernel)
    assert found is not None
    return found


def arrays(m: int, n: int, k: int, d_rows: int | None = None) -> dict[str, Any]:
    """Arrays of a problem; scales padded to 32 rows and 8 columns."""
    columns = -(-k // 32 // 8) * 8
    return {
        "D": np.zeros((d_rows or m, n), np.uint16),
        "A": np.zeros((m, k // 2), np.uint8),
        "B": np.zeros((n, k // 2), np.uint8),
        "ScaleA": np.zeros((-(-m // 32) * 32, columns), np.uint8),
        "ScaleB": np.zeros((-(-n // 32) * 32, columns), np.uint8),
    }


def check(kernel: KernelInfo, args: dict[str, Any]) -> None:
    chosen = family(kernel)
    values, buffers = bind(chosen.schema(kernel), args)
    chosen.check(kernel, values, buffers)


def launch(kernel: KernelInfo, args: dict[str, Any]) -> Any:
    chosen = family(kernel)
    values, buffers = bind(chosen.schema(kernel), args)
    return chosen.launch(kernel, values, buffers)


def test_golden_packing(split_kernel: KernelInfo) -> None:
    packed = family(split_kernel).schema(split_kernel).pack(EXAMPLE)
    assert len(packed) == 372
    assert hashlib.sha256(packed).hexdigest() == "246badf0f5c25feeffe73460547eb291df0b819f5c89881ef330caccf3215e34"
    by_hand = {
        0x00: "<Q",
        0x20: "<Q",
        0x30: "<Q",
        0x110: "<Q",
        0x120: "<Q",
        0x40: "<f",
        0x80: "<I",
        0xE0: "<I",
        0x150: "<I",
    }
    found = [struct.unpack_from(code, packed, at)[0] for at, code in by_hand.items()]
    names = ("D", "A", "B", "ScaleA", "ScaleB", "alpha", "stride_C0", "M", "stride_ScaleB0")
    assert found == [EXAMPLE[name] for name in names]


def test_every_f4gemm_object_belongs_and_agrees_with_its_metadata(f4gemm_folder: Path) -> None:
    paths = sorted(f4gemm_folder.glob("*.co"))
    assert len(paths) == 35
    for path in paths:
        (kernel,) = codeobject.read(path).kernels.values()
        schema = family(kernel).schema(kernel)
        described = {a.offset: a for a in kernel.arguments if a.name != "pad"}
        for field in schema.fields:
            if field.offset in described:
                argument = described.pop(field.offset)
                assert (field.size, field.is_pointer) == (argument.size, argument.is_pointer)
                assert argument.name in (field.metadata_names or (field.name,))
            else:
                assert (field.name, "noBpreShuffle" in kernel.name) == ("log2_k_split", True)
        assert not described


def test_liveness_by_kernel(split_kernel: KernelInfo, plain_kernel: KernelInfo, small_kernel: KernelInfo) -> None:
    def live(kernel: KernelInfo) -> set[str]:
        return {field.name for field in family(kernel).schema(kernel).fields if field.live}

    always = {f"ptr_{name}" for name in ("D", "A", "B", "ScaleA", "ScaleB")} | {"M", "N", "K", "stride_C0", "stride_A0"}
    always |= {"stride_B0", "stride_ScaleA0", "stride_ScaleB0"}
    assert live(small_kernel) == always
    assert live(plain_kernel) == always | {"alpha"}
    assert live(split_kernel) == always | {"alpha", "log2_k_split"}


def test_arguments_follow_from_the_arrays(split_kernel: KernelInfo) -> None:
    values, _ = bind(family(split_kernel).schema(split_kernel), arrays(300, 2048, 1024))
    shared = set(EXAMPLE) - {"D", "A", "B", "ScaleA", "ScaleB", "C"}
    assert {name: values[name] for name in shared} == {name: EXAMPLE[name] for name in shared}
    assert values["log2_k_split"] == values["ptr_C"] == 0


@pytest.mark.parametrize(
    ("k", "log2", "z"), [(512, 0, 1), (4096, 2, 4), (7168, 3, 7), (7168, 4, 14), (1024, 1, 2), (256, 1, 1)]
)
def test_split_k_grid_and_zeroing(split_kernel: KernelInfo, k: int, log2: int, z: int) -> None:
    rule = launch(split_kernel, arrays(300, 2048, k) | {"log2_k_split": log2})
    assert rule.grid == (8, 2, z)
    assert rule.block == (256, 1, 1)
    assert rule.dynamic_lds == 0
    assert rule.zero == (("ptr_D",) if log2 else ())


def test_grid_of_the_published_example(plain_kernel: KernelInfo, small_kernel: KernelInfo) -> None:
    assert launch(plain_kernel, arrays(300, 2048, 1024)).grid == (8, 2, 1)
    assert launch(small_kernel, arrays(33, 160, 256)).grid == (2, 2, 1)


def test_right_problems_pass(split_kernel: KernelInfo, plain_kernel: KernelInfo, small_kernel: KernelInfo) -> None:
    check(split_kernel, arrays(300, 2048, 1024))
    check(split_kernel, arrays(300, 2048, 1024) | {"log2_k_split": 2, "alpha": 0.5})
    check(plain_kernel, arrays(300, 2048, 1024, d_rows=512) | {"alpha": 0.5})
    check(small_kernel, arrays(33, 160, 384))


@pytest.mark.parametrize(
    ("kernel_name", "args", "says"),
    [
        ("split_kernel", arrays(300, 2080, 512), "N for .*got 2080, need a multiple of the tile's columns"),
        ("small_kernel", arrays(32, 144, 512), "N for .*got 144, need a multiple of 32"),
        ("small_kernel", arrays(32, 128, 512) | {"M": 0}, "M for .*got 0, need at least 1.*loops for ever"),
        ("small_kernel", arrays(32, 128, 512) | {"M": 0xFFFFFFFF}, "M for .*less than 2"),
        ("small_kernel", arrays(32, 128, 512) | {"K": 520}, "K for .*got 520, need a multiple of 32"),
        ("small_kernel", arrays(32, 128, 512) | {"alpha": 0.37}, "alpha for .*got 0.37.*does not use it"),
        ("small_kernel", arrays(32, 128, 512) | {"beta": 1.0}, "beta for .*no effect"),
        ("small_kernel", arrays(32, 128, 512) | {"C": 4096}, "ptr_C for .*no effect"),
        ("small_kernel", arrays(32, 128, 512) | {"log2_k_split": 1, "D": 1, "stride_C0": 128}, "must hold zeros"),
        ("small_kernel", arrays(32, 128, 512) | {"log2_k_split": 1}, "only BpreShuffle_256x256 and"),
        ("split_kernel", arrays(32, 256, 512) | {"log2_k_split": 10}, "K >> log2_k_split above 0"),
        ("small_kernel", arrays(32, 128, 512) | {"stride_C0": 64}, "stride_C0 for .*got 64, need at least N"),
        ("small_kernel", arrays(32, 128, 512) | {"stride_A0": 64}, "stride_A0 for .*at least K"),
        ("small_kernel", arrays(32, 128, 512) | {"stride_B0": 64}, "stride_B0 for .*at least K"),
        ("small_kernel", arrays(32, 128, 512) | {"stride_ScaleA0": 12}, "K/32 rounded up to 8.*pad_scales"),
        ("small_kernel", arrays(32, 128, 512) | {"stride_ScaleB0": 12}, "K/32 rounded up to 8.*pad_scales"),
        ("split_kernel", EXAMPLE | {"M": 1 << 20, "stride_C0": 1 << 12}, "below 2.32"),
        (
            "small_kernel",
            arrays(32, 128, 512) | {"D": np.zeros((32, 128), np.float32), "stride_C0": 128},
            "dtype float32",
        ),
        ("small_kernel", arrays(33, 128, 512) | {"D": np.zeros((32, 128), np.uint16)}, "8192 bytes, need 8448 bytes"),
        ("plain_kernel", arrays(300, 2048, 512), "array ptr_D: got 1228800 bytes, need 2097152 bytes"),
        ("small_kernel", arrays(33, 128, 512) | {"ScaleA": np.zeros((33, 16), np.uint8)}, "got 528 bytes, need 1024"),
    ],
)
def test_problems_outside_the_domain(request: Any, kernel_name: str, args: dict[str, Any], says: str) -> None:
    kernel = request.getfixturevalue(kernel_name)
    with pytest.raises(AsmlaunchError, match=says) as caught:
        check(kernel, args)
    assert isinstance(caught.value, (DomainError, ArgumentError))


def test_scale_columns_for_k_that_is_no_multiple_of_256(small_kernel: KernelInfo) -> None:
    for k, padded in ((1664, 56), (1824, 64), (1856, 64)):
        check(small_kernel, arrays(32, 128, k) | {"stride_ScaleA0": padded, "stride_ScaleB0": padded})
        with pytest.raises(DomainError, match="stride_ScaleA0"):
            check(small_kernel, arrays(32, 128, k) | {"stride_ScaleA0": -(-k // 32)})


def test_kernels_of_no_family(two_kernels: CodeObject) -> None:
    assert family_of(two_kernels.kernels["scale"]) is None


def test_a_rule_that_needs_what_is_not_known_says_so(small_kernel: KernelInfo) -> None:
    problem = family(small_kernel)._problem(small_kernel, {"M": 1})
    assert problem.get("N") is None
    with pytest.raises(ArgumentError, match=r"N is needed for .* and not known"):
        _ = problem.N
