"""Mutated code objects, bundles and dumps: whatever they hold, only the package's own errors may come out.

As a script it runs many (``python tests/fuzz/mutate.py --count 200000 --seed 1``) and prints how they ended; the test
beside it runs a few of the same.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import time
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from asmlaunch import abi, codeobject
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject.container import entries
from asmlaunch.errors import AsmlaunchError

FIXTURES = Path(__file__).parents[2] / "fixtures"

#: Numbers that sizes, counts and offsets are set to.
NASTY = (0, 1, 7, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)

SECONDS, GROWTH = 1.0, 10


def use_object(data: bytes) -> None:
    """Everything that is done with an object before it is launched."""
    found = codeobject.read(data, target="gfx950" if len(data) % 2 else None)
    for kernel in found.kernels.values():
        repr(kernel)
        family = family_of(kernel)
        for schema in (abi.schema_from_metadata(kernel), family.schema(kernel) if family else None):
            if schema is not None:
                packed = schema.pack({field.name: 0 for field in schema.fields if field.given_by_caller})
                schema.unpack(packed)
        json.dumps(abi.audit(kernel).to_json())
        abi.diff_kernels(kernel, kernel)


def use_container(data: bytes) -> None:
    """Every entry of a container, read as an object."""
    for entry in entries(data):
        if entry.target is not None:
            use_object(entry.data)


def use_dump(data: bytes) -> None:
    """A dump in any format, compared with itself."""
    schema = abi.KernargSchema([abi.Field(f"w{i}", 4 * i, "u32", live=False) for i in range(93)], 372)
    for dump in abi.read_dumps(data):
        str(abi.diff(dump, dump, schema))
        abi.hexdump(dump.data[:64])


def samples() -> dict[str, tuple[Callable[[bytes], None], list[bytes]]]:
    """Kind -> (what is done with it, unmutated inputs)."""
    objects = [(FIXTURES / "codeobject" / f"{name}.co").read_bytes() for name in ("two_kernels_v5", "plain_gfx1100")]
    plain = objects[1]
    names = ["host-x86_64-unknown-linux-gnu", "hipv4-amdgcn-amd-amdhsa--gfx1100"]
    table = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 2)
    start = 512
    for name, size in zip(names, (0, len(plain)), strict=True):
        table += struct.pack("<QQQ", start, size, len(name)) + name.encode()
    bundle = table.ljust(start, b"\0") + plain
    packed = zlib.compress(bundle)
    compressed = b"CCOB" + struct.pack("<HHQQQ", 3, 0, 32 + len(packed), len(bundle), 0) + packed
    dump = (FIXTURES / "abi" / "f4gemm_public_dump.txt").read_bytes()
    segment = bytes(range(64)) * 2
    texts = [dump, *(abi.hexdump(segment, form).encode() for form in ("hexdump", "xxd", "c", "python"))]
    return {
        "object": (use_object, objects),
        "container": (use_container, [bundle, compressed, bundle + compressed]),
        "dump": (use_dump, texts),
    }


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four random changes: bytes, numbers, cuts, copies."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        size = len(changed)
        if size < 16:
            break
        # Headers and tables are at the front, so half of the changes go there.
        at = rng.randrange(min(size, 1024)) if rng.random() < 0.5 else rng.randrange(size)
        kind = rng.randrange(7)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.randrange(256)
        elif kind in (2, 3):
            width = rng.choice((1, 2, 4, 8))
            at -= at % width
            number = rng.choice(NASTY) if kind == 2 else rng.randrange(size * 2)
            changed[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
        elif kind == 4:
            del changed[at : at + rng.choice((1, 8, 64, size))]
        elif kind == 5:
            other = rng.randrange(size)
            changed[at : at + 32] = changed[other : other + 32]
        else:
            changed[at:at] = changed[: rng.choice((1, 16, 256))]
    return bytes(changed)


def attempt(use: Callable[[bytes], None], data: bytes, *, measure_memory: bool = False) -> str:
    """How one input ended: ``"accepted"`` or the error's class. Anything but the package's errors is raised.

    AssertionError when it took too long or, with ``measure_memory``, too much memory.
    """
    if measure_memory:
        tracemalloc.start()
    start = time.process_time()  # a busy machine is not a hang
    try:
        use(data)
        outcome = "accepted"
    except AsmlaunchError as error:
        outcome = type(error).__name__
    seconds = time.process_time() - start
    if measure_memory:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # Parsing needs some memory of its own, however small the input.
        assert peak <= GROWTH * len(data) + (1 << 20), f"{peak} bytes for {len(data)}"
    assert seconds < SECONDS, f"{seconds} s"
    return outcome


def campaign(count: int, seed: int, objects: Sequence[bytes] = (), memory_every: int = 50) -> Iterator[tuple[str, str]]:
    """(kind, outcome) of ``count`` mutated inputs, ``objects`` among them; the same for the same seed."""
    rng = random.Random(seed)
    inputs_of = samples()
    inputs_of["object"][1].extend(objects)
    kinds = list(inputs_of.items())
    for number in range(count):
        kind, (use, inputs) = kinds[number % len(kinds)]
        data = mutate(rng.choice(inputs), rng)
        try:
            yield kind, attempt(use, data, measure_memory=number % memory_every == 0)
        except Exception as error:
            raise AssertionError(f"seed {seed}, input {number} ({kind}), {data[:64].hex()}...: {error!r}") from error


def truncations(data: bytes, use: Callable[[bytes], None] = use_object, step: int = 1) -> Iterator[str]:
    """Outcomes of the input cut off at every ``step`` bytes."""
    return (attempt(use, data[:length]) for length in range(0, len(data), step))


def main() -> None:
    """Run a campaign and the truncations of the objects given, and print the outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("objects", nargs="*", type=Path, help="objects to mutate as well, and to cut off at every byte")
    options = parser.parse_args()
    files = [path.read_bytes() for path in options.objects]
    start = time.perf_counter()
    for (kind, outcome), times in sorted(Counter(campaign(options.count, options.seed, files)).items()):
        print(f"{kind:10s} {outcome:20s} {times}")
    for path, data in zip(options.objects, files, strict=True):
        outcomes = Counter(truncations(data))
        print(f"{path.name} cut at every byte: {dict(outcomes)}")
    print(f"{time.perf_counter() - start:.0f} s, nothing but the package's errors", file=sys.stderr)


if __name__ == "__main__":
    main()
