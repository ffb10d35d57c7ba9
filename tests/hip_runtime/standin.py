"""Building the stand-in HIP runtime (standin.c), and running the launches it is given in the emulator."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

from asmlaunch import codeobject
from asmlaunch.abi import Buffer
from asmlaunch.codeobject import CodeObject
from asmlaunch.devices import open_device

SOURCE = Path(__file__).with_name("standin.c")
_ABORTED = 719  # hipErrorLaunchFailure


class Launch(ctypes.Structure):
    """``Launch`` of standin.c."""

    _fields_ = (
        ("kernel", ctypes.c_char * 256),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("lds", ctypes.c_uint32),
        ("device", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("entry", ctypes.c_char_p),
        ("image", ctypes.c_void_p),
        ("image_size", ctypes.c_size_t),
        ("kernarg", ctypes.c_void_p),
        ("kernarg_size", ctypes.c_size_t),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
    )

    @property
    def bytes(self) -> bytes:
        """The argument segment: the `extra` buffer, or what the kernelParams pointers refer to."""
        if self.kernarg:
            return ctypes.string_at(self.kernarg, self.kernarg_size)
        info = self.code_object.kernels[self.kernel.decode()]
        segment = bytearray(info.kernarg_size)
        shown = [argument for argument in info.arguments if not argument.hidden]
        for index, argument in enumerate(shown):
            segment[argument.offset : argument.offset + argument.size] = ctypes.string_at(
                self.params[index], argument.size
            )
        return bytes(segment)

    @property
    def code_object(self) -> CodeObject:
        return _read(ctypes.string_at(self.image, self.image_size))


@cache
def _read(image: bytes) -> CodeObject:
    return codeobject.read(image)


def build(folder: Path) -> Path:
    """Compile the runtime as ``folder/libamdhip64.so``."""
    library = folder / "libamdhip64.so"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*compiler.split(), "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True)
    return library


class StandIn:
    """The runtime, loaded into this process; asmlaunch binds hip-python to it because it is mapped already."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.standin_launch_count.restype = ctypes.c_size_t
        self.library.standin_live_modules.restype = ctypes.c_size_t
        self.library.standin_launch.restype = ctypes.POINTER(Launch)
        self._run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))(self._launch)
        self.error: Exception | None = None
        self.emulate(True)

    def emulate(self, on: bool) -> None:
        """Whether launches run in the emulator, or are only recorded."""
        self.library.standin_set_launcher(self._run if on else None)

    @property
    def launches(self) -> int:
        return int(self.library.standin_launch_count())

    @property
    def live_modules(self) -> int:
        return int(self.library.standin_live_modules())

    def last(self, back: int = 0) -> Launch:
        """The latest launch, or one before it."""
        return self.library.standin_launch(ctypes.c_size_t(back)).contents

    def allocations(self) -> tuple[Buffer, ...]:
        """All device memory, as buffers."""
        found: list[Buffer] = []
        address, size, device = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_int()
        parts = ctypes.byref(address), ctypes.byref(size), ctypes.byref(device)
        while self.library.standin_allocation(ctypes.c_size_t(len(found)), *parts):
            found.append(Buffer(f"allocation {len(found)}", address.value or 0, size.value, True, None))
        return tuple(found)

    def _launch(self, pointer: ctypes._Pointer[Launch]) -> int:
        """Run one launch; an exception cannot cross C, so it is kept and a kernel failure is reported."""
        launch = pointer.contents
        try:
            code_object = launch.code_object
            kernel = code_object.kernels[launch.kernel.decode()]
            open_device("emulator").launch(
                kernel,
                code_object,
                launch.bytes,
                grid=tuple(launch.grid),
                block=tuple(launch.block),
                dynamic_lds=launch.lds,
                buffers=self.allocations(),
            )
        except Exception as error:
            self.error = error
            return _ABORTED
        return 0


_folder = tempfile.TemporaryDirectory(prefix="hip-standin-")  # removed at exit


@cache
def load() -> StandIn:
    """The stand-in of this process, compiled into a temporary folder on the first call."""
    return StandIn(build(Path(_folder.name)))
