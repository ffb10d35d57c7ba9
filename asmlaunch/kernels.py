"""Where code object files are looked for: a folder given, else ``ASMLAUNCH_KERNEL_PATH``, else ``AITER_ASM_DIR``
(AITER's own variable for its folder of objects), else the amd-aiter wheel.

The wheel is found by its import location and never imported: its objects are plain files to us.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from asmlaunch.errors import KernelNotFoundError

PATH_VARIABLE = "ASMLAUNCH_KERNEL_PATH"
AITER_VARIABLE = "AITER_ASM_DIR"
_HOW = (
    f"install amd-aiter (pip install --no-deps, the objects need none of its code), or name a folder of .co files "
    f"with --kernels or {PATH_VARIABLE}"
)


def aiter_folder() -> Path:
    """Folder ``aiter_meta/hsa`` of the installed amd-aiter wheel.

    Raises:
        KernelNotFoundError: the wheel is not installed.
    """
    spec = importlib.util.find_spec("aiter_meta")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "hsa"
        if folder.is_dir():
            return folder
    raise KernelNotFoundError("no amd-aiter kernels in this Python environment", hint=_HOW)


def search_path(folder: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """The folders to look in: ``folder`` alone if given, else those of an environment variable, else the wheel's.

    Raises:
        KernelNotFoundError: a folder that does not exist, or none to look in.
    """
    variables = os.environ.get(PATH_VARIABLE) or os.environ.get(AITER_VARIABLE) or ""
    listed = [os.fspath(folder)] if folder else variables.split(os.pathsep)
    folders = tuple(Path(entry) for entry in listed if entry)
    for entry in folders:
        if not entry.is_dir():
            raise KernelNotFoundError("folder of kernels", got=f"{entry}, which is no folder", hint=_HOW)
    return folders or (aiter_folder(),)


def find_objects(pattern: str, folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Code object files at any depth of the search path whose name matches a glob pattern, sorted by name.

    Of two files of one name in one folder tree both are returned; a name met in an earlier folder of the path hides
    the same relative path in a later one.

    Raises:
        KernelNotFoundError: no folder to look in, or no such file in any.
    """
    found: dict[Path, Path] = {}
    for root in search_path(folder):
        for path in root.rglob(pattern):
            found.setdefault(path.relative_to(root), path)
    if not found:
        folders = ", ".join(map(str, search_path(folder)))
        raise KernelNotFoundError(f"no file matches {pattern} in {folders}", hint=_HOW)
    return sorted(found.values(), key=lambda path: (path.name, path))


def choose_object(objects: list[Path], name: str) -> Path:
    """The object of that name: its file name with or without ``.co``, or what follows a ``_`` in it.

    Raises:
        KernelNotFoundError: no such object, or more than one; the message lists the names there are.
    """
    stem = name.removesuffix(".co")
    exact = [path for path in objects if path.stem == stem]
    matches = exact or [path for path in objects if path.stem.endswith(f"_{stem}")]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(path.stem for path in matches or objects)
    raise KernelNotFoundError("kernel", got=repr(name), need=f"one of {names}")


def matching(objects: list[Path], name: str | None) -> list[Path]:
    """The objects whose path contains ``name``; all for "all", the first for None.

    Raises:
        KernelNotFoundError: none does; the message lists the names there are.
    """
    if name is None or name == "all":
        return objects if name else objects[:1]
    found = [path for path in objects if name in path.as_posix()]
    if not found:
        raise KernelNotFoundError("kernel", got=repr(name), need=f"one of {', '.join(path.stem for path in objects)}")
    return found
