"""Diagnoses: seeded mistakes are named, what nothing explains is not explained, right results are left alone.

``tests/corpus/diagnose_mistakes.py`` runs all the mistakes of ``mistakes.py``; this is a sample.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from validate.mistakes import (
    BF16,
    F4,
    I8,
    SEEDED,
    SGEMM,
    UNKNOWN,
    Kernels,
    Seeded,
    case_of,
    diagnosed,
    named,
    unknown,
)  # fmt: skip

import asmlaunch
from asmlaunch.errors import ArgumentError, MismatchError
from asmlaunch.validate.bfloat16 import bfloat16_bits
from asmlaunch.validate.diagnose import arguments, diagnose, explain
from asmlaunch.validate.diagnose.emulated import Emulator
from asmlaunch.validate.problems import DEFINITIONS

#: The others of the mistakes that are executed; what is computed costs less.
EXECUTED = {
    F4: ("weights not shuffled", "nibbles of B the other way round", "padding of 127", "scales of A rounded down",
         "row stride of A in bytes", "alpha, which the kernel ignores"),
    BF16: ("B transposed", "float16 given", "row stride of D in elements", "output not zeroed"),
    I8: ("waves of split K one after the other",),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels(aiter_kernels: Path) -> Kernels:
    return Kernels(aiter_kernels)


def sample() -> list[Seeded]:
    return [one for one in SEEDED if one.file == SGEMM or one.name in EXECUTED.get(one.file, ())]


@pytest.mark.parametrize("seeded", sample(), ids=lambda one: f"{one.family}: {one.name}")
def test_the_first_answer_names_the_mistake(kernels: Kernels, seeded: Seeded) -> None:
    diagnosis = diagnosed(kernels, seeded)
    assert named(diagnosis, seeded.about), str(diagnosis)
    assert diagnosis.first is not None
    assert diagnosis.first.whole
    assert diagnosis.confidence == "high"
    data = json.loads(json.dumps(diagnosis.as_dict()))
    assert data["explanations"][0]["mistakes"][0]["kind"] == diagnosis.first.about[0][0]
    assert "reproduces the whole result" in str(diagnosis)


@pytest.mark.parametrize("name", ["bias along the rows", "result cut off"])
def test_mistakes_that_need_no_launch(kernels: Kernels, name: str) -> None:
    seeded = next(one for one in SEEDED if one.name == name)
    diagnosis = diagnosed(kernels, seeded, emulate=False)
    assert named(diagnosis, seeded.about), str(diagnosis)


@pytest.mark.parametrize("spoil", UNKNOWN, ids=lambda spoil: spoil.__name__)
def test_what_nothing_explains_is_not_explained(kernels: Kernels, spoil: object) -> None:
    diagnosis = unknown(kernels, BF16, spoil, pairs=100)
    assert diagnosis.first is None, str(diagnosis)
    assert diagnosis.confidence in ("none", "low")
    text = str(diagnosis)
    assert f"none of {diagnosis.tried} hypotheses explains it" in text
    expected = {"lanes_missing": "columns = 3 mod 16", "one_element": "row 3, column 5", "one_tile": "rows 0..15"}
    assert expected.get(spoil.__name__, "errors: ") in text


@pytest.mark.parametrize("file", [SGEMM, BF16, F4])
def test_right_results_are_left_alone(kernels: Kernels, file: str) -> None:
    kernel, definition = kernels[file], DEFINITIONS[Seeded(file, "", (), lambda run: None).family]
    for seed in range(3):
        case = dataclasses.replace(case_of(kernel, Seeded(file, "", (), lambda run: None)), seed=seed)
        diagnosis = diagnose(definition, kernel, case)
        assert (diagnosis.confidence, diagnosis.explanations, diagnosis.tried) == ("right", (), 0)
        assert str(diagnosis).startswith("right: ")


def test_several_mistakes_that_a_result_cannot_tell_apart(kernels: Kernels) -> None:
    """With M = N, swapped operands give the transposed result."""
    seeded = next(one for one in SEEDED if one.file == BF16 and one.name == "operands swapped")
    diagnosis = diagnosed(kernels, seeded)
    assert diagnosis.confidence == "medium"
    assert named(diagnosis, seeded.about)
    assert "the same result follows if the result is stored transposed" in str(diagnosis)


def test_lost_parts_of_a_sum(kernels: Kernels) -> None:
    seeded = next(one for one in SEEDED if one.file == BF16 and one.name == "parts of K not launched")
    diagnosis = diagnosed(kernels, seeded, emulate=False)
    assert named(diagnosis, seeded.about)
    assert diagnosis.first is not None
    assert diagnosis.first.text.endswith("256..383, 384..447 are missing")


def test_few_wrong_elements_are_no_proof(kernels: Kernels) -> None:
    kernel = kernels[SGEMM]
    case = DEFINITIONS["sgemm"].cases({})[0].changed("m=1, n=3, k=5, alpha=2, beta=0, pad=0")
    (output,) = DEFINITIONS["sgemm"].problem(kernel.info, case).outputs
    diagnosis = diagnose(DEFINITIONS["sgemm"], kernel, case, (output.reference().value / 2).astype(np.float32))
    assert named(diagnosis, (("factor", "alpha"),))
    assert diagnosis.confidence == "medium"


def test_results_without_a_number(kernels: Kernels) -> None:
    """Nothing written: NaNs are no evidence for what a NaN would follow from."""
    kernel, definition = kernels[BF16], DEFINITIONS["bf16gemm"]
    case = case_of(kernel, Seeded(BF16, "", (), lambda run: None))
    (output,) = definition.problem(kernel.info, case).outputs
    diagnosis = diagnose(definition, kernel, case, output.result, pairs=50)
    assert diagnosis.confidence != "high"
    assert f"{output.result.size} of the wrong elements are unwritten" in str(diagnosis)


def test_a_family_without_a_model(aiter_kernels: Path) -> None:
    kernel = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    definition = DEFINITIONS["topksoftmax"]
    case = definition.cases(definition.parameters(kernel.info))[0]
    problem = definition.problem(kernel.info, case)
    kernel.launch({**problem.launches[0], "expert": 64}, check=False)
    (wrong,) = [one for one in problem.outputs if one.name == "W"]
    diagnosis = diagnose(definition, kernel, case, wrong.result, output="W")
    assert named(diagnosis, (("argument", "expert"),)), str(diagnosis)
    assert "no model of topksoftmax is declared" in str(diagnosis)
    lost = diagnose(definition, kernel, case.changed("shift=100"))
    assert "the launch as declared gives this result on the emulator too" in str(lost)


def test_a_model_alone(kernels: Kernels) -> None:
    """What a user has who has no kernel object: operands, and a wrong result."""
    case = case_of(kernels[I8], Seeded(I8, "", (), lambda run: None))
    (output,) = DEFINITIONS["i8gemm"].problem(kernels[I8].info, case).outputs
    assert output.model is not None
    value = output.reference().value
    assert explain(output.model, bfloat16_bits(value), output.bound).confidence == "right"
    bias = output.model.operands["bias"].values
    diagnosis = explain(output.model, bfloat16_bits(value + bias), output.bound)
    assert diagnosis.first is not None
    assert diagnosis.first.text == "bias is added twice"


def test_bad_input(kernels: Kernels) -> None:
    kernel, definition = kernels[SGEMM], DEFINITIONS["sgemm"]
    case = case_of(kernel, Seeded(SGEMM, "", (), lambda run: None))
    with pytest.raises(MismatchError, match="shape"):
        diagnose(definition, kernel, case, np.zeros((3, 3), np.float32))
    with pytest.raises(ArgumentError, match="output: got 'D', need one of C"):
        diagnose(definition, kernel, case, output="D")


def test_argument_bytes_that_are_shifted(kernels: Kernels) -> None:
    """What the hypotheses pass: everything after a number early or late, as after one of another size."""
    kernel = kernels[SGEMM]
    case = case_of(kernel, Seeded(SGEMM, "", (), lambda run: None))
    emulator = Emulator(kernel, DEFINITIONS["sgemm"].problem(kernel.info, case))
    shifted = {one.text: one for one in arguments.hypotheses(emulator, None) if one.kind == "bytes"}
    right = bytes(range(56))
    for text, wrong in (
        ("the arguments from beta (byte 28) on are 2 bytes early", right[:26] + right[28:] + bytes(2)),
        ("the arguments from M (byte 32) on are 4 bytes late", right[:32] + bytes(4) + right[32:-4]),
    ):
        launch = shifted[f"{text}, as after one of another size"].change(emulator.right)
        assert launch.change is not None
        assert launch.change(right) == wrong
