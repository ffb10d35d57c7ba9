"""Where there is no library that disassembles, a tool of this machine does, and says the same."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.emulator import disassembly, program
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.errors import CodeObjectError, DeviceError

TOOL = disassembly.objdump()

STAND_IN = """#!{python}
import sys
from elftools.elf.elffile import ELFFile
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.errors import CodeObjectError

processor = next(one for one in sys.argv if one.startswith("--mcpu="))[7:]
section = ELFFile(open(sys.argv[-1], "rb")).get_section_by_name(".text")
code, start, disassembler, offset = section.data(), section["sh_addr"], Disassembler(processor), 0
while offset < len(code):
    try:
        one = disassembler.one(code[offset:], start + offset)
        size, text = one.size, one.text
    except CodeObjectError:
        size, text = 4, ".long 0x0"
    words = [code[at : at + 4][::-1].hex().upper() for at in range(offset, offset + size, 4)]
    print(f"\\t{{text:<60}}// {{start + offset:012X}}: {{' '.join(words)}}")
    offset += size
"""


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocm.llvm.c", None)


def programs(path: Path) -> list[tuple[int, str]]:
    (kernel,) = codeobject.read(path).kernels.values()
    parsed = program.build(kernel, waits=False, full_exec=True)
    return [(one.address, one.text) for one in parsed.instructions()]


def test_neither_library_nor_tool(no_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "objdump", lambda: None)
    with pytest.raises(DeviceError, match=r"missing \(rocm-llvm-python\).*llvm-objdump of version 20 or later"):
        Disassembler("gfx950")


@pytest.mark.parametrize(
    ("version", "targets", "taken"), [(19, "amdgcn", False), (22, "x86-64", False), (20, "amdgcn", True)]
)
def test_tools_too_old_or_for_other_processors_are_passed_over(
    version: int, targets: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "llvm" / "bin"
    folder.mkdir(parents=True)
    tool = folder / "llvm-objdump"
    tool.write_text(f"#!/bin/sh\necho 'LLVM version {version}.1.0'\necho '  {targets} - target'\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", "/bin")
    found = disassembly.objdump.__wrapped__()
    assert (found == str(tool)) is taken


@pytest.mark.parametrize("tool", ["stand-in", *([TOOL] if TOOL else [])])
@pytest.mark.parametrize("name", ["f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", "topksoftmax_4x128x6.co"])
def test_a_tool_decodes_what_the_library_does(
    name: str, tool: str, aiter_kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """The tool is a real one where there is one; everywhere, one that prints as it does what the library says."""
    path = next(aiter_kernels.rglob(name))
    (kernel,) = codeobject.read(path).kernels.values()
    by_library = programs(path), Disassembler(kernel.target.processor).text(kernel.code, kernel.code_address)
    if tool == "stand-in":
        tool = str(tmp_path / "llvm-objdump")
        Path(tool).write_text(STAND_IN.format(python=sys.executable))
        Path(tool).chmod(0o755)
    request.getfixturevalue("no_library")
    started: list[int] = []
    run = disassembly.subprocess.run
    monkeypatch.setattr(disassembly, "objdump", lambda: tool)
    monkeypatch.setattr(disassembly.subprocess, "run", lambda *a, **k: started.append(1) or run(*a, **k))
    by_tool = programs(path), Disassembler(kernel.target.processor).text(kernel.code, kernel.code_address)
    assert by_tool == by_library
    assert len(started) == 2
    with pytest.raises(CodeObjectError, match="machine code at 0x44"):
        Disassembler("gfx950").text(bytes.fromhex("010080bf ffffffff"), 0x40)


def test_a_tool_that_ends_badly(no_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "objdump", lambda: "false")
    with pytest.raises(CodeObjectError, match="false ends with 1"):
        Disassembler("gfx950").one(bytes.fromhex("010080bf"), 0)
