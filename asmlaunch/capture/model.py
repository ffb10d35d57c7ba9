"""What a capture holds, and its JSON file."""

from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from asmlaunch import codeobject
from asmlaunch.abi import Dump, KernargSchema, schema_from_metadata
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import CodeObject, KernelInfo
from asmlaunch.devices.base import Dim3
from asmlaunch.errors import DumpError

FORMAT, VERSION = "asmlaunch capture", 1


@dataclass(frozen=True)
class Memory:
    """An allocation that the arguments of a launch point into.

    Attributes:
        address: where it began, in bytes.
        size: bytes of the allocation; ``before`` and ``after`` hold its first bytes, up to the capture's limit.
        before, after: its content around the launch; None where it was not copied.
    """

    address: int
    size: int
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True)
class CapturedLaunch:
    """One launch, as the runtime was called.

    Attributes:
        process: process id.
        sequence: position among the launches of the process.
        kernel: name the function was looked up by; "" when it was not seen.
        image: the code object it was loaded from, as passed to the runtime; None when it was not seen.
        entry: the function of the runtime that was called.
        grid, block: workgroups and work-items.
        dynamic_lds: bytes.
        device: the device current in the calling thread, -1 when unknown.
        stream: raw handle, 0 for the default stream.
        thread: id of the calling thread.
        nanoseconds: time of the call, since 1970.
        result: the runtime's error code, 0 for success.
        kernarg: argument bytes; None when the runtime was given pointers to arguments of unknown sizes.
        memory: the allocations, when they were captured.
    """

    process: int
    sequence: int
    kernel: str
    image: bytes | None
    entry: str
    grid: Dim3
    block: Dim3
    dynamic_lds: int
    device: int
    stream: int
    thread: int
    nanoseconds: int
    result: int
    kernarg: bytes | None
    memory: tuple[Memory, ...] = ()

    @cached_property
    def code_object(self) -> CodeObject:
        """The object, read.

        Raises:
            DumpError: it was not captured. CodeObjectError: it cannot be read.
        """
        if self.image is None:
            raise DumpError(f"launch of {self.kernel or 'an unknown kernel'}", got="no code object in the capture")
        return codeobject.read(self.image)

    @property
    def info(self) -> KernelInfo:
        """The kernel."""
        return self.code_object.kernels[self.kernel]

    @property
    def dump(self) -> Dump:
        """The argument bytes, as the commands that compare segments take them.

        Raises:
            DumpError: they are not known.
        """
        if self.kernarg is None:
            raise DumpError(f"launch of {self.kernel}", got="no argument bytes: their sizes were not known")
        return Dump(self.kernarg, ((0, len(self.kernarg)),))

    @property
    def schema(self) -> KernargSchema:
        """The layout of its arguments: its family's, else its metadata's."""
        family = family_of(self.info)
        return family.schema(self.info) if family else schema_from_metadata(self.info)


@dataclass(frozen=True)
class Capture:
    """What was captured of a program and the processes it started.

    Attributes:
        launches: in order of time.
        dropped: records that did not fit the limit of the capture's size.
    """

    launches: tuple[CapturedLaunch, ...]
    dropped: int = 0

    def launch(self, number: int) -> CapturedLaunch:
        """Launch ``number``, counted from 1 as ``asmlaunch show`` does.

        Raises:
            DumpError: there is none of that number.
        """
        if not 1 <= number <= len(self.launches):
            raise DumpError(
                "launch", got=number, need=f"1 to {len(self.launches)}" if self.launches else "(none captured)"
            )
        return self.launches[number - 1]

    def save(self, path: Path) -> None:
        """Write the JSON file; code objects are stored once each."""
        images: dict[bytes, int] = {}
        launches = []
        for launch in self.launches:
            fields = {f.name: getattr(launch, f.name) for f in dataclasses.fields(launch)}
            image = fields.pop("image")
            fields["object"] = None if image is None else images.setdefault(image, len(images))
            fields["kernarg"] = None if launch.kernarg is None else launch.kernarg.hex()
            fields["memory"] = [
                {**dataclasses.asdict(m), "before": _packed(m.before), "after": _packed(m.after)} for m in launch.memory
            ]
            launches.append(fields)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "dropped": self.dropped,
            "objects": [_packed(image) for image in images],
            "launches": launches,
        }
        path.write_text(json.dumps(document, indent=1))

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a file begins like a capture."""
        try:
            with path.open("rb") as stream:
                return FORMAT.encode() in stream.read(100)
        except OSError:
            return False

    @classmethod
    def load(cls, path: Path) -> Capture:
        """Read a capture's JSON file.

        Raises:
            DumpError: not a capture, or a damaged one.
        """
        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            raise DumpError(f"cannot read {path} ({error.strerror})") from error
        except ValueError as error:
            raise DumpError(f"{path} is not a capture ({error})", need="a file that asmlaunch capture wrote") from error
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise DumpError(f"{path} is not a capture", need="a file that asmlaunch capture wrote")
        if document.get("version") != VERSION:
            raise DumpError(f"version of {path}", got=document.get("version"), need=VERSION)
        try:
            images = [_unpacked(image) for image in document["objects"]]
            launches = tuple(_launch(fields, images) for fields in document["launches"])
            return cls(launches, int(document["dropped"]))
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, zlib.error) as error:
            raise DumpError(f"{path} is damaged ({type(error).__name__}: {error})") from error


def _launch(fields: dict[str, Any], images: list[bytes | None]) -> CapturedLaunch:
    fields = dict(fields)
    number = fields.pop("object")
    memory = tuple(
        Memory(m["address"], m["size"], _unpacked(m["before"]), _unpacked(m["after"])) for m in fields.pop("memory")
    )
    kernarg = fields.pop("kernarg")
    gx, gy, gz = fields.pop("grid")
    bx, by, bz = fields.pop("block")
    return CapturedLaunch(
        **fields,
        image=None if number is None else images[number],
        grid=(gx, gy, gz),
        block=(bx, by, bz),
        kernarg=None if kernarg is None else bytes.fromhex(kernarg),
        memory=memory,
    )


def _packed(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(zlib.compress(data, 1)).decode()


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else zlib.decompress(base64.b64decode(text, validate=True))
