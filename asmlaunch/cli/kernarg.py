"""Reading an argument segment from a file, for the commands that show or compare one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from asmlaunch import abi, codeobject
from asmlaunch.abi import Dump, KernargSchema, parse_hexdump, schema_from_metadata
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import DumpError, KernelNotFoundError

FORMATS = "a hexdump in AITER's table format (lines may be missing), raw bytes, or JSON with argument values by name"


def kernel_of(object_file: Path, name: str | None) -> KernelInfo:
    """The kernel of that name of an object file, or its only one.

    Raises:
        KernelNotFoundError: no such kernel, or several and no name. CodeObjectError: not a code object.
    """
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


def read_kernarg(file: Path, schema: KernargSchema | None) -> Dump:
    """The segment in ``file`` (``-`` is standard input), whatever form it has.

    Raises:
        DumpError: unreadable, or JSON without a schema to pack it by. ArgumentError: JSON values that do not fit.
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise DumpError(f"cannot read {file} ({error.strerror})") from error
    text = _text(data)
    if text is not None and text.lstrip().startswith("{"):
        return _whole(_from_json(text, file, schema))
    if text is not None and "|" in text:
        return parse_hexdump(text)
    return _whole(data)


def _whole(data: bytes) -> Dump:
    return Dump(data, ((0, len(data)),))


def _text(data: bytes) -> str | None:
    """The file's text, or None for binary data; an argument segment nearly always holds zero bytes, text never."""
    try:
        return None if 0 in data else data.decode()
    except UnicodeDecodeError:
        return None


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
