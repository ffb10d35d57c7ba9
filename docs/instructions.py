"""Writes docs/instructions.md: the instructions of the wheel's objects, their definitions, and what tests them.

    python docs/instructions.py FOLDER > docs/instructions.md

FOLDER is ``aiter_meta/hsa`` of the installed wheel. The tests of instructions are run (a minute or two), and what they
assemble is noted: an instruction is tested by a file when the file's kernels contain it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from asmlaunch.codeobject import read
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.emulator.isa.table import Access, Branch, Compute, Control, Definition, Mfma, find, mnemonics
from asmlaunch.validate.coverage import key_of

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

#: Files of tests whose oracle is independent of the emulator, and what the oracle is.
ORACLES = {
    "test_semantics": "the manual's pseudocode (tinygrad 0.14.0)",
    "test_matrix": "numpy, layouts written out",
    "test_memory": "numpy",
    "test_atomics": "numpy",
    "test_scratch": "numpy",
    "test_models": "numpy models from the manual",
}


def census(folder: Path) -> tuple[Counter[str], Counter[str], int]:
    """Instructions and objects by key, and the number of objects."""
    instructions: Counter[str] = Counter()
    objects: Counter[str] = Counter()
    files = sorted(folder.rglob("*.co"))
    for path in files:
        here: Counter[str] = Counter()
        for kernel in read(path).kernels.values():
            for _, _, text in Disassembler(kernel.target.processor).text(kernel.code, kernel.code_address):
                here[key_of(text)] += 1
        instructions.update(here)
        objects.update(here.keys())
    return instructions, objects, len(files)


class Recorder:
    """A pytest plugin that notes which mnemonics each file of tests assembles."""

    def __init__(self) -> None:
        self.seen: dict[str, set[str]] = defaultdict(set)
        self._file = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._file = item.path.stem

    def pytest_collection_finish(self) -> None:
        from emulator import toolkit

        assemble = toolkit.assemble_object

        def noting(text: str, processor: str) -> bytes:
            for name in re.findall(r"^\s+([a-z]\w+)", text, re.MULTILINE):
                self.seen[re.sub("_(e32|e64|sdwa|dpp)$", "", name)].add(self._file)
            return assemble(text, processor)

        toolkit.assemble_object = noting


def tested() -> dict[str, set[str]]:
    """Files of tests by mnemonic."""
    recorder = Recorder()
    files = [str(TESTS / "emulator" / f"{name}.py") for name in ORACLES]
    with redirect_stdout(sys.stderr):
        status = pytest.main(["-q", "-p", "no:cacheprovider", f"--rootdir={TESTS.parent}", *files], plugins=[recorder])
    if status:
        raise SystemExit("the tests of instructions fail")
    return recorder.seen


def oracle(name: str, seen: dict[str, set[str]]) -> str:
    """What an instruction is compared with."""
    from emulator import differential

    files = seen.get(name, set())
    definition = find(name)
    for file, what in ORACLES.items():
        if file == "test_semantics" and not (isinstance(definition, Compute) and differential.has_pseudocode(name)):
            continue
        if file == "test_matrix" and not isinstance(definition, Mfma):
            continue
        if file in files:
            return what
    return "whole kernels" if isinstance(definition, Control | Branch) else ""


def note(definition: Definition | None) -> str:
    """Exactness, and the definition's note."""
    if isinstance(definition, Compute):
        return ("exact" if definition.exact else "bound") + (f": {definition.note}" if definition.note else "")
    if isinstance(definition, Mfma):
        return f"model: {definition.model}"
    return "exact" if isinstance(definition, Access | Branch | Control) else "not defined"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    instructions, objects, count = census(options.folder)
    seen = tested()
    names = {key.partition(" ")[0] for key in instructions}
    defined = mnemonics()
    computes = [name for name in defined if isinstance(find(name), Compute)]
    compared = [name for name in defined if oracle(name, seen) not in ("", "whole kernels")]
    print("# Instructions\n")
    print("Made by `python docs/instructions.py`. See `asmlaunch/emulator/isa` for the definitions.\n")
    total = sum(instructions.values())
    print(f"* {count:,} objects, {total:,} instructions, {len(instructions)} keys (mnemonic with what")
    print(f"  changes its meaning), {len(names)} mnemonics; defined: {sum(find(name) is not None for name in names)}.")
    print(f"* The table defines {len(defined):,} mnemonics, {len(computes)} of them arithmetic; {len(compared):,} are")
    print("  compared with an oracle that is independent of the emulator.\n")
    print("| instruction | form | in the wheel | objects | compared with | exactness |")
    print("|---|---|---:|---:|---|---|")
    for key, number in sorted(instructions.items(), key=lambda item: (-item[1], item[0])):
        name, _, form = key.partition(" ")
        print(f"| `{name}` | {form} | {number:,} | {objects[key]:,} | {oracle(name, seen)} | {note(find(name))} |")
    untested = [name for name in defined if name not in names and not oracle(name, seen)]
    print("\n## Defined, not in the wheel and not compared yet\n")
    print(", ".join(f"`{name}`" for name in untested) or "none")


if __name__ == "__main__":
    main()
