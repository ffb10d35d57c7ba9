"""Reading the files that preload.c writes: a header, then records. The structures here are those of the C source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from construct import Array, Bytes, Const, ConstructError, Int32sl, Int32ul, Int64ul, Struct

from asmlaunch.capture.model import Capture, CapturedLaunch, Memory
from asmlaunch.errors import DumpError

#: ``enum Name`` of preload.c, which is the order of its list WRAPPED.
ENTRIES = (
    "hipModuleLoad",
    "hipModuleLoadData",
    "hipModuleLoadDataEx",
    "hipModuleGetFunction",
    "hipModuleLaunchKernel",
    "hipExtModuleLaunchKernel",
    "hipDrvLaunchKernelEx",
    "hipLaunchKernel",
    "hipGraphAddKernelNode",
    "hipModuleLaunchCooperativeKernel",
    "hipGetProcAddress",
    "__hipRegisterFatBinary",
    "__hipRegisterFunction",
)

_FILE = Struct("magic" / Const(b"ASMLCAP1"), "used" / Int64ul, "dropped" / Int64ul, "limit" / Int64ul, "pid" / Int64ul)
_RECORD = Struct("kind" / Int32ul, "pad" / Int32ul, "size" / Int64ul)
_OBJECT, _FUNCTION, _LAUNCH, _MEMORY = 1, 2, 3, 4
_BODIES = {
    _OBJECT: Struct("id" / Int64ul, "size" / Int64ul),
    _FUNCTION: Struct("id" / Int64ul, "object" / Int64ul, "size" / Int64ul),
    _LAUNCH: Struct(
        "sequence" / Int64ul,
        "function" / Int64ul,
        "nanoseconds" / Int64ul,
        "stream" / Int64ul,
        "thread" / Int64ul,
        "grid" / Array(3, Int32ul),
        "block" / Array(3, Int32ul),
        "lds" / Int32ul,
        "entry" / Int32ul,
        "device" / Int32sl,
        "result" / Int32sl,
        "known" / Int32ul,
        "size" / Int32ul,
    ),
    _MEMORY: Struct(
        "sequence" / Int64ul, "base" / Int64ul, "allocated" / Int64ul, "size" / Int64ul, "after" / Int32ul, Bytes(4)
    ),
}


def read_files(files: list[Path]) -> Capture:
    """The capture in the files of all processes.

    Raises:
        DumpError: a file that preload.c did not write.
    """
    launches: list[CapturedLaunch] = []
    dropped = 0
    for file in files:
        found, lost = _read_file(file)
        launches += found
        dropped += lost
    return Capture(tuple(sorted(launches, key=lambda launch: (launch.nanoseconds, launch.sequence))), dropped)


def _read_file(file: Path) -> tuple[list[CapturedLaunch], int]:
    try:
        with file.open("rb") as stream:
            header = _FILE.parse(stream.read(_FILE.sizeof()))
            stream.seek(0)
            data = stream.read(header.used)
        records = list(_records(data))
    except ConstructError as error:
        raise DumpError(f"{file} is not a recording ({error})") from error
    images = {body.id: payload for kind, body, payload in records if kind == _OBJECT}
    functions = {body.id: (payload.decode(), body.object) for kind, body, payload in records if kind == _FUNCTION}
    memory: dict[int, dict[int, list[Any]]] = {}
    for kind, body, payload in records:
        if kind == _MEMORY:
            entry = memory.setdefault(body.sequence, {}).setdefault(body.base, [body.allocated, None, None])
            entry[2 if body.after else 1] = payload
    launches = []
    for kind, body, payload in records:
        if kind != _LAUNCH:
            continue
        name, image = functions.get(body.function, ("", 0))
        around = memory.get(body.sequence, {})
        launches.append(
            CapturedLaunch(
                process=header.pid,
                sequence=body.sequence,
                kernel=name,
                image=images.get(image),
                entry=ENTRIES[body.entry],
                grid=tuple(body.grid),
                block=tuple(body.block),
                dynamic_lds=body.lds,
                device=body.device,
                stream=body.stream,
                thread=body.thread,
                nanoseconds=body.nanoseconds,
                result=body.result,
                kernarg=payload if body.known else None,
                memory=tuple(Memory(base, *entry) for base, entry in sorted(around.items())),
            )
        )
    return launches, header.dropped


def _records(data: bytes) -> Iterator[tuple[int, Any, bytes]]:
    """(kind, fields, what follows them) of each record that was finished."""
    position = _FILE.sizeof()
    while position + _RECORD.sizeof() <= len(data):
        record = _RECORD.parse(data[position : position + _RECORD.sizeof()])
        if record.size < _RECORD.sizeof():
            return  # space taken by a thread that was stopped before it wrote the size
        if record.kind in _BODIES:
            layout = _BODIES[record.kind]
            start = position + _RECORD.sizeof()
            body = layout.parse(data[start : start + layout.sizeof()])
            start += layout.sizeof()
            yield record.kind, body, data[start : start + body.size]
        position += record.size
