"""Tensors in files: .npy, .safetensors (one tensor of it) and raw bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from asmlaunch.errors import LayoutError

# safetensors names of element types; those numpy lacks are kept as unsigned integers of their size.
_SAFETENSORS = {
    "U8": "u1", "I8": "i1", "BOOL": "u1", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1",
    "U16": "u2", "I16": "i2", "F16": "f2", "BF16": "u2",
    "U32": "u4", "I32": "i4", "F32": "f4",
    "U64": "u8", "I64": "i8", "F64": "f8",
}  # fmt: skip
_MAX_HEADER = 100 << 20  # the limit of the format


@dataclass(frozen=True)
class FileTensor:
    """A tensor read from a file: its elements, and the file's name for their type where numpy has none."""

    array: np.ndarray
    kind: str = ""

    def values(self) -> np.ndarray:
        """The elements as numbers: bfloat16 as float32."""
        if self.kind == "BF16":
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return self.array


def load(reference: str, *, shape: Sequence[int] | None = None, dtype: str = "uint8") -> FileTensor:
    """Read a tensor.

    Args:
        reference: ``FILE.npy``, ``FILE.safetensors`` with one tensor or ``FILE.safetensors:NAME``, or any other file,
            which is taken as raw bytes.
        shape: of a raw file; one dimension where it is left out.
        dtype: numpy name of the element type of a raw file.

    Raises:
        LayoutError: a file that cannot be read as that.
    """
    path, _, tensor = reference.partition(".safetensors:")
    if tensor:
        path += ".safetensors"
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LayoutError(f"file {path}", got=error.strerror, need="a file that can be read") from error
    if path.endswith(".npy"):
        return FileTensor(_npy(path))
    if path.endswith(".safetensors"):
        return _safetensors(path, data, tensor)
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise LayoutError(
            f"dtype of {path}", got=repr(dtype), need="a numpy dtype, such as uint8 or float32"
        ) from error
    if len(data) % kind.itemsize or (shape is not None and np.prod(shape, dtype=np.int64) * kind.itemsize != len(data)):
        need = f"{tuple(shape)} of {kind}" if shape is not None else f"whole elements of {kind}"
        raise LayoutError(f"file {path}", got=f"{len(data)} bytes", need=need)
    return FileTensor(np.frombuffer(data, kind).reshape(-1 if shape is None else tuple(shape)))


def save(path: str, array: np.ndarray, kind: str = "") -> None:
    """Write a tensor to a .npy, .safetensors (under the name "tensor") or raw file, by the name's ending.

    Raises:
        LayoutError: a file that cannot be written.
    """
    array = np.ascontiguousarray(array)
    try:
        if path.endswith(".npy"):
            np.save(path, array, allow_pickle=False)
        elif path.endswith(".safetensors"):
            names = {code: name for name, code in reversed(_SAFETENSORS.items())}
            entry = {
                "dtype": kind or names[f"{array.dtype.kind}{array.dtype.itemsize}"],
                "shape": array.shape,
                "data_offsets": [0, array.nbytes],
            }
            header = json.dumps({"tensor": entry}).encode()
            header += b" " * (-len(header) % 8)
            Path(path).write_bytes(struct.pack("<Q", len(header)) + header + array.tobytes())
        else:
            Path(path).write_bytes(array.tobytes())
    except OSError as error:
        raise LayoutError(f"file {path}", got=error.strerror, need="a file that can be written") from error


def _npy(path: str) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise LayoutError(f"file {path}", got=str(error), need="a .npy file without pickled objects") from error


def _safetensors(path: str, data: bytes, name: str) -> FileTensor:
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else _MAX_HEADER
    if size > min(_MAX_HEADER, len(data) - 8):
        raise LayoutError(f"file {path}", got=f"{len(data)} bytes", need="a safetensors file: a header and its tensors")
    try:
        entries = json.loads(data[8 : 8 + size])
        entries.pop("__metadata__", None)
        if not name and len(entries) == 1:
            name = next(iter(entries))
        if name not in entries:
            raise LayoutError(
                f"tensor of {path}",
                got=repr(name) if name else "no name",
                need=f"FILE:NAME, one of {', '.join(entries)}",
            )
        entry = entries[name]
        kind, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        if kind not in _SAFETENSORS:
            raise LayoutError(f"dtype of {name} in {path}", got=kind, need=f"one of {', '.join(_SAFETENSORS)}")
        array = np.frombuffer(data[8 + size + start : 8 + size + stop], _SAFETENSORS[kind]).reshape(shape)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LayoutError(f"file {path}", got=f"{type(error).__name__}: {error}", need="a safetensors file") from error
    return FileTensor(array, kind)
