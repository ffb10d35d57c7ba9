"""The models of families: their operands are what the launch is given, their memory round-trips."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asmlaunch.layouts import get
from asmlaunch.validate.model import FORMS, Operand
from asmlaunch.validate.problems import DEFINITIONS

F4 = {"shuffle": "BpreShuffle", "tile_m": 256, "tile_n": 256}
#: Family, parameters of a kernel, changes of its first problem.
PROBLEMS: list[tuple[str, dict[str, Any], str]] = [
    ("f4gemm", F4, ""),
    ("f4gemm", F4, "k=1024, split_k=1"),
    ("f4gemm", {**F4, "shuffle": "noBpreShuffle"}, ""),
    ("bf16gemm", {"tile_m": 32, "tile_n": 64}, ""),
    ("i8gemm", {"tile_m": 128, "tile_n": 128}, ""),
    ("i8gemm", {"tile_m": 128, "tile_n": 128}, "splits=3, k=896"),
    ("fp8_block_scale", {"tile_m": 32}, ""),
    ("flatmm", {"tile_m": 128}, ""),
    ("sgemm", {}, ""),
]


@pytest.mark.parametrize(("family", "parameters", "changes"), PROBLEMS)
def test_the_operands_are_the_arguments(family: str, parameters: dict[str, Any], changes: str) -> None:
    """Stored as the model says they are, operands are the arrays of the launch, which other code has made."""
    definition = DEFINITIONS[family]
    problem = definition.build(definition.cases(parameters)[0].changed(changes), parameters)
    (output,) = problem.outputs
    assert output.model is not None
    for name, operand in output.model.operands.items():
        given = problem.launches[0][name]
        # What is between rows is not of the matrix, and where the kernel reads nothing anything may be.
        assert np.array_equal(operand.read(given).view(np.uint8), operand.values.copy().view(np.uint8)), name
        assert math.prod(operand.in_memory) == given.size or family in ("f4gemm", "sgemm"), name
        if operand.layout is not None:
            assert np.array_equal(operand.stored(operand.values).ravel(), given.ravel()), name
    assert set(output.model.ignored) == set(output.model.factors)


def test_memory_that_is_short_or_of_another_shape() -> None:
    values = (np.arange(256) % 255 + 1).astype(np.uint8).reshape(32, 8)
    tiled = Operand(values, ("m", "k"), "e8m0", get("scales_32x8"), (64, 8))
    assert tiled.stored(values, 0x7F).shape == (64, 8)
    assert (tiled.stored(values, 0x7F)[32:] == 0x7F).all()
    assert np.array_equal(tiled.read(tiled.stored(values).ravel()), values)
    # The first half of the tile holds K-blocks 0, 1, 4 and 5 of all rows.
    short = tiled.read(tiled.stored(values).ravel()[:128])
    assert np.array_equal(short, np.where(np.isin(np.arange(8), [0, 1, 4, 5]), values, 0))
    plain = Operand(values[:, :6], ("m", "k"), "int8", room=(32, 8))
    assert plain.stored(values[:, :6], 0xFF)[0, 6:].tolist() == [255, 255]
    assert np.array_equal(plain.read(values), values[:, :6])


def test_formats() -> None:
    codes = np.array([0x80, 0x38], np.uint8)
    assert FORMS["int8"](codes).tolist() == [-128, 56]
    assert FORMS["uint8"](codes.view(np.int8)).tolist() == [128, 56]
    assert FORMS["e4m3fn"](codes).tolist() == [0, 1]
    assert np.isnan(FORMS["e4m3fnuz"](codes)[0])
    assert FORMS["float16"](np.array([0x3C00], np.uint16)).tolist() == [1]
    assert FORMS["bfloat16"](np.array([0x3F80], np.uint16)).tolist() == [1]
