"""Choosing one of the kernels that are right on a problem."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asmlaunch.choice import aiter, analytical, origami
from asmlaunch.choice.candidates import Candidate, Dropped, candidates
from asmlaunch.choice.machine import Machine, machine_of
from asmlaunch.devices import Device
from asmlaunch.errors import KernelNotFoundError

Score = Callable[[Sequence[Candidate], int, int, int, Machine], list[tuple[float, ...]]]

#: Selector -> scores of candidates on a problem, less is better.
SELECTORS: dict[str, Score] = {"aiter": aiter.scores, "analytical": analytical.scores, "origami": origami.scores}


@dataclass(frozen=True)
class Choice:
    """A kernel chosen for a problem.

    Attributes:
        kernel: the kernel and its split of K.
        selector: how it was chosen.
        ranking: with ``explain``, all candidates with their scores, best first.
        dropped: with ``explain``, the kernels that cannot be used, and why.
    """

    kernel: Candidate
    selector: str
    ranking: tuple[tuple[Candidate, tuple[float, ...]], ...] = ()
    dropped: tuple[Dropped, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.kernel} (by {self.selector})"]
        for candidate, score in self.ranking:
            lines.append(f"  {' '.join(f'{part:.6g}' for part in score):>24}  {candidate}")
        lines += [f"  {'dropped':>24}  {kernel.name}: {kernel.reason}" for kernel in self.dropped]
        return "\n".join(lines)


def choose(
    operation: str,
    m: int,
    n: int,
    k: int,
    device: str | Device | None = None,
    *,
    split_k: int | None = 0,
    preshuffled: bool | None = True,
    selector: str = "aiter",
    folder: str | os.PathLike[str] | None = None,
    explain: bool = False,
) -> Choice:
    """The kernel for ``D[m, n] = A[m, k] x B[n, k]^T``; the same one every time.

    Args:
        operation: ``"a4w4"``.
        m, n, k: sizes in elements.
        device: where it will run, for its number of compute units; None is an MI350 (nothing is initialised).
        split_k: log2 of the parts K is split in; None lets the selector decide. Splitting adds bf16 partial sums, in an
            order that varies, so it is not considered unless asked for.
        preshuffled: whether the weights are stored shuffled (16, 16); None considers both kinds of kernel.
        selector: ``"aiter"`` (its rule, see :mod:`asmlaunch.choice.aiter`), ``"analytical"`` (a model of the time) or
            ``"origami"`` (AMD's library of that name, where it is installed).
        folder: folder of objects; None is the search path (:mod:`asmlaunch.kernels`).
        explain: keep the scores of all candidates and the reasons of the others in the result; print it to read them.

    Raises:
        KernelNotFoundError: an unknown operation or selector, or no kernel that is right on this problem; the message
            counts the reasons.
    """
    if selector not in SELECTORS:
        raise KernelNotFoundError("selector", got=repr(selector), need=f"one of {', '.join(SELECTORS)}")
    kept, dropped = candidates(
        operation, m, n, k, split_k=split_k, preshuffled=preshuffled, folder=Path(folder) if folder else None
    )
    if not kept:
        reasons = [entry.reason for entry in dropped]
        counted = "; ".join(f"{reasons.count(reason)} kernels: {reason}" for reason in dict.fromkeys(reasons))
        raise KernelNotFoundError(f"no {operation} kernel is right on m={m} n={n} k={k} split_k={split_k} ({counted})")
    scores = SELECTORS[selector](kept, m, n, k, machine_of(device))
    # sorted() is stable, so that equal scores keep the manifest's order.
    ranking = sorted(zip(kept, scores, strict=True), key=lambda entry: entry[1])
    best = ranking[0][0]
    return Choice(best, selector, tuple(ranking), tuple(dropped)) if explain else Choice(best, selector)
