"""One launch in one file: a ``.asml`` archive that another machine can replay, and that is safe to open.

The archive is a zip of ``manifest.json``, ``object.co``, ``kernarg.bin`` and ``buffers/N.before`` and ``.after``. It is
never unpacked to disk; names, sizes and types of everything in it are checked before they are used, and what it says is
data: nothing in it is executed until :func:`replay` runs its machine code, in the emulator unless told otherwise.

Buffers that are too large are left out when they can be made again from the problem's sizes and seed; their hashes say
whether that gave the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import math
import platform
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import asmlaunch
from asmlaunch.capture.model import CapturedLaunch, Memory
from asmlaunch.capture.replay import Replay
from asmlaunch.capture.replay import replay as run_again
from asmlaunch.devices import Device
from asmlaunch.errors import AsmlaunchError, DumpError
from asmlaunch.module import Module, load
from asmlaunch.validate.probe.rig import Rig
from asmlaunch.validate.problems import Case, get

FORMAT, VERSION = "asmlaunch bundle", 1

#: Bytes that a bundle's contents may have in all, and how many times the archive's own size.
MAX_BYTES, MAX_RATIO = 1 << 30, 2000
MAX_ELEMENTS = 1 << 26  # of an operand of a problem that is made again
MAX_MANIFEST = 4 << 20
MAX_KERNARG = 1 << 20
MAX_WORKGROUPS = 1 << 22
MAX_BUFFERS = 256

#: Bytes of buffers that :meth:`Bundle.save` stores; larger ones are made again from the seed.
LIMIT = 64 << 20

_NAMES = re.compile(r"manifest\.json|object\.co|kernarg\.bin|buffers/[0-9]{1,3}\.(before|after)")
_MANIFEST, _OBJECT, _KERNARG = "manifest.json", "object.co", "kernarg.bin"
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, KeyError, TypeError,
    IndexError, AttributeError, RuntimeError, OverflowError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True)
class Stored:
    """A buffer of the launch.

    Attributes:
        name: the argument that points to it.
        address, size: where it was, in bytes.
        before, after: its content around the launch; None where the bundle does not hold it.
        before_hash, after_hash: sha256 of it, hexadecimal.
    """

    name: str
    address: int
    size: int
    before: bytes | None
    after: bytes | None
    before_hash: str
    after_hash: str


@dataclass(frozen=True)
class Bundle:
    """A launch, all it needs, and what came of it.

    Attributes:
        kernel: the kernel's name.
        image: the code object; None where the bundle holds only its hash.
        image_hash: sha256 of the object, hexadecimal.
        file: name of the object's file, for people.
        kernarg: the argument bytes as they were passed.
        grid, block, dynamic_lds: of the launch.
        options: the device's launch options.
        buffers: the memory of the launch.
        family, case: the declared problem, as ``Case.changed`` takes it; "" where there is none.
        changed: names of arguments that were not those of the problem.
        device: where it ran.
        result: what came of it, as plain values: findings, instructions, fidelity, seconds, error.
        versions: of asmlaunch, Python, numpy, and the platform.
    """

    kernel: str
    image: bytes | None
    image_hash: str
    file: str
    kernarg: bytes
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    options: Mapping[str, Any]
    buffers: tuple[Stored, ...]
    family: str = ""
    case: str = ""
    changed: tuple[str, ...] = ()
    device: str = "emulator"
    result: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=lambda: versions())

    def save(self, path: Path, *, limit: int = LIMIT, with_object: bool = True) -> None:
        """Write the archive.

        Args:
            limit: bytes of buffers to store; beyond it those are left out that the problem's seed can make again.
            with_object: store the code object, and not only its hash.

        Raises:
            DumpError: more than that, and no seed to make it from.
        """
        total = sum(len(data) for one in self.buffers for data in (one.before, one.after) if data)
        store = total <= limit
        if not store and not self.family:
            raise DumpError(
                "buffers of a bundle", got=f"{total} bytes", need=f"at most {limit}", hint="raise the limit"
            )
        entries: dict[str, bytes] = {_KERNARG: self.kernarg}
        if with_object and self.image is not None:
            entries[_OBJECT] = self.image
        rows = []
        for number, one in enumerate(self.buffers):
            row = {"name": one.name, "address": one.address, "size": one.size}
            for when, data, digest in (("before", one.before, one.before_hash), ("after", one.after, one.after_hash)):
                row[f"{when}_sha256"] = digest
                # Operands that the seed makes again are stored only where they were changed.
                wanted = store or (when == "before" and one.name in self.changed)
                needed = when == "before" or one.after_hash != one.before_hash
                if data is not None and wanted and needed:
                    entries[f"buffers/{number}.{when}"] = data
            rows.append(row)
        plain = ("kernel", "file", "grid", "block", "dynamic_lds", "family", "case", "changed", "device")
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "object_sha256": self.image_hash,
            **{name: getattr(self, name) for name in plain},
            "options": dict(self.options),
            "versions": dict(self.versions),
            "buffers": rows,
            "result": plain_json(self.result),
        }
        entries = {_MANIFEST: json.dumps(manifest, indent=1).encode(), **entries}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in entries.items():
                # A fixed time: equal bundles are equal files.
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a file begins like a bundle: as a zip archive does."""
        try:
            with path.open("rb") as stream:
                return stream.read(4) == b"PK\x03\x04"
        except OSError:
            return False

    @classmethod
    def load(cls, source: Path | bytes) -> Bundle:
        """Read an archive.

        Raises:
            DumpError: not a bundle, a damaged one, or one that is larger than ``MAX_BYTES`` when it is unpacked.
        """
        where = "bundle" if isinstance(source, bytes) else str(source)
        try:
            size = len(source) if isinstance(source, bytes) else source.stat().st_size
            with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
                return _read(archive, where, size)
        except AsmlaunchError:
            raise
        except FileNotFoundError as error:
            raise DumpError(f"cannot read {where} ({error.strerror})") from error
        except (*_DAMAGE, RecursionError) as error:
            raise DumpError(f"{where} is no bundle, or damaged ({type(error).__name__}: {error})") from error

    def with_object(self, image: bytes) -> Bundle:
        """This bundle with its code object, for one that holds only the hash.

        Raises:
            DumpError: another object.
        """
        if _hash(image) != self.image_hash:
            raise DumpError("code object of a bundle", got=f"sha256 {_hash(image)[:16]}", need=self.image_hash[:16])
        return dataclasses.replace(self, image=image)

    def sizes(self) -> Case:
        """The sizes of its problem.

        Raises:
            KernelNotFoundError: a family without problems. ArgumentError: sizes that are none of its.
        """
        kind = get(self.family).case
        needed = [entry for entry in dataclasses.fields(kind) if entry.default is dataclasses.MISSING]
        return kind(**{entry.name: _EMPTY.get(str(entry.type), 0) for entry in needed}).changed(self.case)

    @property
    def short(self) -> str:
        """Its sizes without those at their defaults, "" where they cannot be read."""
        try:
            return self.sizes().short() if self.family else ""
        except AsmlaunchError:
            return ""

    def problem(self) -> tuple[Case, Module]:
        """The case of its problem and its object, loaded for the emulator.

        Raises:
            DumpError: it has no problem or no object, or sizes that nobody runs.
        """
        if not self.family:
            raise DumpError(f"bundle of {self.kernel}", got="no declared problem", hint="it can be replayed as it is")
        case = self.sizes()
        numbers = sorted(abs(v) for v in dataclasses.asdict(case).values() if isinstance(v, int) and v)
        if math.prod(numbers[-2:]) > MAX_ELEMENTS:
            raise DumpError(f"problem of a bundle of {self.kernel}", got=self.case, need="a smaller one")
        return case, load(self.require_object(), "emulator")

    def complete(self) -> Bundle:
        """This bundle with the content of every buffer before the launch, made from the seed where it is not stored.

        Raises:
            DumpError: nothing to make it from, or the seed makes other bytes.
        """
        if all(one.before is not None for one in self.buffers):
            return self
        case, module = self.problem()
        arrays = Rig(module[self.kernel], case).arrays
        found = []
        for one in self.buffers:
            if one.before is None:
                made = arrays[one.name].tobytes() if one.name in arrays else b""
                if _hash(made) != one.before_hash or len(made) != one.size:
                    raise DumpError(f"{one.name} of a bundle of {self.kernel}", got="other bytes from its seed")
                one = dataclasses.replace(one, before=made)
            found.append(one)
        return dataclasses.replace(self, buffers=tuple(found))

    def launch(self) -> CapturedLaunch:
        """The launch as captures have it."""
        memory = tuple(Memory(one.address, one.size, one.before, one.after) for one in self.buffers)
        return CapturedLaunch(
            process=0, sequence=0, kernel=self.kernel, image=self.image, entry="", grid=self.grid, block=self.block,
            dynamic_lds=self.dynamic_lds, device=-1, stream=0, thread=0, nanoseconds=0, result=0, kernarg=self.kernarg,
            memory=memory,
        )  # fmt: skip

    def require_object(self) -> bytes:
        """The code object.

        Raises:
            DumpError: the bundle holds only its hash.
        """
        if self.image is None:
            raise DumpError(
                f"bundle of {self.kernel}", got=f"only the hash of its object, {self.image_hash[:16]}",
                need=f"the object ({self.file or 'its file'})", hint="name it with --object",
            )  # fmt: skip
        return self.image


