"""Hexdumps of kernarg segments: AITER's table, ``hexdump -C``, ``xxd``, C and Python literals, raw bytes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from asmlaunch.errors import DumpError

#: A dump that claims more than this is not one of a kernarg segment.
MAX_DUMP = 1 << 20

Row = tuple[int, bytes]


@dataclass(frozen=True)
class Dump:
    """A dump's bytes, of which only the ``known`` ranges (start, end) were shown; the others are zero here."""

    data: bytes
    known: tuple[tuple[int, int], ...]
    format: str = field(default="raw", compare=False)

    def is_known(self, start: int, end: int) -> bool:
        """Whether every byte from ``start`` to before ``end`` was shown."""
        return any(low <= start and end <= high for low, high in self.known)

    def __len__(self) -> int:
        return len(self.data)


def hexdump(data: bytes, format: str = "aiter") -> str:
    """The bytes as text: ``"aiter"`` (a table with decimal offsets), ``"hexdump"`` (as ``hexdump -C``), ``"xxd"``,
    ``"c"`` (an array of bytes) or ``"python"`` (a bytes literal).

    Raises:
        DumpError: another format.
    """
    if format not in WRITERS:
        raise DumpError("dump format", got=repr(format), need=" or ".join(WRITERS))
    return WRITERS[format](data)


def parse_hexdump(text: str) -> Dump:
    """The one dump in a text, in any of the formats that ``hexdump`` writes. Lines may be missing, with or without a
    ``[...]`` in their place.

    Raises:
        DumpError: no dump or several, or two lines that give the same byte.
    """
    found = find_dumps(text)
    if len(found) != 1:
        raise DumpError(
            f"{len(found)} hexdumps found in the text" if found else "no hexdump found in the text",
            need="one, with lines such as '0000   | 00 00 20 6d ...'",
        )
    return found[0]


def read_dumps(data: bytes) -> tuple[Dump, ...]:
    """The dumps in a file's bytes: those in its text, or the bytes themselves where they are no text.

    Raises:
        DumpError: a text without a dump, or a damaged one.
    """
    try:
        text = None if 0 in data else data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        return (Dump(data, ((0, len(data)),)),)
    found = find_dumps(text)
    if not found:
        raise DumpError("no hexdump found in the text", need="lines such as '0000   | 00 00 20 6d ...'")
    return found


def find_dumps(text: str) -> tuple[Dump, ...]:
    """All dumps in a text such as a log, in order; one ends where offsets start again.

    Raises:
        DumpError: two lines of one dump that give the same byte, or a dump larger than ``MAX_DUMP``.
    """
    lines = text.splitlines()
    found = [dump for name, reader in _READERS.items() for dump in _tables(name, reader, lines)]
    if not found:
        found = [*_c_arrays(text), *_python_bytes(text)]
    return tuple(dump for _, dump in sorted(found, key=lambda entry: entry[0]))


# ---- writing -------------------------------------------------------------------------------------------------------

_AITER_HEADER = (
    "Offset | " + " ".join(f"{i:02X}" for i in range(8)) + " | " + " ".join(f"{i:02X}" for i in range(8, 16))
)
_AITER_RULE = "-------|-------------------------|-------------------------"


def _rows(data: bytes) -> Iterator[Row]:
    return ((offset, data[offset : offset + 16]) for offset in range(0, len(data), 16))


def _ascii(row: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)


def _write_aiter(data: bytes) -> str:
    lines = [_AITER_HEADER, _AITER_RULE]
    for offset, row in _rows(data):
        groups = (row[:8].hex(" "), row[8:].hex(" "))
        lines.append(f"{offset:04d}   | " + " | ".join(group for group in groups if group))
    return "\n".join(lines)


def _write_hexdump(data: bytes) -> str:
    lines = [
        f"{offset:08x}  {row[:8].hex(' '):23s}  {row[8:].hex(' '):23s}  |{_ascii(row)}|" for offset, row in _rows(data)
    ]
    return "\n".join([*lines, f"{len(data):08x}"])


def _write_xxd(data: bytes) -> str:
    return "\n".join(f"{offset:08x}: {row.hex(' ', -2):39s}  {_ascii(row)}" for offset, row in _rows(data))


def _write_c(data: bytes) -> str:
    lines = ["    " + " ".join(f"0x{byte:02x}," for byte in row) for _, row in _rows(data)]
    return "\n".join([f"const unsigned char kernarg[{len(data)}] = {{", *lines, "};"])


WRITERS: dict[str, Callable[[bytes], str]] = {
    "aiter": _write_aiter,
    "hexdump": _write_hexdump,
    "xxd": _write_xxd,
    "c": _write_c,
    "python": repr,
}

# ---- reading -------------------------------------------------------------------------------------------------------

