"""Compiled code on disk: what one process has compiled, the next one loads.

An entry is found by everything it was made from: its inputs, the emulator's own sources, llvmlite's version and this
CPU. A damaged entry, or one that another version wrote, is not found and gets made again.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgpack

from asmlaunch.emulator import jit

_MAGIC = b"asmlaunch code 1"
_DIGEST = 32

#: Bytes the folder may hold; beyond that the entries used longest ago are deleted.
LIMIT = 1 << 30


def folder() -> Path | None:
    """Where entries are kept: ``ASMLAUNCH_CACHE``, else ``asmlaunch`` in the user's cache folder; None switches it off
    (``ASMLAUNCH_CACHE`` is empty).
    """
    chosen = os.environ.get("ASMLAUNCH_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "asmlaunch"


def _sources() -> bytes:
    """A digest of the emulator's own sources."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


# Taken on import, when the sources are those that this process runs: they may be edited while it does.
_SOURCES = _sources()


@cache
def _surroundings() -> bytes:
    """What every entry depends on: the emulator's sources, llvmlite and the CPU."""
    import llvmlite

    host = jit.host()
    return _SOURCES + repr((llvmlite.__version__, host.name, sorted(host.features), host.triple)).encode()


def _path(kind: str, inputs: tuple[Any, ...]) -> Path | None:
    place = folder()
    name = hashlib.sha256(_surroundings() + repr((kind, inputs)).encode()).hexdigest()
    return place / f"{kind}-{name[:40]}" if place else None


def load(kind: str, inputs: tuple[Any, ...]) -> dict[str, Any] | None:
    """The entry made from ``inputs``, or None where there is no sound one."""
    path = _path(kind, inputs)
    try:
        data = path.read_bytes() if path else b""
        head, digest, payload = data[: len(_MAGIC)], data[len(_MAGIC) :][:_DIGEST], data[len(_MAGIC) + _DIGEST :]
        if head != _MAGIC or hashlib.sha256(payload).digest() != digest:
            return None
        assert path is not None
        os.utime(path)  # the time of last use, for `_trim`
        entry = msgpack.unpackb(payload)
    except (OSError, ValueError, msgpack.UnpackException):
        return None
    return entry if isinstance(entry, dict) else None


def store(kind: str, inputs: tuple[Any, ...], entry: dict[str, Any]) -> None:
    """Keep an entry; a folder that cannot be written is no error."""
    path = _path(kind, inputs)
    if path is None:
        return
    payload = msgpack.packb(entry)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix="new-", delete=False) as file:
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(file.name, path)  # whole or not at all, whoever else writes it
        _trim(path.parent, len(payload))
    except OSError:
        return


# Bytes stored since the folder was last looked through, by folder: to do that at every store would take longer than
# most compilations.
_stored: dict[Path, int] = {}


def _trim(place: Path, size: int) -> None:
    """Keep the folder's size near its limit; looked at with the first store of a process and then now and then."""
    _stored[place] = _stored.get(place, LIMIT) + size
    if _stored[place] < LIMIT // 16:
        return
    _stored[place] = 0
    entries = sorted(((entry.stat(), entry) for entry in os.scandir(place)), key=lambda one: -one[0].st_mtime)
    total = 0
    for status, entry in entries:
        total += status.st_size
        if total > LIMIT:
            os.unlink(entry)
