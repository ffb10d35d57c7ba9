"""One instruction -> what it does to the flow of data: registers read and written, and where values end up.

Compute instructions follow ``roles``; memory instructions follow the operand order of their encoding (AMD CDNA3 ISA
manual, "Scalar Memory", "Vector Memory", "Flat Memory" and "Data Share"), as LLVM prints it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from asmlaunch.emulator.decode import Immediate, Instruction, Operand, Register, Word, parse
from asmlaunch.emulator.liveness import values
from asmlaunch.emulator.liveness.registers import (
    EXEC,
    LDS,
    M0,
    MEMORY,
    SCC,
    SCRATCH,
    VGPR,
    bits,
    file_from,
    numbers,
)
from asmlaunch.emulator.liveness.roles import roles

Registers = tuple[int, ...]


class Use(Enum):
    """Where a value ends up."""

    STORE = "store data"
    ADDRESS = "address"
    LDS_DATA = "LDS data"
    LDS_ADDRESS = "LDS address"
    BRANCH = "branch"


@dataclass(frozen=True)
class Source:
    """A dword read: a register, or a constant."""

    register: int = -1
    constant: int | None = None


@dataclass(frozen=True)
class Known:
    """How the value of one written dword follows from those read: by ``rule``, constants by definition if ``folds``."""

    target: int
    mnemonic: str
    sources: tuple[Source, ...]
    rule: values.Rule | None
    folds: bool = False


@dataclass(frozen=True)
class Address:
    """Where a load reads.

    Attributes:
        base: registers of the 64-bit base address.
        offsets: dwords added to it.
        others: further registers the address depends on (index, bounds, other words of a resource).
        total: bytes loaded.
    """

    base: Registers
    offsets: tuple[Source, ...]
    others: Registers
    total: int


@dataclass(frozen=True)
class Effect:
    """What the analysis needs of an instruction.

    Attributes:
        text: the instruction as disassembled.
        reads: registers and carriers whose provenance every written register gets.
        writes: registers and carriers written.
        parallel: for each of ``writes`` the registers that alone flow into it; () when all of ``reads`` do.
        keeps: the old provenance of ``writes`` stays.
        lanes: vector registers are written under EXEC.
        sinks: where registers end up.
        known: how values follow.
        load: the address, for loads.
        jump: distance in dwords from the next instruction to the target of a branch, or None.
        ends: nothing after it is reached from it.
        unresolved: it goes on at an address in a register.
        indexing: roles that ``s_set_gpr_idx_on`` makes relative; None for other instructions.
        vector_sources: register numbers of each vector source operand, by role, for relative indexing.
        touches: the set of registers it involves, as a bit mask.
        skippable: nothing happens when none of ``touches`` carries anything.
    """

    text: str
    reads: Registers = ()
    writes: Registers = ()
    parallel: tuple[Registers, ...] = ()
    keeps: bool = False
    lanes: bool = False
    sinks: tuple[tuple[Use, Registers], ...] = ()
    known: tuple[Known, ...] = ()
    load: Address | None = None
    jump: int | None = None
    ends: bool = False
    unresolved: bool = False
    indexing: frozenset[str] | None = None
    vector_sources: tuple[tuple[str, int], ...] = ()
    touches: int = 0
    skippable: bool = True


#: The data format of a typed buffer instruction: a list of names that says nothing of the flow.
_FORMAT = re.compile(r" format:\[[^\]]*\]")


@lru_cache(maxsize=1 << 15)
def effect(text: str) -> Effect:
    """The effect of an instruction from its disassembly; addresses and processors of one generation do not matter."""
    instruction = parse(_FORMAT.sub("", text))
    found = _memory(instruction) or _image(instruction) or _control(instruction) or _compute(instruction)
    involved = bits(found.reads) | bits(found.writes)
    for _, registers in found.sinks:
        involved |= bits(registers)
    # A move of a constant matters though nothing flows into it; so does whatever changes EXEC or the indexing mode.
    constant = any(all(source.constant is not None for source in known.sources) for known in found.known)
    special = found.indexing is not None or EXEC in found.writes or "s_setvskip" in text
    object.__setattr__(found, "touches", involved)
    object.__setattr__(found, "skippable", not constant and not special)
    return found


def _flat(operands: Sequence[Operand]) -> Registers:
    return tuple(number for operand in operands for number in numbers(operand))


# ---------------------------------------------------------------- control


def _control(instruction: Instruction) -> Effect | None:
    name, operands = instruction.mnemonic, instruction.operands
    registers = _flat(operands)
    if name.startswith(("s_cbranch_", "s_branch", "s_call_b64")):
        if name in ("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join"):
            return Effect(instruction.text, sinks=((Use.BRANCH, registers),), ends=True, unresolved=True)
        condition = name.removeprefix("s_cbranch_").rstrip("nz01")
        tested = {"scc": (SCC,), "vcc": numbers(Register("s", 106, 2)), "exec": (EXEC, EXEC + 1)}.get(condition, ())
        return Effect(
            instruction.text,
            sinks=((Use.BRANCH, tested),),
            jump=(instruction.branch_target - instruction.end) // 4,
            ends=not name.startswith("s_cbranch_"),
        )
    if name in ("s_setpc_b64", "s_swappc_b64", "s_rfe_b64"):
        sources = registers if name != "s_swappc_b64" else numbers(operands[1])
        return Effect(instruction.text, sinks=((Use.BRANCH, sources),), ends=True, unresolved=True)
    if name.startswith("s_endpgm"):
        return Effect(instruction.text, ends=True)
    if name.startswith("s_setreg_b32"):
        return Effect(instruction.text, sinks=((Use.BRANCH, registers),))
    if name == "s_setvskip":
        return Effect(instruction.text, sinks=((Use.BRANCH, registers),))
    if name.startswith("s_sendmsg"):
        return Effect(instruction.text, sinks=((Use.STORE, (M0,)),))
    if name == "s_set_gpr_idx_on":
        modes = operands[1].text if isinstance(operands[1], Word) else "gpr_idx(SRC0,SRC1,SRC2,DST)"
        relative = frozenset(modes.removeprefix("gpr_idx(").removesuffix(")").split(",")) - {""}
        return Effect(instruction.text, reads=registers, writes=(M0,), keeps=True, indexing=relative)
    if name == "s_set_gpr_idx_idx":
        return Effect(instruction.text, reads=registers, writes=(M0,), keeps=True)
    if name == "s_set_gpr_idx_off":
        return Effect(instruction.text, indexing=frozenset())
    if name == "s_set_gpr_idx_mode":
        return Effect(instruction.text, indexing=frozenset({"SRC0", "SRC1", "SRC2", "DST"}))
    return None


# ---------------------------------------------------------------- compute

#: 64-bit instructions that work bit by bit or move: low dwords give the low dword.
_HALVES = re.compile(r"[sv]_(mov|and|or|xor|not|andn2|orn2|nand|nor|xnor|cselect|cmov|wqm|quadmask)_b64|v_pk_mov_b32")


def _compute(instruction: Instruction) -> Effect:
    shape = roles(instruction)
    assert shape is not None, instruction.text
    name, operands = instruction.mnemonic, instruction.operands
    sources = operands if shape.keeps else operands[shape.outputs :]
    targets = _flat(operands[: shape.outputs])
    reads = (*_flat(sources), *shape.reads)
    writes = (*targets, *shape.writes)
    parallel: tuple[Registers, ...] = ()
    if name.startswith("s_movrels_"):
        reads += tuple(n for register in _flat(sources)[:1] for n in file_from(register))
    if name.startswith("s_movreld_") and targets:
        writes = file_from(targets[0])
    elif _HALVES.fullmatch(name) and len(targets) == 2 and not instruction.modifiers:
        parallel = _halves(sources, shape.reads, reads, len(writes))
    sinks: list[tuple[Use, Registers]] = []
    if EXEC in writes or EXEC + 1 in writes:
        sinks.append((Use.BRANCH, reads))
    is_vector = name.startswith("v_")
    return Effect(
        instruction.text,
        reads,
        writes,
        parallel,
        keeps=shape.keeps or name.startswith("s_movreld_"),
        lanes=shape.lanes and is_vector and any(number >= VGPR for number in targets),
        sinks=tuple(sinks),
        known=_known(instruction, shape.outputs, shape.keeps),
        vector_sources=_vector_sources(operands[shape.outputs :], targets) if is_vector else (),
    )


def _halves(sources: tuple[Operand, ...], state: Registers, reads: Registers, count: int) -> tuple[Registers, ...]:
    low: list[int] = list(state)
    high: list[int] = list(state)
    for operand in sources:
        found = numbers(operand)
        low += found[:1]
        high += found[-1:]
    return (tuple(low), tuple(high), *([reads] * (count - 2)))


def _vector_sources(sources: tuple[Operand, ...], targets: Registers) -> tuple[tuple[str, int], ...]:
    found = [(f"SRC{place}", numbers(operand)[0]) for place, operand in enumerate(sources) if numbers(operand)]
    return tuple((role, first) for role, first in (*found, *(("DST", n) for n in targets[:1])) if first >= VGPR)


def _known(instruction: Instruction, outputs: int, keeps: bool) -> tuple[Known, ...]:
    """How values follow, for the instructions that move constants and pointers about."""
    name, operands = instruction.mnemonic, instruction.operands
    plain = not instruction.modifiers and instruction.encoding in ("", "e32", "e64")
    if not plain or any(isinstance(one, (Register, Immediate)) and (one.neg or one.abs) for one in operands):
        return ()
    target = numbers(operands[0]) if operands else ()
    sources = operands if keeps else operands[outputs:]
    if name in values.QWORD and len(target) == 2:
        low, high = values.QWORD[name]
        return (
            Known(target[0], name, tuple(_source(operand, 0) for operand in sources), low),
            Known(target[1], name, tuple(_source(operand, 1) for operand in sources), high),
        )
    if len(target) != 1 or outputs == 0:
        return ()
    rule, folds = values.DWORD.get(name), name.startswith("s_")
    if rule is None and not folds:
        return ()
    # A carry-in that the assembler writes out (VCC) is no part of the rules for pointers.
    dwords = tuple(_source(operand, 0) for operand in (sources if folds else sources[:2]))
    return (Known(target[0], name, dwords, rule, folds),)


def _source(operand: Operand, half: int) -> Source:
    if isinstance(operand, Immediate):
        return Source(constant=(operand.as_int() >> (32 * half)) & values.ONES)
    found = numbers(operand)
    # A dword operand of a qword instruction (a shift count) is the same for both halves.
    return Source(found[min(half, len(found) - 1)]) if found else Source()


# ---------------------------------------------------------------- memory

_MEMORY = re.compile(r"(s_(?:buffer_|scratch_)?|t?buffer_|flat_|global_|scratch_|ds_)"
                     r"(load|store|atomic|read|write|dcache|atc|wb|inv|gl)\w*|ds_\w+")  # fmt: skip
_SMALL = {"ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2}


def _memory(instruction: Instruction) -> Effect | None:
    name = instruction.mnemonic
    match = _MEMORY.fullmatch(name)
    if match is None or (name.startswith("ds_") and roles(instruction) is not None):
        return None
    if name.startswith("ds_"):
        return _lds(instruction)
    space, action = match[1].rstrip("_"), match[2]
    if action not in ("load", "store", "atomic") or not instruction.operands:
        return Effect(instruction.text)  # caches
    if space in ("buffer", "tbuffer"):
        return _buffer(instruction, action)
    if space in ("s", "s_buffer", "s_scratch"):
        return _scalar(instruction, action, space)
    return _flat_memory(instruction, action, space)


def _returns(instruction: Instruction) -> bool:
    """Whether an atomic gives the old value back."""
    return bool(instruction.modifiers.keys() & {"glc", "sc0"})


def _total(name: str, registers: Registers) -> int:
    match = re.search(r"_(ubyte|sbyte|ushort|sshort|short)", name)
    return _SMALL[match[1]] if match else 4 * len(registers)


def _offset(instruction: Instruction) -> Source:
    return Source(constant=int(instruction.modifiers.get("offset", 0)) & values.ONES)


def _transfer(
    instruction: Instruction,
    action: str,
    data: Registers,
    address: tuple[Registers, tuple[Source, ...], Registers],
    pool: int,
    lanes: bool,
) -> Effect:
    """Loads, stores and atomics alike; ``address`` is (base, offsets, other registers)."""
    base, offsets, others = address
    addressing = (*base, *(source.register for source in offsets if source.register >= 0), *others)
    sinks = [(Use.ADDRESS, addressing)]
    # A spill to scratch is no result: what was stored there flows on, and ends where it is used.
    if action != "load" and pool != SCRATCH:
        sinks.append((Use.STORE, data))
    text, name = instruction.text, instruction.mnemonic
    if action == "store":
        return Effect(text, data, (pool,), keeps=True, sinks=tuple(sinks))
    if action == "atomic":
        written = data if _returns(instruction) else ()
        return Effect(text, (*data, pool), (*written, pool), keeps=True, sinks=tuple(sinks))
    load = Address(base, offsets, others, _total(name, data)) if base else None
    return Effect(
        text, (pool,), data, keeps="d16" in name, lanes=lanes, sinks=tuple(sinks), load=load
    )  # fmt: skip


def _scalar(instruction: Instruction, action: str, space: str) -> Effect:
    data, base, *rest = instruction.operands
    words = numbers(base)
    offsets = (*(_source(operand, 0) for operand in rest), _offset(instruction))
    pool = SCRATCH if space == "s_scratch" else MEMORY
    return _transfer(instruction, action, numbers(data), (words[:2], offsets, words[2:]), pool, lanes=False)


def _buffer(instruction: Instruction, action: str) -> Effect:
    modifiers = instruction.modifiers
    *before, resource, soffset = instruction.operands
    words = numbers(resource)
    to_lds = "lds" in modifiers or "_lds_" in instruction.mnemonic
    data = () if to_lds or not before else numbers(before.pop(0))
    lane_address = _flat(before)
    offsets = [_source(soffset, 0), _offset(instruction)]
    others = words[2:]
    if "offen" in modifiers and "idxen" not in modifiers and lane_address:
        offsets.append(Source(lane_address[0]))
    else:
        others += lane_address
    if "idxen" in modifiers and lane_address:
        offsets.append(Source())  # times a stride: not followed
    if not to_lds:
        address = (words[:2], tuple(offsets), others)
        return _transfer(instruction, action, data, address, MEMORY, lanes=True)
    registers = (*words, *numbers(soffset), *lane_address)
    from_pool, to_pool = (MEMORY, LDS) if action == "load" else (LDS, MEMORY)
    return Effect(
        instruction.text, (from_pool,), (to_pool,), keeps=True,
        sinks=((Use.ADDRESS, registers), (Use.LDS_ADDRESS, (M0,))),
    )  # fmt: skip


def _flat_memory(instruction: Instruction, action: str, space: str) -> Effect:
    operands = [one for one in instruction.operands if not (isinstance(one, Word) and one.text in ("off", "null"))]
    pool = SCRATCH if space == "scratch" else MEMORY
    to_lds = "_lds_" in instruction.mnemonic or "lds" in instruction.modifiers
    scalar = [one for one in operands if isinstance(one, Register) and one.file == "s"]
    vectors = [one for one in operands if one not in scalar]
    data: Registers = ()
    if not to_lds:
        returned = numbers(vectors.pop(0)) if action == "load" or (action == "atomic" and _returns(instruction)) else ()
        data = returned if action == "load" else (*returned, *numbers(vectors.pop()))
    lane_address = _flat(vectors)
    base, offsets = _flat(scalar), [_offset(instruction)]
    if space == "scratch":
        base, lane_address = (), (*base, *lane_address)
    elif base:
        offsets += [Source(number) for number in lane_address]
        lane_address = ()
    else:
        base, lane_address = lane_address[:2], lane_address[2:]
    if to_lds:
        registers = (*base, *lane_address, *(source.register for source in offsets if source.register >= 0))
        return Effect(
            instruction.text, (pool,), (LDS,), keeps=True,
            sinks=((Use.ADDRESS, registers), (Use.LDS_ADDRESS, (M0,))),
        )  # fmt: skip
    return _transfer(instruction, action, data, (base, tuple(offsets), lane_address), pool, lanes=True)


def _image(instruction: Instruction) -> Effect | None:
    """Images and exports, which compute processors of gfx9 have too: data first, all else is address."""
    name, operands = instruction.mnemonic, instruction.operands
    if name == "exp":
        return Effect(instruction.text, sinks=((Use.STORE, _flat(operands)),))
    if not name.startswith("image_"):
        return None
    action = "store" if "store" in name else "atomic" if "atomic" in name else "load"
    address = ((), (), _flat(operands[1:]))
    return _transfer(instruction, action, numbers(operands[0]), address, MEMORY, lanes=True)


_LDS_RETURNS = re.compile(r"ds_(read.*|.*_rtn.*|append|consume|ordered_count)")
_LDS_THROUGH_M0 = re.compile(r"ds_(.*_addtid.*|append|consume|ordered_count|gws_.*)")


def _lds(instruction: Instruction) -> Effect:
    name, operands = instruction.mnemonic, list(instruction.operands)
    if not operands and not name.startswith("ds_gws_"):
        return Effect(instruction.text)  # ds_nop
    returned = numbers(operands.pop(0)) if _LDS_RETURNS.fullmatch(name) else ()
    address: Registers = (M0,) if _LDS_THROUGH_M0.fullmatch(name) else numbers(operands.pop(0))
    data = _flat(operands)
    reads_only = name.startswith("ds_read")
    return Effect(
        instruction.text,
        (LDS, *data),
        returned if reads_only else (*returned, LDS),
        keeps=not reads_only or "d16" in name,
        lanes=True,
        sinks=((Use.LDS_ADDRESS, address), (Use.LDS_DATA, data)),
    )
