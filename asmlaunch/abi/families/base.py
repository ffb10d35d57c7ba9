"""What a family's declaration is made of; each family is one small file beside this one.

A declaration says which kernels belong (by a pattern on the kernel's name, whose groups are the kernel's parameters),
what the argument segment holds, how the kernels are launched, and on which problems they are right.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asmlaunch.abi.arguments import Buffer
from asmlaunch.abi.schema import Field, KernargSchema, Symbol
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

    def __init__(self, kernel: KernelInfo, known: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self._known = dict(known)

    def get(self, name: str) -> Any:
        """The argument or parameter, or None when it is not known."""
        return self._known.get(name)

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__.get("_known", {}).get(name)
        if value is None:
            raise ArgumentError(
                f"{name} is needed for {self.kernel.name} and not known",
                need=f"{name} with the arguments, or the array it is read off (not its address)",
            )
        return value


@dataclass(frozen=True)
class Require:
    """A condition on the problem: what it is about, when it holds, and what would be right, in words.

    ``optional``: of a number that launches may leave out; then nothing is asked of it.
    """

    what: str
    holds: Callable[[Any], bool]
    need: str
    hint: str | None = None
    when: Callable[[Any], bool] = lambda _: True
    optional: bool = False


@dataclass(frozen=True)
class Variant:
    """Kernels of a family that differ: a pattern on the name, and attributes of fields to replace, by field name.

    ``where`` is a further condition, for kernels that the name does not tell apart.
    """

    pattern: str
    changes: Mapping[str, Mapping[str, Any]]
    where: Callable[[KernelInfo], bool] = lambda _: True


@dataclass(frozen=True)
class Known:
    """A disagreement between declaration and metadata that has been looked into: a field's name and the reason."""

    field: str
    reason: str
    pattern: str = ""


@dataclass(frozen=True)
class Family:
    """A family of kernels that share an argument layout and a launch rule.

    Attributes:
        name: short name.
        title: what the kernels compute, in one line.
        pattern: regular expression for the kernel's name (without C++ mangling); its groups are the kernel's
            parameters, as integers where they are digits.
        fields: the arguments; those that end past the segment are left out.
        grid: workgroups in x, y, z from the problem.
        size: bytes of the argument segment that a launcher passes; None for the size in the object's metadata.
        symbols: numbers the rules need that are no arguments.
        variants: kernels whose fields differ; all that match apply, in order.
        zero: buffers that must be zeroed, from the problem.
        requires: the domain on which the kernels are right.
        known: disagreements with the metadata, each with its reason.
        where: a further condition on the metadata, to tell layouts of one name apart.
        derived: further parameters of the kernel, from its parameters and metadata.
    """

    name: str
    title: str
    pattern: str
    fields: tuple[Field, ...]
    grid: Callable[[Any], Dim3]
    size: int | None = None
    symbols: tuple[Symbol, ...] = ()
    variants: tuple[Variant, ...] = ()
    zero: Callable[[Any], tuple[str, ...]] = lambda _: ()
    requires: tuple[Require, ...] = ()
    known: tuple[Known, ...] = ()
    where: Callable[[KernelInfo], bool] = lambda _: True
    derived: Callable[[KernelInfo, Mapping[str, Any]], Mapping[str, Any]] = lambda _kernel, _parameters: {}
    _schemas: dict[tuple[str, int, str, int], KernargSchema] = field(default_factory=dict, repr=False, compare=False)

    def parameters(self, kernel: KernelInfo) -> dict[str, Any] | None:
        """The kernel's parameters as its name states them, or None when it is not of this family."""
        match = re.fullmatch(self.pattern, plain_name(kernel.name))
        if match is None or not self.where(kernel):
            return None
        stated = {k: int(v) if v is not None and v.isdigit() else v for k, v in match.groupdict().items()}
        return {**stated, **self.derived(kernel, stated)}

    def matches(self, kernel: KernelInfo) -> bool:
        """Whether the kernel belongs to this family."""
        return self.parameters(kernel) is not None

    def schema(self, kernel: KernelInfo) -> KernargSchema:
        """The kernel's argument segment."""
        key = (kernel.name, kernel.kernarg_size, kernel.target.processor, hash(kernel.code))
        if key not in self._schemas:
            size = kernel.kernarg_size if self.size is None else self.size
            fields = [entry for entry in self.fields if entry.end <= size]
            schema = KernargSchema(fields, size, kernel.name, self.symbols)
            for variant in self.variants:
                if re.search(variant.pattern, plain_name(kernel.name)) and variant.where(kernel):
                    schema = schema.with_fields(variant.changes)
            self._schemas[key] = schema
        return self._schemas[key]

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
        self.require(kernel, values)
        schema = self.schema(kernel)
        for name, buffer in buffers.items():
            _check_buffer(schema[name], buffer, problem)

    def require(self, kernel: KernelInfo, values: Mapping[str, Any]) -> None:
        """Refuse sizes the kernel is not right on: the part of :meth:`check` that needs no arrays.

        Raises:
            DomainError: a condition of the family's domain that does not hold.
        """
        problem = self._problem(kernel, values)
        for rule in self.requires:
            if rule.optional and problem.get(rule.what) is None:
                continue
            if rule.when(problem) and not rule.holds(problem):
                shown = problem.get(rule.what)
                raise DomainError(f"{rule.what} for {kernel.name}", got=shown, need=rule.need, hint=rule.hint)

    def _problem(self, kernel: KernelInfo, values: Mapping[str, Any]) -> Problem:
        schema = self.schema(kernel)
        defaults = {entry.name: entry.default for entry in schema.fields if entry.default is not None}
        return Problem(kernel, {**(self.parameters(kernel) or {}), **defaults, **schema.canonical(values)})


