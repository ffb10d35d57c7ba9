"""Planted faults: each is found by the check it is meant for, and named; without the fault nothing is found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from emulator.faults import FAULTS, STOPS, Fault
from emulator.toolkit import build

from asmlaunch import errors
from asmlaunch.devices import LaunchResult


def launch(fault: Fault, body: str) -> LaunchResult:
    options: dict[str, Any] = dict(fault.options)
    arguments = options.pop("arguments", "x out")
    kernel = build(body, arguments, **options)
    values: dict[str, Any] = {
        "x": np.arange(fault.elements[0], dtype=np.uint32),
        "out": np.zeros(fault.elements[1], np.uint32),
        "count": 3,
    }
    given = {name.partition(":")[0]: values[name.partition(":")[0]] for name in arguments.split()}
    return kernel.launch(
        given, grid=fault.grid, block=fault.block, **{"checks": "all", "outputs": fault.outputs, **fault.launch}
    )


def by_name(faults: list[Fault]) -> Any:
    return pytest.mark.parametrize("fault", faults, ids=lambda fault: fault.name)


@by_name(FAULTS)
def test_the_fault_is_found(fault: Fault) -> None:
    findings = launch(fault, fault.body).findings
    found = [finding for finding in findings if finding.kind == fault.check]
    assert any(re.search(fault.says, finding.message) for finding in found), findings
    assert {finding.kind for finding in findings} <= {fault.check, *fault.also}


@by_name([fault for fault in [*FAULTS, *STOPS] if fault.sound])
def test_without_the_fault_nothing_is_found(fault: Fault) -> None:
    assert launch(fault, fault.sound).findings == ()


@by_name(STOPS)
def test_a_fault_that_ends_the_run(fault: Fault) -> None:
    with pytest.raises(getattr(errors, fault.check), match=fault.says):
        launch(fault, fault.body)


def test_there_are_enough() -> None:
    assert len(FAULTS) + len(STOPS) >= 40