def bundle(rig: Rig, *, changed: Mapping[str, Any] | None = None, file: str = "") -> Bundle:
    """Run a launch and keep it.

    Args:
        rig: the launch.
        changed: arguments other than the problem's, by name: numbers, or arrays of the operand's size.
        file: name of the object's file, for people.

    Raises:
        ArgumentError: an array that is not of the operand's size, a name that is none.
    """
    values = rig.change(changed or {})
    before = {name: array.tobytes() for name, array in rig.initial().items()}
    packed = rig.kernarg(values=values)
    seen = rig.run(values=values)
    stored = []
    for name, buffer in rig.buffers.items():
        after = rig.arrays[name].tobytes()
        hashes = _hash(before[name]), _hash(after)
        stored.append(Stored(name, buffer.address, buffer.nbytes, before[name], after, *hashes))
    kernel = rig.kernel
    fidelity = seen.launched.fidelity if seen.launched else None
    result = {
        "findings": [str(one) for one in seen.findings],
        "instructions": seen.instructions,
        "fidelity": fidelity.to_json() if fidelity else None,
        "seconds": seen.launched.seconds if seen.launched else None,
        "error": None if seen.error is None else f"{type(seen.error).__name__}: {seen.error}",
    }
    options = {name: value for name, value in rig.options.items() if isinstance(value, (str, int))}
    return Bundle(
        kernel.name, kernel.code_object.data, _hash(kernel.code_object.data), file or _file(kernel.code_object.path),
        packed, rig.grid, rig.block, rig.lds, options, tuple(stored), rig.definition.name, str(rig.case),
        tuple(kernel.schema[name].name for name in changed or {}), kernel.device.name, result,
    )  # fmt: skip


