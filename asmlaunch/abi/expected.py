"""The segment that a launch with some given values has to have, as far as it follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from asmlaunch.abi.hexdump import Dump
from asmlaunch.abi.schema import KernargSchema, encode


def expected_segment(schema: KernargSchema, values: Mapping[str, Any]) -> Dump:
    """The bytes of the fields that are given, have a default, or follow from those for arrays without padding between
    rows (``Field.contiguous``); all other bytes are unknown.

    Raises:
        ArgumentError: an unknown name, or a value that does not fit.
    """
    known = {field.name: field.default for field in schema.fields if field.default is not None}
    known |= schema.canonical(values)
    problem = SimpleNamespace(**known)
    for field in schema.fields:
        if field.contiguous is not None and field.name not in known:
            try:
                known[field.name] = field.contiguous(problem)
            except AttributeError:
                continue  # it follows from a value that is not known
    data, ranges = bytearray(schema.size), []
    for field in schema.fields:
        if known.get(field.name) is not None:
            data[field.offset : field.end] = encode(field, known[field.name])
            ranges.append((field.offset, field.end))
    return Dump(bytes(data), tuple(ranges), "expected")
