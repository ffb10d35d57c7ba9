"""Where an element comes from: against the kernel's source, and by changing the bytes that are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from validate.mistakes import BF16, F4, FAMILIES, SGEMM, Kernels, Seeded, case_of

from asmlaunch.validate.diagnose import diagnose
from asmlaunch.validate.diagnose.emulated import Emulator
from asmlaunch.validate.diagnose.origin import Marks, Origin, can_trace, trace
from asmlaunch.validate.problems import DEFINITIONS, Case, Definition

ELEMENT = (17, 21)


@pytest.fixture(scope="module")
def kernels(aiter_kernels: Path) -> Kernels:
    return Kernels(aiter_kernels)


def prepared(kernels: Kernels, file: str, changes: str = "") -> tuple[Definition, Case, Emulator]:
    kernel, definition = kernels[file], DEFINITIONS[FAMILIES[file]]
    case = case_of(kernel, Seeded(file, "", (), lambda run: None, changes))
    return definition, case, Emulator(kernel, definition.problem(kernel.info, case, check=False))


def test_who_writes_what_in_our_sgemm(kernels: Kernels) -> None:
    """Its source: a workgroup has 64 rows and 4 columns, each wave a column, each lane a row."""
    _, _, emulator = prepared(kernels, SGEMM, "m=70, n=9")
    marks = Marks(emulator, 0)
    column, row = np.indices((9, 70))
    assert np.array_equal(marks.labels()["wave"], column % 4)
    assert np.array_equal(marks.labels()["lane"], row % 64)
    assert np.array_equal(marks.workgroups, row // 64 + 2 * (column // 4))
    assert (marks.by_store == 0).all()


@pytest.mark.parametrize("file", [SGEMM, BF16, F4])
def test_the_bytes_that_are_named_are_the_ones_that_matter(kernels: Kernels, file: str) -> None:
    """Everything else changed, the element stays; what is named changed, it does not."""
    _, _, emulator = prepared(kernels, file)
    (output,) = emulator.problem.outputs
    assert can_trace(emulator, 0)
    found = trace(emulator, 0, ELEMENT, output.model)
    assert isinstance(found, Origin)
    right = emulator.results[0][ELEMENT]
    kernel = emulator.kernel
    for name in ("A", "B"):
        given = emulator.problem.launches[0][name]
        named = np.zeros(given.nbytes, np.bool_)
        for run in runs(output.model, name):
            named[run] = True
        assert found.inputs[name].startswith(f"bytes {np.flatnonzero(named)[0]}..")
        for chosen, same in ((~named, True), (named, False)):
            changed = given.copy()
            changed.reshape(-1).view(np.uint8)[chosen] = 0
            launch = emulator.right.with_array(kernel.schema[name].name, changed)
            results = emulator.run(launch)
            assert results is not None
            assert (results[0][ELEMENT] == right) is np.bool_(same), (name, same)
    loaded = {name.removeprefix("ptr_") for name in found.loads}
    assert {"A", "B"} <= loaded
    assert json.loads(json.dumps(found.as_dict()))["wave"] == found.wave
    assert f"stored at {found.store[0]:#x}" in str(found)


def runs(model: Any, name: str) -> list[slice]:
    """The bytes of the operand's row or column that the element is made of, by the closed form of its layout."""
    operand = model.operands[name]
    axis = next(position for position, axis in enumerate(operand.axes) if axis != "k")
    fixed = ELEMENT[model.axes.index(operand.axes[axis])]
    places = []
    for k in range(operand.values.shape[1 - axis]):
        index = (k, fixed) if axis else (fixed, k)
        plain = index[0] * operand.in_memory[1] + index[1]
        places.append(plain if operand.layout is None else operand.layout.address(index, operand.in_memory))
    size = operand.values.itemsize
    return [slice(size * place, size * (place + 1)) for place in places]


def test_what_cannot_be_traced(kernels: Kernels) -> None:
    """Split sums are added with atomics: no store writes them."""
    _, _, emulator = prepared(kernels, BF16, "k=448, splits=3")
    assert trace(emulator, 0, ELEMENT, None) is None
    emulator.instructions = 10**9
    assert not can_trace(emulator, 0)


def test_a_diagnosis_of_lanes(kernels: Kernels) -> None:
    """Elements of some lanes are wrong: the structure says so, and the way of the first is shown."""
    definition, case, emulator = prepared(kernels, BF16)
    lanes = Marks(emulator, 0).labels()["lane"]
    wrong = emulator.results[0].copy()
    wrong[(lanes >= 16) & (lanes < 32)] *= 1.01
    diagnosis = diagnose(definition, kernels[BF16], case, wrong, pairs=20)
    assert diagnosis.first is None
    assert diagnosis.comparison.structure is not None
    assert diagnosis.comparison.structure.where == "lanes 16..31"
    assert diagnosis.origin is not None
    assert diagnosis.origin.lane in range(16, 32)
    assert "the first wrong element: element (0, 4) is lane" in str(diagnosis)
    assert diagnosis.as_dict()["origin"]["matrix"] > 0
