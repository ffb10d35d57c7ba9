"""Hexdumps of kernarg segments: AITER's table format, written and read, with lines left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from asmlaunch.errors import DumpError

_HEADER = "Offset | " + " ".join(f"{i:02X}" for i in range(8)) + " | " + " ".join(f"{i:02X}" for i in range(8, 16))
_RULE = "-------|-------------------------|-------------------------"
_LINE = re.compile(r"\s*(\d+)\s*\|((?:\s*[0-9a-fA-F]{2})+)(?:\s*\|((?:\s*[0-9a-fA-F]{2})*))?\s*\|?\s*$")


@dataclass(frozen=True)
class Dump:
    """A dump's bytes, of which only the ``known`` ranges (start, end) were shown; the others are zero here."""

    data: bytes
    known: tuple[tuple[int, int], ...]

    def is_known(self, start: int, end: int) -> bool:
        """Whether every byte from ``start`` to before ``end`` was shown."""
        return any(low <= start and end <= high for low, high in self.known)

    def __len__(self) -> int:
        return len(self.data)


def hexdump(data: bytes) -> str:
    """AITER's table: decimal offsets, 16 bytes a line in two groups of 8."""
    lines = [_HEADER, _RULE]
    for offset in range(0, len(data), 16):
        groups = (data[offset : offset + 8].hex(" "), data[offset + 8 : offset + 16].hex(" "))
        lines.append(f"{offset:04d}   | " + " | ".join(group for group in groups if group))
    return "\n".join(lines)


def parse_hexdump(text: str) -> Dump:
    """Read AITER's table back. Lines may be missing, with or without a ``[...]`` in their place.

    Raises:
        DumpError: no dump line in the text, or two lines that give the same byte.
    """
    rows = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match:
            rows.append((int(match[1]), bytes.fromhex(match[2] + (match[3] or ""))))
    return assemble(rows)


def assemble(rows: list[tuple[int, bytes]]) -> Dump:
    """A dump from (offset, bytes) rows in any order; DumpError when there are none or they overlap."""
    if not rows:
        raise DumpError("no hexdump found in the text", need="lines such as '0000   | 00 00 20 6d ...'")
    known: list[tuple[int, int]] = []
    size = max(offset + len(row) for offset, row in rows)
    if size > MAX_DUMP:
        raise DumpError("hexdump", got=f"an offset of {size}", need=f"at most {MAX_DUMP} bytes")
    data = bytearray(size)
    for offset, row in sorted(rows):
        if known and offset < known[-1][1]:
            raise DumpError("hexdump", got=f"offset {offset} twice", need="each byte once")
        if known and offset == known[-1][1]:
            known[-1] = (known[-1][0], offset + len(row))
        else:
            known.append((offset, offset + len(row)))
        data[offset : offset + len(row)] = row
    return Dump(bytes(data), tuple(known))


#: A dump that claims more than this is not one of a kernarg segment.
MAX_DUMP = 1 << 20
