"""What code objects come wrapped in: clang offload bundles, compressed ones, and host files that carry them.

Source: clang's "Clang Offload Bundler" page (bundle layout, entry ids, compressed header versions 1 to 3). A fat
binary keeps bundles one after the other in its ``.hip_fatbin`` section, each padded to a page.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from construct import Bytes, Construct, ConstructError, Int16ul, Int32ul, Int64ul, Struct
from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError as ElfConstructError
from elftools.elf.elffile import ELFFile

from asmlaunch.codeobject.target import EM_AMDGPU, TargetId, compatible, parse_target
from asmlaunch.errors import CodeObjectError, TargetError

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
FATBIN_SECTION = ".hip_fatbin"

#: A compressed bundle that claims to grow by more than this is refused.
MAX_GROWTH = 256

_COMMON = ("magic" / Bytes(4), "version" / Int16ul, "method" / Int16ul)
#: Version -> header of a compressed bundle. Version 1 does not say how long the bundle is.
_COMPRESSED: dict[int, Construct] = {
    1: Struct(*_COMMON, "uncompressed_size" / Int32ul, "hash" / Int64ul),
    2: Struct(*_COMMON, "file_size" / Int32ul, "uncompressed_size" / Int32ul, "hash" / Int64ul),
    3: Struct(*_COMMON, "file_size" / Int64ul, "uncompressed_size" / Int64ul, "hash" / Int64ul),
}
_BUNDLE = Struct("magic" / Bytes(24), "count" / Int64ul)
_ENTRY = Struct("offset" / Int64ul, "size" / Int64ul, "id_size" / Int64ul)
_NOT_ZERO = re.compile(rb"[^\0]")
_ENTRY_ID = re.compile(r"(?P<kind>[^-]+)-amdgcn-amd-amdhsa-(unknown)?-*(?P<target>gfx\S+)")


@dataclass(frozen=True)
class Entry:
    """One entry of a bundle.

    Attributes:
        id: the whole id, such as ``hipv4-amdgcn-amd-amdhsa--gfx942:xnack-``.
        target: the AMD GPU target in it, or None for a host entry.
        size: how many bytes it has.
    """

    id: str
    target: TargetId | None
    size: int
    # Entries of a damaged table may overlap, so bytes are copied only when asked for.
    _bundle: bytes = field(repr=False)
    _start: int = field(repr=False)

    @property
    def data(self) -> bytes:
        """The entry's bytes."""
        return self._bundle[self._start : self._start + self.size]


def is_code_object(data: bytes) -> bool:
    """Whether the bytes begin as an ELF for AMD GPUs."""
    return data[:4] == b"\x7fELF" and int.from_bytes(data[18:20], "little") == EM_AMDGPU


def entries(data: bytes) -> tuple[Entry, ...]:
    """All entries of a bundle, of several one after the other, or of a host ELF with a ``.hip_fatbin`` section.

    Raises:
        CodeObjectError: none of these, truncated, damaged, or compressed with zstd where no module reads it.
    """
    section = _fatbin_section(data) if data[:4] == b"\x7fELF" else data
    found = [entry for bundle, start in _bundles(section) for entry in _unbundle(bundle, start)]
    if not found:
        raise CodeObjectError(
            "not an ELF file or offload bundle",
            got=f"first bytes {section[:8].hex(' ') or '(none)'}",
            need="7f 45 4c 46 (ELF), __CLANG_OFFLOAD_BUNDLE__ or CCOB",
        )
    return tuple(found)


def select(data: bytes, target: TargetId | str | None) -> bytes:
    """The code object in ``data``: itself, or the entry of a container that runs on ``target``.

    Of several that do, one for exactly that processor and with more features fixed is taken. Without a target there
    has to be only one entry for a GPU.

    Raises:
        TargetError: no entry runs on the target, or several and no target given; the message lists the targets.
        CodeObjectError: as ``entries``.
    """
    wanted = parse_target(target) if isinstance(target, str) else target
    if is_code_object(data):
        return data
    devices = [entry for entry in entries(data) if entry.target is not None and entry.size]
    fitting = [e for e in devices if e.target is not None and (wanted is None or compatible(e.target, wanted))]
    listed = ", ".join(dict.fromkeys(str(entry.target) for entry in devices)) or "none"
    if not fitting:
        raise TargetError("no entry of the bundle runs on the target", got=f"entries for {listed}", need=wanted)
    if wanted is None and len({entry.target for entry in fitting}) > 1:
        raise TargetError("the bundle holds several targets", got=listed, need="a choice", hint="pass target=")
    return max(fitting, key=lambda entry: _closeness(entry.target, wanted)).data


def _closeness(code: TargetId | None, wanted: TargetId | None) -> tuple[bool, int]:
    if code is None or wanted is None:
        return False, 0
    return code.processor == wanted.processor, sum(value in ("on", "off") for value in (code.sramecc, code.xnack))


