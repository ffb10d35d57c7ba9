"""Machine code -> instructions, with AMD's own disassembler.

LLVM's disassembler (``emulator.disassembly``) turns bytes into text; this module turns the text into typed operands.
Nothing here knows what an instruction means.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from asmlaunch.emulator.disassembly import backend
from asmlaunch.errors import CodeObjectError

#: SGPR numbers of the registers that have names (AMD CDNA3 ISA manual, "Scalar ALU operands").
NAMED_SGPRS = {
    "flat_scratch": (102, 2), "flat_scratch_lo": (102, 1), "flat_scratch_hi": (103, 1),
    "xnack_mask": (104, 2), "xnack_mask_lo": (104, 1), "xnack_mask_hi": (105, 1),
    "vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1),
    "m0": (124, 1),
    "exec": (126, 2), "exec_lo": (126, 1), "exec_hi": (127, 1),
}  # fmt: skip

VCC, M0, EXEC = NAMED_SGPRS["vcc"][0], NAMED_SGPRS["m0"][0], NAMED_SGPRS["exec"][0]


@dataclass(frozen=True)
class Register:
    """``count`` consecutive registers of a file: "s" (SGPR), "v" (VGPR) or "a" (AccVGPR)."""

    file: str
    index: int
    count: int = 1
    neg: bool = False
    abs: bool = False
    sext: bool = False

    def __str__(self) -> str:
        span = f"{self.index}" if self.count == 1 else f"[{self.index}:{self.index + self.count - 1}]"
        return f"{self.file}{span}"


@dataclass(frozen=True)
class Immediate:
    """An inline constant or a literal, as the disassembler printed it."""

    text: str
    neg: bool = False
    abs: bool = False
    sext: bool = False

    def as_int(self) -> int:
        """The 32-bit pattern (floats print as decimals: ``1.0`` is 0x3f800000)."""
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", self.text):
            return int(self.text, 0)
        return struct.unpack("<I", struct.pack("<f", float(self.text)))[0]

    def as_float(self) -> float | None:
        """The number where it was printed as a decimal fraction, else None (a bit pattern)."""
        return None if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", self.text) else float(self.text)


@dataclass(frozen=True)
class Word:
    """An operand that is neither register nor number: ``off``, ``scc``, ``gpr_idx(SRC0)``, ``hwreg(...)``."""

    text: str


Operand = Register | Immediate | Word


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction.

    Attributes:
        address: virtual address of its first byte.
        size: bytes.
        mnemonic: name without the encoding suffix.
        encoding: "e32", "e64", "sdwa", "dpp" or "" where the mnemonic has only one.
        operands: in the assembler's order, destination first.
        modifiers: what follows the operands; a bare word maps to True.
        text: as the disassembler printed it, without the leading tab.
    """

    address: int
    size: int
    mnemonic: str
    encoding: str
    operands: tuple[Operand, ...]
    modifiers: Mapping[str, Any] = field(hash=False)
    text: str

    @property
    def end(self) -> int:
        """Address of the byte after it."""
        return self.address + self.size

    @property
    def branch_target(self) -> int:
        """Where a SOPP/SOPK branch jumps: the next instruction plus four times its signed 16-bit immediate."""
        last = self.operands[-1]
        assert isinstance(last, Immediate), self.text
        return self.end + 4 * ((last.as_int() & 0xFFFF ^ 0x8000) - 0x8000)


_SUFFIX = re.compile(r"^(?P<name>.+?)(?:_(?P<encoding>e32|e64|e64_dpp|sdwa|dpp))?$")
_REGISTER = re.compile(r"^([sva])(?:(\d+)|\[(\d+)(?::(\d+))?\])$")
_NUMBER = re.compile(r"^-?(0x[0-9a-fA-F]+|\d+(\.\d+)?(e[+-]?\d+)?)$")
_CALL = re.compile(r"^(\w+)\((.*)\)$")


