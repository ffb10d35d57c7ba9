"""The kernel descriptor against llvm-objdump's decoding of the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.codeobject.descriptor import KernelDescriptor, generation, parse_descriptor
from asmlaunch.errors import CodeObjectError

#: Assembler directive (without ".amdhsa_") -> descriptor field, where the names differ.
DIRECTIVES = {
    "dx10_clamp": "enable_dx10_clamp",
    "ieee_mode": "enable_ieee_mode",
    "fp16_overflow": "fp16_ovfl",
    "system_sgpr_workgroup_id_x": "enable_sgpr_workgroup_id_x",
    "system_sgpr_workgroup_id_y": "enable_sgpr_workgroup_id_y",
    "system_sgpr_workgroup_id_z": "enable_sgpr_workgroup_id_z",
    "system_sgpr_workgroup_info": "enable_sgpr_workgroup_info",
    "system_vgpr_workitem_id": "enable_vgpr_workitem_id",
    "exception_fp_ieee_invalid_op": "enable_exception_ieee_754_fp_invalid_operation",
    "exception_fp_denorm_src": "enable_exception_fp_denormal_source",
    "exception_fp_ieee_div_zero": "enable_exception_ieee_754_fp_division_by_zero",
    "exception_fp_ieee_overflow": "enable_exception_ieee_754_fp_overflow",
    "exception_fp_ieee_underflow": "enable_exception_ieee_754_fp_underflow",
    "exception_fp_ieee_inexact": "enable_exception_ieee_754_fp_inexact",
    "exception_int_div_zero": "enable_exception_int_divide_by_zero",
    "system_sgpr_private_segment_wavefront_offset": "enable_private_segment",
    "user_sgpr_private_segment_buffer": "enable_sgpr_private_segment_buffer",
    "user_sgpr_dispatch_ptr": "enable_sgpr_dispatch_ptr",
    "user_sgpr_queue_ptr": "enable_sgpr_queue_ptr",
    "user_sgpr_kernarg_segment_ptr": "enable_sgpr_kernarg_segment_ptr",
    "user_sgpr_dispatch_id": "enable_sgpr_dispatch_id",
    "user_sgpr_flat_scratch_init": "enable_sgpr_flat_scratch_init",
    "user_sgpr_private_segment_size": "enable_sgpr_private_segment_size",
    "user_sgpr_kernarg_preload_length": "kernarg_preload_spec_length",
    "user_sgpr_kernarg_preload_offset": "kernarg_preload_spec_offset",
    "workgroup_processor_mode": "wgp_mode",
    "memory_ordered": "mem_ordered",
    "forward_progress": "fwd_progress",
    "round_robin_scheduling": "enable_wg_rr_en",
    "wavefront_size32": "enable_wavefront_size32",
}
#: Directives from which the assembler computes a field, so that they are not one themselves.
COMPUTED = {"reserve_vcc", "reserve_xnack_mask", "reserve_flat_scratch", "next_free_sgpr", "next_free_vgpr"}


def llvm_descriptors(path: Path) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    for line in path.read_text().splitlines():
        word, _, value = line.strip().partition(" ")
        if word == ".amdhsa_kernel":
            found.append({})
        elif value:
            name = word.removeprefix(".amdhsa_")
            found[-1][DIRECTIVES.get(name, name)] = int(value)
    return found


def assert_agrees(descriptor: KernelDescriptor, expected: dict[str, int]) -> None:
    for name, value in expected.items():
        if name not in COMPUTED:
            assert getattr(descriptor, name) == value, name


@pytest.mark.parametrize(
    "name",
    [f"two_kernels_v{version}" for version in (4, 5, 6)]
    + [
        f"plain_{name}"
        for name in ("gfx900", "gfx906", "gfx1030", "gfx1100", "gfx1201", "gfx11-generic", "gfx12-generic")
    ],
)
def test_assembled_objects(objects: Path, name: str) -> None:
    kernels = list(codeobject.read(objects / f"{name}.co").kernels.values())
    expected = llvm_descriptors(objects / f"{name}.descriptors.txt")
    assert len(kernels) == len(expected)
    for kernel, fields in zip(kernels, expected, strict=True):
        assert_agrees(kernel.descriptor, fields)


@pytest.mark.parametrize(
    "path",
    [
        "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256",
        "gfx942/pa/pa_bf16_pertokenFp8_gqa16_2tg_4w",
        "gfx942/flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32",
        "gfx950/fmha_v3_fwd/fwd_hd128_bf16",
    ],
)
def test_shipped_objects(objects: Path, aiter_kernels: Path, path: str) -> None:
    (kernel,) = codeobject.read(aiter_kernels / f"{path}.co").kernels.values()
    (expected,) = llvm_descriptors(objects / f"aiter_{Path(path).name}.descriptors.txt")
    assert_agrees(kernel.descriptor, expected)


def test_preload_is_in_the_descriptor(two_kernels: bytes) -> None:
    descriptor = codeobject.read(two_kernels).kernels["scale"].descriptor
    assert (descriptor.kernarg_preload_spec_length, descriptor.kernarg_preload_spec_offset) == (3, 2)
    # kernarg pointer, dispatch pointer, three preloaded dwords
    assert descriptor.user_sgpr_count == 7


def test_fields_exist_by_generation() -> None:
    assert parse_descriptor(bytes(64), "gfx950").accum_offset == 4
    assert parse_descriptor(bytes(64), "gfx1100").shared_vgpr_count == 0
    with pytest.raises(AttributeError, match="no field accum_offset"):
        _ = parse_descriptor(bytes(64), "gfx1100").accum_offset
    assert [
        generation(name) for name in ("gfx803", "gfx908", "gfx90a", "gfx9-4-generic", "gfx1030", "gfx12-generic")
    ] == [
        "gfx6",
        "gfx6",
        "gfx90a",
        "gfx90a",
        "gfx10",
        "gfx12",
    ]


def test_too_few_bytes() -> None:
    with pytest.raises(CodeObjectError, match="63 bytes, need 64 bytes"):
        parse_descriptor(bytes(63), "gfx950")


def test_value_semantics() -> None:
    first, second = parse_descriptor(bytes(64), "gfx950"), parse_descriptor(bytes(64), "gfx950")
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == "KernelDescriptor(accum_offset=4)"