def words(kernel: KernelInfo) -> frozenset[str]:
    """The parts of a kernel's name between underscores."""
    return frozenset(plain_name(kernel.name).split("_"))


def plain_name(name: str) -> str:
    """The last component of a mangled C++ name (``_ZN5aiter3fooE`` -> ``foo``); other names as they are."""
    rest = re.fullmatch(r"_ZN(\d.*)E", name)
    text, last = (rest[1] if rest else ""), name
    while (count := re.match(r"\d+", text)) is not None:
        end = count.end() + int(count[0])
        last, text = text[count.end() : end], text[end:]
    return last


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


def strided_nbytes(inner: int, *axes: tuple[int, int]) -> int:
    """Bytes of a tensor: ``inner`` of its innermost dimension, and (extent, stride in bytes) of each of the others."""
    return inner + sum((extent - 1) * stride for extent, stride in axes) if all(n > 0 for n, _ in axes) else 0


def ptr(name: str, role: str, layout: str = "", meta: str = "", live: bool = True, **more: Any) -> Field:
    """A pointer; ``ptr_X`` can also be given as ``X``. One that is not live defaults to null."""
    if name.startswith("ptr_"):
        more.setdefault("aliases", (name.removeprefix("ptr_"),))
    more.setdefault("default", None if live else 0)
    return Field(name, 0, "pointer", role=role, layout=layout, live=live, metadata_names=_names(meta), **more)


def num(name: str, role: str, unit: str = "", meta: str = "", live: bool = True, **more: Any) -> Field:
    """A u32; one that is not live defaults to 0."""
    more.setdefault("default", None if live else 0)
    return Field(name, 0, more.pop("type", "u32"), unit=unit, role=role, live=live, metadata_names=_names(meta), **more)


def f32(name: str, role: str, meta: str = "", live: bool = True, **more: Any) -> Field:
    """A float; one that is not live defaults to 0."""
    more.setdefault("default", None if live else 0.0)
    return Field(name, 0, "f32", role=role, live=live, metadata_names=_names(meta), **more)


def _names(meta: str) -> tuple[str, ...]:
    return tuple(meta.split())


def slots(*entries: Field | None, pitch: int = 16, first: int = 0) -> tuple[Field, ...]:
    """Fields one ``pitch`` apart from offset ``first``, in order; None leaves a slot free."""
    placed = ((first + index * pitch, entry) for index, entry in enumerate(entries))
    return tuple(dataclasses.replace(entry, offset=offset) for offset, entry in placed if entry is not None)
