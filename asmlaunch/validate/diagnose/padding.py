"""Padding that holds another value than the kernel needs there: it multiplies it with what lies behind the matrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from asmlaunch.validate.diagnose.emulated import Emulator, Launch, Relaunch
from asmlaunch.validate.model import Model

_MEANING = {0x7F: "a scale of 1", 0xFF: "NaN", 0x80: "a scale of 2", 0x01: "1"}


def hypotheses(model: Model, emulator: Emulator) -> Iterator[Relaunch]:
    """For operands of bytes that are padded in their layout, together and each on its own."""
    by_form: dict[str, list[str]] = {}
    for name, operand in model.operands.items():
        if operand.layout is not None and operand.values.itemsize == 1 and operand.in_memory != operand.values.shape:
            by_form.setdefault(operand.form, []).append(name)
    groups = [*by_form.values(), *([name] for names in by_form.values() for name in names if len(names) > 1)]
    for value, meaning in _MEANING.items():
        for names in groups:
            subject = " and ".join(names)
            right = model.operands[names[0]].layout
            need = (right.pad_value if right is not None else None) or 0
            text = f"the padding of {subject} holds {value:#04x} ({meaning}), where the kernel needs {need:#04x}"
            fix = f"{names[0]} = layouts.pad_scales({names[0]}, pad_value={need})" + ("  # both" if names[1:] else "")
            if model.operands[names[0]].form != "e8m0":
                fix = f"{names[0]} padded with {need:#04x}"
            change = partial(_padded, model=model, emulator=emulator, names=names, value=value)
            yield Relaunch("padding", subject, text, fix, 1 if value in (0x7F, 0xFF) else 3, change)


def _padded(launch: Launch, model: Model, emulator: Emulator, names: list[str], value: int) -> Launch:
    for name in names:
        operand = model.operands[name]
        memory = operand.stored(operand.values, value)
        launch = launch.with_array(emulator.kernel.schema[name].name, memory)
    return launch