def of_capture(launch: CapturedLaunch) -> Bundle:
    """A captured launch as a bundle; a buffer is named by the argument that points into it.

    Raises:
        DumpError: no code object, no argument bytes or no memory in the capture, or only a part of an allocation.
    """
    what = f"launch of {launch.kernel or 'an unknown kernel'}"
    if launch.image is None or launch.kernarg is None or not launch.memory:
        missing = "code object" if launch.image is None else "argument bytes" if launch.kernarg is None else "memory"
        raise DumpError(what, got=f"no {missing} in the capture", hint="capture with --memory")
    pointers = {
        name: value for name, value in launch.schema.unpack(launch.kernarg).items() if launch.schema[name].is_pointer
    }
    stored = []
    for number, one in enumerate(launch.memory):
        if one.before is None or one.after is None or not len(one.before) == len(one.after) == one.size:
            raise DumpError(f"{what}, allocation at {one.address:#x}", got="a part of it", need=f"{one.size} bytes")
        inside = [name for name, value in pointers.items() if one.address <= int(value) < one.address + one.size]
        name = inside[0] if inside else f"allocation {number}"
        hashes = _hash(one.before), _hash(one.after)
        stored.append(Stored(name, one.address, one.size, one.before, one.after, *hashes))
    error = f"error {launch.result} of {launch.entry}" if launch.result else None
    return Bundle(
        launch.kernel, launch.image, _hash(launch.image), "", launch.kernarg, launch.grid, launch.block,
        launch.dynamic_lds, {}, tuple(stored), device=f"hip:{launch.device}", result={"findings": [], "error": error},
    )  # fmt: skip


