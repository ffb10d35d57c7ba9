"""Which registers an instruction reads and writes, read off its definition's signature and its operands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from asmlaunch.emulator.decode import EXEC, M0, VCC, Instruction, Operand, Register
from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.table import Access, Branch, Compute, Control, Mfma, find, is_implicit


class Place(NamedTuple):
    """One dword of state: file "s", "v" or "a" and number, or ``("scc", 0)`` or ``("exec", 0)``."""

    file: str
    number: int


EXEC_PLACE, SCC_PLACE = Place("exec", 0), Place("scc", 0)

_STATE: dict[type[isa.Value], tuple[Place, ...]] = {
    isa.Scc: (SCC_PLACE,),
    isa.Exec: (EXEC_PLACE,),
    isa.Active: (EXEC_PLACE,),
    isa.M0: (Place("s", M0),),
    isa.Vcc: (Place("s", VCC), Place("s", VCC + 1)),
    isa.VccMask: (Place("s", VCC), Place("s", VCC + 1)),
}


def state_places(kind: type[isa.Value]) -> tuple[Place, ...]:
    """The places of a piece of machine state that a signature names; constants of the kernel have none."""
    return _STATE.get(kind, ())


def places(operands: Iterable[Operand]) -> tuple[Place, ...]:
    """The dwords that register operands cover; other operands have none."""
    found: list[Place] = []
    for operand in operands:
        if isinstance(operand, Register):
            for number in range(operand.index, operand.index + operand.count):
                found.append(EXEC_PLACE if operand.file == "s" and number >= EXEC else Place(operand.file, number))
    return tuple(found)


@dataclass(frozen=True)
class MemoryOperands:
    """The operands of a memory instruction by what they are for.

    Attributes:
        address: what the address is made of: VGPRs, base, resource, offsets, M0.
        data: what is stored or combined with memory.
        destination: what is loaded.
    """

    address: tuple[Place, ...]
    data: tuple[Place, ...]
    destination: tuple[Place, ...]


def returns(instruction: Instruction, definition: Access) -> bool:
    """Whether an atomic gives back the old value."""
    return "_rtn" in instruction.mnemonic or any(name in instruction.modifiers for name in ("sc0", "glc"))


def memory_operands(instruction: Instruction, definition: Access) -> MemoryOperands:
    """Split a memory instruction's operands (AMD CDNA4 ISA manual, the encodings' field lists)."""
    operands = list(instruction.operands)
    data: list[Operand] = []
    destination: list[Operand] = []
    implicit: tuple[Place, ...] = ()
    if "lds" in instruction.modifiers or "_load_lds_" in instruction.mnemonic:
        implicit = state_places(isa.M0)
    elif definition.kind == "load":
        destination = [operands.pop(0)]
    elif definition.space in ("buffer", "scalar"):
        data = [operands.pop(0)]
        if definition.kind == "atomic" and returns(instruction, definition):
            destination = data
    else:
        if definition.kind == "atomic" and returns(instruction, definition):
            destination = [operands.pop(0)]
        # An address, then the data; a base register may follow in the flat encodings.
        data, operands = operands[1:], operands[:1]
        if definition.space != "lds":
            data, operands = data[:1], operands + data[1:]
    return MemoryOperands(places(operands) + implicit, places(data), places(destination))


def _compute_operands(instruction: Instruction, definition: Compute) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """Destinations and sources."""
    count = sum(not is_implicit(kind) for kind in definition.results)
    if instruction.mnemonic.startswith("v_permlane") and "swap" in instruction.mnemonic:
        return instruction.operands, instruction.operands
    sources = instruction.operands[count:]
    if any(name == "d" for name, _ in definition.sources):
        sources = (*instruction.operands[:1], *sources)
    return instruction.operands[:count], sources


@lru_cache(maxsize=1 << 16)
def reads(instruction: Instruction) -> tuple[Place, ...]:
    """The places an instruction reads; EXEC among them where it decides which lanes take part."""
    definition = find(instruction.mnemonic)
    if isinstance(definition, Compute):
        _, sources = _compute_operands(instruction, definition)
        state = [place for _, kind in definition.sources if is_implicit(kind) for place in state_places(kind)]
        lanes = (EXEC_PLACE,) if definition.unit == "valu" else ()
        return (*places(sources), *state, *lanes)
    if isinstance(definition, Access):
        operands = memory_operands(instruction, definition)
        lanes = () if definition.space == "scalar" else (EXEC_PLACE,)
        return (*operands.address, *operands.data, *lanes)
    if isinstance(definition, Mfma):
        return places(instruction.operands[1:])
    if isinstance(definition, Branch):
        return tuple(place for _, kind in definition.sources for place in state_places(kind))
    assert isinstance(definition, Control)
    if definition.action in ("pc", "call"):
        return places(instruction.operands[1:])
    return places(instruction.operands)


@lru_cache(maxsize=1 << 16)
def writes(instruction: Instruction) -> tuple[Place, ...]:
    """The places an instruction writes."""
    definition = find(instruction.mnemonic)
    if isinstance(definition, Compute):
        destinations, _ = _compute_operands(instruction, definition)
        state = [place for kind in definition.results if is_implicit(kind) for place in state_places(kind)]
        return (*places(destinations), *state)
    if isinstance(definition, Access):
        return memory_operands(instruction, definition).destination
    if isinstance(definition, Mfma):
        return places(instruction.operands[:1])
    if isinstance(definition, Control) and definition.action == "index_on":
        return state_places(isa.M0)
    if isinstance(definition, Control) and definition.action in ("pc", "call"):
        return places(instruction.operands[:1])
    return ()
