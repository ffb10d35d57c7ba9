"""Forward data flow: which kernarg bytes every register may depend on, at every point of the code.

A register's provenance is a bit mask over kernarg bytes. It is exact about registers and an over-estimate elsewhere:
LDS, scratch and global memory are one cell each, a write under a partial EXEC mask keeps the old provenance, and
relative indexing reaches every register it could. Dependence through control alone is not followed: the value that
decides is reported as used by a branch.

Two things are not seen: the kernarg address in the dispatch packet, if code took it from there, and which part of a
dword a shift or mask leaves (fields that share a dword are used together).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.liveness import graph, values
from asmlaunch.emulator.liveness.effects import Address, Effect, Known, Source, Use
from asmlaunch.emulator.liveness.registers import EXEC, LAST_SGPR, M0, MEMORY, SCC, bits, file_from
from asmlaunch.emulator.liveness.values import HIGH, ONES, High, Low, Value
from asmlaunch.errors import TargetError

#: Provenance beside kernarg bytes: the segment's own address, and bytes loaded from an unknown place in it.
POINTER, UNKNOWN = 1, 2
_FIRST_BYTE = 2

#: Offsets beyond this are not believed.
_LIMIT = 1 << 20

#: The preloading hardware starts this many bytes after the entry, past code for hardware that does not preload
#: (LLVM's AMDGPU guide, "Preloaded Kernel Arguments").
PRELOAD_ENTRY = 256


def byte_mask(offset: int, size: int) -> int:
    """Provenance of ``size`` kernarg bytes from ``offset``."""
    return ((1 << size) - 1) << (offset + _FIRST_BYTE)


def bytes_of(mask: int) -> frozenset[int]:
    """The kernarg bytes in a provenance."""
    return frozenset(place - _FIRST_BYTE for place in range(_FIRST_BYTE, mask.bit_length()) if mask >> place & 1)


@dataclass
class State:
    """What is known at one point of the code.

    Attributes:
        masks: provenance of registers and carriers that have any.
        values: registers whose value is known.
        carried: the registers in either, as a bit mask.
        indexing: operand roles that are relative (``s_set_gpr_idx_on``).
        skipping: vector instructions may be skipped (``s_setvskip``).
    """

    masks: dict[int, int] = field(default_factory=dict)
    values: dict[int, Value] = field(default_factory=dict)
    carried: int = 0
    indexing: frozenset[str] = frozenset()
    skipping: bool = False

    def copy(self) -> State:
        return State(dict(self.masks), dict(self.values), self.carried, self.indexing, self.skipping)

    def put(self, register: int, mask: int, value: Value | None) -> None:
        """Replace what a register holds."""
        if value is None:
            self.values.pop(register, None)
        else:
            self.values[register] = value
        if mask:
            self.masks[register] = mask
        else:
            self.masks.pop(register, None)
        if mask or value is not None:
            self.carried |= 1 << register
        else:
            self.carried &= ~(1 << register)

    def join(self, other: State) -> bool:
        """Make this hold for both; whether that changed anything."""
        changed = False
        for register, mask in other.masks.items():
            old = self.masks.get(register, 0)
            if mask & ~old:
                self.masks[register] = old | mask
                changed = True
        differing = [number for number, value in self.values.items() if other.values.get(number) != value]
        for number in differing:
            del self.values[number]
            changed = True
        if not (other.indexing <= self.indexing and other.skipping <= self.skipping):
            self.indexing, self.skipping = self.indexing | other.indexing, self.skipping or other.skipping
            changed = True
        if changed:
            self.carried = bits(tuple(self.masks)) | bits(tuple(self.values))
        return changed

    def all_lanes(self) -> bool:
        """Whether vector instructions are known to write every lane."""
        return not self.skipping and self.values.get(EXEC) == ONES and self.values.get(EXEC + 1) == ONES


@dataclass(frozen=True)
class Load:
    """A load from the kernarg segment.

    Attributes:
        address: of the instruction; of the kernel's entry for what the hardware preloads.
        text: the instruction.
        offset: first byte loaded, None where it is not known.
        size: bytes.
    """

    address: int
    text: str
    offset: int | None
    size: int


@dataclass(frozen=True)
class Sink:
    """Instructions at which the same kernarg bytes end up in the same way.

    Attributes:
        address, text: of the first of them.
        use: in which way.
        mask: the bytes, as a provenance.
        count: how many instructions.
    """

    address: int
    text: str
    use: Use
    mask: int
    count: int = 1


@dataclass(frozen=True)
class Flow:
    """The result for a kernel: loads and sinks in order of address, and jumps that were not followed."""

    loads: tuple[Load, ...]
    sinks: tuple[Sink, ...]
    unresolved: tuple[str, ...]


def analyse(kernel: KernelInfo) -> Flow:
    """Run the data flow over all reachable code.

    Raises:
        TargetError: not a gfx9 processor: the others' instructions have other names and operands.
        CodeObjectError: reachable bytes that are no instruction. DeviceError: no disassembler.
    """
    if not kernel.target.processor.startswith("gfx9"):
        raise TargetError(
            f"liveness of kernel {kernel.name}", got=kernel.target.processor, need="a gfx9 processor, such as gfx950"
        )
    entries = _entries(kernel)
    code = graph.build(kernel, tuple(address for address, _ in entries))
    worker = _Worker()
    states: list[State | None] = [None] * len(code.blocks)
    pending: list[int] = []
    for index, (_, state) in zip(code.entries, entries, strict=True):
        _flow_into(states, index, state, pending)
    while pending:
        index = heapq.heappop(pending)
        arrived = states[index]
        assert arrived is not None
        state = arrived.copy()
        for address, effect in code.blocks[index].steps:
            if not effect.skippable or effect.touches & state.carried or state.indexing:
                worker.step(state, address, effect)
        for successor in code.blocks[index].successors:
            _flow_into(states, successor, state, pending)
    unresolved = [
        f"{address:#x} `{effect.text}`" for block in code.blocks for address, effect in block.steps if effect.unresolved
    ]
    loads = (*_preload(kernel), *(load for _, load in sorted(worker.loads.items())))
    return Flow(loads, worker.merged_sinks(), tuple(unresolved))


def _flow_into(states: list[State | None], index: int, state: State, pending: list[int]) -> None:
    there = states[index]
    if there is None:
        states[index] = state.copy()
    elif not there.join(state):
        return
    if index not in pending:
        heapq.heappush(pending, index)


# ---------------------------------------------------------------- state at entry

#: User SGPRs in order, with how many registers each takes (LLVM's AMDGPU guide, "Initial Kernel Execution State").
_USER_SGPRS = (
    ("enable_sgpr_private_segment_buffer", 4),
    ("enable_sgpr_dispatch_ptr", 2),
    ("enable_sgpr_queue_ptr", 2),
    ("enable_sgpr_kernarg_segment_ptr", 2),
    ("enable_sgpr_dispatch_id", 2),
    ("enable_sgpr_flat_scratch_init", 2),
    ("enable_sgpr_private_segment_size", 1),
)


def _entries(kernel: KernelInfo) -> list[tuple[int, State]]:
    """Entry addresses with the state there: one, or two where arguments are preloaded."""
    descriptor, state, register = kernel.descriptor, State(), 0
    for name, count in _USER_SGPRS:
        if getattr(descriptor, name):
            if name == "enable_sgpr_kernarg_segment_ptr":
                state.put(register, POINTER, Low(0))
                state.put(register + 1, POINTER, HIGH)
            register += count
    # Lanes beyond the workgroup are off and stay off; among the others EXEC starts full.
    state.put(EXEC, 0, ONES)
    state.put(EXEC + 1, 0, ONES)
    entries = [(kernel.code_address, state)]
    if preloaded := descriptor.kernarg_preload_spec_length:
        filled = state.copy()
        for number in range(preloaded):
            filled.put(register + number, byte_mask(4 * (descriptor.kernarg_preload_spec_offset + number), 4), None)
        entries.append((kernel.code_address + PRELOAD_ENTRY, filled))
    return entries


def _preload(kernel: KernelInfo) -> tuple[Load, ...]:
    length, offset = kernel.descriptor.kernarg_preload_spec_length, kernel.descriptor.kernarg_preload_spec_offset
    return (Load(kernel.code_address, "preloaded by hardware", 4 * offset, 4 * length),) if length else ()


# ---------------------------------------------------------------- transfer


class _Worker:
    """Applies effects to states, and keeps what each instruction's last visit found: the one with the final state."""

    def __init__(self) -> None:
        self.loads: dict[int, Load] = {}
        self.sinks: dict[int, list[Sink]] = {}

    def merged_sinks(self) -> tuple[Sink, ...]:
        """The sinks in order of address, those alike as one."""
        merged: dict[tuple[Use, int], Sink] = {}
        for _, found in sorted(self.sinks.items()):
            for sink in found:
                first = merged.setdefault((sink.use, sink.mask), replace(sink, count=0))
                merged[sink.use, sink.mask] = replace(first, count=first.count + 1)
        return tuple(merged.values())

    def step(self, state: State, address: int, effect: Effect) -> None:
        """One instruction."""
        masks = state.masks
        found = []
        for use, registers in effect.sinks:
            mask = _any(masks, registers)
            if mask & ~POINTER:
                found.append(Sink(address, effect.text, use, mask))
            if use is Use.ADDRESS and mask & POINTER and effect.load is None and MEMORY in effect.reads:
                # Read by something other than a load into registers: to LDS, or by an atomic.
                self.loads[address] = Load(address, effect.text, None, 0)
        if found:
            self.sinks[address] = found
        self._modes(state, effect)
        if effect.load is not None and (loaded := self._kernarg_load(state, address, effect, effect.load)) is not None:
            self._write(state, effect, loaded)
            return
        mask = _any(masks, effect.reads)
        written = effect.writes
        if state.indexing and effect.vector_sources:
            reach = [first for role, first in effect.vector_sources if role in state.indexing and role != "DST"]
            mask |= masks.get(M0, 0) | _any(masks, tuple(n for first in reach for n in file_from(first)))
            self._relative_targets(state, effect, mask)
        if not written:
            return
        if effect.parallel:
            self._write(state, effect, [_any(masks, part) for part in effect.parallel])
        else:
            self._write(state, effect, [mask] * len(written))

    def _modes(self, state: State, effect: Effect) -> None:
        if effect.indexing is not None:
            state.indexing = effect.indexing
        elif effect.text.startswith("s_setvskip"):
            state.skipping = not effect.text.startswith("s_setvskip 0,")

    def _relative_targets(self, state: State, effect: Effect, mask: int) -> None:
        for role, first in effect.vector_sources:
            if role == "DST" and "DST" in state.indexing:
                for register in file_from(first):
                    state.put(register, state.masks.get(register, 0) | mask, None)

    def _kernarg_load(self, state: State, address: int, effect: Effect, load: Address) -> list[int] | None:
        """Provenance of each register that a load from the kernarg segment writes; None for other loads."""
        offsets = tuple(source.register for source in load.offsets if source.register >= 0)
        if not _any(state.masks, (*load.base, *offsets, *load.others)) & POINTER:
            return None
        low, high = (state.values.get(register) for register in load.base)
        distances = values.constants([_value(state, source) for source in load.offsets])
        offset: int | None = None
        if isinstance(low, Low) and isinstance(high, High) and distances is not None:
            offset = low.offset + sum(map(values.signed, distances))
            if effect.text.startswith("s_"):
                offset &= ~3
            if not 0 <= offset < _LIMIT:
                offset = None
        self.loads[address] = Load(address, effect.text, offset, load.total)
        if offset is None:
            return [UNKNOWN] * len(effect.writes)
        sizes = [min(4, load.total - 4 * number) for number in range(len(effect.writes))]
        return [byte_mask(offset + 4 * number, size) for number, size in enumerate(sizes)]

    def _write(self, state: State, effect: Effect, incoming: list[int]) -> None:
        new: dict[int, Value | None] = {}
        for known in effect.known:
            new[known.target], scc = _compute(state, known)
            if scc is not None:
                new[SCC] = scc
        weak = effect.keeps or (effect.lanes and not state.all_lanes())
        for register, mask in zip(effect.writes, incoming, strict=True):
            value = new.get(register)
            if weak and not (effect.keeps and register <= LAST_SGPR and value is not None):
                if value != state.values.get(register):
                    value = None
                mask |= state.masks.get(register, 0)
            if isinstance(value, int):
                mask = 0
            elif value is not None:
                mask = POINTER
            state.put(register, mask, value)


def _any(masks: dict[int, int], registers: tuple[int, ...]) -> int:
    mask = 0
    for register in registers:
        if register in masks:
            mask |= masks[register]
    return mask


def _value(state: State, source: Source) -> Value | None:
    return source.constant if source.constant is not None else state.values.get(source.register)


def _compute(state: State, known: Known) -> tuple[Value | None, int | None]:
    """The value an instruction gives a dword, and SCC, where they are known."""
    sources = [_value(state, source) for source in known.sources]
    if known.rule is values.move:
        return sources[0], None
    given = values.constants(sources)
    if given is not None and known.folds:
        scc = state.values.get(SCC)
        number, condition = values.fold(known.mnemonic, given, scc if isinstance(scc, int) else None)
        if number is not None:
            return number, condition
    return (known.rule(*sources) if known.rule is not None else None), None
