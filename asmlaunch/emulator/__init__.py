"""The emulator: a kernel's gfx942/gfx950 machine code, compiled for this CPU and executed.

The way through it: ``decode`` (bytes to instructions) -> ``program`` (basic blocks) -> ``compile`` with ``lower``
(LLVM IR
from the definitions in ``isa``) -> ``jit`` (native code) -> ``machine`` (workgroups on threads) -> ``report``
(findings).
"""
