"""AMD's machine code -> the assembler's text, by LLVM: as a library, or as a tool where the library has no wheel."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

from asmlaunch.errors import CodeObjectError, DeviceError

#: llvm-objdump knows gfx950 from this version on.
OLDEST = 20

_TRIPLE = "amdgcn-amd-amdhsa"
_LINE = re.compile(r"^\s+(?P<text>.*?)\s*// (?P<address>[0-9A-F]+): (?P<words>[0-9A-F]+(?: [0-9A-F]+)*)")


class Backend(Protocol):
    """What decodes one instruction."""

    def expect(self, code: bytes, start: int) -> None:
        """Instructions of this code will be asked for; it starts at an address."""
        ...

    def decode(self, window: bytes, pointer: int, address: int) -> tuple[int, str]:
        """Size and text of the instruction at the start of ``window``, whose bytes lie in memory at ``pointer`` and in
        the kernel at ``address``; size 0: it is none.
        """
        ...


def backend(processor: str) -> Backend:
    """The library (``rocm-llvm-python``), else an llvm-objdump of this machine.

    Raises:
        DeviceError: there is neither.
    """
    try:
        return _Library(processor)
    except ImportError as error:
        tool = objdump()
        if tool is None:
            raise DeviceError(
                "the emulator's disassembler is missing (rocm-llvm-python)",
                hint="pip install 'asmlaunch[emulator]'; where that has no wheel, install ROCm or an llvm-objdump of "
                f"version {OLDEST} or later",
            ) from error
        return _Tool(tool, processor)


class _Library:
    """LLVM in this process."""

    def __init__(self, processor: str) -> None:
        from rocm.llvm.c import disassembler, target

        target.LLVMInitializeAllTargetInfos()
        target.LLVMInitializeAllTargetMCs()
        target.LLVMInitializeAllDisassemblers()
        self._api = disassembler
        self._context = disassembler.LLVMCreateDisasmCPUFeatures(
            _TRIPLE.encode(), processor.encode(), b"", None, 0, None, None
        )
        self._line = ctypes.create_string_buffer(1024)

    def expect(self, code: bytes, start: int) -> None:
        """Nothing to prepare."""

    def decode(self, window: bytes, pointer: int, address: int) -> tuple[int, str]:
        size = self._api.LLVMDisasmInstruction(
            self._context, pointer, len(window), address, self._line, len(self._line)
        )
        return size, self._line.value.decode().strip()


@cache
def objdump() -> str | None:
    """An llvm-objdump that knows these processors: ROCm's, or one on PATH."""
    roots = [Path(os.environ[name]) for name in ("ROCM_PATH", "HIP_PATH") if name in os.environ]
    places = [str(root / "llvm" / "bin" / "llvm-objdump") for root in [*roots, Path("/opt/rocm")]]
    for name in [*places, *(f"llvm-objdump-{version}" for version in range(30, OLDEST - 1, -1)), "llvm-objdump"]:
        if path := shutil.which(name):
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            version = re.search(r"version (\d+)", said)
            if version and int(version[1]) >= OLDEST and "amdgcn" in said:
                return path
    return None


class _Tool:
    """llvm-objdump, asked for the rest of the code at once: starting it takes longer than decoding a kernel."""

    def __init__(self, tool: str, processor: str) -> None:
        self._tool, self._processor = tool, processor
        self.expect(b"", 0)

    def expect(self, code: bytes, start: int) -> None:
        self._code, self._start = code, start
        self._known: dict[int, tuple[int, str]] = {}

    def decode(self, window: bytes, pointer: int, address: int) -> tuple[int, str]:
        if address not in self._known:
            offset = address - self._start
            inside = 0 <= offset < len(self._code) and self._code[offset : offset + len(window)] == window
            if not inside:
                return dict(self._lines(window, address)).get(address, (0, ""))
            self._known = {address: (0, "")} | self._known | dict(self._lines(self._code[offset:], address))
        return self._known[address]

    def _lines(self, code: bytes, address: int) -> Iterator[tuple[int, tuple[int, str]]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "code.o"
            path.write_bytes(_elf(code, address))
            command = [self._tool, "-d", "-z", f"--triple={_TRIPLE}", f"--mcpu={self._processor}", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CodeObjectError(
                f"machine code from {address:#x}",
                got=f"{self._tool} ends with {done.returncode}: {done.stderr[-200:]}",
                need=f"instructions of {self._processor}",
                hint="the code object is damaged, or is for another processor",
            )
        for line in done.stdout.splitlines():
            match = _LINE.match(line)
            if match and not match["text"].startswith("."):
                yield int(match["address"], 16), (4 * len(match["words"].split()), match["text"])


def _elf(code: bytes, address: int) -> bytes:
    """An ELF file with nothing but one section of code at an address (System V ABI, "ELF Header", "Section Header")."""
    names = b"\0.text\0.names\0"
    after = 64 + len(code)
    sections = after + len(names) + -(after + len(names)) % 8
    header = b"\x7fELF\x02\x01\x01\x40\x04" + bytes(7)  # 64 bits, little-endian, AMDGPU's HSA, version 4
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 0, sections, 0, 64, 56, 0, 64, 3, 2)

    def section(name: int, kind: int, flags: int, at: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQIIQQ", name, kind, flags, at, offset, size, 0, 0, 4, 0)

    table = bytes(64) + section(1, 1, 6, address, 64, len(code)) + section(7, 3, 0, 0, after, len(names))
    return (header + code + names).ljust(sections, b"\0") + table
