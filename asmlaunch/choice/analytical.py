"""A model of a kernel's time, of the kind that AMD's Origami uses.

A round is one workgroup on every compute unit. Its time is the longest of what its workgroups compute, read from LDS,
and load through the cache and from memory; rounds follow one another, each with a fixed cost to fill the pipeline and
to store the tile. Whole tiles are computed and loaded, so that a tile that sticks out of the result costs what it
wastes. The model has not been compared with an MI350's times.
"""

from __future__ import annotations

from collections.abc import Sequence

from asmlaunch.choice.candidates import Candidate
from asmlaunch.choice.machine import Machine

_STEP = 256  # elements of K a step of the kernels' loop
_BYTES = 0.5 + 1 / 32  # of an MXFP4 element with its share of the scale
_FILL_CYCLES = 2000.0  # from launch to the first full step, and from the last to the stores
_OUTPUT_BYTES = 2  # bf16
_REUSE = 16  # an MFMA uses each element of an operand for this many rows or columns of its result


def scores(candidates: Sequence[Candidate], m: int, n: int, k: int, machine: Machine) -> list[tuple[float, ...]]:
    """Predicted seconds of each candidate."""
    return [(seconds(candidate, m, n, k, machine),) for candidate in candidates]


def seconds(candidate: Candidate, m: int, n: int, k: int, machine: Machine) -> float:
    """Predicted time of a launch."""
    depth = -(-k // candidate.splits // _STEP) * _STEP
    rows, columns = candidate.tile_m, candidate.tile_n
    workgroups = candidate.workgroups(m, n)
    rounds = -(-workgroups // machine.units)
    resident = min(workgroups, machine.units)
    compute = 2 * rows * columns * depth / machine.fp4_rate
    lds = 2 * rows * columns * depth / _REUSE * _BYTES / machine.lds_bandwidth
    loaded = resident * (rows + columns) * depth * _BYTES
    # Tiles of a row of the result share A, those of a column share B: each is fetched from memory once a round.
    tall, wide = -(-m // rows), -(-n // columns)
    height = min(tall, max(1, round((resident * tall / wide) ** 0.5)))
    width = min(wide, -(-resident // height))
    fetched = (height * rows + width * columns) * depth * _BYTES
    loading = max(loaded / machine.cache_bandwidth, fetched / machine.memory_bandwidth) * machine.clock
    storing = resident * rows * columns * _OUTPUT_BYTES / machine.memory_bandwidth * machine.clock
    return rounds * (max(compute, lds, loading) + storing + _FILL_CYCLES) / machine.clock