def replay(bundle: Bundle, device: str | Device | None = "emulator") -> Replay:
    """Run a bundle's launch again and compare what it leaves with what was stored.

    Args:
        device: as for :func:`asmlaunch.load`. A bundle of a stranger holds machine code: it belongs in the emulator.

    Raises:
        DumpError: no object, or buffers that can not be had. What the launch raises.
    """
    whole = bundle.complete()
    name = device if isinstance(device, str) else getattr(device, "name", "emulator")
    options = dict(bundle.options) if name == "emulator" else {}
    whole.require_object()
    done = run_again(_with_after(whole).launch(), device, **options)
    for one, left in zip(whole.buffers, done.left, strict=True):
        if one.after is None and one.after_hash != one.before_hash:  # only its hash is known
            different = 0 if _hash(left.tobytes()) == one.after_hash else one.size
            written = int(np.count_nonzero(left != np.frombuffer(one.before or b"", np.uint8)))
            done = dataclasses.replace(
                done, compared=done.compared + one.size, different=done.different + different,
                written=done.written + written,
            )  # fmt: skip
    return done


def restored(bundle: Bundle) -> Rig:
    """The bundle's problem with its outputs as the launch left them.

    Raises:
        DumpError: no problem, no object, or a result that is not stored.
    """
    case, module = bundle.problem()
    rig = Rig(module[bundle.kernel], case)
    for one in bundle.buffers:
        if one.name in rig.written:
            if one.after is None and one.after_hash != one.before_hash:
                raise DumpError(f"{one.name} of a bundle of {bundle.kernel}", got="no result stored")
            data = one.after if one.after is not None else one.before
            target = rig.arrays[one.name]
            if data is None or len(data) != target.nbytes:
                raise DumpError(f"{one.name} of a bundle of {bundle.kernel}", got="a result of another size")
            target.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return rig