def _split_operands(text: str) -> list[str]:
    """Split at commas that are outside brackets."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    parts.append(text[start:].strip())
    return parts


def _split_words(text: str) -> list[str]:
    """Split at blanks that are outside brackets."""
    return re.findall(r"(?:[^\s\[(]|\[[^\]]*\]|\([^)]*\))+", text)


@lru_cache(maxsize=1 << 12)
def parse_operand(text: str) -> Operand:
    """One operand of the assembler's syntax.

    Example:
        >>> parse_operand("-|v[4:5]|")
        Register(file='v', index=4, count=2, neg=True, abs=True, sext=False)
    """
    neg = absolute = sext = False
    body = text
    if body.startswith("-") and not _NUMBER.match(body):
        neg, body = True, body[1:]
    if body.startswith("neg(") and body.endswith(")"):
        neg, body = True, body[4:-1]
    if body.startswith("|") and body.endswith("|"):
        absolute, body = True, body[1:-1]
    if body.startswith("sext(") and body.endswith(")"):
        sext, body = True, body[5:-1]
    if match := _REGISTER.match(body):
        first = int(match[2] or match[3])
        last = int(match[4] or first)
        return Register(match[1], first, last - first + 1, neg, absolute, sext)
    if body in NAMED_SGPRS:
        index, count = NAMED_SGPRS[body]
        return Register("s", index, count, neg, absolute, sext)
    if _NUMBER.match(body):
        return Immediate(body, neg, absolute, sext)
    return Word(text)


def _parse_modifier(word: str) -> tuple[str, Any]:
    if match := _CALL.match(word):
        return match[1], int(match[2], 0)
    name, colon, value = word.partition(":")
    if not colon:
        return name, True
    if value.startswith("["):
        items = value[1:-1].split(",")
        return name, tuple(int(item, 0) if _NUMBER.match(item) else item for item in items)
    return name, int(value, 0) if _NUMBER.match(value) else value


def parse(text: str, address: int = 0, size: int = 4) -> Instruction:
    """One line of disassembly -> ``Instruction``.

    Example:
        >>> parse("buffer_load_dwordx4 v[8:11], v3, s[4:7], 0 offen offset:16").modifiers
        {'offen': True, 'offset': 16}
    """
    text = text.strip()
    name, _, rest = text.partition(" ")
    match = _SUFFIX.match(name)
    assert match is not None
    operands: list[Operand] = []
    words: list[str] = []
    if rest:
        *leading, last = _split_operands(rest)
        operands = [parse_operand(part) for part in leading]
        words = _split_words(last)
        counters = match["name"] == "s_waitcnt" and _CALL.match(words[0])
        if words and not counters:
            operands.append(parse_operand(words.pop(0)))
    modifiers = dict(_parse_modifier(word) for word in words)
    return Instruction(address, size, match["name"], match["encoding"] or "", tuple(operands), modifiers, text)


class Disassembler:
    """LLVM's AMDGPU disassembler for one processor.

    Args:
        processor: such as "gfx950".

    Raises:
        DeviceError: no LLVM that disassembles AMDGPU code is installed.
    """

    def __init__(self, processor: str) -> None:
        self._backend = backend(processor)
        self.processor = processor

    def expect(self, code: bytes, start: int) -> None:
        """Say that :meth:`one` will be asked for instructions of ``code``, which starts at an address: it may be read
        ahead.
        """
        self._backend.expect(code, start)

    def text(self, code: bytes, address: int) -> list[tuple[int, int, str]]:
        """``(address, size, text)`` of every instruction of ``code``, which starts at ``address``.

        Raises:
            CodeObjectError: bytes that are no instruction of this processor.
        """
        self._backend.expect(code, address)
        source = ctypes.create_string_buffer(code, len(code))
        decoded, offset = [], 0
        while offset < len(code):
            size, text = self._decode(
                code[offset : offset + _LONGEST], ctypes.addressof(source) + offset, address + offset
            )
            decoded.append((address + offset, size, text))
            offset += size
        return decoded

    def one(self, code: bytes, address: int) -> Instruction:
        """The instruction at the start of ``code``; at most 20 bytes are looked at.

        Raises:
            CodeObjectError: bytes that are no instruction of this processor.
        """
        window = code[:_LONGEST]
        source = ctypes.create_string_buffer(window, len(window))
        size, text = self._decode(window, ctypes.addressof(source), address)
        if "swizzle(" not in text:
            return parse(text, address, size)
        # The pattern that LLVM writes leaves out bits of the offset, which are the first two bytes of the machine code.
        offset = int.from_bytes(window[:2], "little")
        return replace(parse(re.sub(r"swizzle\(.*\)", f"{offset:#x}", text), address, size), text=text)

    def _decode(self, window: bytes, pointer: int, address: int) -> tuple[int, str]:
        """Size and text of the instruction that ``window`` starts with; its bytes lie at ``pointer``."""
        size, text = (0, "") if _ends_llvm(window) else self._backend.decode(window, pointer, address)
        if size == 0:
            raise CodeObjectError(
                f"machine code at {address:#x}",
                got=window[:8].hex(" ") or "the end of the code",
                need=f"an instruction of {self.processor}",
                hint="the code object is damaged, or is for another processor",
            )
        return size, text


#: Bytes of the longest instruction.
_LONGEST = 20
_SDWA = 0xF9  # the number of the first operand that announces an SDWA dword
_LITERAL = 0xFF  # and the one that announces a literal


def _ends_llvm(window: bytes) -> bool:
    """Whether LLVM's disassembler ends the process on these bytes, which are no instruction of any gfx9.

    Seen with LLVM 22: a literal as an operand of VOP3 or as SOFFSET of MUBUF and MTBUF, which have no place for it,
    matrix operands of F8F6F4 that are not VGPRs, and part 7 of a register in SDWA (manual, "Instruction formats").
    """
    words = struct.unpack(f"<{len(window) // 4}I", window[: len(window) // 4 * 4])
    if len(words) < 2:
        return False
    first, second = words[:2]
    if first >> 31 == 0 and first & 0x1FF == _SDWA:
        compare = first >> 25 == 0b0111110  # its second byte names a register instead
        parts = [second >> 16 & 7, second >> 24 & 7, *([] if compare else [second >> 8 & 7])]
        return 7 in parts
    kind = first >> 26
    if kind in (0b111000, 0b111010):
        return second >> 24 == _LITERAL
    if kind != 0b110100:
        return False
    if first >> 16 == 0xD3AC and len(words) >= 4:  # the scales of a matrix instruction stand before it
        if _LITERAL in (second & 0x1FF, second >> 9 & 0x1FF):
            return True
        first, second = words[2:4]
    sources = [second & 0x1FF, second >> 9 & 0x1FF, second >> 18 & 0x1FF]
    any_format = first >> 23 == 0b110100111 and (first >> 16 & 0x7F) in (0x2D, 0x2E)
    return _LITERAL in sources or (any_format and min(sources[:2]) < 256)
