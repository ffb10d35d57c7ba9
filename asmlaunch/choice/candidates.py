"""The kernels of an operation and whether each is right on a problem.

AITER's manifests (a CSV file beside the objects) say which kernels there are and in which order; a folder without one
is taken as it is. Whether a kernel is right on a problem is its family's domain, nothing else.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from asmlaunch import codeobject
from asmlaunch.abi.arguments import Buffer
from asmlaunch.abi.families import f4gemm
from asmlaunch.abi.families.base import Family, round_up
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import DomainError, KernelNotFoundError
from asmlaunch.kernels import find_objects

#: Operation -> the family that implements it, and the pattern of its objects' names.
OPERATIONS: dict[str, tuple[Family, str]] = {"a4w4": (f4gemm.FAMILY, "f4gemm_*.co")}

_MAX_SPLIT = 4  # AITER tries 2 to 16 parts of K


@dataclass(frozen=True)
class Candidate:
    """A kernel, and how it would be launched.

    Attributes:
        path: its code object.
        tile_m, tile_n: rows and columns of the result that a workgroup computes.
        preshuffled: whether it takes the weights shuffled (16, 16).
        split_k: log2 of the parts that K is split in.
        splits: workgroups along z.
    """

    path: Path
    tile_m: int
    tile_n: int
    preshuffled: bool
    split_k: int
    splits: int

    @property
    def name(self) -> str:
        """The file's name without ``.co``."""
        return self.path.stem

    def workgroups(self, m: int, n: int) -> int:
        """Workgroups of the launch for a result of m x n."""
        return -(-m // self.tile_m) * -(-n // self.tile_n) * self.splits

    def __str__(self) -> str:
        return self.name + (f", K in {self.splits} parts" if self.splits > 1 else "")


@dataclass(frozen=True)
class Dropped:
    """A kernel that cannot be used for a problem, and why."""

    name: str
    reason: str


def candidates(
    operation: str,
    m: int,
    n: int,
    k: int,
    *,
    split_k: int | None,
    preshuffled: bool | None,
    folder: Path | None,
) -> tuple[list[Candidate], list[Dropped]]:
    """The kernels that are right on a problem, and the others with the reason, both in the order of the manifest.

    Args:
        split_k: log2 of the parts of K; None considers every number.
        preshuffled: how the weights are stored; None considers both.
        folder: where to look; None is the search path.

    Raises:
        KernelNotFoundError: an unknown operation, or no kernels.
    """
    if operation not in OPERATIONS:
        raise KernelNotFoundError("operation", got=repr(operation), need=f"one of {', '.join(OPERATIONS)}")
    family, pattern = OPERATIONS[operation]
    kept: list[Candidate] = []
    dropped: list[Dropped] = []
    for path in _in_manifest_order(find_objects(pattern, folder)):
        kernel = _kernel(path)
        parameters = family.parameters(kernel) or {}
        shuffled = parameters["shuffle"] == "BpreShuffle"
        if preshuffled not in (None, shuffled):
            wanted = "shuffled" if preshuffled else "not shuffled"
            dropped.append(Dropped(path.stem, f"the weights are {wanted}"))
            continue
        reasons = []
        for split in range(_MAX_SPLIT + 1) if split_k is None else (split_k,):
            reason = _outside(family, kernel, m, n, k, split)
            if reason is None:
                per_split = round_up(k >> split, 256) if split else k
                tile = parameters["tile_m"], parameters["tile_n"]
                kept.append(Candidate(path, *tile, shuffled, split, -(-k // per_split)))
            else:
                reasons.append(reason)
        if not any(candidate.path == path for candidate in kept):
            dropped.append(Dropped(path.stem, reasons[0]))
    return kept, dropped


def _outside(family: Family, kernel: KernelInfo, m: int, n: int, k: int, split_k: int) -> str | None:
    """Why the kernel is not right on the problem with operands in whole rows, or None where it is."""
    columns = round_up(k // 32, 8)
    values = {"M": m, "N": n, "K": k, "stride_C0": n, "stride_A0": k, "stride_B0": k, "log2_k_split": split_k}
    values |= {"stride_ScaleA0": columns, "stride_ScaleB0": columns, "ptr_C": 0}
    anywhere = Buffer("ptr_D", address=4, nbytes=1 << 62, writable=True, owner=None)
    try:
        family.check(kernel, values, {"ptr_D": anywhere})
    except DomainError as error:
        return f"{error.what.partition(' for ')[0]}: got {error.got}, need {error.need}"
    return None


@cache
def _kernel(path: Path) -> KernelInfo:
    """The kernel of an object that holds one."""
    (kernel,) = codeobject.read(path).kernels.values()
    return kernel


def _in_manifest_order(objects: list[Path]) -> list[Path]:
    """Objects as the manifests of their folders list them (those not listed last); by name where there is none."""
    order: dict[Path, int] = {}
    for folder in dict.fromkeys(path.parent for path in objects):
        for name in _listed(folder):
            order.setdefault(folder / name, len(order))
    return sorted(objects, key=lambda path: order.get(path, len(order)))


def _listed(folder: Path) -> Iterator[str]:
    """File names in the manifests of a folder, in their order."""
    for manifest in sorted(folder.glob("*.csv")):
        with manifest.open(newline="") as rows:
            yield from (row["co_name"] for row in csv.DictReader(rows) if row.get("co_name"))
