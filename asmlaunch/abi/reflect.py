"""A schema from an object's own metadata, for any kernel."""

from __future__ import annotations

import re
from collections import Counter

from asmlaunch.abi.schema import Field, KernargSchema
from asmlaunch.abi.types import TYPES
from asmlaunch.codeobject.metadata import ArgumentInfo
from asmlaunch.codeobject.reader import KernelInfo

_PADDING = re.compile(r"_*pad(ding)?_?\d*", re.IGNORECASE)


def schema_from_metadata(kernel: KernelInfo) -> KernargSchema:
    """The schema that the kernel's metadata describes: every argument at its own offset, none recomputed.

    A name that occurs more than once is followed by ``@offset``. By-value arguments named ``pad`` are padding; hidden
    arguments are named by their kind; both default to 0. An argument whose type the metadata does not state has a
    ``rawN`` type, which takes integers and (32 and 64 bits) floats.
    """
    used = Counter(_name(argument) for argument in kernel.arguments)
    fields = [_field(argument, used[_name(argument)] > 1) for argument in kernel.arguments]
    size = max([kernel.kernarg_size, *(field.end for field in fields)])
    return KernargSchema(fields, size, kernel.name)


def _name(argument: ArgumentInfo) -> str:
    return argument.value_kind if argument.hidden else argument.name


def _field(argument: ArgumentInfo, repeated: bool) -> Field:
    name = _name(argument)
    role = "hidden" if argument.hidden else ""
    if argument.value_kind == "by_value" and _PADDING.fullmatch(name):
        role = "padding"
    return Field(
        name=f"{name}@{argument.offset:#x}" if repeated or role == "padding" else name,
        offset=argument.offset,
        type=_type(argument),
        size=argument.size,
        role=role,
        default=0 if role else None,
        address_space=argument.address_space,
        access=argument.access,
    )


def _type(argument: ArgumentInfo) -> str:
    if argument.is_pointer and argument.size == 8:
        return "pointer"
    stated = argument.value_type
    if stated in TYPES and TYPES[stated].size == argument.size:
        return stated
    return f"raw{8 * argument.size}" if argument.size in (1, 2, 4, 8) else "bytes"