def versions() -> dict[str, str]:
    """What a result may depend on."""
    return {
        "asmlaunch": asmlaunch.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def plain_json(value: Any) -> Any:
    """The value with NaN and infinities as text, which JSON has no numbers for, and keys as text."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _with_after(bundle: Bundle) -> Bundle:
    """Unchanged buffers are stored once."""
    return dataclasses.replace(
        bundle,
        buffers=tuple(
            dataclasses.replace(one, after=one.before)
            if one.after is None and one.after_hash == one.before_hash
            else one
            for one in bundle.buffers
        ),
    )


#: A value of each type that a case's sizes have, to be replaced.
_EMPTY: dict[str, Any] = {"int": 0, "float": 0.0, "str": ""}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file(path: Path | None) -> str:
    return "" if path is None else path.name


def _read(archive: zipfile.ZipFile, where: str, size: int) -> Bundle:
    infos = archive.infolist()
    names = [info.filename for info in infos]
    strange = next((name for name in names if not _NAMES.fullmatch(name)), None)
    if strange is not None or len(set(names)) != len(names):
        raise DumpError(
            f"entry of {where}", got=repr(strange or "a name twice")[:80], need="the names of a bundle's parts"
        )
    total = sum(info.file_size for info in infos)
    if total > MAX_BYTES or total > MAX_RATIO * max(size, 1):
        raise DumpError(f"contents of {where}", got=f"{total} bytes from {size}", need="less: this may be a zip bomb")
    for info in infos:
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DumpError(
                f"{info.filename} of {where}", got="encrypted or packed otherwise", need="stored or deflated"
            )

    def content(name: str, most: int) -> bytes | None:
        if name not in names:
            return None
        with archive.open(name) as stream:  # sizes in headers may lie
            data = stream.read(most + 1)
        if len(data) > most:
            raise DumpError(f"{name} of {where}", got=f"more than {most} bytes", need="at most that")
        return data

    text = content(_MANIFEST, MAX_MANIFEST)
    if text is None:
        raise DumpError(f"{where}", got="no manifest.json", need="a file that asmlaunch wrote")
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise DumpError(f"{where} is no bundle", need="a file that asmlaunch wrote")
    if manifest.get("version") != VERSION:
        raise DumpError(f"version of {where}", got=str(manifest.get("version"))[:40], need=VERSION)
    kernarg = content(_KERNARG, MAX_KERNARG)
    image = content(_OBJECT, MAX_BYTES)
    digest = _text(manifest["object_sha256"], 64)
    if image is not None and _hash(image) != digest:
        raise DumpError(f"object.co of {where}", got="another sha256", need=digest[:16])
    rows = manifest["buffers"]
    if not isinstance(rows, list) or len(rows) > MAX_BUFFERS or kernarg is None:
        raise DumpError(f"{where} is damaged", need="argument bytes, and a list of buffers")
    buffers = tuple(_buffer(where, number, row, content) for number, row in enumerate(rows))
    grid, block = _extents(manifest["grid"]), _extents(manifest["block"])
    if math.prod(grid) > MAX_WORKGROUPS:
        raise DumpError(f"grid of {where}", got=grid, need=f"at most {MAX_WORKGROUPS} workgroups")
    options, result = manifest["options"], manifest["result"]
    if not isinstance(options, dict) or not isinstance(result, dict) or not isinstance(manifest["versions"], dict):
        raise DumpError(f"{where} is damaged", need="options, result and versions by name")
    return Bundle(
        _text(manifest["kernel"]), image, digest, _text(manifest["file"]), kernarg, grid, block,
        _integer(manifest["dynamic_lds"], 1 << 20), _options(options), buffers, _text(manifest["family"]),
        _text(manifest["case"]), tuple(_text(name) for name in manifest["changed"]), _text(manifest["device"]), result,
        {_text(name): _text(value) for name, value in manifest["versions"].items()},
    )  # fmt: skip


def _buffer(where: str, number: int, row: Any, content: Callable[[str, int], bytes | None]) -> Stored:
    size = _integer(row["size"], MAX_BYTES)
    hashes = {when: _text(row[f"{when}_sha256"], 64) for when in ("before", "after")}
    data = {when: content(f"buffers/{number}.{when}", size) for when in ("before", "after")}
    for when, one in data.items():
        if one is not None and (len(one) != size or _hash(one) != hashes[when]):
            raise DumpError(f"buffers/{number}.{when} of {where}", got="another size or sha256", need=hashes[when][:16])
    name, address = _text(row["name"]), _integer(row["address"], (1 << 64) - 1)
    return Stored(name, address, size, data["before"], data["after"], hashes["before"], hashes["after"])


#: Launch options that a bundle may set, and the values they may have.
_OPTIONS: dict[str, Callable[[Any], bool]] = {
    "schedule": lambda value: value in ("barrier", "lockstep"),
    "checks": lambda value: isinstance(value, str) and len(value) < 200,
    "max_instructions": lambda value: type(value) is int and 0 < value <= 1_000_000_000,
    "threads": lambda value: type(value) is int and 0 < value <= 256,
    "resident": lambda value: type(value) is int and 0 < value <= 256,
}


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        if name not in _OPTIONS or not _OPTIONS[name](value):
            raise DumpError(
                "launch option of a bundle", got=f"{name}={value!r}"[:80], need=f"one of {', '.join(_OPTIONS)}"
            )
    return dict(given)


def _text(value: Any, most: int = 4096) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"a text expected, found {value!r:.40}")
    return value


def _integer(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"an integer from 0 to {most} expected, found {value!r:.40}")
    return value


def _extents(value: Any) -> tuple[int, int, int]:
    x, y, z = (_integer(one, (1 << 32) - 1) for one in value)
    return x, y, z
