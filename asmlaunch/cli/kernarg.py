"""Reading an argument segment from a file, for the commands that show or compare one."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from asmlaunch import abi, codeobject
from asmlaunch.abi import Dump, KernargSchema, read_dumps, schema_from_metadata
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import ArgumentError, DumpError, KernelNotFoundError
from asmlaunch.kernels import choose_object, find_objects

FORMATS = (
    "a hexdump (AITER's table, hexdump -C, xxd, a C array or a Python literal; lines may be missing), a log with one "
    "in it, raw bytes, or JSON with argument values by name"
)


def kernel_of(object_file: Path, name: str | None) -> KernelInfo:
    """The kernel of that name of an object file, or its only one.

    A file that is not there is looked for by its name where the kernels are found (the amd-aiter wheel by default).

    Raises:
        KernelNotFoundError: no such kernel, or several and no name. CodeObjectError: not a code object.
    """
    if not object_file.exists() and len(object_file.parts) == 1:
        object_file = choose_object(find_objects("*.co"), str(object_file))
    kernels = codeobject.read(object_file).kernels
    if name is None and len(kernels) != 1:
        raise KernelNotFoundError(
            f"{object_file} holds {len(kernels)} kernels", need=f"--name, one of {', '.join(kernels)}"
        )
    return kernels[name or next(iter(kernels))]


def schema_of(object_file: Path | None, name: str | None) -> KernargSchema | None:
    """Schema of a kernel of an object file: its family's, else what its metadata describes; None without a file.

    Raises: what ``kernel_of`` raises.
    """
    if object_file is None:
        return None
    kernel = kernel_of(object_file, name)
    family = family_of(kernel)
    return family.schema(kernel) if family else schema_from_metadata(kernel)


def words(size: int) -> KernargSchema:
    """The schema of a segment that nothing is known of: words of 4 bytes, the last one perhaps shorter."""
    fields = [
        abi.Field(f"word {offset:#05x}", offset, "raw32" if offset + 4 <= size else "bytes", min(4, size - offset))
        for offset in range(0, size, 4)
    ]
    return KernargSchema(fields, size, "unknown kernel")


def read_kernarg(file: Path, schema: KernargSchema | None, dump: int | None = None) -> Dump:
    """The segment in ``file`` (``-`` is standard input), whatever form it has; of several dumps number ``dump``.

    Raises:
        DumpError: unreadable, several dumps and no choice, or JSON without a schema to pack it by.
        ArgumentError: JSON values that do not fit.
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise DumpError(f"cannot read {file} ({error.strerror})") from error
    if data.lstrip().startswith(b"{") and 0 not in data:
        packed = _from_json(data.decode("utf-8", "replace"), file, schema)
        return Dump(packed, ((0, len(packed)),))
    dumps = read_dumps(data)
    number = 1 if dump is None and len(dumps) == 1 else dump
    if number is None or not 1 <= number <= len(dumps):
        found = ", ".join(f"{i} ({d.format}, {len(d)} bytes)" for i, d in enumerate(dumps, 1))
        raise DumpError(f"dumps in {file}", got=found, need="one of them", hint="choose it with --dump")
    return dumps[number - 1]


def parse_values(settings: Iterable[str]) -> dict[str, Any]:
    """Argument values from ``NAME=VALUE`` settings; values are integers (``0x...`` too) or floats.

    Raises:
        ArgumentError: another form.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        name, _, text = setting.partition("=")
        try:
            values[name] = int(text, 0)
        except ValueError:
            try:
                values[name] = float(text)
            except ValueError:
                raise ArgumentError("setting", got=repr(setting), need="NAME=VALUE with a number") from None
    return values


def _from_json(text: str, file: Path, schema: KernargSchema | None) -> bytes:
    if schema is None:
        raise DumpError(
            f"{file} holds argument values", need="a schema to pack them by", hint="name the kernel with --kernel"
        )
    try:
        values: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise DumpError(f"{file} is not JSON ({error})") from error
    return schema.pack({name: _number(value) for name, value in values.items()})


def _number(value: Any) -> Any:
    """Addresses are written as hex strings where people write them, since JSON has no hex numbers."""
    try:
        return int(value, 16) if isinstance(value, str) else value
    except ValueError:
        return value  # the schema says what the argument needs
