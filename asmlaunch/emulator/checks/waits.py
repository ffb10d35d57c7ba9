"""Missing ``s_waitcnt``: registers that may be used while the load that fills them is still on its way.

Memory operations are taken to complete as late as the counters allow. Operations of vector memory complete in order,
and so do those of LDS; scalar loads do not, so only a wait for 0 says that they have (AMD CDNA3 ISA manual, "Data
dependency resolution"). A flow analysis over all paths finds the instructions that may come too early; only those are
compiled with a test, so a finding is always something that happened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from asmlaunch.emulator.decode import Immediate, Instruction
from asmlaunch.emulator.flow import Place, memory_operands, reads, writes
from asmlaunch.emulator.isa.table import Access, Control, find
from asmlaunch.emulator.program import Program

#: What a wait that names no counter leaves: more than can be outstanding.
NO_LIMIT = 64


@dataclass(frozen=True)
class Wait:
    """The most operations that may be outstanding after an ``s_waitcnt``."""

    vm: int = NO_LIMIT
    lgkm: int = NO_LIMIT


def wait_of(instruction: Instruction) -> Wait:
    """What an ``s_waitcnt`` waits for, as printed by name or as its 16-bit immediate (vmcnt 15:14 and 3:0, lgkmcnt
    11:8).
    """
    if instruction.operands and isinstance(instruction.operands[0], Immediate):
        bits = instruction.operands[0].as_int()
        return Wait((bits & 15) | (bits >> 14 & 3) << 4, bits >> 8 & 15)
    counts = {name: int(number, 0) for name, number in re.findall(r"(\w+)\((\w+)\)", instruction.text)}
    return Wait(counts.get("vmcnt", NO_LIMIT), counts.get("lgkmcnt", NO_LIMIT))


def counters(definition: Access) -> tuple[str, ...]:
    """The counters that an access increments."""
    if definition.space.startswith("scalar"):
        return ("scalar",)
    return {"lds": ("lds",), "flat": ("vm", "lds")}.get(definition.space, ("vm",))


@dataclass
class Suspects:
    """Where a register may be used too early.

    Attributes:
        uses: registers to test at an instruction's address, with the counters of the loads that may fill them.
        tracked: registers whose loads have to be numbered.
    """

    uses: dict[int, dict[Place, tuple[str, ...]]] = field(default_factory=dict)
    tracked: set[Place] = field(default_factory=set)


#: For each register on its way and each counter: how many operations of that counter have been issued since.
State = dict[Place, dict[str, int]]


def suspects(program: Program) -> Suspects:
    """Uses of registers that some path reaches before it has waited for their loads."""
    found = Suspects()
    entry: dict[int, State] = {0: {}}
    pending = [0]
    while pending:
        index = pending.pop()
        state = {place: dict(distances) for place, distances in entry[index].items()}
        block = program.blocks[index]
        for instruction in block.instructions:
            _step(instruction, state, found)
        for successor in block.successors:
            if successor not in entry:
                entry[successor] = {place: dict(distances) for place, distances in state.items()}
                pending.append(successor)
            elif _join(entry[successor], state):
                pending.append(successor)
    return found


def _step(instruction: Instruction, state: State, found: Suspects) -> None:
    definition = find(instruction.mnemonic)
    if isinstance(definition, Control) and definition.action == "wait":
        _wait(wait_of(instruction), state)
        return
    used, written = reads(instruction), writes(instruction)
    own = counters(definition) if isinstance(definition, Access) else ()
    for place in (*used, *written):
        # A later load of the same counter overwrites in order.
        if place in state and not (place not in used and set(state[place]) <= set(own) and own != ("scalar",)):
            found.uses.setdefault(instruction.address, {})[place] = tuple(sorted(state[place]))
            found.tracked.add(place)
    for place in written:
        state.pop(place, None)
    if isinstance(definition, Access):
        for distances in state.values():
            for counter in own:
                if counter in distances:
                    distances[counter] = min(distances[counter] + 1, NO_LIMIT)
        for place in memory_operands(instruction, definition).destination:
            state[place] = dict.fromkeys(own, 0)


def _wait(wait: Wait, state: State) -> None:
    limits = {"vm": wait.vm, "lds": wait.lgkm, "scalar": wait.lgkm}
    for place, distances in list(state.items()):
        for counter, distance in list(distances.items()):
            arrived = limits[counter] == 0 if counter == "scalar" else distance >= limits[counter]
            if arrived:
                del distances[counter]
        if not distances:
            del state[place]


def _join(into: State, other: Mapping[Place, Mapping[str, int]]) -> bool:
    """Add what may be on its way on another path; whether that changed anything."""
    changed = False
    for place, distances in other.items():
        known = into.setdefault(place, {})
        for counter, distance in distances.items():
            if known.get(counter, NO_LIMIT + 1) > distance:
                known[counter] = distance
                changed = True
    return changed
