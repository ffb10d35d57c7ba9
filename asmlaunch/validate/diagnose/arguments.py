"""Mistakes in the arguments themselves, read off the kernel's schema: units, strides, sizes, bytes.

Every number that the schema says how to derive from an array has a unit; what it would be in another one, or of another
array, is what people pass instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import combinations

from asmlaunch.abi.schema import Field
from asmlaunch.validate.diagnose.emulated import Emulator, Launch, Relaunch
from asmlaunch.validate.model import Model

_SCALES = (Fraction(1, 2), Fraction(2), Fraction(1, 4), Fraction(4))
_SHIFTS = (-2, 2, -4, 4, -8, 8)


def hypotheses(emulator: Emulator, model: Model | None) -> Iterator[Relaunch]:
    """For every number the kernel is given, what may have been passed in its place."""
    schema, right = emulator.kernel.schema, emulator.right
    numbers = [
        one for one in schema.fields
        if one.given_by_caller and not one.is_pointer and one.live is not False and one.type.startswith(("u", "i"))
    ]  # fmt: skip
    sizes = [one for one in numbers if any(not source.stride for source in one.derive)]
    strides = [one for one in numbers if any(source.stride for source in one.derive)]
    for one in strides:
        yield from _stride(one, sizes, strides, emulator, model)
    for one in numbers:
        if one not in strides:
            yield from _scaled(one, right)
        if one.derive:
            yield _value(one, 0, f"{one.name} is 0, as when it is passed in another place", 3, right)
    for first, second in combinations(sizes, 2):
        a, b = right.values[first.name], right.values[second.name]
        if a != b:
            text = f"{first.name} and {second.name} are swapped: {b} and {a}, not {a} and {b}"
            subject, fix = f"{first.name} and {second.name}", f"{first.name}={a}, {second.name}={b}"
            values = {first.name: b, second.name: a}
            cost = 1 if first.unit == second.unit else 3
            yield Relaunch("swap", subject, text, fix, cost, partial(_with, values=values))
    yield from _shifted(emulator)


def _with(launch: Launch, values: Mapping[str, int]) -> Launch:
    return launch.with_values(**values)


def _value(one: Field, wrong: int, text: str, cost: int, right: Launch) -> Relaunch:
    fix = f"{one.name}={right.values[one.name]}  # {one.unit}" if one.unit else f"{one.name}={right.values[one.name]}"
    return Relaunch("argument", one.name, text, fix, cost, partial(_with, values={one.name: wrong}))


def _stride(
    one: Field, sizes: list[Field], strides: list[Field], emulator: Emulator, model: Model | None
) -> Iterator[Relaunch]:
    """In bytes or elements, of another array, or of rows without padding."""
    right = emulator.right
    value = int(right.values[one.name])
    source = next(source for source in one.derive if source.stride)
    buffer = right.buffers.get(emulator.kernel.schema[source.array].name)
    itemsize = buffer.strides[-1] if buffer is not None and buffer.strides else 1
    in_bytes = Fraction(value) / source.factor
    unit = one.unit or "the kernel's unit"
    seen = {value}
    operand = model.operands.get(source.array) if model is not None else None
    if operand is not None and operand.values.ndim == 2:
        close = operand.values.shape[1] * itemsize * source.factor
        if close.denominator == 1 and int(close) not in seen:
            seen.add(int(close))
            text = f"{one.name} leaves out the padding of {source.array}: {int(close)}; the rows are {value} apart"
            yield _value(one, int(close), text, 1, right)
    for wrong, what in (
        (in_bytes, "bytes"),
        (in_bytes / itemsize, "elements"),
        *((Fraction(value) * scale, f"{scale} of that") for scale in _SCALES),
    ):
        if wrong.denominator == 1 and int(wrong) not in seen:
            seen.add(int(wrong))
            counted = f"counts {what}" if what in ("bytes", "elements") else f"is {what}"
            text = f"{one.name} {counted}: {int(wrong)}; the kernel takes {value}, in {unit}"
            yield _value(one, int(wrong), text, 1 if what in ("bytes", "elements") else 3, right)
    for other in strides:
        wrong_value = int(right.values[other.name])
        if wrong_value not in seen:
            seen.add(wrong_value)
            text = f"{one.name} is {other.name}, {wrong_value}; the rows are {value} apart"
            yield _value(one, wrong_value, text, 2, right)
    for size in sizes:
        # A row of as many elements, without what lies between rows.
        packed = int(right.values[size.name]) * source.factor * itemsize
        for wrong in (packed, Fraction(int(right.values[size.name]))):
            if wrong.denominator == 1 and int(wrong) not in seen:
                seen.add(int(wrong))
                text = f"{one.name} is {size.name}, {int(wrong)}; the rows are {value} apart"
                yield _value(one, int(wrong), text, 2, right)


def _scaled(one: Field, right: Launch) -> Iterator[Relaunch]:
    value = int(right.values[one.name])
    for scale in _SCALES:
        wrong = value * scale
        if value and wrong.denominator == 1:
            text = f"{one.name} is {int(wrong)}, {scale} of {value}"
            cost = 2 if scale in (Fraction(1, 2), Fraction(2)) else 4
            yield _value(one, int(wrong), text, cost, right)
    for wrong_value in (value - 1, value + 1):
        if wrong_value >= 0 and not one.derive:
            yield _value(one, wrong_value, f"{one.name} is {wrong_value}, not {value}", 3, right)


def _shifted(emulator: Emulator) -> Iterator[Relaunch]:
    """Everything after a number too early or too late in the segment, as after an argument of a wrong size; or up to
    the next pointer, whose alignment swallows it."""
    fields = [one for one in emulator.kernel.schema.fields if one.given_by_caller]
    for index, one in enumerate(fields):
        if one.is_pointer or not index:
            continue
        after = [other.offset for other in fields[index + 1 :] if other.is_pointer]
        ends = dict.fromkeys([emulator.kernel.schema.size, *after[:1]])
        for end in ends:
            for shift in _SHIFTS:
                word = "early" if shift < 0 else "late"
                until = "" if end == emulator.kernel.schema.size else f" up to byte {end}"
                text = (
                    f"the arguments from {one.name} (byte {one.offset}) on{until} are {abs(shift)} bytes {word}, as "
                    "after one of another size"
                )
                fix = f"{fields[index - 1].name} in {one.offset - fields[index - 1].offset} bytes"
                move = partial(_move, start=one.offset, end=end, shift=shift)
                yield Relaunch("bytes", one.name, text, fix, 3, partial(_with_bytes, move=move))


def _with_bytes(launch: Launch, move: partial[bytes]) -> Launch:
    return Launch(launch.values, launch.buffers, launch.grid, move, launch.options)


def _move(data: bytes, start: int, end: int, shift: int) -> bytes:
    part = data[start:end]
    moved = part[-shift:] + bytes(-shift) if shift < 0 else bytes(shift) + part[:-shift]
    before = bytearray(data[:start])
    if shift < 0:
        before[start + shift :] = part[:-shift]
    return bytes(before) + moved + data[end:]
