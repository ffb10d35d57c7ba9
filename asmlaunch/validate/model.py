"""A problem as numbers: the operands in logical order, how a kernel reads them, and what it computes of them.

Hypotheses about wrong results (``validate.diagnose``) are changes of these inputs: the same reference, evaluated on
what the kernel was given in place of what it should have been given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from asmlaunch.layouts import Layout
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.reference import Reference


def _float16(values: np.ndarray) -> np.ndarray:
    return values.view(np.float16).astype(np.float64)


def _numbers(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


#: Number formats of elements, and their values in float64. "mxfp4" (two codes a byte) and "e8m0" are decoded together,
#: by ``reference.decode_mxfp4``.
FORMS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = MappingProxyType(
    {
        "bfloat16": to_float64,
        "float16": _float16,
        "float32": _numbers,
        "int8": lambda values: _numbers(values.view(np.int8)),
        "uint8": lambda values: _numbers(values.view(np.uint8)),
        "e4m3fn": decode_e4m3,
        "e4m3fnuz": decode_e4m3fnuz,
    }
)


@dataclass(frozen=True)
class Operand:
    """One operand of a kernel.

    Attributes:
        values: its elements in logical order: codes or numbers, of the type they have in memory.
        axes: what each dimension counts, such as ``("m", "k")``.
        form: the number format (a name of :data:`FORMS`, "mxfp4" or "e8m0").
        layout: where the kernel expects each element; None for rows one after the other.
        room: the shape of the memory, for padding beyond whole tiles or between rows; None for what is needed.
        neutral: the element with which the operand has no effect: 1 of a scale, 0 of a bias; None for a factor of sums.
        amax: of scales, the largest magnitudes of their blocks before they were rounded.
    """

    values: np.ndarray
    axes: tuple[str, ...]
    form: str
    layout: Layout | None = None
    room: tuple[int, ...] | None = None
    neutral: float | None = None
    amax: np.ndarray | None = None

    @property
    def in_memory(self) -> tuple[int, ...]:
        """The shape of the memory that the kernel is given."""
        if self.room is not None:
            return self.room
        return self.values.shape if self.layout is None else self.layout.padded_shape(self.values.shape)

    def stored(self, values: np.ndarray, pad: int = 0) -> np.ndarray:
        """``values`` as the kernel expects them in memory, with ``pad`` (the bits of an element) where none belongs."""
        if self.layout is not None:
            return self.layout.apply(values, pad_value=pad, padded=self.in_memory)
        memory = np.full(self.in_memory, pad, f"u{values.itemsize}").view(values.dtype)
        memory[tuple(slice(size) for size in values.shape)] = values
        return memory

    def read(self, memory: np.ndarray) -> np.ndarray:
        """What the kernel takes ``memory`` for, in logical order; what lies past its end is 0.

        ``memory`` may have any shape and size: only the order of its elements counts.
        """
        count = math.prod(self.in_memory)
        flat = np.ascontiguousarray(memory).reshape(-1).view(self.values.dtype)[:count]
        flat = np.concatenate([flat, np.zeros(count - flat.size, flat.dtype)]).reshape(self.in_memory)
        if self.layout is not None:
            return self.layout.invert(flat, self.values.shape)
        return flat[tuple(slice(size) for size in self.values.shape)]


@dataclass(frozen=True)
class Inputs:
    """What a kernel computes with.

    Attributes:
        values: the operands in logical order, by name.
        forms: the number formats they are read in.
        factors: scalars, by name.
    """

    values: Mapping[str, np.ndarray]
    forms: Mapping[str, str]
    factors: Mapping[str, float] = field(default_factory=dict)

    def decoded(self, name: str) -> np.ndarray:
        """An operand's numbers, float64."""
        return FORMS[self.forms[name]](self.values[name])

    def with_values(self, **values: np.ndarray) -> Inputs:
        """With some operands replaced."""
        return replace(self, values={**self.values, **values})

    def with_forms(self, **forms: str) -> Inputs:
        """With some operands read in other formats."""
        return replace(self, forms={**self.forms, **forms})

    def with_factors(self, **factors: float) -> Inputs:
        """With some factors replaced."""
        return replace(self, factors={**self.factors, **factors})


@dataclass(frozen=True)
class Model:
    """What a kernel computes, as a function of its inputs.

    Attributes:
        operands: by the names of their arguments.
        evaluate: the result in float64.
        factors: scalars that the result is a function of, with their values.
        ignored: what each factor is when the kernel ignores it: 1 for alpha, 0 for beta.
        axes: what the dimensions of the result count.
        parts: elements of K that workgroups sum on their own, 0 where K is not split.
    """

    operands: Mapping[str, Operand]
    evaluate: Callable[[Inputs], Reference]
    factors: Mapping[str, float] = field(default_factory=dict)
    ignored: Mapping[str, float] = field(default_factory=dict)
    axes: tuple[str, str] = ("m", "n")
    parts: int = 0

    @property
    def inputs(self) -> Inputs:
        """What the kernel should compute with."""
        values = {name: operand.values for name, operand in self.operands.items()}
        forms = {name: operand.form for name, operand in self.operands.items()}
        return Inputs(values, forms, self.factors)

    def reference(self) -> Reference:
        """What the kernel should compute."""
        return self.evaluate(self.inputs)


def layout_name(layout: Layout | None) -> str:
    """A layout in words."""
    return "row-major order" if layout is None else layout.label
