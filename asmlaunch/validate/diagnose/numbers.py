"""Operands in another number format than the one the kernel reads: nibbles, scales, 8- and 16-bit floats, rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from asmlaunch.layouts import FORMATS, ROUNDINGS, encode_e8m0, get, pack_fp4, unpack_fp4
from asmlaunch.validate.bfloat16 import bfloat16_bits, is_bfloat16, round_bfloat16
from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.model import Model
from asmlaunch.validate.reference import Reference

#: Formats of one size that are taken for each other.
MIXED_UP = {
    "e4m3fn": "e4m3fnuz",
    "e4m3fnuz": "e4m3fn",
    "bfloat16": "float16",
    "int8": "uint8",
}

#: Codes of float64 numbers.
ENCODERS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    **{name: FORMATS[name].encode for name in ("e4m3fn", "e4m3fnuz")},
    "bfloat16": bfloat16_bits,
    "float16": lambda values: values.astype(np.float16).view(np.uint16),
}


def hypotheses(model: Model, result: np.ndarray) -> Iterator[Hypothesis]:
    """For each operand, each way in which its numbers may have been written; and how the result may be rounded."""
    for name, operand in model.operands.items():
        if operand.form == "mxfp4":
            yield _ggml_packed(name)
        if operand.form == "e8m0":
            yield from _scales(name, operand.amax)
    packed = [name for name, operand in model.operands.items() if operand.form == "mxfp4"]
    if packed:
        yield _nibbles(packed)
    for names in _sharing(model):
        yield from _forms(model, names)
    yield Hypothesis(
        "rounding", "result", "the result is cut off to its type, where the kernel rounds",
        "", 2, lambda state: replace(state, rounding="toward_zero"),
    )  # fmt: skip
    if is_bfloat16(result):
        return
    yield Hypothesis(
        "rounding", "result", "the result went through bfloat16 before it came into its type", "", 3,
        _through_bfloat16,
    )  # fmt: skip


def _through_bfloat16(state: State) -> State:
    return state.then(lambda r: Reference(round_bfloat16(r.value), r.magnitude, r.slack))


def _operand(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[State], State]:
    return lambda state: replace(state, inputs=state.inputs.with_values(**{name: change(state.inputs.values[name])}))


def _swapped(values: np.ndarray) -> np.ndarray:
    return values << 4 | values >> 4


def _ggml(values: np.ndarray) -> np.ndarray:
    return np.asarray(pack_fp4(get("nibbles_ggml").apply(unpack_fp4(values))))


def _nibbles(names: Sequence[str]) -> Hypothesis:
    """One of the operands of a product in the other order: which one, the sum over pairs cannot tell."""
    which = f"{names[0]} has" if len(names) == 1 else f"one of {' and '.join(names)} has"
    text = f"{which} element 2i in the high nibble; the kernel reads it from the low one"
    fix = " or ".join(f"{name} = {name} << 4 | {name} >> 4" for name in names)
    return Hypothesis("nibbles", " or ".join(names), text, fix, 1, _operand(names[0], _swapped))


def _ggml_packed(name: str) -> Hypothesis:
    text = f"{name} is packed as GGML does, elements j and j + 16 in a byte; the kernel reads neighbours"
    return Hypothesis("nibbles", name, text, f"{name} = layouts.pack_fp4(codes)", 3, _operand(name, _ggml))


def _scales(name: str, amax: np.ndarray | None) -> Iterator[Hypothesis]:
    for step, word in ((1, "high"), (-1, "low")):
        text = f"the scale bytes of {name} are one too {word}, a power of two"
        fix = f"{name} = {name} {'-' if step > 0 else '+'} 1"
        yield Hypothesis("scale", name, text, fix, 2, _operand(name, partial(_stepped, step=step)))
    text = f"{name} holds the reciprocals of the scales"
    yield Hypothesis("scale", name, text, f"{name} = 254 - {name}", 3, _operand(name, lambda values: 254 - values))
    if amax is None:
        return
    for mode in ROUNDINGS:
        text = f"the scales of {name} are rounded as {mode}, unlike those its elements were divided by"
        bytes_ = np.asarray(encode_e8m0(amax, mode))
        fix = f"the same rounding= for the scales of {name} as for its elements"
        yield Hypothesis("scale", name, text, fix, 2, _operand(name, partial(_instead, found=bytes_)))


def _instead(_: np.ndarray, found: np.ndarray) -> np.ndarray:
    return found


def _stepped(values: np.ndarray, step: int) -> np.ndarray:
    return np.clip(values.astype(np.int16) + step, 0, 254).astype(np.uint8)


def _sharing(model: Model) -> Iterator[Sequence[str]]:
    """Operands that may be in a wrong format together: all of one format, then each on its own."""
    for form in MIXED_UP:
        names = [name for name, operand in model.operands.items() if operand.form == form]
        if len(names) > 1:
            yield names
        for name in names:
            yield [name]


def _forms(model: Model, names: Sequence[str]) -> Iterator[Hypothesis]:
    """Numbers written in another format than the kernel's; bytes read in another format than they were written in."""
    right = model.operands[names[0]].form
    wrong = MIXED_UP[right]
    subject = " and ".join(names)
    if wrong in ENCODERS:
        text = f"{subject} {_be(names)} written as {wrong}; the kernel reads {right}"
        fix = f"{', '.join(names)} converted to {right}"
        yield Hypothesis("format", subject, text, fix, 2, partial(_written, names=names, form=wrong))
    text = f"{subject} {_be(names)} read as {wrong}; the bytes are {right}"
    fix = f"a kernel that reads {right}, or {', '.join(names)} converted to {wrong}"
    yield Hypothesis("format", subject, text, fix, 2, partial(_read, names=names, form=wrong))


def _be(names: Sequence[str]) -> str:
    return "are" if len(names) > 1 else "is"


def _written(state: State, names: Sequence[str], form: str) -> State:
    inputs = state.inputs
    return replace(state, inputs=inputs.with_values(**{name: ENCODERS[form](inputs.decoded(name)) for name in names}))


def _read(state: State, names: Sequence[str], form: str) -> State:
    return replace(state, inputs=state.inputs.with_forms(**dict.fromkeys(names, form)))
