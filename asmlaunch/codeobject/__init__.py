"""Reading AMD code objects: target, kernels, arguments, descriptors, machine code."""

from asmlaunch.codeobject.descriptor import KernelDescriptor
from asmlaunch.codeobject.elf import Segment
from asmlaunch.codeobject.metadata import ArgumentInfo
from asmlaunch.codeobject.reader import CodeObject, KernelInfo, read
from asmlaunch.codeobject.target import TargetId, parse_target

__all__ = [
    "ArgumentInfo",
    "CodeObject",
    "KernelDescriptor",
    "KernelInfo",
    "Segment",
    "TargetId",
    "parse_target",
    "read",
]
