"""LLVM IR -> callable machine code of this host, through llvmlite."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from asmlaunch.errors import DeviceError

LOCK = threading.RLock()  # LLVM's global state is touched by one thread at a time


@cache
def host() -> Any:
    """The host's CPU: ``name``, ``features`` (LLVM's names), ``triple`` and ``layout``.

    Raises:
        DeviceError: llvmlite is not installed.
    """
    return _Host()


class _Host:
    def __init__(self) -> None:
        try:
            from llvmlite import binding
        except ImportError as error:
            raise DeviceError(
                "the emulator's compiler is missing (llvmlite)", hint="pip install 'asmlaunch[emulator]'"
            ) from error
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        self.binding = binding
        self.name = binding.get_host_cpu_name()
        features = binding.get_host_cpu_features()
        self.features = frozenset(name for name, there in features.items() if there)
        # 512-bit registers where there are any: LLVM avoids them by default on some CPUs.
        self._flags = features.flatten() + (",-prefer-256-bit" if "avx512f" in self.features else "")
        self.triple = binding.get_process_triple()
        self.layout = str(self.machine(2).target_data)

    def machine(self, level: int) -> Any:
        """A target machine; ``level`` is the code generator's optimisation, 0..3."""
        target = self.binding.Target.from_triple(self.triple)
        # At level 0 code is little but calls. LLVM's fast instruction selection knows them as near calls only (the
        # loader adds the stubs that reach further); as far calls they take four times as long to compile.
        near = {"reloc": "pic", "codemodel": "small"} if level == 0 else {}
        return target.create_target_machine(cpu=self.name, features=self._flags, opt=level, jit=True, **near)


def compile_object(text: str, level: int) -> bytes:
    """LLVM IR -> an object file for this host; level 0 compiles fast, 3 well."""
    binding = host().binding
    with LOCK:
        module = binding.parse_assembly(text)
        module.verify()
        machine = host().machine(level)
        if level > 1:
            options = binding.create_pipeline_tuning_options(speed_level=level)
            passes = binding.create_pass_builder(machine, options)
            passes.getModulePassManager().run(module, passes)
        return bytes(machine.emit_object(module))


class Loaded:
    """Machine code in memory; it lives as long as this object."""

    def __init__(self, data: bytes) -> None:
        binding = host().binding
        with LOCK:
            empty = binding.parse_assembly(f'target triple = "{host().triple}"')
            self._engine = binding.create_mcjit_compiler(empty, host().machine(0))
            self._engine.add_object_file(binding.ObjectFileRef.from_data(data))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Address of a function."""
        return int(self._engine.get_function_address(name))


def publish(name: str, address: int) -> None:
    """Let modules compiled later call ``name``."""
    with LOCK:
        host().binding.add_symbol(name, address)
