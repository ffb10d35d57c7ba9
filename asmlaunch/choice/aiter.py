"""AITER's rule for its MXFP4 kernels, made deterministic.

AITER goes through its kernels in the order of a hash map and takes one that needs fewer rounds (of one workgroup a
compute unit), or as many rounds with fewer units idle in the last, or as many with a larger ratio of computing to
loading. The last two conditions do not order the kernels, so its choice among equal rounds depends on the map. Here the
three are compared one after the other, and equal kernels keep the manifest's order.

AITER also wants N to be a multiple of the tile's columns for every kernel and fails where no tile divides N; here a
kernel's own domain decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from asmlaunch.choice.candidates import Candidate
from asmlaunch.choice.machine import Machine


def scores(candidates: Sequence[Candidate], m: int, n: int, _k: int, machine: Machine) -> list[tuple[float, ...]]:
    """(rounds, idle units in the last round, minus the ratio) of each candidate."""
    return [_score(candidate, m, n, machine.units) for candidate in candidates]


def _score(candidate: Candidate, m: int, n: int, units: int) -> tuple[float, ...]:
    workgroups = candidate.workgroups(m, n)
    rounds = -(-workgroups // units)
    ratio = candidate.tile_m * candidate.tile_n // (candidate.tile_m + candidate.tile_n)  # a whole number, as in AITER
    return rounds, rounds * units - workgroups, -ratio
