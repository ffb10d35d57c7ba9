"""Liveness against execution: change one argument at a time and see whether anything a kernel does changes.

The emulator runs the machine code and shares none of the analysis; the values are chosen so that an argument that
matters shows (and every access stays inside the arrays).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asmlaunch
from asmlaunch.emulator.liveness import Status, liveness
from asmlaunch.validate import a4w4

K = 512

#: Argument -> its other value, from the unchanged arguments and the kernel's tile.
CHANGES: dict[str, Callable[[dict[str, Any], tuple[int, int]], Any]] = {
    "ptr_D": lambda given, tile: np.zeros_like(given["D"]),
    "ptr_C": lambda given, tile: np.ones_like(given["D"]),
    "ptr_A": lambda given, tile: given["A"] ^ 1,
    "ptr_B": lambda given, tile: given["B"] ^ 1,
    "ptr_ScaleA": lambda given, tile: given["ScaleA"] + 1,
    "ptr_ScaleB": lambda given, tile: given["ScaleB"] + 1,
    "alpha": lambda given, tile: 0.37,
    "beta": lambda given, tile: 0.37,
    "M": lambda given, tile: tile[0] - 16,
    "N": lambda given, tile: tile[1] // 2,
    "K": lambda given, tile: K // 2,
    "stride_A0": lambda given, tile: K // 2,
    "stride_B0": lambda given, tile: K // 2,
    "stride_C0": lambda given, tile: tile[1] - 32,
    "stride_ScaleA0": lambda given, tile: 0,
    "stride_ScaleB0": lambda given, tile: 0,
    "log2_k_split": lambda given, tile: 1,
}  # fmt: skip
#: Any other argument takes this.
OTHERWISE = 64


@pytest.mark.parametrize("name", ["BpreShuffle_64x128", "BpreShuffle_128x512"])
def test_arguments_matter_where_the_analysis_says_so(f4gemm_folder: Path, name: str) -> None:
    kernel = asmlaunch.load(f4gemm_folder / f"f4gemm_bf16_per1x32Fp4_{name}.co", device="emulator").kernel
    tile = a4w4.tile(kernel.info)

    def run(changed: str | None = None) -> bytes:
        """All of the memory that D was given, after a launch with one argument changed and the same grid."""
        problem = a4w4.build(kernel.info, a4w4.Case(*tile, K))
        given = problem.arguments
        arguments = {kernel.schema[argument].name: value for argument, value in given.items()}
        for source, stride, factor in (("A", "A0", 2), ("B", "B0", 2), ("ScaleA", "ScaleA0", 1),
                                       ("ScaleB", "ScaleB0", 1)):  # fmt: skip
            arguments[f"stride_{stride}"] = given[source].strides[0] * factor
        arguments |= {"M": tile[0], "N": tile[1], "K": K, "stride_C0": tile[1]}
        given["D"][:] = 0
        if changed is not None:
            change = CHANGES.get(changed)
            arguments[changed] = change(given, tile) if change else OTHERWISE
        kernel.launch(arguments, grid=(1, 1, 1), check=False)
        return bytes(given["D"])

    expected = run()
    assert run() == expected
    found = {field: run(field) != expected for field in kernel.schema.names}
    analysed = {field: entry.status is Status.USED for field, entry in liveness(kernel.info).of(kernel.schema).items()}
    assert found == analysed
