"""Bytes or a path to a CodeObject."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from asmlaunch.codeobject.container import select
from asmlaunch.codeobject.descriptor import SIZE, KernelDescriptor, parse_descriptor
from asmlaunch.codeobject.elf import ElfImage, Segment
from asmlaunch.codeobject.metadata import ArgumentInfo, KernelMetadata, find_note, parse_metadata
from asmlaunch.codeobject.target import TargetId, compatible, parse_target, target_from_flags
from asmlaunch.errors import CodeObjectError, KernelNotFoundError, TargetError


@dataclass(frozen=True)
class KernelInfo(KernelMetadata):
    """A kernel of a code object: its metadata, its descriptor and its machine code.

    Attributes beyond the metadata:
        descriptor: the 64-byte kernel descriptor.
        target: the code object's target id.
        code_address: virtual address of the entry instruction.
        code: machine code from the entry to the end of the kernel's function.
        text, text_address: the whole executable segment, for code outside the function.
    """

    descriptor: KernelDescriptor
    target: TargetId
    code_address: int
    code: bytes
    text: bytes
    text_address: int

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what the kernel executes: machine code, where it lies and begins, target and descriptor."""
        about = self.name, self.text_address, self.code_address, str(self.target), self.descriptor
        return hashlib.sha256(repr(about).encode() + self.text).hexdigest()

    def __repr__(self) -> str:
        sizes = f"kernarg {self.kernarg_size} bytes, code {len(self.code)} bytes"
        return f"KernelInfo({self.name!r}, {self.target}, {sizes})"


class _ByName(Mapping[str, KernelInfo]):
    """Kernels by name; an unknown name raises KernelNotFoundError, which lists the names there are."""

    def __init__(self, kernels: Mapping[str, KernelInfo]) -> None:
        self._kernels = MappingProxyType(dict(kernels))

    def __getitem__(self, name: str) -> KernelInfo:
        if name in self._kernels:
            return self._kernels[name]
        shown = list(self._kernels)
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        raise KernelNotFoundError("kernel", got=repr(name), need=f"one of {', '.join(shown[:8]) or '(none)'}{more}")

    def __contains__(self, name: object) -> bool:
        return name in self._kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)


@dataclass(frozen=True)
class CodeObject:
    """A code object: its bytes, where it came from, its target, its version (3 to 6), and its kernels by name."""

    data: bytes
    path: Path | None
    target: TargetId
    version: int
    kernels: Mapping[str, KernelInfo]
    segments: tuple[Segment, ...]

    def __repr__(self) -> str:
        where = self.path or f"{len(self.data)} bytes"
        return f"CodeObject({where}, {self.target}, v{self.version}, kernels: {', '.join(self.kernels)})"


def read(
    source: bytes | bytearray | memoryview | str | os.PathLike[str], target: TargetId | str | None = None
) -> CodeObject:
    """Read a code object (ELF, version 3 to 6) from bytes or from a file, alone or out of a container.

    Containers are clang offload bundles, compressed or not, and host files with a ``.hip_fatbin`` section. ``target``
    (such as ``"gfx950"`` or ``"gfx942:xnack-"``) chooses the entry; a code object that is alone has to run on it.

    Raises:
        CodeObjectError: not a code object, truncated or damaged, or without a metadata note.
        TargetError: no entry for the target, or several entries and no target.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read(bytes(source), None, target)
    path = Path(source)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CodeObjectError(f"cannot read {path} ({error.strerror})") from error
    return _read(data, path, target)


def _read(data: bytes, path: Path | None, target: TargetId | str | None) -> CodeObject:
    found = read_elf(select(data, target), path)
    wanted = parse_target(target) if isinstance(target, str) else target
    if wanted is not None and not compatible(found.target, wanted):
        raise TargetError(f"target of {path or 'the code object'}", got=found.target, need=wanted)
    return found


def read_elf(data: bytes, path: Path | None) -> CodeObject:
    """Read one AMDGPU ELF held in ``data``; ``path`` only says where it came from."""
    image = ElfImage(data)
    payload = next((found for found in map(find_note, image.notes) if found is not None), None)
    if payload is None:
        raise CodeObjectError(
            "no AMDGPU metadata note; HIP would fail with error 303", hint="add .amdgpu_metadata to the assembly source"
        )
    entries, metadata_target = parse_metadata(payload)
    target = target_from_flags(image.flags, image.version, metadata_target)
    kernels = {entry.name: _kernel(image, entry, target) for entry in entries}
    return CodeObject(data, path, target, image.version, _ByName(kernels), image.segments)


def _kernel(image: ElfImage, entry: KernelMetadata, target: TargetId) -> KernelInfo:
    symbol = image.symbols.get(entry.symbol)
    if symbol is None:
        raise CodeObjectError(f"kernel {entry.name}: descriptor symbol {entry.symbol} is not in the symbol table")
    what = f"kernel {entry.name}: descriptor"
    descriptor = parse_descriptor(image.bytes_at(symbol.address, SIZE, what), target.processor)
    start = symbol.address + descriptor.kernel_code_entry_byte_offset
    text = next(
        (s for s in image.segments if s.executable and s.address <= start < s.address + len(s.data)),
        None,
    )
    if text is None:
        raise CodeObjectError(f"kernel {entry.name}: entry", got=f"address {start:#x}", need="an executable segment")
    end = _function_end(image, start, text.address + len(text.data))
    code = text.data[start - text.address : end - text.address]
    return KernelInfo(
        **vars(entry),
        descriptor=descriptor,
        target=target,
        code_address=start,
        code=code,
        text=text.data,
        text_address=text.address,
    )


def _function_end(image: ElfImage, start: int, limit: int) -> int:
    """Where the function at ``start`` ends: its symbol's size if given, else the next function, else the segment."""
    functions = [symbol for symbol in image.symbols.values() if symbol.is_function]
    size = max((symbol.size for symbol in functions if symbol.address == start), default=0)
    if size:
        return min(start + size, limit)
    return min((symbol.address for symbol in functions if start < symbol.address), default=limit)


__all__ = ["ArgumentInfo", "CodeObject", "KernelInfo", "read", "read_elf"]
