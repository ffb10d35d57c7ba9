"""The 64-byte kernel descriptor as a bit schema.

Source: LLVM's "User Guide for AMDGPU Backend", section "Kernel Descriptor" and its compute_pgm_rsrc1..3 tables. The
names are LLVM's, in lower case. Where generations give a bit different meanings, each has its own word below.
"""

from __future__ import annotations

import re
from typing import Any

from construct import BitsInteger, BitStruct, Bytes, ByteSwapped, Construct, Int32ul, Int64sl, Padding, Struct

from asmlaunch.errors import CodeObjectError

SIZE = 64

Bits = tuple[tuple[str, int], ...]  # (name, width) from the least significant bit; "_" is reserved

_RSRC1_LOW: Bits = (
    ("granulated_workitem_vgpr_count", 6),
    ("granulated_wavefront_sgpr_count", 4),
    ("priority", 2),
    ("float_round_mode_32", 2),
    ("float_round_mode_16_64", 2),
    ("float_denorm_mode_32", 2),
    ("float_denorm_mode_16_64", 2),
    ("priv", 1),
)
_CLAMP: Bits = (("enable_dx10_clamp", 1), ("debug_mode", 1), ("enable_ieee_mode", 1))
_NO_CLAMP: Bits = (("enable_wg_rr_en", 1), ("debug_mode", 1), ("disable_perf", 1))
_RSRC1_HIGH: Bits = (("bulky", 1), ("cdbg_user", 1), ("fp16_ovfl", 1), ("_", 2))
_NO_WGP: Bits = (("_", 3),)
_WGP: Bits = (("wgp_mode", 1), ("mem_ordered", 1), ("fwd_progress", 1))

_RSRC2: Bits = (
    ("enable_private_segment", 1),
    ("user_sgpr_count", 5),
    ("enable_trap_handler", 1),
    ("enable_sgpr_workgroup_id_x", 1),
    ("enable_sgpr_workgroup_id_y", 1),
    ("enable_sgpr_workgroup_id_z", 1),
    ("enable_sgpr_workgroup_info", 1),
    ("enable_vgpr_workitem_id", 2),
    ("enable_exception_address_watch", 1),
    ("enable_exception_memory", 1),
    ("granulated_lds_size", 9),
    ("enable_exception_ieee_754_fp_invalid_operation", 1),
    ("enable_exception_fp_denormal_source", 1),
    ("enable_exception_ieee_754_fp_division_by_zero", 1),
    ("enable_exception_ieee_754_fp_overflow", 1),
    ("enable_exception_ieee_754_fp_underflow", 1),
    ("enable_exception_ieee_754_fp_inexact", 1),
    ("enable_exception_int_divide_by_zero", 1),
    ("_", 1),
)

_RSRC3_NONE: Bits = (("_", 32),)
_RSRC3_GFX90A: Bits = (("granulated_accum_offset", 6), ("_", 10), ("tg_split", 1), ("_", 15))
_RSRC3_GFX10: Bits = (("shared_vgpr_count", 4), ("_", 28))
_RSRC3_GFX11: Bits = (
    ("shared_vgpr_count", 4),
    ("inst_pref_size", 6),
    ("trap_on_start", 1),
    ("trap_on_end", 1),
    ("_", 19),
    ("image_op", 1),
)
_RSRC3_GFX12: Bits = (("_", 4), ("inst_pref_size", 8), ("_", 1), ("glg_en", 1), ("_", 17), ("image_op", 1))

_PROPERTIES: Bits = (
    ("enable_sgpr_private_segment_buffer", 1),
    ("enable_sgpr_dispatch_ptr", 1),
    ("enable_sgpr_queue_ptr", 1),
    ("enable_sgpr_kernarg_segment_ptr", 1),
    ("enable_sgpr_dispatch_id", 1),
    ("enable_sgpr_flat_scratch_init", 1),
    ("enable_sgpr_private_segment_size", 1),
    ("_", 3),
    ("enable_wavefront_size32", 1),
    ("uses_dynamic_stack", 1),
    ("_", 4),
)
_PRELOAD: Bits = (("kernarg_preload_spec_length", 7), ("kernarg_preload_spec_offset", 9))


