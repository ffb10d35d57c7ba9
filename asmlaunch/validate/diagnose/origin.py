"""Where an element comes from: the store that writes it, the loads that reach it, the bytes it should be made of.

Who writes what is found by marking: the right launch is run again, and before each store the data registers get a
number (of the lane, the wave, the store, ...) in place of the data, which is then what the output holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from asmlaunch.emulator.debug import WaveState
from asmlaunch.emulator.decode import Instruction, Register
from asmlaunch.emulator.flow import Place, memory_operands, places, reads, writes
from asmlaunch.emulator.isa.table import Access, Mfma, find
from asmlaunch.emulator.trace import Event, Trace
from asmlaunch.validate.diagnose.emulated import Emulator, Launch
from asmlaunch.validate.model import Model

_MOST = 2_000_000
"""Wave-instructions of a launch that is stepped through."""

_LANES, _WAVES = 64, 16
_ADDRESS_BITS = (1 << 48) - 1  # of the first two dwords of a buffer's descriptor, the rest is stride and swizzling


@dataclass(frozen=True)
class Origin:
    """The way of one element through a launch as it should be.

    Attributes:
        element: its index.
        workgroup: number of the workgroup that writes it, counted in x first.
        wave, lane, register: who, and of what.
        store: address and text of the store.
        matrix: matrix instructions on the way to it.
        lds: whether it goes through LDS.
        loads: arguments that are loaded from on the way, and by how many load instructions.
        inputs: operands, and the bytes of each that the element is to be made of, in words.
    """

    element: tuple[int, ...]
    workgroup: int
    wave: int
    lane: int
    register: str
    store: tuple[int, str]
    matrix: int
    lds: bool
    loads: Mapping[str, int]
    inputs: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        address, text = self.store
        loads = ", ".join(f"{name} ({count})" for name, count in self.loads.items()) or "nothing"
        through = f"{self.matrix} matrix instructions{', LDS' if self.lds else ''} and loads of {loads}"
        made = "; ".join(f"{name} {where}" for name, where in self.inputs.items())
        return (
            f"element {self.element} is lane {self.lane} of {self.register} in workgroup {self.workgroup}, wave "
            f"{self.wave}, stored at {address:#x} by `{text}`, after {through}"
            + (f"; it is to be made of {made}" if made else "")
        )


class Marks:
    """Who writes each element of an output.

    Args:
        emulator: the kernel and its right launch.
        output: number of the output.
    """

    def __init__(self, emulator: Emulator, output: int) -> None:
        self._emulator, self._output = emulator, output
        kernel = emulator.kernel
        program = kernel.device.prepare(kernel.info).program  # type: ignore[attr-defined]
        self.program = program
        self.stores = [one for one in program.accesses if _writes_memory(one)]

    def labels(self) -> dict[str, np.ndarray]:
        """The wave and the lane that write each element, -1 where nobody does; as ``structure.find`` takes labels."""
        both = self._mark(lambda state, _: state.wave * _LANES + np.arange(_LANES))
        return {"wave": np.where(both < 0, -1, both // _LANES), "lane": np.where(both < 0, -1, both % _LANES)}

    @cached_property
    def workgroups(self) -> np.ndarray:
        """The number of the workgroup that writes each element."""
        x, y, _ = self._emulator.grid
        return self._mark(lambda state, _: state.workgroup[0] + x * (state.workgroup[1] + y * state.workgroup[2]))

    @cached_property
    def by_store(self) -> np.ndarray:
        """The place in ``stores`` of the instruction that writes each element."""
        numbers = {one.address: number for number, one in enumerate(self.stores)}
        return self._mark(lambda state, _: numbers[state.address])

    @cached_property
    def registers(self) -> np.ndarray:
        """Which of the store's data registers each element comes from."""
        return self._mark(lambda _, position: position)

    def _mark(self, number: Callable[[WaveState, int], Any]) -> np.ndarray:
        """What ``number`` gives for the wave and the place of the data register, by element; below 65,535."""

        def before(state: WaveState, data: list[Place]) -> None:
            for position, place in enumerate(data):
                # Both halves of the dword, so that elements of 16 bits find it too.
                registers = state.v if place.file == "v" else state.a
                registers[place.number] = (np.asarray(number(state, position)) + 1).astype(np.uint32) * 0x10001

        breakpoints = {one.address: _with_data(before, _data(one)) for one in self.stores}
        self._emulator.step(self._emulator.right, breakpoints=breakpoints)
        found = self._emulator.problem.outputs[self._output].result
        low = np.ascontiguousarray(found).view(np.uint16).reshape(*found.shape, -1)[..., 0].astype(np.int64)
        return np.where((low == 0xFFFF) | (low == 0), -1, low - 1)


def _with_data(before: Callable[[WaveState, list[Place]], None], data: list[Place]) -> Callable[[WaveState], None]:
    return lambda state: before(state, data)


def _writes_memory(one: Instruction) -> bool:
    definition = find(one.mnemonic)
    return isinstance(definition, Access) and definition.kind == "store" and definition.space != "lds"


def _data(one: Instruction) -> list[Place]:
    definition = find(one.mnemonic)
    assert isinstance(definition, Access)
    return list(memory_operands(one, definition).data)


def can_trace(emulator: Emulator, output: int) -> bool:
    """Whether elements of the output can be marked: 16 bits or more, stored, in a launch that is not too long."""
    return emulator.problem.outputs[output].result.dtype.itemsize >= 2 and emulator.instructions <= _MOST


