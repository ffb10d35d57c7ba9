"""The kernarg ABI: which bytes of a kernel's argument segment mean what; packing, unpacking, dumps and comparison."""

from asmlaunch.abi.arguments import Buffer, resolve
from asmlaunch.abi.audit import Audit, LiveBytes, audit
from asmlaunch.abi.binding import bind, check_tiling
from asmlaunch.abi.diff import Diff, FieldDiff, diff
from asmlaunch.abi.expected import expected_segment
from asmlaunch.abi.hexdump import Dump, find_dumps, hexdump, parse_hexdump, read_dumps
from asmlaunch.abi.hidden import hidden_values
from asmlaunch.abi.kernel_diff import KernelDiff, diff_kernels
from asmlaunch.abi.manifests import check_manifests, read_manifest
from asmlaunch.abi.map import KernargMap, kernarg_map
from asmlaunch.abi.reflect import schema_from_metadata
from asmlaunch.abi.schema import Field, KernargSchema

__all__ = [
    "Audit",
    "Buffer",
    "Diff",
    "Dump",
    "Field",
    "FieldDiff",
    "KernargMap",
    "KernargSchema",
    "KernelDiff",
    "LiveBytes",
    "audit",
    "bind",
    "check_manifests",
    "check_tiling",
    "diff",
    "diff_kernels",
    "expected_segment",
    "find_dumps",
    "hexdump",
    "hidden_values",
    "kernarg_map",
    "parse_hexdump",
    "read_dumps",
    "read_manifest",
    "resolve",
    "schema_from_metadata",
]
