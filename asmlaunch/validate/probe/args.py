"""What each argument slot does, by changing it: dead or live, read or written, a bound, a factor, a stride, its unit.

Every slot and every byte between slots is given other values, one at a time, with grid and operands held; what changes
is all that is looked at. An emulator's findings and count of instructions count as changes too.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.abi import Field
from asmlaunch.errors import ArgumentError, AsmlaunchError
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.probe.rig import Observation, Rig, declared
from asmlaunch.validate.problems import Case

_GARBAGE = (b"\xa5", b"\xff")

#: Bytes that a step of a stride may stand for, and what they are called.
_UNITS = ((1.0, "bytes"), (0.5, "elements of 2 bytes"), (0.25, "elements of 4 bytes"), (2.0, "elements of half a byte"))

#: Rows that a stride may step over together.
_ROWS = (1, 16, 32)

#: Bytes added between rows to see a stride move; whole scale tiles and vectors stay whole.
_APART = 64

_SAME = "same"


@dataclass(frozen=True)
class Change:
    """One change of a slot and what it did."""

    to: str
    outcome: str


@dataclass(frozen=True)
class Slot:
    """What was found for one slot, or for a gap between slots.

    Attributes:
        offset, size: bytes of the segment.
        name, type: as the schema has them; ``"padding"`` for gaps.
        live: whether any change of it changed anything.
        loaded: what the machine code does with it by static analysis, ``""`` where that is not known.
        effect: what it is, as far as its changes show.
        changes: what was tried.
    """

    offset: int
    size: int
    name: str
    type: str
    live: bool
    loaded: str
    effect: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class ArgsProbe:
    """What an argument probe found.

    Attributes:
        kernel: its name.
        case: the problem.
        slots: in order of offset.
        launches: how many it took.
        notes: what limits the answer.
        seconds: wall time.
    """

    kernel: str
    case: Case
    slots: tuple[Slot, ...]
    launches: int
    notes: tuple[str, ...]
    seconds: float

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of the arguments that change nothing."""
        return tuple(one.name for one in self.slots if not one.live and one.type != "padding")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "kernel": self.kernel,
            "problem": str(self.case),
            "slots": [{**vars(one), "changes": [vars(change) for change in one.changes]} for one in self.slots],
            "dead": list(self.dead),
            "launches": self.launches,
            "notes": list(self.notes),
            "seconds": self.seconds,
        }


def probe_args(kernel: Kernel, *, case: Case | None = None, **options: Any) -> ArgsProbe:
    """Find out what each argument of a kernel does.

    Args:
        case: the problem; by default the family's first.
        options: launch options of the device.

    Raises:
        KernelNotFoundError: no declared problems. ArgumentError: a problem that fails as it is.
    """
    start = time.perf_counter()
    definition = declared(kernel)
    if case is None:
        case = definition.cases(definition.parameters(kernel.info))[0]
    prober = _Prober(Rig(kernel, case, **options))
    slots = tuple(prober.slot(field) for field in _with_gaps(kernel.schema.fields, kernel.schema.size))
    return ArgsProbe(kernel.name, case, slots, prober.launches, prober.notes, time.perf_counter() - start)


def _with_gaps(fields: Sequence[Field], size: int) -> list[Field]:
    """The fields and, as padding, the bytes that none covers."""
    found: list[Field] = []
    end = 0
    for field in (*fields, None):
        start = size if field is None else field.offset
        if start > end:
            found.append(Field("padding", end, "bytes", start - end, role="padding"))
        if field is not None:
            found.append(field)
            end = max(end, field.end)
    return found


