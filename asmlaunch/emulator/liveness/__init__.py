"""Which kernarg bytes a kernel loads, and which of the loaded values matter: read off its machine code."""

from asmlaunch.emulator.liveness.analysis import Load, Sink
from asmlaunch.emulator.liveness.effects import Use
from asmlaunch.emulator.liveness.result import FieldLiveness, Liveness, Status, liveness

__all__ = ["FieldLiveness", "Liveness", "Load", "Sink", "Status", "Use", "liveness"]