def _word(bits: Bits) -> Construct:
    """A little-endian word of bit fields, which construct lists from the most significant bit down."""
    fields = [Padding(width) if name == "_" else name / BitsInteger(width) for name, width in reversed(bits)]
    return ByteSwapped(BitStruct(*fields))


def _schema(rsrc1: Bits, rsrc3: Bits) -> Construct:
    return Struct(
        "group_segment_fixed_size" / Int32ul,
        "private_segment_fixed_size" / Int32ul,
        "kernarg_size" / Int32ul,
        Bytes(4),
        "kernel_code_entry_byte_offset" / Int64sl,
        Bytes(20),
        "compute_pgm_rsrc3" / _word(rsrc3),
        "compute_pgm_rsrc1" / _word(_RSRC1_LOW + rsrc1),
        "compute_pgm_rsrc2" / _word(_RSRC2),
        "kernel_code_properties" / _word(_PROPERTIES),
        "kernarg_preload" / _word(_PRELOAD),
        Bytes(4),
    )


_GFX9 = _CLAMP + _RSRC1_HIGH + _NO_WGP
_GFX10 = _CLAMP + _RSRC1_HIGH + _WGP
_GFX12 = _NO_CLAMP + _RSRC1_HIGH + _WGP

#: Generation -> schema of its descriptor.
SCHEMAS: dict[str, Construct] = {
    "gfx6": _schema(_GFX9, _RSRC3_NONE),
    "gfx90a": _schema(_GFX9, _RSRC3_GFX90A),
    "gfx10": _schema(_GFX10, _RSRC3_GFX10),
    "gfx11": _schema(_GFX10, _RSRC3_GFX11),
    "gfx12": _schema(_GFX12, _RSRC3_GFX12),
}


def generation(processor: str) -> str:
    """The key of ``SCHEMAS`` for a processor name."""
    if re.match(r"gfx(90a|94|95|9-4)", processor):
        return "gfx90a"
    major = re.match(r"gfx(1[0-2])", processor)
    return f"gfx{major[1]}" if major else "gfx6"


class KernelDescriptor:
    """A parsed descriptor; every field is an attribute, named as in LLVM's guide.

    ``accum_offset`` is decoded to registers (the field counts them in fours, less one); it and ``tg_split`` exist on
    gfx90a and later gfx9 only. A field the generation does not have raises AttributeError.
    """

    def __init__(self, fields: dict[str, int]) -> None:
        self.fields = dict(fields)
        if "granulated_accum_offset" in fields:
            self.fields["accum_offset"] = 4 * (fields["granulated_accum_offset"] + 1)

    def __getattr__(self, name: str) -> int:
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(f"kernel descriptor has no field {name}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelDescriptor) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(tuple(self.fields.items()))

    def __repr__(self) -> str:
        return f"KernelDescriptor({', '.join(f'{name}={value}' for name, value in self.fields.items() if value)})"


def parse_descriptor(data: bytes, processor: str) -> KernelDescriptor:
    """Parse 64 bytes as the descriptor of a kernel for ``processor``; CodeObjectError when there are fewer."""
    if len(data) < SIZE:
        raise CodeObjectError("kernel descriptor", got=f"{len(data)} bytes", need=f"{SIZE} bytes")
    parsed: dict[str, Any] = SCHEMAS[generation(processor)].parse(data)
    flat: dict[str, int] = {}
    for name, value in parsed.items():
        if isinstance(value, dict):
            flat |= {inner: number for inner, number in value.items() if not inner.startswith("_")}
        elif not name.startswith("_"):
            flat[name] = value
    return KernelDescriptor(flat)
