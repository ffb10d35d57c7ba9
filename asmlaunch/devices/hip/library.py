"""Which libamdhip64 this process uses, and hip-python bound to exactly that one.

Two HIP runtimes in a process do not know of each other's memory, streams and errors. Torch's ROCm build brings its
own; hip-python by itself would open another. So the library already mapped is taken, else torch's, else the one
hip-python would open, and hip-python is told its path before its first call.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from asmlaunch.errors import DeviceError


class NoGpuError(DeviceError):
    """There is no GPU to use here: no hip-python, no runtime, or no device. Choosing a device passes over it quietly;
    anything else that is wrong with HIP is an error even where the emulator could run the object."""


_INSTALL = "install ROCm's HIP runtime, or use device='emulator', which needs no GPU"
_SONAMES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")


def bind() -> ModuleType:
    """hip-python's ``hip`` module, bound to the one HIP runtime of this process.

    Raises:
        NoGpuError: hip-python or libamdhip64 is missing. DeviceError: two different libamdhip64 are loaded.
    """
    try:
        from hip import hip
    except ImportError as error:
        raise NoGpuError(
            "hip-python is not installed",
            need="it to reach an AMD GPU",
            hint="pip install 'asmlaunch[hip]', or use device='emulator'",
        ) from error
    path = _open_runtime()
    _point_hip_python_to(path)
    return hip


def mapped_runtimes() -> tuple[Path, ...]:
    """The different libamdhip64 files mapped into this process."""
    found = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if path.rpartition("/")[2].startswith("libamdhip64.so"):
                found.add(Path("/" + path).resolve())
    return tuple(sorted(found))


def refuse_two() -> None:
    """Check that one HIP runtime at most is loaded.

    Raises:
        DeviceError: more than one is; the message names their paths.
    """
    mapped = mapped_runtimes()
    if len(mapped) > 1:
        raise DeviceError(
            "two HIP runtimes in this process",
            got=" and ".join(map(str, mapped)),
            need="one: memory and streams of one are unknown to the other",
            hint="load torch's by importing torch before the first launch, or make both libraries the same file",
        )


def _open_runtime() -> Path:
    """Path of the runtime this process uses from now on; opens it if it is not there yet."""
    refuse_two()
    failures = []
    for candidate in _candidates():
        try:
            ctypes.CDLL(candidate)
        except OSError as error:
            failures.append(str(error))
            continue
        refuse_two()
        mapped = mapped_runtimes()
        if mapped:
            return mapped[0]
    raise NoGpuError("no HIP runtime (libamdhip64.so) on this machine", got="; ".join(failures[:1]), hint=_INSTALL)


def _candidates() -> Iterator[str]:
    """Names to open, best first: mapped already, torch's own, hip-python's choice, the system's by version."""
    yield from map(str, mapped_runtimes())
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin:
        own = Path(torch.origin).parent / "lib" / "libamdhip64.so"
        if own.exists():
            yield str(own)
    paths = _hip_python_paths()
    if paths is not None:
        yield os.fsdecode(paths.get_library_path("amdhip64"))
    yield from _SONAMES


def _hip_python_paths() -> ModuleType | None:
    """hip-python 10's module that finds libraries; None in the 7.x releases, which have a fixed name (``hip.chip``)."""
    if importlib.util.find_spec("hip.chip") is not None:
        return None
    return importlib.import_module("rocm.bindings.util.paths")


def _point_hip_python_to(path: Path) -> None:
    """Make hip-python open ``path``. It does so at its first call and never again, so later calls change nothing."""
    encoded = os.fsencode(path)
    paths = _hip_python_paths()
    if paths is None:
        # 7.x: the name that its C layer opens is a module attribute.
        importlib.import_module("hip.chip").DLL = encoded  # type: ignore[attr-defined]
        return
    find = paths.get_library_path

    def get_library_path(shortname: str, *args: object, **kwargs: object) -> bytes:
        found: bytes = encoded if shortname == "amdhip64" else find(shortname, *args, **kwargs)
        return found

    paths.get_library_path = get_library_path  # type: ignore[attr-defined]