class _Prober:
    def __init__(self, rig: Rig) -> None:
        self._rig, self.launches = rig, 0
        self._operands = {name: array.copy() for name, array in rig.arrays.items() if name not in rig.written}
        self._hit: list[str] = []
        self._base = self._run()
        if self._base.error is not None:
            raise ArgumentError(
                f"problem {rig.case}", got=f"{self._base.ended}: {self._base.error}", need="one that runs"
            )
        self._rig.limit(self._base)
        steady = self._run().same(self._base)
        self.notes = () if steady else ("two equal launches differ: what changes little may be called live",)
        self._kernarg = rig.kernarg()
        self._loaded = _static(rig.kernel)

    def slot(self, field: Field) -> Slot:
        if field.role in ("padding", "hidden"):
            live, effect, changes = self._padding(field)
        elif field.is_pointer:
            live, effect, changes = self._pointer(field)
        elif field.type == "f32":
            live, effect, changes = self._float(field)
        else:
            live, effect, changes = self._integer(field)
        kind = "padding" if field.role == "padding" else field.type
        return Slot(field.offset, field.size, field.name, kind, live, self._loaded.get(field.name, ""), effect, changes)

    def _padding(self, field: Field) -> tuple[bool, str, tuple[Change, ...]]:
        changes = [
            Change(f"0x{byte.hex()} in every byte", self._outcome({field.offset: byte * field.size}))
            for byte in _GARBAGE
        ]
        return self._verdict(changes, "read")

    def _pointer(self, field: Field) -> tuple[bool, str, tuple[Change, ...]]:
        offset = field.offset
        wild = Change("an address of nothing", self._outcome({offset: struct.pack("<Q", 0x5A5A_5000)}))
        if field.name not in self._rig.arrays:
            return self._verdict([wild, Change("all ones", self._outcome({offset: b"\xff" * field.size}))], "used")
        changes = [wild, Change("null", self._outcome({offset: bytes(field.size)}))]
        if all(change.outcome == _SAME for change in changes):
            return self._verdict(changes, "")
        array = self._rig.arrays[field.name]
        copy = array.copy()
        seen = self._run(arrays={field.name: copy})
        same = seen.equal_outputs(self._base)
        changes.append(Change("an equal copy", _SAME if same else "values differ"))
        if field.name in self._rig.written:
            return True, "written" if same else "written, and read", tuple(changes)
        high = self._outcome({offset + 6: b"\xff\xff"})
        changes.append(Change("bits 48-63 set", high))
        return True, "read" + (", 48 bits of the address" if high == _SAME else ""), tuple(changes)

    def _float(self, field: Field) -> tuple[bool, str, tuple[Change, ...]]:
        (value,) = struct.unpack_from("<f", self._kernarg, field.offset)
        doubled, changes = value * 2 if value else 2.0, []
        seen = self._run({field.offset: struct.pack("<f", doubled)})
        changes.append(Change(f"{doubled:g}", self._describe(seen)))
        for number in (0.0, float("nan")):
            changes.append(Change(f"{number:g}", self._outcome({field.offset: struct.pack("<f", number)})))
        return self._verdict(changes, "factor of the result" if value and self._is_twice(seen) else "changes values")

    def _is_twice(self, seen: Observation) -> bool:
        """Whether every result is twice what it was; NaN and 0 stay."""
        self._restore(self._base)
        before = [to_float64(output.result).copy() for output in self._rig.problem.outputs]
        self._restore(seen)
        after = [to_float64(output.result) for output in self._rig.problem.outputs]
        return all(np.array_equal(2 * a, b, equal_nan=True) and np.any(b) for a, b in zip(before, after, strict=True))

    def _integer(self, field: Field) -> tuple[bool, str, tuple[Change, ...]]:
        value = int.from_bytes(self._kernarg[field.offset : field.end], "little")
        top = (1 << 8 * field.size) - 1
        tried = dict.fromkeys(
            one for one in (value - 1, value // 2, value + 1, 2 * value, 0, top // 2, top) if 0 <= one <= top
        )
        tried.pop(value, None)
        changes = [Change(str(one), self._outcome({field.offset: one.to_bytes(field.size, "little")})) for one in tried]
        live, effect, found = self._verdict(changes, "changes values")
        if not live:
            return live, effect, found
        for word in ("rows", "columns"):
            if any(re.fullmatch(f"{word} from \\d+ unwritten", change.outcome) for change in changes):
                return live, f"bounds the {word}", found
        return live, self._stride(field, value) or self._loop(field, value) or effect, found

    def _loop(self, field: Field, value: int) -> str:
        """Whether the work grows with the slot, where the device counts it."""
        work = [self._run({field.offset: one.to_bytes(field.size, "little")}) for one in (value // 2, value, 2 * value)]
        counts = [one.instructions for one in work if one.error is None and one.instructions is not None]
        return "length of a loop" if len(counts) == 3 and counts[0] < counts[1] < counts[2] else ""

    def _stride(self, field: Field, value: int) -> str:
        """Which operand's rows are ``value`` apart, and in which unit; "" for none."""
        for name, array in self._rig.arrays.items():
            if array.ndim < 2 or not array.shape[-1]:
                continue
            pitch = array.shape[-1] * array.itemsize
            for factor, unit in _UNITS:
                if pitch * factor != value:
                    continue
                for rows in _ROWS:
                    if len(array) % rows == 0 and self._follows(field, name, array, factor, rows):
                        together = f", {rows} rows at a time" if rows > 1 else ""
                        return f"row stride of {name.removeprefix('ptr_')} in {unit}{together}"
        return ""

    def _follows(self, field: Field, name: str, array: np.ndarray, factor: float, rows: int) -> bool:
        """Whether the result stays when the rows move apart and the slot with them."""
        written = name in self._rig.written
        initial = self._rig.before[name] if written else array
        raw = np.ascontiguousarray(initial).reshape(len(initial) // rows, -1).view(np.uint8)
        apart = np.full((raw.shape[0], raw.shape[1] + rows * _APART), 0xFF, np.uint8)
        apart[:, : raw.shape[1]] = raw
        moved = int((array.shape[-1] * array.itemsize + _APART) * factor)
        memory = apart.reshape(-1).view(array.dtype)
        seen = self._run({field.offset: moved.to_bytes(field.size, "little")}, arrays={name: memory})
        if seen.error is not None:
            return False
        if not written:
            # Not bit by bit: what lies between rows may be multiplied by scales that are next to nothing.
            self._restore(seen)
            return all(output.compare().passed for output in self._rig.problem.outputs)
        together = seen.outputs[name].reshape(apart.shape)[:, : raw.shape[1]]
        others = all(np.array_equal(seen.outputs[one], self._base.outputs[one]) for one in seen.outputs if one != name)
        return others and np.array_equal(together.reshape(-1), self._base.outputs[name])

    def _verdict(self, changes: Sequence[Change], effect: str) -> tuple[bool, str, tuple[Change, ...]]:
        live = any(change.outcome != _SAME for change in changes)
        return live, effect if live else "none", tuple(changes)

    def _run(
        self, patch: Mapping[int, bytes] | None = None, *, arrays: Mapping[str, np.ndarray] | None = None
    ) -> Observation:
        self.launches += 1
        seen = self._rig.run(patch, arrays=arrays)
        # With a wrong size or stride a kernel may write into another of the buffers.
        self._hit = [name for name, value in self._operands.items() if not _equal(self._rig.arrays[name], value)]
        for name in self._hit:
            self._rig.arrays[name][...] = self._operands[name]
        return seen

    def _outcome(self, patch: Mapping[int, bytes]) -> str:
        return self._describe(self._run(patch))

    def _describe(self, seen: Observation) -> str:
        """What the last launch shows that the unchanged one does not."""
        if self._hit:
            return f"overwrites {', '.join(name.removeprefix('ptr_') for name in self._hit)}"
        if seen.ended:
            return seen.ended if seen.ended != "error" else f"error: {seen.error}"
        if seen.same(self._base):
            return _SAME
        if seen.equal_outputs(self._base):
            more = set(seen.findings) - set(self._base.findings)
            return "other reads, " + _SAME + " result" if more else "other work, " + _SAME + " result"
        texts = []
        for output in self._rig.problem.outputs:
            self._restore(self._base)
            before = _elements(output.result).copy()
            self._restore(seen)
            now = _elements(output.result)
            fill = self._fill_of(output.result)
            lost = (now == fill) & (before != fill)
            differ = (now != before) & ~lost
            outside = self._rig.outside()
            texts.append(_what(lost, differ, outside))
        return next((text for text in texts if text), "values differ")

    def _restore(self, seen: Observation) -> None:
        for name, data in seen.outputs.items():
            self._rig.arrays[name].reshape(-1).view(np.uint8)[:] = data

    def _fill_of(self, result: np.ndarray) -> Any:
        """What an element of ``result`` holds before the launch."""
        for name, array in self._rig.arrays.items():
            if name in self._rig.written and np.shares_memory(array, result):
                return _elements(self._rig.before[name]).reshape(-1)[0]
        return None


def _what(lost: np.ndarray, differ: np.ndarray, outside: int) -> str:
    """Which elements were lost, and how many differ."""
    parts = []
    if lost.any():
        parts.append(_lost(lost))
    if differ.any():
        parts.append(f"{differ.mean():.0%} of the values differ" if not differ.all() else "every value differs")
    if outside:
        parts.append(f"{outside} written outside")
    return ", ".join(parts)


def _lost(lost: np.ndarray) -> str:
    """``"rows from 3 unwritten"`` where that is what ``lost`` (2-d) is."""
    if lost.all():
        return "nothing written"
    if lost.ndim == 2:
        for axis, word in ((0, "rows"), (1, "columns")):
            line = np.asarray(lost.all(axis=1 - axis))
            first = int(line.argmax())
            if line.any() and line[first:].all() and lost.sum() == line.sum() * lost.shape[1 - axis]:
                return f"{word} from {first} unwritten"
    return f"{lost.mean():.0%} unwritten"


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))


def _elements(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _static(kernel: Kernel) -> dict[str, str]:
    """What the machine code does with each argument by static analysis; nothing where it cannot be read."""
    from asmlaunch.emulator.liveness import liveness

    try:
        return {name: one.status.value for name, one in liveness(kernel.info).of(kernel.schema).items()}
    except AsmlaunchError:
        return {}
