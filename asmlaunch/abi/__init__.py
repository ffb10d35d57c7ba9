"""The kernarg ABI: which bytes of a kernel's argument segment mean what; packing, unpacking, dumps and comparison."""

from asmlaunch.abi.arguments import Buffer, resolve
from asmlaunch.abi.audit import Audit, LiveBytes, audit
from asmlaunch.abi.binding import bind
from asmlaunch.abi.diff import Diff, FieldDiff, diff
from asmlaunch.abi.hexdump import Dump, find_dumps, hexdump, parse_hexdump, read_dumps
from asmlaunch.abi.hidden import hidden_values
from asmlaunch.abi.reflect import schema_from_metadata
from asmlaunch.abi.schema import Field, KernargSchema

__all__ = [
    "Audit",
    "Buffer",
    "Diff",
    "Dump",
    "Field",
    "FieldDiff",
    "KernargSchema",
    "LiveBytes",
    "audit",
    "bind",
    "diff",
    "find_dumps",
    "hexdump",
    "hidden_values",
    "parse_hexdump",
    "read_dumps",
    "resolve",
    "schema_from_metadata",
]
