"""What is wrong with a kernel's argument segment: schema against metadata against machine code, and a launch's values.

Every check is a small function that yields findings; ``audit`` runs those it has the input for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from asmlaunch.abi.agreement import disagreements
from asmlaunch.abi.arguments import Buffer
from asmlaunch.abi.families import family_of
from asmlaunch.abi.families.base import Family
from asmlaunch.abi.reflect import schema_from_metadata
from asmlaunch.abi.schema import Field, KernargSchema
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import ArgumentError, DomainError

if TYPE_CHECKING:
    from rich.table import Table

ERROR, WARNING, NOTE = "error", "warning", "note"

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LiveBytes:
    """What the machine code does with the segment, as ranges (start, end) of byte offsets.

    Attributes:
        loaded: bytes that some instruction loads.
        used: those of them whose value reaches a store, an address or a branch.
    """

    loaded: Ranges
    used: Ranges

    def state(self, entry: Field) -> str:
        """``"never loaded"``, ``"loaded, unused"`` or ``"used"``."""
        if _touches(self.used, entry):
            return "used"
        return "loaded, unused" if _touches(self.loaded, entry) else "never loaded"

    @property
    def end(self) -> int:
        """The offset just past the last byte loaded."""
        return max((high for _, high in self.loaded), default=0)


def _touches(ranges: Ranges, entry: Field) -> bool:
    return any(low < entry.end and entry.offset < high for low, high in ranges)


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Attributes:
        severity: ``"error"`` (will not work, or not as meant), ``"warning"`` (most likely not meant) or ``"note"``.
        check: short name of the check.
        message: what was found and what would be right.
        argument, offset: what it is about, where it is about one argument.
    """

    severity: str
    check: str
    message: str
    argument: str | None = None
    offset: int | None = None

    def __str__(self) -> str:
        return f"{self.severity}: {self.check}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return dict(vars(self))


@dataclass(frozen=True)
class Audit:
    """All findings on one kernel, the worst first; ``states`` says of each argument what the code does with it."""

    kernel: str
    findings: tuple[Finding, ...]
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings."""
        return all(finding.severity != ERROR for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "kernel": self.kernel,
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "arguments": dict(self.states),
        }

    def __str__(self) -> str:
        return "\n".join([self.kernel, *(f"  {finding}" for finding in self.findings or ("nothing found",))])

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(title=self.kernel, title_justify="left")
        for column in ("", "check", "argument", "what"):
            table.add_column(column)
        styles = {ERROR: "red", WARNING: "yellow", NOTE: "dim"}
        for finding in self.findings:
            cells = (finding.severity, finding.check, finding.argument or "", finding.message)
            table.add_row(*cells, style=styles[finding.severity])
        return table


def audit(
    kernel: KernelInfo,
    *,
    schema: KernargSchema | None = None,
    values: Mapping[str, Any] | None = None,
    buffers: Mapping[str, Buffer] | None = None,
    size: int | None = None,
    loaded: LiveBytes | None = None,
) -> Audit:
    """Check a kernel's arguments.

    Args:
        kernel: the kernel.
        schema: how the caller lays the segment out; None takes the declared family's schema, else the metadata's.
        values: numbers of a launch by name, as ``abi.bind`` gives them.
        buffers: the memory behind its pointers, as ``abi.bind`` gives it.
        size: bytes the caller passes; None takes the schema's.
        loaded: what the machine code loads, where that is known.
    """
    family = family_of(kernel)
    chosen = schema or (family.schema(kernel) if family else schema_from_metadata(kernel))
    findings = [
        *_check_metadata(chosen, kernel, family if schema is None else None),
        *_check_overlaps(chosen),
        *_check_size(chosen, kernel, chosen.size if size is None else size, loaded),
        *_check_descriptor(kernel),
    ]
    if values is not None:
        given = chosen.canonical(values)
        behind = buffers or {}
        findings += _check_dead(chosen, given, loaded)
        findings += _check_pointers(chosen, given, loaded)
        findings += _check_buffers(behind)
        findings += _check_aliasing(chosen, given)
        if family is not None and schema is None:
            findings += _check_domain(family, kernel, given, behind)
    order = {ERROR: 0, WARNING: 1, NOTE: 2}
    findings.sort(key=lambda finding: (order[finding.severity], finding.offset or 0))
    callers = [entry for entry in chosen.fields if entry.given_by_caller]
    return Audit(kernel.name, tuple(findings), {entry.name: _state(entry, loaded) for entry in callers})


def _state(entry: Field, loaded: LiveBytes | None) -> str:
    if loaded is not None:
        return loaded.state(entry)
    return {True: "used", False: "no effect", None: "unknown"}[entry.live]


def _about(severity: str, check: str, entry: Field, message: str) -> Finding:
    return Finding(severity, check, message, entry.name, entry.offset)


def _check_metadata(schema: KernargSchema, kernel: KernelInfo, family: Family | None) -> Iterator[Finding]:
    for entry in disagreements(schema, kernel, family):
        severity = NOTE if entry.reason else ERROR
        yield Finding(severity, "metadata", str(entry), entry.field, entry.offset)


def _check_overlaps(schema: KernargSchema) -> Iterator[Finding]:
    for before, after in zip(schema.fields, schema.fields[1:], strict=False):
        if after.offset < before.end:
            yield _about(
                ERROR, "overlap", after, f"{after.where} begins inside {before.where}, which ends at {before.end}"
            )


def _check_size(schema: KernargSchema, kernel: KernelInfo, size: int, loaded: LiveBytes | None) -> Iterator[Finding]:
    """A segment that is shorter than the kernel's matters only if the code loads what is missing."""
    need = kernel.kernarg_size
    lost = [(i, f) for i, f in enumerate(schema_from_metadata(kernel).fields) if f.end > size and f.given_by_caller]
    uncovered = "only padding is not covered"
    if lost:
        index, first = lost[0]
        uncovered = f"the first argument not covered is {index}, {first.name} at {first.offset}, {first.size} bytes"
    if loaded is not None and loaded.end > size:
        message = f"the code loads bytes up to {loaded.end}, the caller passes {size}; {uncovered}"
        yield Finding(ERROR, "size", message)
    elif size < need:
        severity = NOTE if loaded is not None or not lost else ERROR
        message = f"the caller passes {size} bytes of {need}, {need - size} short; {uncovered}"
        yield Finding(severity, "size", message)
    elif size > need:
        yield Finding(NOTE, "size", f"the caller passes {size} bytes, the kernel's segment is {need}")