def trace(emulator: Emulator, output: int, element: tuple[int, ...], model: Model | None) -> Origin | None:
    """The way of an element; None where no store writes it (atomics do, or nothing does)."""
    marks = Marks(emulator, output)
    labels = marks.labels()
    number, workgroup = int(marks.by_store[element]), int(marks.workgroups[element])
    wave, lane, register = (int(one[element]) for one in (labels["wave"], labels["lane"], marks.registers))
    if min(number, workgroup, wave) < 0 or number >= len(marks.stores):
        return None
    store = marks.stores[number]
    place = _data(store)[register]
    x, y, _ = emulator.grid
    group = workgroup % x, workgroup // x % y, workgroup // (x * y)
    events: list[Event] = []
    emulator.step(emulator.right, trace=Trace(events.append, waves=[wave], workgroups=[group], registers=[]))
    by_address = {one.address: one for one in marks.program.instructions()}
    ran = [by_address[event.address] for event in events]
    way = _slice(ran, store, place)
    loads = [one for one in way if _loads_memory(one)]
    return Origin(
        element,
        workgroup,
        wave,
        lane,
        f"{place.file}{place.number}",
        (store.address, store.text),
        len({one.address for one in way if isinstance(find(one.mnemonic), Mfma)}),
        any(isinstance(d := find(one.mnemonic), Access) and d.space == "lds" for one in way),
        _arguments(emulator, loads, wave, group),
        _inputs(model, element) if model is not None else {},
    )


def _loads_memory(one: Instruction) -> bool:
    definition = find(one.mnemonic)
    return isinstance(definition, Access) and definition.kind == "load" and definition.space != "lds"


def _slice(ran: list[Instruction], store: Instruction, place: Place) -> list[Instruction]:
    """The instructions on which the stored register depends, by registers and, through LDS, by what this wave writes
    to it: the other waves run the same code."""
    last = max(index for index, one in enumerate(ran) if one.address == store.address)
    needed, through_lds, way = {place}, False, []
    for one in reversed(ran[:last]):
        definition = find(one.mnemonic)
        into_lds = isinstance(definition, Access) and _fills_lds(one, definition)
        if not needed.intersection(writes(one)) and not (through_lds and into_lds):
            continue
        way.append(one)
        if into_lds:
            assert isinstance(definition, Access)
            needed.update(memory_operands(one, definition).data)
            continue
        if not isinstance(definition, Mfma):  # an accumulator is read where it is not written anew
            needed.difference_update(writes(one))
        if isinstance(definition, Access):
            # Data, not the addresses they lie at.
            through_lds |= definition.space == "lds"
            continue
        needed.update(read for read in reads(one) if read.file in "sva")
    return way


def _fills_lds(one: Instruction, definition: Access) -> bool:
    if definition.space == "lds":
        return definition.kind == "store"
    return definition.to_lds or "lds" in one.modifiers


def _arguments(emulator: Emulator, loads: list[Instruction], wave: int, group: tuple[int, int, int]) -> dict[str, int]:
    """How many of the load instructions read each argument, by the base address in their scalar registers."""
    found: dict[str, set[int]] = {}

    def before(state: WaveState) -> None:
        if state.wave == wave and state.workgroup == group:
            name = _argument(emulator.right, state, bases[state.address])
            if name:
                found.setdefault(name, set()).add(state.address)

    bases = {one.address: _base(one) for one in loads}
    emulator.step(emulator.right, breakpoints={address: before for address, base in bases.items() if base})
    return dict(Counter({name: len(addresses) for name, addresses in sorted(found.items())}))


def _base(one: Instruction) -> Register | None:
    """The scalar registers that hold the address: a buffer's descriptor, or the base of a global access."""
    scalars = [r for r in one.operands if isinstance(r, Register) and r.file == "s" and r.count in (2, 4)]
    return scalars[0] if scalars and places(scalars) else None


def _argument(launch: Launch, state: WaveState, base: Register | None) -> str:
    if base is None:
        return ""
    address = (int(state.s[base.index]) | int(state.s[base.index + 1]) << 32) & _ADDRESS_BITS
    for name, buffer in launch.buffers.items():
        if buffer.address <= address <= buffer.address + buffer.nbytes:
            return name
    return ""


def _inputs(model: Model, element: tuple[int, ...]) -> dict[str, str]:
    """The bytes of each operand that the model makes an element of."""
    found = {}
    for name, operand in model.operands.items():
        index = [element[model.axes.index(axis)] if axis in model.axes else None for axis in operand.axes]
        shape = operand.values.shape
        if all(i is None for i in index) or any(i is not None and i >= n for i, n in zip(index, shape, strict=True)):
            continue
        positions = np.arange(operand.values.size).reshape(shape)[tuple(slice(None) if i is None else i for i in index)]
        holds = np.zeros(shape, np.uint8)
        holds.reshape(-1)[positions.reshape(-1)] = 1
        memory = operand.stored(holds.astype(operand.values.dtype)).reshape(-1)
        found[name] = _ranges(np.flatnonzero(memory), operand.values.itemsize)
    return found


def _ranges(elements: np.ndarray, itemsize: int) -> str:
    """Bytes in words: the runs, or their number."""
    breaks = np.flatnonzero(np.diff(elements) != 1) + 1
    runs = [(int(run[0]) * itemsize, (int(run[-1]) + 1) * itemsize - 1) for run in np.split(elements, breaks)]
    shown = ", ".join(f"{first}..{last}" for first, last in runs[:2])
    return f"bytes {shown}" + (f" and {len(runs) - 2} more runs" if len(runs) > 2 else "")
