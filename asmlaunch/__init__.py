"""Load, launch, emulate and verify GPU kernels that arrive as AMD code objects.

::

    import asmlaunch
    kernel = asmlaunch.load("f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256.co")
    kernel.launch(args)

Nothing here touches a GPU or imports a heavy package before it is used: names are resolved on first access.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmlaunch import abi, choice, codeobject, devices, emulator, errors, layouts, validate
    from asmlaunch.choice import choose
    from asmlaunch.module import Kernel, Module, load

__version__ = "0.1.0"

_DEFINED_IN = {"Kernel": "module", "Module": "module", "load": "module", "choose": "choice"}
_SUBPACKAGES = (
    "abi",
    "choice",
    "codeobject",
    "devices",
    "emulator",
    "errors",
    "layouts",
    "ops",
    "triton_ref",
    "validate",
)

__all__ = [
    "Kernel",
    "Module",
    "abi",
    "choice",
    "choose",
    "codeobject",
    "devices",
    "emulator",
    "errors",
    "layouts",
    "load",
    "ops",
    "triton_ref",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in _DEFINED_IN:
        return getattr(importlib.import_module(f"asmlaunch.{_DEFINED_IN[name]}"), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"asmlaunch.{name}")
    raise AttributeError(f"module 'asmlaunch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
