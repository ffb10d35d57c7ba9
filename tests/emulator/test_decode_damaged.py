"""Bytes that are no instruction: a named error, and never the end of the process.

The random words run in a process of their own, so that a crash of LLVM fails one test and not the whole run.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from asmlaunch.emulator.decode import Disassembler
from asmlaunch.errors import CodeObjectError

RANDOM = """
import random, sys
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.errors import CodeObjectError
random.seed(int(sys.argv[1]))
tops = (0xD0, 0xD1, 0xD2, 0xD3, 0xE0, 0xE8, 0xE9, 0xEA, 0xD8, 0xDC, 0xC0, 0x5B, 0x7E)
for processor in ("gfx942", "gfx950"):
    disassembler = Disassembler(processor)
    for _ in range(3000):
        words = bytearray(random.randbytes(20))
        if random.random() < 0.7:
            words[3] = random.choice(tops)
        if random.random() < 0.5:
            words[4 + random.randrange(4)] = 0xFF
        try:
            disassembler.one(bytes(words), 0x1000)
        except CodeObjectError:
            pass
print("done")
"""


@pytest.mark.parametrize("seed", range(4))
def test_random_words(seed: int) -> None:
    done = subprocess.run([sys.executable, "-c", RANDOM, str(seed)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr[-2000:]


@pytest.mark.parametrize(
    "code",
    [
        "f8d001e9801f00ff",  # MTBUF, SOFFSET a literal
        "00004be0ff0000ff",  # MUBUF, SOFFSET a literal
        "01000bd1ff020000",  # VOP3, a literal operand
        "f95af55b4b97e296",  # SDWA, part 7
        "",
        "ff",
    ],
)
def test_encodings_that_end_llvm(code: str) -> None:
    with pytest.raises(CodeObjectError, match="machine code at 0x1000"):
        Disassembler("gfx942").one(bytes.fromhex(code), 0x1000)
