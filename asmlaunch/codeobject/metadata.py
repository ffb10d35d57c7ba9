"""The AMDGPU metadata note: msgpack, one map a kernel.

Source: LLVM's "User Guide for AMDGPU Backend", section "Code Object V3 and above Metadata".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgpack

from asmlaunch.errors import CodeObjectError

NT_AMDGPU_METADATA = 32
NT_AMD_HSA_METADATA_V2 = 10


@dataclass(frozen=True)
class ArgumentInfo:
    """One argument of a kernel, as its metadata states it. ``offset`` and ``size`` are in bytes."""

    name: str
    offset: int
    size: int
    value_kind: str
    address_space: str | None = None
    access: str | None = None
    type_name: str | None = None
    value_type: str | None = None
    is_const: bool = False
    is_restrict: bool = False
    is_volatile: bool = False

    @property
    def is_pointer(self) -> bool:
        """True for a buffer, an LDS size or an object handle; False for a by-value argument."""
        return not self.hidden and self.value_kind != "by_value"

    @property
    def hidden(self) -> bool:
        """True for an argument that the launcher fills in, not the caller."""
        return self.value_kind.startswith("hidden_")


@dataclass(frozen=True)
class KernelMetadata:
    """One entry of ``amdhsa.kernels``. Sizes are bytes, counts are registers."""

    name: str
    symbol: str
    arguments: tuple[ArgumentInfo, ...]
    kernarg_size: int
    kernarg_align: int
    lds_size: int
    scratch_size: int
    vgpr_count: int
    agpr_count: int
    sgpr_count: int
    max_workgroup_size: int
    required_workgroup_size: tuple[int, int, int] | None
    wavefront_size: int


def find_note(notes: bytes) -> bytes | None:
    """The metadata note's payload in the bytes of a PT_NOTE segment, or None.

    CodeObjectError for a code object v2, whose metadata is YAML.
    """
    position = 0
    while position + 12 <= len(notes):
        name_size, payload_size, kind = (
            int.from_bytes(notes[position + i : position + i + 4], "little") for i in (0, 4, 8)
        )
        name_at = position + 12
        payload_at = name_at + (name_size + 3) // 4 * 4
        name = notes[name_at : name_at + name_size].rstrip(b"\0")
        payload = notes[payload_at : payload_at + payload_size]
        if len(payload) < payload_size:
            raise CodeObjectError(
                "metadata note is truncated", got=f"{len(payload)} bytes", need=f"{payload_size} bytes"
            )
        if (name, kind) == (b"AMDGPU", NT_AMDGPU_METADATA):
            return payload
        if (name, kind) == (b"AMD", NT_AMD_HSA_METADATA_V2):
            raise CodeObjectError(
                "code object version", got=2, need="3 to 6", hint="rebuild with -mcode-object-version=5"
            )
        position = payload_at + (payload_size + 3) // 4 * 4
    return None


def parse_metadata(payload: bytes) -> tuple[tuple[KernelMetadata, ...], str | None]:
    """Decode the note: the kernels, and ``amdhsa.target`` where it is given."""
    try:
        root = msgpack.unpackb(payload, strict_map_key=False)
    except Exception as error:  # msgpack raises ValueError, its own classes and UnicodeDecodeError
        raise CodeObjectError(f"metadata note is not msgpack ({error})") from error
    root = _expect(root, dict, "metadata note")
    kernels = _expect(root.get("amdhsa.kernels", []), list, "amdhsa.kernels")
    target = root.get("amdhsa.target")
    return tuple(_kernel(_expect(entry, dict, "amdhsa.kernels entry")) for entry in kernels), (
        target if isinstance(target, str) else None
    )


def _expect(value: Any, kind: type, what: str) -> Any:
    # bool is an int in Python but not in the metadata.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise CodeObjectError(f"metadata: {what}", got=f"{type(value).__name__} {value!r:.60}", need=kind.__name__)
    return value


def _number(entry: dict[str, Any], key: str, default: int | None = None) -> int:
    value = _expect(entry.get(key, default), int, key)
    if not 0 <= value < 1 << 32:
        raise CodeObjectError(f"metadata: {key}", got=value, need="a number from 0 to 2^32 - 1")
    return value


def _kernel(entry: dict[str, Any]) -> KernelMetadata:
    name = _expect(entry.get(".name"), str, ".name")
    required = entry.get(".reqd_workgroup_size")
    if required is not None:
        required = tuple(_expect(required, list, ".reqd_workgroup_size"))
        if len(required) != 3 or not all(isinstance(size, int) for size in required):
            raise CodeObjectError("metadata: .reqd_workgroup_size", got=required, need="three numbers")
    arguments: Iterable[Any] = _expect(entry.get(".args", []), list, ".args")
    return KernelMetadata(
        name=name,
        symbol=_expect(entry.get(".symbol"), str, ".symbol"),
        arguments=tuple(_argument(_expect(a, dict, ".args entry"), i) for i, a in enumerate(arguments)),
        kernarg_size=_number(entry, ".kernarg_segment_size"),
        kernarg_align=_number(entry, ".kernarg_segment_align", 1),
        lds_size=_number(entry, ".group_segment_fixed_size", 0),
        scratch_size=_number(entry, ".private_segment_fixed_size", 0),
        vgpr_count=_number(entry, ".vgpr_count", 0),
        agpr_count=_number(entry, ".agpr_count", 0),
        sgpr_count=_number(entry, ".sgpr_count", 0),
        max_workgroup_size=_number(entry, ".max_flat_workgroup_size", 1024),
        required_workgroup_size=required,
        wavefront_size=_number(entry, ".wavefront_size", 64),
    )


def _argument(entry: dict[str, Any], index: int) -> ArgumentInfo:
    def text(key: str) -> str | None:
        value = entry.get(key)
        return None if value is None else _expect(value, str, key)

    return ArgumentInfo(
        name=text(".name") or f"arg{index}",
        offset=_number(entry, ".offset"),
        size=_number(entry, ".size"),
        value_kind=_expect(entry.get(".value_kind"), str, ".value_kind"),
        address_space=text(".address_space"),
        access=text(".actual_access") or text(".access"),
        type_name=text(".type_name"),
        value_type=text(".value_type"),
        is_const=bool(entry.get(".is_const")),
        is_restrict=bool(entry.get(".is_restrict")),
        is_volatile=bool(entry.get(".is_volatile")),
    )