# Log lines may carry a prefix before the offset.
_AITER = re.compile(r"(?:^|.*[\s\]:>])(\d{4,9}) *\|((?: *[0-9a-fA-F]{2})+)(?: *\|((?: *[0-9a-fA-F]{2})*))? *\|?\s*$")
_HEXDUMP = re.compile(r"(?:^|.*[\s\]:>])([0-9a-f]{7,8})  ((?:[0-9a-f]{2} {1,2}){1,16}) *\|.{1,16}\|\s*$")
_XXD = re.compile(r"(?:^|.*[\s\]>])([0-9a-f]{8}): ((?:[0-9a-f]{2,8} ){1,16}) *\S?.*$")
_REPEAT = "*"
_END = re.compile(r"([0-9a-f]{7,8})\s*$")


def _read_aiter(line: str) -> Row | None:
    match = _AITER.match(line)
    return (int(match[1]), bytes.fromhex(match[2] + (match[3] or ""))) if match else None


def _read_hexdump(line: str) -> Row | None:
    match = _HEXDUMP.match(line)
    return (int(match[1], 16), bytes.fromhex(match[2])) if match else None


def _read_xxd(line: str) -> Row | None:
    match = _XXD.match(line)
    if match is None:
        return None
    digits = match[2].replace(" ", "")
    # The text column is separated by two blanks, so at most 16 bytes belong to the row.
    return (int(match[1], 16), bytes.fromhex(digits[:32])) if len(digits) % 2 == 0 else None


_READERS: dict[str, Callable[[str], Row | None]] = {"aiter": _read_aiter, "hexdump": _read_hexdump, "xxd": _read_xxd}


def _tables(name: str, reader: Callable[[str], Row | None], lines: list[str]) -> Iterator[tuple[int, Dump]]:
    rows: list[Row] = []
    first = 0
    repeat = False
    for number, line in enumerate(lines):
        row = reader(line) if len(line) < 400 else None
        if row is None:
            repeat |= line.strip() == _REPEAT and bool(rows)
            end = _END.match(line) if repeat else None
            if end:
                _fill(rows, int(end[1], 16))
                repeat = False
            continue
        if rows and row[0] <= rows[-1][0]:
            yield first, assemble(rows, name)
            rows, repeat = [], False
        if not rows:
            first = number
        elif repeat:
            _fill(rows, row[0])
        rows.append(row)
        repeat = False
    if rows:
        yield first, assemble(rows, name)


def _fill(rows: list[Row], end: int) -> None:
    """Add what a ``*`` stands for: the last row over and over, up to ``end``."""
    offset, row = rows[-1]
    if end > MAX_DUMP:
        raise DumpError("hexdump", got=f"an offset of {end}", need=f"at most {MAX_DUMP} bytes")
    start = offset + len(row)
    missing = end - start
    if missing > 0:
        rows.append((start, (row * (missing // len(row) + 1))[:missing]))


_C_ARRAY = re.compile(r"\{([\s,]*(?:0[xX][0-9a-fA-F]{1,2}[\s,]+){3,}(?:0[xX][0-9a-fA-F]{1,2})?[\s,]*)\}")
_PYTHON = re.compile(r"""\bb('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")""")
_ESCAPE = re.compile(r"""\\(?:x[0-9a-fA-F]{2}|[0-3]?[0-7]{1,2}|[\\'"abfnrtv])""")


def _c_arrays(text: str) -> Iterator[tuple[int, Dump]]:
    for match in _C_ARRAY.finditer(text):
        data = bytes(int(token, 16) for token in re.findall(r"0[xX][0-9a-fA-F]+", match[1]))
        yield _line(text, match), Dump(data, ((0, len(data)),), "c")


def _python_bytes(text: str) -> Iterator[tuple[int, Dump]]:
    for match in _PYTHON.finditer(text):
        if "\\" in _ESCAPE.sub("", match[0]):  # Python itself only warns of a wrong escape
            continue
        try:
            data = ast.literal_eval(match[0])
        except (SyntaxError, ValueError):  # other characters than ASCII, or a carriage return
            continue
        yield _line(text, match), Dump(data, ((0, len(data)),), "python")


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start())


def assemble(rows: list[Row], format: str) -> Dump:
    """A dump from (offset, bytes) rows; DumpError when they overlap or reach too far."""
    size = max(offset + len(row) for offset, row in rows)
    if size > MAX_DUMP:
        raise DumpError("hexdump", got=f"an offset of {size}", need=f"at most {MAX_DUMP} bytes")
    known: list[tuple[int, int]] = []
    data = bytearray(size)
    for offset, row in rows:
        if known and offset < known[-1][1]:
            raise DumpError("hexdump", got=f"offset {offset} twice", need="each byte once")
        if known and offset == known[-1][1]:
            known[-1] = (known[-1][0], offset + len(row))
        else:
            known.append((offset, offset + len(row)))
        data[offset : offset + len(row)] = row
    return Dump(bytes(data), tuple(known), format)
