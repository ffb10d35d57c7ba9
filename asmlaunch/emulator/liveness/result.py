"""The answer a caller sees: byte sets, a status a field, and forms for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from rich.table import Table

from asmlaunch.abi.audit import LiveBytes
from asmlaunch.abi.schema import Field, KernargSchema
from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.liveness.analysis import Load, Sink, analyse, bytes_of
from asmlaunch.emulator.liveness.effects import Use


class Status(Enum):
    """What the machine code does with a field."""

    NEVER = "never loaded"
    UNUSED = "loaded, unused"
    USED = "used"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class FieldLiveness:
    """One field: its status, how its value is used, and how many of its bytes are loaded."""

    field: Field
    status: Status
    uses: tuple[Use, ...]
    loaded: int

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "name": self.field.name,
            "offset": self.field.offset,
            "size": self.field.size,
            "status": self.status.value,
            "uses": [use.value for use in self.uses],
            "bytes_loaded": self.loaded,
        }


@dataclass(frozen=True)
class Liveness:
    """Which kernarg bytes a kernel loads and uses.

    "Used" means that the value may reach a store, an address, LDS or a branch; what is not used cannot change what
    the kernel does. Values that reach the EXEC mask, the skip mode or the MODE register count as branches.

    Attributes:
        kernel: its name.
        segment: bytes of its kernarg segment, from the metadata.
        loads: every load from the segment, in order of address.
        sinks: where kernarg bytes end up: the first instruction of each kind, and how many there are.
        unresolved: jumps through registers, whose code was not analysed.
    """

    kernel: str
    segment: int
    loads: tuple[Load, ...]
    sinks: tuple[Sink, ...]
    unresolved: tuple[str, ...] = ()

    @cached_property
    def loaded(self) -> frozenset[int]:
        """Offsets of the bytes that some load covers; loads at unknown offsets add none (see ``complete``)."""
        ranges = (range(load.offset, load.offset + load.size) for load in self.loads if load.offset is not None)
        return frozenset(byte for span in ranges for byte in span)

    @cached_property
    def by_use(self) -> dict[Use, frozenset[int]]:
        """For each kind of use, the bytes used so."""
        masks = dict.fromkeys(Use, 0)
        for sink in self.sinks:
            masks[sink.use] |= sink.mask
        return {use: bytes_of(mask) for use, mask in masks.items()}

    @cached_property
    def used(self) -> frozenset[int]:
        """Offsets of the bytes that may change what the kernel does."""
        return frozenset().union(*self.by_use.values())

    @property
    def unknown(self) -> tuple[Load, ...]:
        """Loads from the segment at an offset that is not known."""
        return tuple(load for load in self.loads if load.offset is None)

    @property
    def complete(self) -> bool:
        """Whether "never loaded" can be said: no load at an unknown offset, no code left out."""
        return not self.unknown and not self.unresolved

    @property
    def highest_byte(self) -> int | None:
        """Offset of the last byte loaded: a launcher's struct must reach past it. None when nothing is loaded."""
        return max(self.loaded, default=None)

    @property
    def highest_used_byte(self) -> int | None:
        """Offset of the last byte that matters, or None."""
        return max(self.used, default=None)

    def status(self, offset: int, size: int) -> Status:
        """What is done with ``size`` bytes from ``offset``: the most that is done with any of them."""
        span = range(offset, offset + size)
        if any(byte in self.used for byte in span):
            return Status.USED
        if not self.complete:
            return Status.UNKNOWN
        return Status.UNUSED if any(byte in self.loaded for byte in span) else Status.NEVER

    def uses(self, offset: int, size: int) -> tuple[Use, ...]:
        """How ``size`` bytes from ``offset`` are used."""
        span = range(offset, offset + size)
        return tuple(use for use, used in self.by_use.items() if any(byte in used for byte in span))

    def of(self, schema: KernargSchema) -> dict[str, FieldLiveness]:
        """Every field of a schema by name, padding left out."""
        return {
            field.name: FieldLiveness(
                field,
                self.status(field.offset, field.size),
                self.uses(field.offset, field.size),
                sum(byte in self.loaded for byte in range(field.offset, field.end)),
            )
            for field in schema.fields
            if field.role != "padding"
        }

    def live_bytes(self) -> LiveBytes | None:
        """The form that ``abi.audit`` takes; None where the analysis cannot vouch for bytes it did not see loaded."""
        return LiveBytes(tuple(ranges(self.loaded)), tuple(ranges(self.used))) if self.complete else None

    def to_json(self, schema: KernargSchema | None = None) -> dict[str, Any]:
        """Plain values, for ``json.dumps``; byte sets as ``[first, past the last]`` ranges."""
        answer: dict[str, Any] = {
            "kernel": self.kernel,
            "segment": self.segment,
            "highest_byte": self.highest_byte,
            "highest_used_byte": self.highest_used_byte,
            "complete": self.complete,
            "loaded": ranges(self.loaded),
            "used": ranges(self.used),
            "uses": {use.value: ranges(found) for use, found in self.by_use.items()},
            "sinks": [
                {
                    "use": sink.use.value,
                    "bytes": ranges(bytes_of(sink.mask)),
                    "instructions": sink.count,
                    "first": f"{sink.address:#x} {sink.text}",
                }
                for sink in self.sinks
            ],
            "unknown_loads": [f"{load.address:#x} {load.text}" for load in self.unknown],
            "unresolved_jumps": list(self.unresolved),
        }
        if schema is not None:
            answer["fields"] = [entry.to_json() for entry in self.of(schema).values()]
        return answer

    def table(self, schema: KernargSchema) -> Table:
        """The fields of a schema with what is done with each, for a terminal."""
        table = Table(title=f"{self.kernel}", title_justify="left")
        for column in ("offset", "size", "name", "machine code", "as"):
            table.add_column(column, justify="right" if column in ("offset", "size") else "left")
        for entry in self.of(schema).values():
            field, style = entry.field, _STYLES[entry.status]
            uses = ", ".join(use.value for use in entry.uses)
            table.add_row(
                str(field.offset), str(field.size), field.name, f"[{style}]{entry.status.value}[/]", uses or "-"
            )
        return table

    def __rich__(self) -> Table:
        table = Table(title=f"{self.kernel}", title_justify="left")
        for column in ("bytes", "machine code", "as"):
            table.add_column(column)
        for first, end in ranges(self.loaded):
            for start, stop, status, uses in self._runs(first, end):
                shown = ", ".join(use.value for use in uses)
                table.add_row(f"{start}..{stop - 1}", f"[{_STYLES[status]}]{status.value}[/]", shown or "-")
        for load in self.unknown:
            table.add_row("?", f"[yellow]loaded at {load.address:#x}[/]", load.text)
        return table

    def _runs(self, first: int, end: int) -> Iterable[tuple[int, int, Status, tuple[Use, ...]]]:
        """Stretches of bytes that are treated alike."""
        start, current = first, (self.status(first, 1), self.uses(first, 1))
        for byte in range(first + 1, end):
            here = self.status(byte, 1), self.uses(byte, 1)
            if here != current:
                yield start, byte, *current
                start, current = byte, here
        yield start, end, *current


_STYLES = {Status.NEVER: "dim", Status.UNUSED: "yellow", Status.USED: "green", Status.UNKNOWN: "red"}


def ranges(found: Iterable[int]) -> list[tuple[int, int]]:
    """A set of bytes as ``(first, past the last)`` pairs, in order."""
    spans: list[tuple[int, int]] = []
    for byte in sorted(found):
        if spans and spans[-1][1] == byte:
            spans[-1] = spans[-1][0], byte + 1
        else:
            spans.append((byte, byte + 1))
    return spans


def liveness(kernel: KernelInfo) -> Liveness:
    """Analyse a kernel's machine code.

    Raises:
        TargetError: not a gfx9 processor. CodeObjectError: reachable bytes that are no instruction.
        DeviceError: the disassembler (extra ``emulator``) is not installed.
    """
    flow = analyse(kernel)
    return Liveness(kernel.name, kernel.kernarg_size, flow.loads, flow.sinks, flow.unresolved)
