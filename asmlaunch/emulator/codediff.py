"""Two kernels compared by their machine code: instructions by class and name, basic blocks, kernarg bytes.

Registers and addresses change with every build, so blocks are matched by their sequence of mnemonics; those that match
are then equal or differ in operands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.emulator.liveness import Liveness, liveness
from asmlaunch.emulator.liveness.result import ranges
from asmlaunch.errors import TargetError

if TYPE_CHECKING:
    from rich.console import Group

#: Classes in order; the first whose pattern matches a whole mnemonic counts it.
CLASSES = (
    ("matrix", r"v_(mfma|smfmac|wmma|swmmac)_.*"),
    ("branch", r"s_(c?branch\w*|setpc_b64|swappc_b64|call_b64|endpgm\w*)"),
    ("synchronisation", r"s_(wait\w*|barrier\w*|sleep|setprio|nop|delay_alu)"),
    ("scalar memory", r"s_(buffer_|scratch_)?(load|store|atomic)_.*|s_dcache\w*"),
    ("LDS", r"ds_.*"),
    ("vector memory", r"(t?buffer|global|flat|scratch|image)_.*"),
    ("scalar", r"s_.*"),
    ("vector", r"v_.*"),
)  # fmt: skip

_CLASSES = tuple((name, re.compile(pattern)) for name, pattern in CLASSES)
_JUMP = re.compile(r"(s_c?branch\w*|s_call_b64)\b.*?(-?\d+|0x[0-9a-f]+)$")
_ENDS = re.compile(r"s_(c?branch|endpgm|setpc|swappc|call)")  # a block
_STOPS = re.compile(r"s_(branch|endpgm|setpc)")  # the flow into the next instruction
_ENCODING = re.compile(r"_(e32|e64|e64_dpp|sdwa|dpp)$")


@dataclass(frozen=True)
class CodeBlock:
    """Instructions between branches and branch targets; the distance a branch jumps is left out of its text."""

    address: int
    lines: tuple[str, ...]

    @property
    def mnemonics(self) -> tuple[str, ...]:
        """Names in order, without the encoding."""
        return tuple(_mnemonic(line) for line in self.lines)


@dataclass(frozen=True)
class BlockChange:
    """Blocks that correspond but are not equal; a side without a counterpart is None.

    Attributes:
        a, b: the blocks.
        removed, added: instructions (with operands) of one that the other does not have.
    """

    a: CodeBlock | None
    b: CodeBlock | None
    removed: int
    added: int

    @property
    def kind(self) -> str:
        """``"operands"`` (same instructions in order), ``"code"``, ``"removed"`` or ``"new"``."""
        if self.a is None or self.b is None:
            return "new" if self.a is None else "removed"
        return "operands" if self.a.mnemonics == self.b.mnemonics else "code"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "kind": self.kind,
            "address_a": self.a.address if self.a else None,
            "address_b": self.b.address if self.b else None,
            "instructions": [len(side.lines) if side else 0 for side in (self.a, self.b)],
            "removed": self.removed,
            "added": self.added,
        }


@dataclass(frozen=True)
class CodeDiff:
    """The comparison; true when the code differs.

    Attributes:
        a, b: kernel names.
        counts: instructions by mnemonic, in a and in b.
        equal_blocks: blocks that are the same.
        changes: the others, in order of address.
        live: what each kernel does with its arguments; None where it cannot be analysed (not a gfx9 processor).
    """

    a: str
    b: str
    counts: Mapping[str, tuple[int, int]]
    equal_blocks: int
    changes: tuple[BlockChange, ...]
    live: tuple[Liveness, Liveness] | None

    def __bool__(self) -> bool:
        return bool(self.changes)

    @property
    def classes(self) -> dict[str, tuple[int, int]]:
        """Instructions by class, in a and in b."""
        totals: dict[str, tuple[int, int]] = {}
        for mnemonic, (in_a, in_b) in self.counts.items():
            name = next((name for name, pattern in _CLASSES if pattern.fullmatch(mnemonic)), "other")
            before = totals.get(name, (0, 0))
            totals[name] = before[0] + in_a, before[1] + in_b
        return {name: totals[name] for name in (*(name for name, _ in CLASSES), "other") if name in totals}

    @property
    def arguments(self) -> dict[str, list[tuple[int, int]]]:
        """Kernarg bytes, as ``(first, past the last)``, that only one of the kernels loads or uses."""
        if self.live is None:
            return {}
        a, b = self.live
        sets = {
            "loaded only by a": a.loaded - b.loaded,
            "loaded only by b": b.loaded - a.loaded,
            "used only by a": a.used - b.used,
            "used only by b": b.used - a.used,
        }
        return {what: ranges(found) for what, found in sets.items() if found}

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "differs": bool(self),
            "kernels": [self.a, self.b],
            "arguments": self.arguments,
            "classes": self.classes,
            "mnemonics": {name: pair for name, pair in self.counts.items() if pair[0] != pair[1]},
            "equal_blocks": self.equal_blocks,
            "changed_blocks": [change.to_json() for change in self.changes],
        }

    def summary(self) -> str:
        """One line: sizes, and how many blocks are equal."""
        totals = [sum(pair[side] for pair in self.counts.values()) for side in (0, 1)]
        if not self.changes:
            return f"code: {totals[0]} instructions, the same in both"
        kinds = Counter(change.kind for change in self.changes)
        texts = {
            "operands": "with other operands", "code": "with other code", "removed": "only in a", "new": "only in b",
        }  # fmt: skip
        changed = ", ".join(f"{kinds[kind]} {text}" for kind, text in texts.items() if kinds[kind])
        return f"code: {totals[0]} -> {totals[1]} instructions; blocks: {self.equal_blocks} equal, {changed}"

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.table import Table

        parts: list[Any] = [self.summary()]
        for what, spans in self.arguments.items():
            parts.append(f"argument bytes {what}: {', '.join(f'{low}..{high - 1}' for low, high in spans)}")
        if self:
            table = Table()
            for column in ("instructions", "a", "b", "change"):
                table.add_column(column, justify="left" if column == "instructions" else "right")
            rows = [*self.classes.items(), *((f"  {name}", pair) for name, pair in self._most_changed())]
            for name, (in_a, in_b) in rows:
                table.add_row(name, str(in_a), str(in_b), f"{in_b - in_a:+d}" if in_a != in_b else "")
            parts.append(table)
        return Group(*parts)

    def _most_changed(self, limit: int = 12) -> list[tuple[str, tuple[int, int]]]:
        changed = [(name, pair) for name, pair in self.counts.items() if pair[0] != pair[1]]
        return sorted(changed, key=lambda entry: -abs(entry[1][0] - entry[1][1]))[:limit]


def code_diff(a: KernelInfo, b: KernelInfo) -> CodeDiff:
    """Compare the machine code of two kernels.

    Raises:
        CodeObjectError: bytes that are no instruction. DeviceError: no disassembler (extra ``emulator``).
    """
    blocks = blocks_of(a), blocks_of(b)
    tallies = [Counter(name for block in side for name in block.mnemonics) for side in blocks]
    counts = {name: (tallies[0][name], tallies[1][name]) for name in sorted(tallies[0] | tallies[1])}
    equal, changes = _match(*blocks)
    return CodeDiff(a.name, b.name, counts, equal, tuple(changes), _live(a, b))


def _live(a: KernelInfo, b: KernelInfo) -> tuple[Liveness, Liveness] | None:
    try:
        return liveness(a), liveness(b)
    except TargetError:
        return None


def _mnemonic(line: str) -> str:
    return _ENCODING.sub("", line.partition(" ")[0])


def blocks_of(kernel: KernelInfo) -> list[CodeBlock]:
    """The function as blocks, in order of address; what nothing jumps to or runs into (padding) is left out."""
    instructions = Disassembler(kernel.target.processor).text(kernel.code, kernel.code_address)
    targets = {kernel.code_address}
    for address, size, text in instructions:
        if match := _JUMP.fullmatch(text):
            targets.add(address + size + 4 * ((int(match[2], 0) & 0xFFFF ^ 0x8000) - 0x8000))
    blocks: list[tuple[int, list[str]]] = []
    before = "s_endpgm"
    for address, _, text in instructions:
        reached = address in targets or not _STOPS.match(before)
        before = text if reached else "s_endpgm"
        if not reached:
            continue
        if address in targets or not blocks or _ENDS.match(blocks[-1][1][-1]):
            blocks.append((address, []))
        match = _JUMP.fullmatch(text)
        blocks[-1][1].append(text[: match.start(2)].rstrip() if match else text)
    return [CodeBlock(address, tuple(lines)) for address, lines in blocks]


def _match(a: list[CodeBlock], b: list[CodeBlock]) -> tuple[int, list[BlockChange]]:
    equal, changes = 0, []
    matcher = SequenceMatcher(None, [block.mnemonics for block in a], [block.mnemonics for block in b], autojunk=False)
    for _, a_from, a_to, b_from, b_to in matcher.get_opcodes():
        for place in range(max(a_to - a_from, b_to - b_from)):
            left = a[a_from + place] if a_from + place < a_to else None
            right = b[b_from + place] if b_from + place < b_to else None
            if left is not None and right is not None and left.lines == right.lines:
                equal += 1
                continue
            before, after = (Counter(side.lines if side else ()) for side in (left, right))
            changes.append(BlockChange(left, right, (before - after).total(), (after - before).total()))
    return equal, changes
