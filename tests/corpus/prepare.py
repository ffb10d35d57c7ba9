"""Which code objects the emulator can prepare: every instruction that control flow reaches is compiled once a form.

    python tests/corpus/prepare.py FOLDER [--shard 0/4]

Two instructions have the same form when they differ in register numbers, constants and addresses only; then one
compiles if the other does. Prints one line for every reason that an object cannot be prepared, and the counts.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from asmlaunch.codeobject import CodeObject, KernelInfo, read
from asmlaunch.emulator import mode, program
from asmlaunch.emulator.compile import compile_blocks
from asmlaunch.emulator.decode import Instruction
from asmlaunch.emulator.isa.table import Branch, Control, find
from asmlaunch.errors import AsmlaunchError

_NUMBERS = re.compile(r"(?<![\w.])-?(0x[0-9a-f]+|\d+)(?![\w.])")
_REGISTERS = re.compile(r"\b([sva])(\d+|\[\d+:\d+\])")


def _register(match: re.Match[str]) -> str:
    numbers = [int(number) for number in re.findall(r"\d+", match[2])]
    return f"{match[1]}<{numbers[-1] - numbers[0] + 1}>"


def form(instruction: Instruction, state: mode.Mode, processor: str) -> tuple[object, ...]:
    """What decides whether an instruction compiles."""
    text = _NUMBERS.sub("#", _REGISTERS.sub(_register, instruction.text))
    return processor, text, state


def compile_one(kernel: KernelInfo, instruction: Instruction, state: mode.Mode) -> None:
    """Compile a block of one instruction to IR."""
    block = program.Block(0, [instruction], fallthrough=0, mode=state)
    compile_blocks(program.Program(kernel, [block]))


def reasons(kernel: KernelInfo, known: dict[tuple[object, ...], str]) -> set[str]:
    """Why a kernel cannot be prepared; empty: it can."""
    try:
        parsed = program.build(kernel, waits=True, full_exec=True)
    except AsmlaunchError as error:
        return {str(error)}
    found = set()
    for block in parsed.blocks:
        state = block.mode
        for instruction in block.instructions:
            definition = find(instruction.mnemonic)
            if not isinstance(definition, Branch | Control):
                key = form(instruction, state, kernel.target.processor)
                if key not in known:
                    known[key] = ""
                    try:
                        compile_one(kernel, instruction, replace(state))
                    except AsmlaunchError as error:
                        known[key] = str(error)
                if known[key]:
                    found.add(known[key])
            state = mode.after(instruction, state)
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shard", default="0/1", help="this part of so many")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.shard.split("/"))
    known: dict[tuple[object, ...], str] = {}
    good = 0
    failed: Counter[str] = Counter()
    files = sorted(options.folder.rglob("*.co"))[part::parts]
    for path in files:
        opened: CodeObject = read(path)
        found = set().union(*(reasons(kernel, known) for kernel in opened.kernels.values()))
        good += not found
        for reason in found:
            failed[re.sub(r"^kernel \S+ at 0x[0-9a-f]+: ", "", reason)] += 1
    for reason, count in failed.most_common():
        print(f"{count:5} {reason}")
    print(f"{good} of {len(files)} objects can be prepared; {len(known)} forms of instructions")
    return good != len(files)


if __name__ == "__main__":
    sys.exit(main())
