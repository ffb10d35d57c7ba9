"""Time to pack f4gemm's 24 arguments, against a bare ``struct`` call with the same values.

Run: python benchmarks/packing.py [--json]
"""

from __future__ import annotations

import json
import sys
import timeit
from typing import Any

from asmlaunch import abi, codeobject
from asmlaunch.abi.families import family_of
from asmlaunch.abi.packer import layout_of
from asmlaunch.kernels import aiter_folder

KERNEL = "gfx950/f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256.co"


def best(statement: Any, number: int = 20_000, repeat: int = 25) -> float:
    """Microseconds of one call: the fastest of many rounds, as the others measure what else the machine does."""
    return min(timeit.repeat(statement, number=number, repeat=repeat)) / number * 1e6


def measure() -> dict[str, float]:
    """Name of each way to pack -> microseconds."""
    (kernel,) = codeobject.read(aiter_folder() / KERNEL).kernels.values()
    family = family_of(kernel)
    assert family is not None
    schema = family.schema(kernel)
    layout = layout_of(schema.fields, schema.size)
    assert layout is not None
    values = {name: index + 1 for index, name in enumerate(schema.names)}
    ordered, buffer = tuple(values.values()), bytearray(schema.size)
    short = {"D" if name == "ptr_D" else name: value for name, value in values.items()}
    return {
        "bare struct.pack_into(*tuple)": best(lambda: layout.pack_into(buffer, 0, *ordered)),
        "bare struct.pack_into(*dict.values())": best(lambda: layout.pack_into(buffer, 0, *values.values())),
        "schema.pack_into(buffer, 0, mapping)": best(lambda: schema.pack_into(buffer, 0, values)),
        "schema.pack(mapping)": best(lambda: schema.pack(values)),
        "schema.pack(mapping with an alias)": best(lambda: schema.pack(short), number=2_000),
        "abi.bind(schema, mapping)": best(lambda: abi.bind(schema, values), number=2_000),
        "schema.construct.build(mapping)": best(lambda: schema.construct.build(values), number=200, repeat=5),
        "schema.unpack(bytes)": best(lambda: schema.unpack(buffer), number=2_000),
    }


def main() -> None:
    """Print the table, or JSON."""
    times = measure()
    if "--json" in sys.argv[1:]:
        print(json.dumps(times, indent=2))
        return
    bare = times["bare struct.pack_into(*tuple)"]
    for name, microseconds in times.items():
        print(f"{name:40s} {microseconds:7.2f} us  {microseconds / bare:6.2f} x")


if __name__ == "__main__":
    main()
