"""What a family's declaration is made of; each family is one small file beside this one.

A declaration says which kernels belong (by a pattern on the kernel's name, whose groups are the kernel's parameters),
what the argument segment holds, how the kernels are launched, and on which problems they are right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asmlaunch.abi.arguments import Buffer
from asmlaunch.abi.schema import Field, KernargSchema
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import ArgumentError, DomainError

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched.

    Attributes:
        grid: workgroups in x, y, z.
        block: work-items of a workgroup in x, y, z.
        dynamic_lds: bytes of LDS beyond the kernel's static ones.
        zero: names of the buffers that must hold zeros before the launch.
    """

    grid: Dim3
    block: Dim3
    dynamic_lds: int = 0
    zero: tuple[str, ...] = ()


class Problem:
    """One launch as launch rules and domain checks see it: arguments and the kernel's parameters as attributes."""

    def __init__(self, kernel: KernelInfo, parameters: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self._known = {**parameters, **values}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_known"][name]
        except KeyError:
            raise AttributeError(f"{name} is neither an argument nor a parameter of {self.kernel.name}") from None


@dataclass(frozen=True)
class Require:
    """A condition on the problem: what it is about, when it holds, and what would be right, in words."""

    what: str
    holds: Callable[[Any], bool]
    need: str
    hint: str | None = None
    when: Callable[[Any], bool] = lambda _: True


@dataclass(frozen=True)
class Variant:
    """Kernels of a family whose fields differ: a pattern on the name, and attributes to replace, by field name."""

    pattern: str
    changes: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Family:
    """A family of kernels that share an argument layout and a launch rule.

    Attributes:
        name: short name.
        title: what the kernels compute, in one line.
        pattern: regular expression for the kernel's name; numeric groups become integer parameters.
        size: bytes of the argument segment that a launcher passes.
        fields: its arguments.
        variants: kernels whose fields differ; the first that matches is used.
        grid: workgroups in x, y, z from the problem.
        zero: buffers that must be zeroed, from the problem.
        requires: the domain on which the kernels are right.
    """

    name: str
    title: str
    pattern: str
    size: int
    fields: tuple[Field, ...]
    grid: Callable[[Any], Dim3]
    variants: tuple[Variant, ...] = ()
    zero: Callable[[Any], tuple[str, ...]] = lambda _: ()
    requires: tuple[Require, ...] = ()
    _schemas: dict[str, KernargSchema] = field(default_factory=dict, repr=False, compare=False)

    def parameters(self, kernel: KernelInfo) -> dict[str, Any] | None:
        """The kernel's parameters as its name states them, or None when it is not of this family."""
        match = re.search(self.pattern, kernel.name)
        if match is None:
            return None
        return {k: int(v) if v is not None and v.isdigit() else v for k, v in match.groupdict().items()}

    def matches(self, kernel: KernelInfo) -> bool:
        """Whether the kernel belongs to this family."""
        return self.parameters(kernel) is not None

    def schema(self, kernel: KernelInfo) -> KernargSchema:
        """The kernel's argument segment."""
        if kernel.name not in self._schemas:
            schema = KernargSchema(self.fields, self.size, kernel.name)
            variant = next((v for v in self.variants if re.search(v.pattern, kernel.name)), None)
            self._schemas[kernel.name] = schema.with_fields(variant.changes) if variant else schema
        return self._schemas[kernel.name]

    def launch(self, kernel: KernelInfo, values: Mapping[str, Any], buffers: Mapping[str, Buffer]) -> Launch:
        """Grid, block and buffers to zero, for arguments as ``abi.bind`` gives them.

        Memory given as a bare address is the caller's to zero.
        """
        problem = self._problem(kernel, values)
        block = kernel.required_workgroup_size or (kernel.max_workgroup_size, 1, 1)
        return Launch(self.grid(problem), block, zero=tuple(n for n in self.zero(problem) if n in buffers))

    def check(self, kernel: KernelInfo, values: Mapping[str, Any], buffers: Mapping[str, Buffer]) -> None:
        """Refuse a problem the kernel is not right on.

        Raises:
            ArgumentError: an array of another dtype, or too small for the problem.
            DomainError: a condition of the family's domain that does not hold.
        """
        problem = self._problem(kernel, values)
        for name in self.zero(problem):
            if name not in buffers:
                raise DomainError(
                    f"{name} of {kernel.name} must hold zeros before the launch",
                    got="an address",
                    need="the array itself, which is then zeroed",
                    hint="or zero the memory and pass check=False",
                )
        for rule in self.requires:
            if rule.when(problem) and not rule.holds(problem):
                shown = getattr(problem, rule.what, None)
                raise DomainError(f"{rule.what} for {kernel.name}", got=shown, need=rule.need, hint=rule.hint)
        schema = self.schema(kernel)
        for name, buffer in buffers.items():
            _check_buffer(schema[name], buffer, problem)

    def _problem(self, kernel: KernelInfo, values: Mapping[str, Any]) -> Problem:
        schema = self.schema(kernel)
        defaults = {entry.name: entry.default for entry in schema.fields if entry.default is not None}
        return Problem(kernel, self.parameters(kernel) or {}, {**defaults, **schema.canonical(values)})


def _check_buffer(entry: Field, buffer: Buffer, problem: Problem) -> None:
    if entry.dtypes and buffer.dtype and buffer.dtype not in entry.dtypes:
        raise ArgumentError(f"array {entry.name}", got=f"dtype {buffer.dtype}", need=f"{' or '.join(entry.dtypes)}")
    if entry.nbytes is not None:
        need = entry.nbytes(problem)
        if buffer.nbytes < need:
            raise ArgumentError(
                f"array {entry.name}",
                got=f"{buffer.nbytes} bytes",
                need=f"{need} bytes ({entry.layout or 'for this shape'})",
            )


def ceil_div(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The smallest multiple of ``b`` that is at least ``a``."""
    return ceil_div(a, b) * b


def rows_nbytes(rows: int, stride_bytes: int, row_bytes: int) -> int:
    """Bytes of ``rows`` rows, ``stride_bytes`` apart, of which the last needs only ``row_bytes``."""
    return (rows - 1) * stride_bytes + row_bytes if rows > 0 else 0
