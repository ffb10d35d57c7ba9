"""Which tiles and which schedule a dense product gets: an analytical model within hard limits.

A choice never has to be tried to see whether it fits: what a configuration takes of shared memory and registers is
computed first (``shared_bytes``, ``registers``), and a test compiles the configurations and compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from asmlaunch.errors import LaunchError
from asmlaunch.triton_ref.hardware import Hardware

SCHEDULES = ("data_parallel", "persistent", "stream_k")


@dataclass(frozen=True)
class Config:
    """How a product is cut up.

    Attributes:
        block_m, block_n, block_k: the tile, and elements of K a step.
        warps: of a program.
        stages: depth of the software pipeline.
        schedule: one of :data:`SCHEDULES`.
        group: rows of tiles that are computed together, for the cache.
        parts: with stream-K, the programs that share each tile's steps (never more than there are steps); 0 shares the
            steps of all tiles evenly among the units.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    schedule: str = "data_parallel"
    group: int = 8
    parts: int = 0

    def steps(self, k: int) -> int:
        """Steps along K."""
        return -(-k // self.block_k)

    def tiles(self, m: int, n: int) -> int:
        """Tiles of the result."""
        return -(-m // self.block_m) * -(-n // self.block_n)


@dataclass(frozen=True)
class Kind:
    """What a product's operands are, as far as resources go.

    Attributes:
        itemsize: bytes of an element as it is loaded.
        wide: bytes of an element as it is multiplied (FP8 is widened to float16).
        rate: speed of the multiplication relative to bfloat16.
        tma: whether operands of these types can be loaded by descriptor; in the choice of tiles, whether these are.
        lined: whether the operands' rows begin at lines of the cache.
    """

    itemsize: int
    wide: int
    rate: float
    tma: bool
    lined: bool = True


def shared_bytes(config: Config, kind: Kind, hardware: Hardware) -> int:
    """Bytes of shared memory, an upper bound: the pipeline's buffers, or what passes a result to other threads."""
    # Copies that go through registers (gfx942) need no buffer for the step that is on its way.
    depth = config.stages if hardware.copies else max(config.stages - 1, 1)
    buffers = depth * (config.block_m + config.block_n) * config.block_k * kind.itemsize
    if hardware.warp == 64:
        buffers += buffers // 16  # rows are padded against bank conflicts
    widened = (config.block_m + config.block_n) * config.block_k * kind.wide if kind.wide != kind.itemsize else 0
    result = config.block_m * config.block_n * 4
    # A persistent program loads the next tile's operands while it stores this one's result.
    barriers = 1024
    if config.schedule == "data_parallel" or config.parts:
        return max(buffers + widened, result) + barriers
    return buffers + widened + result // 2 + barriers


def registers(config: Config, hardware: Hardware) -> int:
    """Registers of a thread: accumulators, and what addresses and operands take beside them."""
    return config.block_m * config.block_n // (config.warps * hardware.warp) + 64


def fits(config: Config, kind: Kind, hardware: Hardware) -> bool:
    """Whether the processor can hold one program."""
    return (
        shared_bytes(config, kind, hardware) <= hardware.shared
        and registers(config, hardware) <= hardware.thread_registers
        and registers(config, hardware) * config.warps * hardware.warp <= hardware.registers
    )


def require(config: Config, kind: Kind, hardware: Hardware) -> None:
    """Refuse a configuration that cannot run.

    Raises:
        LaunchError: with what it takes and what there is.
    """
    powers = (config.block_m, config.block_n, config.block_k, config.warps)
    if config.schedule not in SCHEDULES:
        raise LaunchError("schedule", got=repr(config.schedule), need=f"one of {', '.join(SCHEDULES)}")
    if any(p <= 0 or p & (p - 1) for p in powers) or min(powers[:3]) < 16 or (kind.itemsize == 1 and powers[2] < 32):
        raise LaunchError("tile and warps", got=powers, need="powers of two, tiles of at least 16 (K of bytes: 32)")
    if config.parts < 0 or (config.parts and config.schedule != "stream_k"):
        raise LaunchError("parts", got=f"{config.parts} with {config.schedule}", need="0, or more with stream_k")
    if not fits(config, kind, hardware):
        raise LaunchError(
            f"configuration {config}",
            got=f"{shared_bytes(config, kind, hardware)} bytes shared, {registers(config, hardware)} registers",
            need=f"at most {hardware.shared} and {hardware.thread_registers} on {hardware.name}",
            hint="take smaller tiles or fewer stages",
        )


# Of tiles between which the model sees no difference the first is taken.
_NVIDIA = (
    (16, 64, 128, 4, 4), (16, 32, 128, 4, 4), (32, 64, 128, 4, 4), (32, 32, 64, 4, 4), (16, 16, 64, 1, 4),
    (128, 256, 64, 8, 3), (64, 256, 64, 4, 4), (128, 128, 64, 4, 4), (128, 128, 64, 4, 3), (64, 128, 64, 4, 9),
    (64, 128, 64, 4, 4), (64, 64, 128, 4, 4), (64, 64, 64, 4, 6),
)  # fmt: skip
_AMD = (
    (256, 256, 64, 8, 2), (256, 256, 32, 8, 2), (256, 128, 64, 8, 2), (128, 256, 64, 8, 2), (128, 128, 64, 8, 2),
    (128, 128, 32, 4, 2), (128, 64, 64, 4, 2), (64, 128, 64, 4, 2), (64, 64, 64, 4, 2), (32, 64, 64, 4, 2),
    (16, 64, 64, 4, 2), (32, 32, 64, 2, 2), (16, 16, 64, 1, 2),
)  # fmt: skip
# Of more parts than fit the units the model makes nothing.
_PARTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
# Multiplied without matrix cores, each thread holding its rows and columns.
_SCALAR = ((64, 64, 16, 8, 3), (64, 32, 32, 4, 3), (32, 32, 32, 4, 3), (16, 16, 32, 2, 3))
_INTERPRETER = ((64, 64, 128, 4, 2), (32, 32, 128, 4, 2), (16, 16, 256, 1, 2))


def candidates(kind: Kind, hardware: Hardware, schedule: str | None = None) -> Iterator[Config]:
    """Every configuration that fits."""
    tiles: tuple[tuple[int, int, int, int, int], ...]
    if hardware.name == "interpreter":
        tiles = _INTERPRETER
    elif kind.itemsize == 4:
        tiles = _SCALAR
    else:
        tiles = _NVIDIA if hardware.warp == 32 else _AMD
    for block in tiles:
        for name in SCHEDULES if schedule is None else (schedule,):
            for parts in (0, *_PARTS) if name == "stream_k" else (0,):
                config = Config(*block, schedule=name, parts=parts)
                if fits(config, kind, hardware) and not (kind.itemsize == 1 and config.block_k < 32):
                    yield config


def programs(config: Config, m: int, n: int, k: int, hardware: Hardware) -> tuple[int, int]:
    """Programs to launch, and tiles that they compute whole (stream-K shares out the steps of the others)."""
    tiles = config.tiles(m, n)
    if config.schedule == "data_parallel":
        return tiles, tiles
    if config.schedule == "persistent":
        return min(tiles, hardware.units), tiles
    if config.parts:
        return tiles * min(config.parts, config.steps(k)), 0
    rest = tiles % hardware.units
    if tiles < hardware.units or not rest:
        whole = 0 if rest else tiles
    else:
        # The last whole wave is shared out too, so that no program's share is much less than a tile.
        whole = (tiles // hardware.units - 1) * hardware.units
    total = (tiles - whole) * config.steps(k)
    return min(hardware.units, total) if total and not whole else min(hardware.units, tiles), whole


# Fitted to the times of 16 tiles in three schedules at 37 sizes on an H200 (docs/triton.md). The median of what was
# measured for a tile and schedule is within 10 % of the model, but for tiles of 64 columns with 8 warps, which are no
# candidates any more.
_WAY = 0.95e-6  # seconds from the order of a load to its data in shared memory
_IDLE_GAIN = 0.26  # units leave this part of a step's time to spare where few of them draw power
_WAIT = 5e-6  # seconds of stream-K to store a sum, wait for it and read it
_ADD = 3.5e-6  # seconds of the launch that adds parts, without its loads
_CACHE = 3.5  # speed of the cache relative to memory
_UNLINED = 2.2  # the same, where rows of operands do not begin at lines, and each row of a tile takes two requests
_GREED = 1.7  # speed of a unit's loads from memory relative to its share, where others have none


@dataclass(frozen=True)
class _Pace:
    """How fast programs of a configuration work.

    Attributes:
        products: seconds that a unit multiplies for a step.
        moves: seconds that operands of a step are on the move, if all units have as many programs.
        latency: seconds of a step whose loads are waited for.
        ends: seconds before a tile's first product and after its last.
        store: the part of ``ends`` in which the result is stored.
        units: of the processor.
        resident: programs that fit a unit.
    """

    products: float
    moves: float
    latency: float
    ends: float
    store: float
    units: int
    resident: int

    def steps(self, count: float, programs: int) -> float:
        """Seconds of ``count`` steps of each of the programs that run at the same time."""
        share = programs / self.units
        return count * max(ceil(share) * self.products, share * self.moves, self.latency)

    def alone(self, count: float, programs: int) -> float:
        """Seconds of programs that each compute a tile of ``count`` steps, and start where others have ended."""
        full, rest = divmod(programs, self.resident * self.units)
        time = full * (self.steps(count, self.resident * self.units) + self.ends)
        return time + self.steps(count, rest) + self.ends if rest else time


def _pace(config: Config, count: int, kind: Kind, hardware: Hardware) -> _Pace:
    """The pace of ``count`` programs. Operands are written to shared memory once, and read from it by each 64 rows of a
    tile with all of its columns."""
    rate = hardware.bandwidth / hardware.units
    area = config.block_m * config.block_n
    threads = config.warps * hardware.warp
    resident = min(
        hardware.shared // shared_bytes(config, kind, hardware),
        hardware.registers // (registers(config, hardware) * threads),
    )
    clock = 1 - _IDLE_GAIN * (1 - min(1.0, count / hardware.units))
    loads = (config.block_m + config.block_n) * config.block_k * kind.itemsize
    reads = ceil(config.block_m / 64) * (64 + config.block_n) * config.block_k * kind.wide
    moves = max(clock * (loads + reads) / hardware.shared_rate, loads / ((_CACHE if kind.lined else _UNLINED) * rate))
    # Smaller tiles leave matrix units idle between steps.
    flops = hardware.flops * kind.rate * min(1.0, 0.9 + 0.1 * area / 32768)
    products = clock * 2 * area * config.block_k * hardware.units / flops
    # Other waves of a unit hide the way of loads on AMD GPUs.
    way = _WAY if hardware.warp == 32 else 0.0
    latency = way / (config.stages - 1)
    if config.block_m < 64 and kind.tma:
        # Such tiles are multiplied by instructions that wait for their operands, at half the speed.
        latency += 2 * products
    store = area * 2 / rate
    return _Pace(products, moves, latency, way + store, store, hardware.units, resident)


def seconds(config: Config, m: int, n: int, k: int, kind: Kind, hardware: Hardware) -> float:
    """The model's time."""
    steps, tiles, units = config.steps(k), config.tiles(m, n), hardware.units
    count, whole = programs(config, m, n, k, hardware)
    pace = _pace(config, count, kind, hardware)
    added = 0.0
    if config.parts:
        work = pace.alone(ceil(steps * tiles / count), count)
        sums = 4 * config.block_m * config.block_n * count / (_CACHE * hardware.bandwidth)
        # Of the parts of an element eight are read at a time.
        added = _ADD + 2 * sums + config.parts / 8 * pace.ends
    elif config.schedule == "data_parallel":
        work = pace.alone(steps, tiles)
    elif whole == tiles:
        work = pace.ends + ceil(tiles / units) * (pace.steps(steps, count) + pace.store)
    else:
        share = (tiles - whole) * steps / count
        # Each piece of a tile fills the pipeline anew, and tiles of many pieces wait for one after the other.
        pieces = share / steps + 2
        work = whole / count * (pace.steps(steps, count) + pace.store) + pace.steps(share, count) + pieces * pace.ends
        work += _WAIT * max(1, steps / share)
    reached = min(1.0, _GREED * count / units)
    memory = (m * k + k * n) * kind.itemsize / (hardware.bandwidth * reached)
    return hardware.launch + max(work, memory) + added


# Stream-K must promise more speed than its model is wrong by, so that it does not lose: at 3584x2048x8192 it took 1.17
# times as long.
_STREAM_K_PROMISE = 1.15
_PARTS_PROMISE = 1.2


@lru_cache(maxsize=4096)
def choose(m: int, n: int, k: int, kind: Kind, hardware: Hardware, schedule: str | None = None) -> Config:
    """The configuration with the least time in the model.

    Args:
        schedule: one of :data:`SCHEDULES`; None lets the model choose. Stream-K must promise more speed by the
            model's error, so that it does not lose.

    Raises:
        LaunchError: an unknown schedule.
    """
    if schedule is not None and schedule not in SCHEDULES:
        raise LaunchError("schedule", got=repr(schedule), need=f"one of {', '.join(SCHEDULES)}")

    def cost(config: Config) -> float:
        promise = _PARTS_PROMISE if config.parts else _STREAM_K_PROMISE if config.schedule == "stream_k" else 1.0
        return promise * seconds(config, m, n, k, kind, hardware)

    return min(candidates(kind, hardware, schedule), key=cost)


# Elements of 2 bytes that no descriptor can load come one by one, past the pipeline. On an H200 products of such were
# done at 0.01 to 0.11 of its rate, and those of few rows read theirs at 0.13 to 0.27 of the rate of memory.
_ONE_BY_ONE = 0.03
_READ_ONE_BY_ONE = 0.25
# 28 MB were copied in 17 us.
_COPY = 0.75


def copies_pay(m: int, n: int, k: int, nbytes: int, kind: Kind, hardware: Hardware) -> bool:
    """Whether ``nbytes`` of operands that no descriptor can address should first be copied to where one can.

    A copy reads and writes them, in a launch of its own; without it the whole product goes at the pace of its loads.
    """
    if not kind.tma:
        return False
    work = 2 * max(m, 16) * max(n, 16) * k  # no tile is smaller
    one_by_one = max(
        work / (hardware.flops * kind.rate * _ONE_BY_ONE),
        nbytes / (hardware.bandwidth * _READ_ONE_BY_ONE),
        k / 128 * _WAY,
    )
    kind = replace(kind, lined=True)
    product = seconds(choose(m, n, k, kind, hardware), m, n, k, kind, hardware)
    return one_by_one > 2 * nbytes / (hardware.bandwidth * _COPY) + product
