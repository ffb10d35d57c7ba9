"""Running a program with the recording library in front of its HIP runtime."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

from asmlaunch.capture.model import Capture
from asmlaunch.capture.reader import read_files
from asmlaunch.emulator import cache
from asmlaunch.errors import DeviceError, LaunchError

SOURCE = Path(__file__).with_name("preload.c")
_FLAGS = ("-O2", "-fvisibility=hidden", "-shared", "-fPIC", "-pthread")


def record(
    command: Sequence[str], *, limit: int = 256 << 20, memory: int | None = None, library: Path | None = None
) -> tuple[Capture, int]:
    """Run a command and capture what it, and every process it starts, launches.

    Args:
        command: the program and its arguments.
        limit: bytes a process may record; what does not fit is counted, not recorded.
        memory: also copy, before and after each launch, up to this many bytes of each allocation that its arguments
            point into. Every launch then waits for the device.
        library: the compiled recording library; None compiles it, once.

    Returns:
        The capture and the command's exit status.

    Raises:
        DeviceError: no C compiler. LaunchError: the command cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="asmlaunch-capture-") as folder:
        environment = os.environ | {
            "ASMLAUNCH_CAPTURE_FOLDER": folder,
            "ASMLAUNCH_CAPTURE_LIMIT": str(limit),
            "LD_PRELOAD": os.pathsep.join(
                filter(None, (str(library or recording_library()), os.environ.get("LD_PRELOAD")))
            ),
        }
        if memory is not None:
            environment["ASMLAUNCH_CAPTURE_MEMORY"] = str(memory)
        try:
            status = subprocess.run(list(command), env=environment).returncode
        except OSError as error:
            raise LaunchError(f"cannot run {command[0]} ({error.strerror})") from error
        return read_files(sorted(Path(folder).glob("*.capture"))), status


def recording_library() -> Path:
    """The recording library, compiled on first use into the user's cache folder.

    Raises:
        DeviceError: no C compiler, or it fails.
    """
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [compiler.split()[0], *compiler.split()[1:], *_FLAGS]
    folder = cache.folder() or Path(tempfile.gettempdir())
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(command).encode()).hexdigest()[:16]
    library = folder / f"capture-{digest}.so"
    if library.exists():
        return library
    if shutil.which(command[0]) is None:
        raise DeviceError("the recording library is compiled on first use", got=f"no {command[0]}", need="a C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    # Compiled beside its place and moved there, so that two processes can do this at once.
    with tempfile.TemporaryDirectory(dir=folder) as beside:
        built = Path(beside) / library.name
        result = subprocess.run([*command, "-o", str(built), str(SOURCE), "-ldl"], capture_output=True, text=True)
        if result.returncode:
            raise DeviceError(f"compiling {SOURCE.name} with {command[0]}", got=result.stderr.strip() or "no output")
        built.replace(library)
    return library
