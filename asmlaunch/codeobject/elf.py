"""ELF: what is loaded where, and the symbols. Every offset and size is checked against the file before it is used."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile

from asmlaunch.codeobject.target import CODE_OBJECT_VERSIONS, ELFOSABI_AMDGPU_HSA, EM_AMDGPU
from asmlaunch.errors import CodeObjectError

_PT_LOAD, _PT_NOTE = "PT_LOAD", "PT_NOTE"
_PF_X = 1
_STT_FUNC = 2
_HEADER_SIZE, _PROGRAM_HEADER_SIZE, _SECTION_HEADER_SIZE = 64, 56, 64
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Segment:
    """A loaded segment: ``data`` lies at ``address`` and is followed by zeros up to ``size`` bytes."""

    address: int
    data: bytes
    size: int
    executable: bool


@dataclass(frozen=True)
class Symbol:
    """A defined symbol: its address, size in bytes (0 where unknown) and whether it is a function."""

    name: str
    address: int
    size: int
    is_function: bool


class ElfImage:
    """The parts of an AMDGPU ELF that a loader needs. CodeObjectError when it is not one, or is damaged.

    Attributes:
        version: code object version, 3 to 6. flags: ``e_flags``.
        segments: what is loaded. notes: contents of the note segments.
        symbols: defined symbols by name, those of the dynamic table first.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        if data[:4] != b"\x7fELF":
            raise CodeObjectError(
                "not an ELF file", got=f"first bytes {data[:8].hex(' ') or '(none)'}", need="7f 45 4c 46"
            )
        if len(data) < _HEADER_SIZE:
            raise CodeObjectError("ELF header is truncated", got=f"{len(data)} bytes", need=f"{_HEADER_SIZE} bytes")
        if data[4:6] != b"\x02\x01":
            raise CodeObjectError(
                "ELF class and byte order", got=data[4:6].hex(" "), need="02 01 (64-bit, little-endian)"
            )
        self._check_header()
        try:
            self._elf = ELFFile(io.BytesIO(data))
            self.segments = self._loaded()
            self.notes = self._note_segments()
            self.symbols = self._read_symbols()
        except (ELFError, ConstructError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise CodeObjectError(f"damaged ELF file ({error})") from error

    def _check_header(self) -> None:
        data = self._data
        kind, machine = struct.unpack_from("<HH", data, 16)
        if machine != EM_AMDGPU:
            raise CodeObjectError("ELF machine", got=machine, need=f"{EM_AMDGPU} (AMDGPU)", hint="this is a host file")
        if data[7] != ELFOSABI_AMDGPU_HSA:
            raise CodeObjectError("ELF OS/ABI", got=data[7], need=f"{ELFOSABI_AMDGPU_HSA} (AMDGPU HSA)")
        if data[8] not in CODE_OBJECT_VERSIONS:
            need = ", ".join(f"{abi} (v{version})" for abi, version in CODE_OBJECT_VERSIONS.items())
            raise CodeObjectError("ELF ABI version", got=data[8], need=need)
        if kind != 3:
            hint = "link it first: ld.lld -shared in.o -o out.co" if kind == 1 else None
            raise CodeObjectError("ELF type", got=kind, need="3 (shared object)", hint=hint)
        self.version = CODE_OBJECT_VERSIONS[data[8]]
        phoff, shoff, self.flags = struct.unpack_from("<QQI", data, 32)
        phentsize, phnum, shentsize, shnum = struct.unpack_from("<HHHH", data, 54)
        for what, offset, entry, count, size in (
            ("program", phoff, phentsize, phnum, _PROGRAM_HEADER_SIZE),
            ("section", shoff, shentsize, shnum, _SECTION_HEADER_SIZE),
        ):
            if count and entry != size:
                raise CodeObjectError(f"ELF {what} header size", got=entry, need=size)
            self._need(f"ELF {what} headers", offset, count * size)

    def _need(self, what: str, offset: int, size: int) -> None:
        if offset + size > len(self._data):
            raise CodeObjectError(
                f"{what}: the file is truncated or damaged",
                got=f"a file of {len(self._data)} bytes",
                need=f"bytes {offset} to {offset + size}",
            )

    def _slice(self, what: str, offset: int, size: int) -> bytes:
        self._need(what, offset, size)
        return self._data[offset : offset + size]

    def _loaded(self) -> tuple[Segment, ...]:
        found = []
        for header in (segment.header for segment in self._elf.iter_segments()):
            if header["p_type"] == _PT_LOAD:
                data = self._slice("loaded segment", header["p_offset"], header["p_filesz"])
                executable = bool(header["p_flags"] & _PF_X)
                found.append(Segment(header["p_vaddr"], data, header["p_memsz"], executable))
        return tuple(found)

    def _note_segments(self) -> tuple[bytes, ...]:
        headers = [s.header for s in self._elf.iter_segments() if s.header["p_type"] == _PT_NOTE]
        return tuple(self._slice("note segment", h["p_offset"], h["p_filesz"]) for h in headers)

    def _read_symbols(self) -> dict[str, Symbol]:
        found: dict[str, Symbol] = {}
        decoded = 0
        headers = [section.header for section in self._elf.iter_sections()]
        tables = [h for kind in ("SHT_DYNSYM", "SHT_SYMTAB") for h in headers if h["sh_type"] == kind]
        for header in tables:
            link = headers[header["sh_link"]]
            names = self._slice("string table", link["sh_offset"], link["sh_size"])
            raw = self._slice("symbol table", header["sh_offset"], header["sh_size"] // _SYMBOL.size * _SYMBOL.size)
            for name_at, info, _, section, address, size in _SYMBOL.iter_unpack(raw):
                end = names.find(b"\0", name_at)
                if section == 0 or end <= name_at:
                    continue
                decoded += end - name_at
                # Overlapping names in a damaged table would otherwise decode to far more than the file holds.
                if decoded > 4 * len(self._data):
                    raise CodeObjectError("symbol names", got="more text than the file holds", need="separate names")
                name = names[name_at:end].decode("utf-8", "replace")
                found.setdefault(name, Symbol(name, address, size, info & 15 == _STT_FUNC))
        return found

    def bytes_at(self, address: int, size: int, what: str) -> bytes:
        """``size`` bytes of a loaded segment at a virtual address."""
        for segment in self.segments:
            start = address - segment.address
            if start >= 0 and start + size <= len(segment.data):
                return segment.data[start : start + size]
        raise CodeObjectError(what, got=f"address {address:#x}, size {size}", need="an address in a loaded segment")
