"""Reading AMD code objects: target, kernels, arguments, descriptors, machine code."""

from asmlaunch.codeobject.container import Entry, entries
from asmlaunch.codeobject.descriptor import KernelDescriptor
from asmlaunch.codeobject.elf import Segment
from asmlaunch.codeobject.metadata import ArgumentInfo
from asmlaunch.codeobject.reader import CodeObject, KernelInfo, read
from asmlaunch.codeobject.target import TargetId, compatible, parse_target

__all__ = [
    "ArgumentInfo",
    "CodeObject",
    "Entry",
    "KernelDescriptor",
    "KernelInfo",
    "Segment",
    "TargetId",
    "compatible",
    "entries",
    "parse_target",
    "read",
]