def _check_descriptor(kernel: KernelInfo) -> Iterator[Finding]:
    stated = kernel.descriptor.kernarg_size
    if stated not in (0, kernel.kernarg_size):
        message = (
            f"the descriptor says {stated} bytes of arguments, the metadata {kernel.kernarg_size}; the latter counts"
        )
        yield Finding(WARNING, "descriptor", message)
    length, start = kernel.descriptor.kernarg_preload_spec_length, kernel.descriptor.kernarg_preload_spec_offset
    if length:
        message = f"{length} dwords from dword {start} come preloaded in registers; the entry is then 256 bytes later"
        yield Finding(NOTE, "preload", message)


def _check_dead(schema: KernargSchema, values: Mapping[str, Any], loaded: LiveBytes | None) -> Iterator[Finding]:
    for entry in schema.fields:
        if entry.name not in values or not entry.given_by_caller or _used(entry, loaded) is not False:
            continue
        if values[entry.name] not in (entry.default, 0, None):
            instead = f"; set {entry.instead}" if entry.instead else ""
            yield _about(
                WARNING,
                "dead slot",
                entry,
                f"{entry.name} = {values[entry.name]} has no effect in this kernel{instead}",
            )


def _used(entry: Field, loaded: LiveBytes | None) -> bool | None:
    return entry.live if loaded is None else loaded.state(entry) == "used"


def _check_pointers(schema: KernargSchema, values: Mapping[str, Any], loaded: LiveBytes | None) -> Iterator[Finding]:
    for entry in schema.fields:
        if not entry.is_pointer or not entry.given_by_caller or entry.name not in values:
            continue
        address, used = int(values[entry.name] or 0), _used(entry, loaded)
        if address >> 48:
            yield _about(
                ERROR, "pointer", entry, f"{entry.name} = {address:#x} does not fit 48 bits: kernels cut it off"
            )
        elif address == 0 and used and entry.default is None:
            yield _about(ERROR, "pointer", entry, f"{entry.name} is null and the kernel uses it")
        elif address == 0 and used is None:
            yield _about(NOTE, "pointer", entry, f"{entry.name} is null")
        elif address % 4:
            yield _about(WARNING, "pointer", entry, f"{entry.name} = {address:#x} is not a multiple of 4")


def _check_buffers(buffers: Mapping[str, Buffer]) -> Iterator[Finding]:
    for name, buffer in buffers.items():
        elements = 1
        for length in buffer.shape:
            elements *= length
        if buffer.nbytes >= 1 << 32:
            yield Finding(
                WARNING, "extent", f"{name} has {buffer.nbytes} bytes: 32-bit byte offsets wrap at 2^32", name
            )
        elif buffer.shape and elements >= 1 << 31:
            yield Finding(
                WARNING, "extent", f"{name} has {elements} elements: signed 32-bit indices wrap at 2^31", name
            )


def _check_aliasing(schema: KernargSchema, values: Mapping[str, Any]) -> Iterator[Finding]:
    """An output given where an input is expected: arguments in the wrong order look like this."""
    pointers = [entry for entry in schema.fields if entry.is_pointer and values.get(entry.name)]
    for output in (entry for entry in pointers if entry.role.startswith("output")):
        for other in pointers:
            if other is not output and values[other.name] == values[output.name]:
                message = f"{other.name} and the output {output.name} are the same memory, {values[output.name]:#x}"
                yield _about(WARNING, "same memory", other, message)


def _check_domain(
    family: Family, kernel: KernelInfo, values: Mapping[str, Any], buffers: Mapping[str, Buffer]
) -> Iterable[Finding]:
    try:
        family.check(kernel, values, buffers)
    except (DomainError, ArgumentError) as error:
        yield Finding(ERROR, "domain", str(error))
