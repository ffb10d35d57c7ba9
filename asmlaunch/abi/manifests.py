"""AITER's CSV manifests: which kernels a folder holds, with the attributes they are chosen by."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asmlaunch import codeobject
from asmlaunch.errors import CodeObjectError

#: The columns that name a kernel and its file; the rest are attributes.
KERNEL_COLUMNS = ("knl_name",)
FILE_COLUMNS = ("co_name", "knl_file")


@dataclass(frozen=True)
class Row:
    """One kernel of a manifest: its symbol, its file's name, and the other columns as they are written."""

    kernel: str
    file: str
    attributes: Mapping[str, str]
    line: int


@dataclass(frozen=True)
class Manifest:
    """A manifest's rows."""

    path: Path
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class ManifestReport:
    """A folder's manifests against its objects.

    Attributes:
        manifests: the manifests read.
        missing: (manifest, file) of rows whose file is not there.
        unlisted: objects that no row names.
        repeated: files that more than one row names.
        misnamed: (manifest, file) of rows whose kernel the object does not hold.
    """

    manifests: tuple[Manifest, ...]
    missing: tuple[tuple[str, str], ...]
    unlisted: tuple[str, ...]
    repeated: tuple[str, ...]
    misnamed: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for ``json.dumps``."""
        return {
            "manifests": {str(m.path): len(m.rows) for m in self.manifests},
            "missing": [list(pair) for pair in self.missing],
            "unlisted": list(self.unlisted),
            "repeated": list(self.repeated),
            "misnamed": [list(pair) for pair in self.misnamed],
        }

    def __str__(self) -> str:
        rows = sum(len(manifest.rows) for manifest in self.manifests)
        lines = [f"{len(self.manifests)} manifests, {rows} rows"]
        lines += [f"  {manifest}: {file} is not there" for manifest, file in self.missing]
        lines += [f"  {manifest}: {file} holds another kernel than the row says" for manifest, file in self.misnamed]
        lines += [f"  {file} is in no manifest" for file in self.unlisted]
        lines += [f"  {file} is in several rows" for file in self.repeated]
        return "\n".join(lines)


def read_manifest(path: Path) -> Manifest:
    """Read one CSV manifest; empty lines and lines that start with ``#`` are left out.

    Raises:
        CodeObjectError: unreadable, or without the columns that name kernel and file.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CodeObjectError(f"cannot read {path} ({error})") from error
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    table = [(n, [cell.strip() for cell in next(csv.reader([line]), [])]) for n, line in numbered]
    if not table:
        return Manifest(path, ())
    header = table[0][1]
    kernel = next((column for column in KERNEL_COLUMNS if column in header), None)
    file = next((column for column in FILE_COLUMNS if column in header), None)
    if kernel is None or file is None:
        need = f"{' or '.join(KERNEL_COLUMNS)}, and {' or '.join(FILE_COLUMNS)}"
        raise CodeObjectError(f"columns of {path.name}", got=", ".join(header), need=need)
    rows = []
    for number, cells in table[1:]:
        if len(cells) != len(header):
            raise CodeObjectError(f"{path.name}, line {number}", got=f"{len(cells)} cells", need=len(header))
        named = dict(zip(header, cells, strict=True))
        rows.append(Row(named.pop(kernel), named.pop(file), named, number))
    return Manifest(path, tuple(rows))


def check_manifests(folder: Path, *, open_objects: bool = True) -> ManifestReport:
    """Compare the manifests in a folder and below with the objects beside them.

    ``open_objects`` also reads each listed object, to see that it holds the kernel its row names.
    """
    manifests = tuple(read_manifest(path) for path in sorted(folder.rglob("*.csv")))
    listed: Counter[Path] = Counter()
    missing, misnamed = [], []
    for manifest in manifests:
        for row in manifest.rows:
            path = _find(manifest.path.parent, row.file)
            entry = (str(manifest.path.relative_to(folder)), row.file)
            if path is None:
                missing.append(entry)
                continue
            listed[path] += 1
            if open_objects and row.kernel not in codeobject.read(path).kernels:
                misnamed.append(entry)
    objects = sorted(folder.rglob("*.co"))
    unlisted = tuple(str(path.relative_to(folder)) for path in objects if path not in listed)
    repeated = tuple(str(path.relative_to(folder)) for path, count in sorted(listed.items()) if count > 1)
    return ManifestReport(manifests, tuple(missing), unlisted, repeated, tuple(misnamed))


def _find(folder: Path, file: str) -> Path | None:
    """The file beside its manifest, or in a folder below (MI300/, MI308/)."""
    beside = folder / file
    if beside.is_file():
        return beside
    return next((path for path in sorted(folder.rglob(Path(file).name)) if path.is_file()), None)
