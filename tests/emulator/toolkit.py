"""Kernels from a few lines of assembly, ready to launch on the emulator without a linker."""

from __future__ import annotations

import io
from typing import Any

from elftools.elf.elffile import ELFFile
from emulator.assembler import assemble_object

from asmlaunch.codeobject import CodeObject, KernelInfo
from asmlaunch.codeobject.descriptor import SIZE, parse_descriptor
from asmlaunch.codeobject.metadata import find_note, parse_metadata
from asmlaunch.codeobject.target import TargetId
from asmlaunch.devices.select import open_device
from asmlaunch.module import Module

#: Where the code is taken to lie.
ADDRESS = 0x1000

_KINDS = {
    "ptr": ("global_buffer", 8, "\n        .address_space: global"),
    "u32": ("by_value", 4, ""),
    "f32": ("by_value", 4, "\n        .value_type: f32"),
    "u64": ("by_value", 8, ""),
}


def source(
    body: str, arguments: str, *, lds: int = 0, vgprs: int = 32, accum: int | None = None, sgprs: int = 32,
    denormals: int = 3, name: str = "kernel", entry: str = "kernarg_segment_ptr",
) -> str:  # fmt: skip
    """A whole source file around the instructions ``body``; ``s_endpgm`` is added.

    Args:
        arguments: such as "x:ptr count:u32"; a pointer is the default.
        accum: the first AccVGPR; None: there are none.
        entry: what the user SGPRs hold at entry, two SGPRs each; their order is the architecture's.
    """
    user = entry.split()
    asked = "\n        ".join(f".amdhsa_user_sgpr_{state} 1" for state in user)
    offset, lines = 0, []
    for argument in arguments.split():
        label, _, kind = argument.partition(":")
        value_kind, size, more = _KINDS[kind or "ptr"]
        offset = -(-offset // size) * size
        lines.append(
            f"      - .name: {label}\n        .offset: {offset}\n        .size: {size}\n"
            f"        .value_kind: {value_kind}{more}"
        )
        offset += size
    listed = "\n".join(["    .args:", *lines]) if lines else ""
    return f"""
    .text
    .p2align 8
    .globl {name}
    .type {name},@function
{name}:
{body}
    s_endpgm
.Lend:
    .size {name}, .Lend-{name}
    .rodata
    .p2align 6
    .amdhsa_kernel {name}
        .amdhsa_next_free_vgpr {vgprs}
        .amdhsa_next_free_sgpr {sgprs}
        .amdhsa_accum_offset {min(accum or vgprs, vgprs)}
        .amdhsa_user_sgpr_count {2 * len(user)}
        {asked}
        .amdhsa_system_sgpr_workgroup_id_x 1
        .amdhsa_group_segment_fixed_size {lds}
        .amdhsa_float_denorm_mode_32 {denormals}
        .amdhsa_ieee_mode 0
        .amdhsa_dx10_clamp 0
    .end_amdhsa_kernel
    .amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {offset}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: {sgprs}
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
{listed}
...
    .end_amdgpu_metadata
"""


def build(body: str, arguments: str, *, processor: str = "gfx950", **options: Any) -> Any:
    """A kernel (``asmlaunch.Kernel``) on the emulator; options as of :func:`source`."""
    image = assemble_object(source(body, arguments, **options), processor)
    elf = ELFFile(io.BytesIO(image))
    sections = {section.name: bytes(section.data()) for section in elf.iter_sections()}
    payload = find_note(sections[".note"])
    assert payload is not None
    entries, _ = parse_metadata(payload)
    target = TargetId(processor)
    text = sections[".text"]
    kernels = {
        entry.name: KernelInfo(
            **vars(entry),
            descriptor=parse_descriptor(sections[".rodata"][:SIZE], processor),
            target=target,
            code_address=ADDRESS,
            code=text,
            text=text,
            text_address=ADDRESS,
        )
        for entry in entries
    }
    return Module(CodeObject(image, None, target, 5, kernels, ()), open_device("emulator")).kernel
