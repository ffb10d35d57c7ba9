"""Every error that asmlaunch raises, in one small hierarchy.

A message names the thing, the value found, the value needed and the next step::

    scale columns: got 52, kernel needs 56 (K=1664 padded to 1792); pad with 0x00, layouts.pad_scales does it

Raise with the parts and the sentence is composed for you::

    raise LayoutError("scale columns", got=52, need="56 (K=1664 padded to 1792)", hint="pad with 0x00")
"""

from __future__ import annotations

from typing import Any


class AsmlaunchError(Exception):
    """Base of every error raised on purpose by asmlaunch.

    Attributes:
        what: the thing that is wrong, a short noun phrase or a whole sentence.
        got: the value found, or None where there is none to show.
        need: the value that would be right, or None.
        hint: the next step for the reader, or None.
    """

    def __init__(self, what: str, *, got: Any = None, need: Any = None, hint: str | None = None) -> None:
        self.what, self.got, self.need, self.hint = what, got, need, hint
        clauses = []
        if got is not None:
            clauses.append(f"got {got}")
        if need is not None:
            clauses.append(f"need {need}")
        message = f"{what}: {', '.join(clauses)}" if clauses else what
        super().__init__(f"{message}; {hint}" if hint else message)


class CodeObjectError(AsmlaunchError):
    """The file is not a code object that can be used: not an ELF, truncated, no metadata note, a broken container."""


class TargetError(AsmlaunchError):
    """The code object is for another processor or another xnack/sramecc setting than the device's."""


class KernelNotFoundError(AsmlaunchError):
    """No kernel (or kernel file, or family) of that name; the message lists the names there are."""


class ArgumentError(AsmlaunchError):
    """A kernel argument is missing, unknown, of the wrong type or size, or out of range."""


class DumpError(AsmlaunchError):
    """A hexdump or kernarg file that cannot be read, or that does not fit the schema."""


class LayoutError(AsmlaunchError):
    """A tensor whose shape, dtype, strides, padding or tiling is not what is needed."""


class DomainError(AsmlaunchError):
    """A problem outside the domain the kernel is right on (``check=False`` launches it all the same)."""


class LaunchError(AsmlaunchError):
    """Grid, block, LDS size or launch state that the kernel or the device cannot take."""


class DeviceError(AsmlaunchError):
    """A device that is not there, or an error code from its runtime."""


class EmulationError(AsmlaunchError):
    """The emulator cannot go on; the subclasses say why.

    Attributes:
        findings: what it had noticed until then (``devices.Finding``), as after a launch that ends.
    """

    findings: tuple[Any, ...] = ()


class UnsupportedInstructionError(EmulationError):
    """Instructions whose meaning is not defined, found when the kernel is prepared."""


class MemoryFaultError(EmulationError):
    """A kernel touched memory outside the caller's arrays."""


class InstructionBudgetError(EmulationError):
    """A wave executed more instructions than the launch allows: most likely an endless loop."""


class MismatchError(AsmlaunchError):
    """A result that differs from its reference by more than the bound."""
