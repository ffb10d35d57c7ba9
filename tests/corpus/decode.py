"""The decoder against llvm-objdump over a folder of code objects: text, and what is parsed from it.

    python tests/corpus/decode.py FOLDER [--shard 0/4] [--objdump llvm-objdump-22]

Every instruction of every executable section is compared: mnemonic, operands and modifiers as text. Branches are
compared without their operand, which objdump writes as a label; their target is decoded from the machine code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from asmlaunch.codeobject import KernelInfo, read
from asmlaunch.emulator.decode import Disassembler, Instruction, Word, parse

_LINE = re.compile(r"^\t(?P<text>.*?)\s*// (?P<address>[0-9A-F]+): (?P<words>[0-9A-F ]+)")
_JUMP = re.compile(r"^(s_branch|s_cbranch_\w+|s_call_b64)\b.*")
#: Words that are operands; any other would be something that the parser did not understand.
_WORDS = re.compile(
    r"off|gpr_idx\(.*\)|hwreg\(.*\)|sendmsg\(.*\)|src_(shared|private)_(base|limit)|src_(vccz|execz|scc)|lds_direct"
)


def reference(path: Path, objdump: str) -> Iterator[tuple[int, bytes, str]]:
    """Address, machine code and text of every instruction, as objdump has them."""
    command = [objdump, "-d", "-z", str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        if match := _LINE.match(line):
            words = b"".join(int(word, 16).to_bytes(4, "little") for word in match["words"].split())
            yield int(match["address"], 16), words, match["text"]


def comparable(text: str) -> str:
    """Text without the operand of a branch, and with blanks made alike."""
    return _JUMP.sub(r"\1", re.sub(r"\s+", " ", text).strip())


def not_understood(instruction: Instruction) -> str:
    """An operand that was not recognised, or ""."""
    words = [operand.text for operand in instruction.operands if isinstance(operand, Word)]
    return next((word for word in words if not _WORDS.fullmatch(word)), "")


class Decoder:
    """Our decoder; the same machine code is decoded once."""

    def __init__(self, processor: str) -> None:
        self._disassembler = Disassembler(processor)
        self._known: dict[bytes, tuple[str, str]] = {}

    def __call__(self, code: bytes, address: int) -> tuple[str, str]:
        """Comparable text of one instruction, and an operand in it that was not recognised, or ""."""
        if code not in self._known:
            decoded = self._disassembler.text(code, address)
            text = " ; ".join(line for _, _, line in decoded)
            word = "" if _JUMP.match(text) else not_understood(parse(text, address, len(code)))
            self._known[code] = comparable(text), word
        return self._known[code]


@cache
def decoder(processor: str) -> Decoder:
    """One a processor."""
    return Decoder(processor)


def differences(path: Path, objdump: str) -> tuple[int, list[str]]:
    """Instructions compared, and what differs, in words."""
    kernel: KernelInfo = next(iter(read(path).kernels.values()))
    decode = decoder(kernel.target.processor)
    count, found = 0, []
    for address, code, text in reference(path, objdump):
        count += 1
        ours, word = decode(code, address)
        if ours != comparable(text):
            found.append(f"{path.name} {address:#x}: {ours!r}, objdump {text!r}")
        elif word:
            found.append(f"{path.name} {address:#x}: operand {word!r} of {text!r}")
    return count, found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shard", default="0/1", help="this part of so many")
    parser.add_argument("--objdump", default="llvm-objdump-22")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.shard.split("/"))
    files = sorted(options.folder.rglob("*.co"))[part::parts]
    total = wrong = 0
    for path in files:
        count, found = differences(path, options.objdump)
        total, wrong = total + count, wrong + len(found)
        for line in found[:3]:
            print(line)
    print(f"{len(files)} objects, {total:,} instructions, {wrong} differences")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