def _fatbin_section(data: bytes) -> bytes:
    try:
        elf = ELFFile(io.BytesIO(data))
        section = elf.get_section_by_name(FATBIN_SECTION)
        header = None if section is None else section.header
    except (ELFError, ElfConstructError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise CodeObjectError(f"damaged host ELF file ({error})") from error
    if header is None:
        machine = int.from_bytes(data[18:20], "little")
        raise CodeObjectError(
            "ELF machine",
            got=f"{machine} and no .hip_fatbin section",
            need=f"{EM_AMDGPU} (AMDGPU), or a host file built with HIP",
        )
    start, size = header["sh_offset"], header["sh_size"]
    if start + size > len(data):
        raise CodeObjectError("section .hip_fatbin is truncated", got=f"a file of {len(data)} bytes", need=start + size)
    return data[start : start + size]


def _bundles(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The uncompressed bundles in ``data`` and where they start, one after the other with padding between them."""
    position = _next_magic(data, 0)
    while position >= 0:
        if data.startswith(COMPRESSED_MAGIC, position):
            bundle, size = _decompress(data, position)
            yield bundle, 0
        else:
            yield data, position
            size = max(_end(data, position), len(BUNDLE_MAGIC))
        position = _next_magic(data, position + size)


def _next_magic(data: bytes, start: int) -> int:
    """Where the next bundle begins: only zero padding may lie before it; -1 when there is none."""
    position = _NOT_ZERO.search(data, start)
    at = position.start() if position else len(data)
    return at if data.startswith((BUNDLE_MAGIC, COMPRESSED_MAGIC), at) else -1


def _decompress(data: bytes, position: int) -> tuple[bytes, int]:
    """The bundle inside the compressed one at ``position``, and how many bytes that one takes."""
    version = int.from_bytes(data[position + 4 : position + 6], "little")
    if version not in _COMPRESSED:
        raise CodeObjectError("compressed bundle version", got=version, need="1, 2 or 3")
    schema = _COMPRESSED[version]
    header = _parse(schema, data, position, "compressed bundle header")
    start, available = schema.sizeof(), len(data) - position
    end = header.get("file_size", available)
    if not start <= end <= available:
        raise CodeObjectError("compressed bundle is truncated", got=f"{available} bytes", need=f"{end} bytes")
    size = header["uncompressed_size"]
    if size > MAX_GROWTH * (end - start):
        raise CodeObjectError(
            "compressed bundle", got=f"{size} bytes from {end - start}", need=f"at most {MAX_GROWTH} times"
        )
    method = {0: _zlib, 1: _zstd}.get(header["method"])
    if method is None:
        raise CodeObjectError("compression method of the bundle", got=header["method"], need="0 (zlib) or 1 (zstd)")
    content, used = method(data[position + start : position + end], size)
    if len(content) != size:
        raise CodeObjectError("compressed bundle", got=f"{len(content)} bytes inside", need=f"{size} bytes")
    return content, end if "file_size" in header else start + used


def _zlib(data: bytes, size: int) -> tuple[bytes, int]:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, size or 1)
    except zlib.error as error:
        raise CodeObjectError(f"compressed bundle: damaged zlib stream ({error})") from error
    return content, len(data) - len(stream.unused_data) - len(stream.unconsumed_tail)


def _zstd(data: bytes, size: int) -> tuple[bytes, int]:
    zstd = _zstd_module()
    stream = zstd.ZstdDecompressor()
    try:
        content = stream.decompress(data, max_length=size or 1)
    except (zstd.ZstdError, EOFError, ValueError) as error:
        raise CodeObjectError(f"compressed bundle: damaged zstd stream ({error})") from error
    return content, len(data) - len(stream.unused_data)


def _zstd_module() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # in Python from 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise CodeObjectError(
                "the bundle is compressed with zstd", need="a zstd module", hint="pip install 'asmlaunch[zstd]'"
            ) from None
    return zstd


def _unbundle(data: bytes, start: int) -> Iterator[Entry]:
    for offset, size, name in _table(data, start):
        if start + offset + size > len(data):
            raise CodeObjectError(
                f"entry {name} is truncated", got=f"{len(data) - start} bytes", need=f"{offset + size} bytes"
            )
        yield Entry(name, _target(name), size, data, start + offset)


def _end(data: bytes, start: int) -> int:
    return max((offset + size for offset, size, _ in _table(data, start)), default=0)


def _table(data: bytes, start: int) -> Iterator[tuple[int, int, str]]:
    """Offset (from the bundle's start), size and id of each entry of the bundle at ``start``."""
    if not data.startswith(BUNDLE_MAGIC, start):
        raise CodeObjectError(
            "offload bundle", got=f"first bytes {data[start : start + 8].hex(' ')}", need=BUNDLE_MAGIC.decode()
        )
    count = _parse(_BUNDLE, data, start, "offload bundle")["count"]
    position = start + _BUNDLE.sizeof()
    if count > (len(data) - position) // _ENTRY.sizeof():
        raise CodeObjectError(
            "offload bundle is truncated", got=f"{len(data)} bytes", need=f"a table of {count} entries"
        )
    for _ in range(count):
        entry = _parse(_ENTRY, data, position, "entry of the offload bundle")
        position += _ENTRY.sizeof()
        name = data[position : position + entry["id_size"]]
        if len(name) < entry["id_size"]:
            raise CodeObjectError(
                "offload bundle is truncated", got=f"{len(name)} bytes", need=f"an id of {entry['id_size']}"
            )
        position += entry["id_size"]
        yield entry["offset"], entry["size"], name.decode("utf-8", "replace")


def _parse(schema: Construct, data: bytes, position: int, what: str) -> dict[str, int]:
    try:
        parsed: dict[str, int] = schema.parse(data[position : position + schema.sizeof()])
    except ConstructError:
        have = max(len(data) - position, 0)
        raise CodeObjectError(f"{what} is truncated", got=f"{have} bytes", need=f"{schema.sizeof()} bytes") from None
    return parsed


def _target(name: str) -> TargetId | None:
    match = _ENTRY_ID.fullmatch(name)
    return parse_target(match["target"]) if match else None
