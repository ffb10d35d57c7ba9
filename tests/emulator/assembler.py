"""AMDGPU assembly text -> machine code, with the LLVM of ``rocm-llvm-python``; no linker is needed."""

from __future__ import annotations

import ctypes
import io
from functools import cache

from elftools.elf.elffile import ELFFile

TRIPLE = b"amdgcn-amd-amdhsa"


class AssemblyError(ValueError):
    """The assembler refused a line; the text is LLVM's."""


@cache
def _initialise() -> None:
    from rocm.llvm.c import target

    for part in ("TargetInfos", "Targets", "TargetMCs", "AsmParsers", "AsmPrinters"):
        getattr(target, f"LLVMInitializeAll{part}")()


def _handler(messages: list[str]) -> ctypes._CFuncPtr:
    """A diagnostic handler that collects; without one LLVM ends the process at the first bad line."""
    from rocm.llvm.c import core

    def collect(info: int, _context: int) -> None:
        messages.append(str(ctypes.string_at(int(core.LLVMGetDiagInfoDescription(info))).decode()))

    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(collect)


def assemble(text: str, processor: str) -> bytes:
    """Machine code of the assembly ``text``, branches to labels resolved.

    Raises:
        AssemblyError: a line that is no instruction of ``processor``.
    """
    return bytes(ELFFile(io.BytesIO(assemble_object(text, processor))).get_section_by_name(".text").data())


def assemble_object(text: str, processor: str) -> bytes:
    """The relocatable object of the assembly ``text``.

    Raises:
        AssemblyError: a line that is no instruction of ``processor``.
    """
    from rocm.llvm.c import core, targetmachine
    from rocm.llvm.c.targetmachine import LLVMCodeGenFileType, LLVMCodeGenOptLevel, LLVMCodeModel, LLVMRelocMode

    _initialise()
    messages: list[str] = []
    handler = _handler(messages)
    context = core.LLVMContextCreate()
    core.LLVMContextSetDiagnosticHandler(context, ctypes.cast(handler, ctypes.c_void_p).value, None)
    module = core.LLVMModuleCreateWithNameInContext(b"assembly", context)
    core.LLVMSetTarget(module, TRIPLE)
    source = text.encode() + b"\n"
    core.LLVMSetModuleInlineAsm2(module, source, len(source))
    _, found, _ = targetmachine.LLVMGetTargetFromTriple(TRIPLE)
    machine = targetmachine.LLVMCreateTargetMachine(
        found, TRIPLE, processor.encode(), b"", LLVMCodeGenOptLevel.LLVMCodeGenLevelNone, LLVMRelocMode.LLVMRelocPIC,
        LLVMCodeModel.LLVMCodeModelDefault,
    )  # fmt: skip
    error, buffer = ctypes.c_void_p(), ctypes.c_void_p()
    targetmachine.LLVMTargetMachineEmitToMemoryBuffer(
        machine, module, LLVMCodeGenFileType.LLVMObjectFile, ctypes.addressof(error), ctypes.addressof(buffer)
    )
    if messages:
        raise AssemblyError("\n".join(messages))
    size = core.LLVMGetBufferSize(buffer.value)
    image = ctypes.string_at(int(core.LLVMGetBufferStart(buffer.value)), size)
    core.LLVMDisposeMemoryBuffer(buffer.value)
    targetmachine.LLVMDisposeTargetMachine(machine)
    core.LLVMDisposeModule(module)
    core.LLVMContextDispose(context)
    return bytes(image)
