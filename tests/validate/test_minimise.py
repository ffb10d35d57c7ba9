"""The smallest failing problem: sizes, inputs and arguments shrink as far as the planted mistake needs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from validate.mistakes import SGEMM, Kernels

import asmlaunch
from asmlaunch.errors import MismatchError
from asmlaunch.module import Kernel
from asmlaunch.validate.minimise import minimise
from asmlaunch.validate.problems import DEFINITIONS

DEFINITION = DEFINITIONS["sgemm"]


@pytest.fixture(scope="module")
def kernel(aiter_kernels: Path) -> Kernel:
    return Kernels(aiter_kernels)[SGEMM]


def start(text: str = "m=37, n=35, k=29, alpha=1.25, beta=-0.5, pad=3") -> Any:
    return DEFINITION.cases({})[0].changed(text)


def test_a_wrong_stride_needs_two_columns(kernel: Kernel) -> None:
    """lda is wrong: the second column of A is missed, so K = 2 is the least, with one number in it and one in B."""

    def change(arguments: dict[str, Any]) -> None:
        arguments["lda"] += 1

    found = minimise(DEFINITION, kernel, start(), change=change)
    assert (found.case.m, found.case.n, found.case.k) == (1, 1, 2)
    assert found.nonzero == {"A": 1, "B": 1}
    assert found.kept["A"] == ((1, 0),)
    assert (found.case.alpha, found.case.beta, found.case.pad) == (1.0, 1.0, 0)
    assert found.failure == "C: wrong values"
    data = json.loads(json.dumps(found.as_dict()))
    assert data["case"] == str(found.case)
    assert "A: 1 of 2 elements are not zero: (1, 0)" in str(found)


def test_an_ignored_factor_needs_itself(kernel: Kernel) -> None:
    def change(arguments: dict[str, Any]) -> None:
        arguments["alpha"] = 1.0

    found = minimise(DEFINITION, kernel, start(), change=change)
    assert (found.case.m, found.case.n, found.case.k, found.case.pad) == (1, 1, 1, 0)
    assert found.case.alpha == 1.25
    assert found.comparison is not None
    assert found.comparison.beyond == 1


def test_errors_are_failures_too(kernel: Kernel) -> None:
    """A store past the end of C, from the second column on."""

    def change(arguments: dict[str, Any]) -> None:
        arguments["ldc"] += 1000

    found = minimise(DEFINITION, kernel, start(), change=change, runs=60)
    assert found.failure == "MemoryFaultError"
    assert found.comparison is None
    assert (found.case.m, found.case.n) == (1, 2)
    assert found.runs <= 60


def test_elements_next_to_the_result(kernel: Kernel) -> None:
    def change(arguments: dict[str, Any]) -> None:
        arguments["M"] += 1

    found = minimise(DEFINITION, kernel, start("m=37, n=35, k=29, beta=0, pad=3"), change=change, runs=80)
    assert found.failure == "C: elements outside of it are written"
    assert found.case.pad >= 1


def test_a_family_without_a_model(aiter_kernels: Path) -> None:
    softmax = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    definition = DEFINITIONS["topksoftmax"]
    case = definition.cases(definition.parameters(softmax.info))[0]
    found = minimise(definition, softmax, case.changed("shift=100"))
    assert found.case.batch == 1
    assert not found.nonzero
    # exp overflows f32 at 88.7; the inputs are spread around the shift.
    assert 80 <= found.case.shift < 90


def test_what_does_not_fail(kernel: Kernel) -> None:
    with pytest.raises(MismatchError, match="which passes"):
        minimise(DEFINITION, kernel, start())
