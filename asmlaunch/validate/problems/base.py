"""What a family's problems are made of; each family is one small file beside this one.

A definition says which sizes a problem has, how operands of these sizes are made and laid out as the kernels want them,
what the result should be, and which problems exercise a kernel. Building, launching and comparing are the same for all.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from asmlaunch import codeobject
from asmlaunch.abi.families.base import Family
from asmlaunch.errors import ArgumentError, KernelNotFoundError, LaunchError
from asmlaunch.kernels import find_objects
from asmlaunch.validate.compare import Bound, Comparison, compare
from asmlaunch.validate.model import Model
from asmlaunch.validate.reference import Reference
from asmlaunch.validate.references import REFERENCES, ThreeWay, three_way

if TYPE_CHECKING:
    from asmlaunch.codeobject import KernelInfo
    from asmlaunch.devices import LaunchResult
    from asmlaunch.module import Kernel

Parameters = Mapping[str, Any]
Self = TypeVar("Self", bound="Case")

#: What the names of outputs begin with that are memory between others, which nobody should write.
GAP = "gap"

#: Sizes beyond this are refused: no kernel here can be right on them, and operands would not fit in memory.
MAX_SIZE = 1 << 24


@dataclass(frozen=True)
class Case:
    """The sizes of one problem and the seed of its data; families add their own fields.

    Attributes:
        seed: of the random data.
    """

    seed: int = field(default=0, kw_only=True)

    def changed(self: Self, text: str) -> Self:
        """This case with fields replaced as in ``"m=33, n=128"``.

        Raises:
            ArgumentError: text of another form, a field there is not, or a value of another type.
        """
        changes = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, value = (piece.strip() for piece in part.partition("="))
            current = getattr(self, name, None) if name in self.names() else None
            try:
                if current is None or not value:
                    raise ValueError
                changes[name] = type(current)(value)
            except ValueError:
                raise ArgumentError("problem", got=repr(part), need=f"some of {self}") from None
        case = dataclasses.replace(self, **changes)
        for name in case.names():
            value = getattr(case, name)
            if isinstance(value, int) and abs(value) > MAX_SIZE:
                raise ArgumentError(f"{name} of a problem", got=value, need=f"at most {MAX_SIZE}")
        return case

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the fields, the seed last."""
        return (*(entry.name for entry in dataclasses.fields(cls) if entry.name != "seed"), "seed")

    def short(self) -> str:
        """As :meth:`changed` takes it, without what is at its default."""
        defaults = {entry.name: entry.default for entry in dataclasses.fields(self)}
        return ", ".join(
            f"{name}={getattr(self, name)}" for name in self.names() if getattr(self, name) != defaults[name]
        )

    def __str__(self) -> str:
        """As :meth:`changed` takes it."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.names())


@dataclass(frozen=True)
class Output:
    """One array that a kernel writes, and what it should hold.

    Attributes:
        name: for people.
        result: the elements that belong to the problem; read after the launch.
        reference: what they should be; called after the launch.
        bound: what they must keep.
        around: the canvas that the result is in, whose other elements must keep their value.
        triton: the same result, bfloat16 bits, by ``asmlaunch.triton_ref``; None where it has no such kernel.
        decode: values of the result's codes, for formats that numpy has not.
        model: what the reference is computed from, for hypotheses about wrong results; None where that is not known.
    """

    name: str
    result: np.ndarray
    reference: Callable[[], Reference]
    bound: Bound
    around: Canvas | None = None
    triton: Callable[[], np.ndarray] | None = None
    decode: Callable[[np.ndarray], np.ndarray] | None = None
    model: Model | None = None

    def compare(self, before: np.ndarray | None = None, tile: tuple[int, int] | None = None) -> Comparison:
        """The result against its reference; ``before`` and ``tile`` as ``validate.compare`` takes them."""
        decode = self.decode or (lambda codes: codes)
        old = None if before is None else decode(before)
        return compare(decode(self.result), self.reference(), self.bound, before=old, tile=tile)

    def compare_three(self) -> ThreeWay:
        """The result, float64 and Triton's result against each other; for outputs that have one."""
        assert self.triton is not None
        return three_way(self.result, self.triton(), self.reference(), self.bound)


class Canvas:
    """A matrix with rows and columns to spare, whose elements outside the matrix must keep their value.

    Attributes:
        whole: the array that the kernel is given.
        inside: the matrix in it, a view.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        dtype: Any,
        *,
        more_rows: int = 0,
        more_columns: int = 0,
        memory: np.ndarray | None = None,
    ) -> None:
        """
        Args:
            memory: bytes whose first become the array; None makes new ones.
        """
        kind = np.dtype(dtype)
        shape = rows + more_rows, columns + more_columns
        size = shape[0] * shape[1] * kind.itemsize
        taken = np.empty(size, np.uint8) if memory is None else memory[:size]
        # All ones: a NaN for floats, -1 for integers; an element that the kernel does not write fails the comparison.
        taken[...] = 0xFF
        self.whole = taken.view(kind).reshape(shape)
        self.inside = self.whole[:rows, :columns]

    def zeroed(self) -> Canvas:
        """Itself, filled with zeros, for kernels that add to what is there."""
        self.whole[...] = 0
        return self

    def spilled(self, before: np.ndarray) -> int:
        """Elements outside the matrix that are no longer what they were in ``before``, a copy of ``whole``."""
        changed = np.ascontiguousarray(self.whole).view(np.uint8) != np.ascontiguousarray(before).view(np.uint8)
        changed = changed.reshape(*self.whole.shape, -1).any(axis=-1)
        rows, columns = self.inside.shape
        return int(changed.sum() - changed[:rows, :columns].sum())


@dataclass(frozen=True)
class Problem:
    """A problem ready to launch.

    Attributes:
        launches: the arguments of each launch; several run at the same time, as ranks that work together do.
        outputs: what is written.
        options: the emulator's launch options that the kernel needs.
    """

    launches: tuple[Mapping[str, Any], ...]
    outputs: tuple[Output, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    def options_on(self, kernel: Kernel) -> Mapping[str, Any]:
        """What a launch of ``kernel`` needs on its device: ``options``, or nothing on a GPU."""
        return self.options if kernel.device.name == "emulator" else {}


@dataclass(frozen=True)
class Outcome:
    """A problem that was run.

    Attributes:
        case: its sizes.
        comparisons: by output.
        spilled: elements written outside of the outputs, by output.
        launches: what the device says of each launch.
        seconds: wall time from the first launch to the end of the last.
        three: the comparisons with Triton, by output, where they were asked for.
    """

    case: Case
    comparisons: Mapping[str, Comparison]
    spilled: Mapping[str, int]
    launches: tuple[LaunchResult, ...]
    seconds: float
    three: Mapping[str, ThreeWay] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Every element within its bound, by every reference asked for, and nothing written outside."""
        return (
            all(c.passed for c in self.comparisons.values())
            and not any(self.spilled.values())
            and all(one.triton.passed for one in self.three.values())
        )

    @property
    def worst(self) -> str:
        """The output that fails, or the one with the largest error relative to its norm."""
        return max(self.comparisons, key=lambda name: (self._bad(name), self.comparisons[name].norm_error))

    def _bad(self, name: str) -> bool:
        return not self.comparisons[name].passed or self.spilled[name] > 0

    @property
    def instructions(self) -> int | None:
        """Wave-instructions executed, None where the device does not count."""
        counts = [launch.instructions for launch in self.launches]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def findings(self) -> tuple[str, ...]:
        """What the device noticed, each text once."""
        return tuple(dict.fromkeys(str(finding) for launch in self.launches for finding in launch.findings))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: the case's, those of the worst output's comparison, and all outputs'."""
        return {
            "device": self.launches[0].device,
            **dataclasses.asdict(self.case),
            **self.comparisons[self.worst].as_dict(),
            "output": self.worst,
            "outputs": {name: one.as_dict() for name, one in self.comparisons.items()},
            "spilled": dict(self.spilled),
            "passed": self.passed,
            "findings": list(self.findings),
            "instructions": self.instructions,
            "fidelity": [launch.fidelity.to_json() for launch in self.launches if launch.fidelity],
            "seconds": self.seconds,
            **({"references": {name: one.as_dict() for name, one in self.three.items()}} if self.three else {}),
        }


def tile_of(parameters: Parameters) -> tuple[int, int] | None:
    """Rows and columns that one workgroup computes, where the kernel's name states them."""
    rows, columns = parameters.get("tile_m"), parameters.get("tile_n")
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


@dataclass(frozen=True)
class Definition:
    """The problems of one family.

    Attributes:
        family: its kernels, arguments, launch rule and domain.
        files: pattern of the names of its code objects.
        case: the sizes of its problems.
        sizes: the scalar arguments of a case; with the kernel's parameters they decide whether it is in the domain.
        build: operands, arguments, references and bounds of a case.
        cases: the problems that exercise a kernel of these parameters: first a small one that meets every kind of edge
            at once, then what that leaves.
        told_apart: the parameters that a problem depends on; kernels of one machine code that agree in them are run
            once.
        shared_names: whether files of other families have such names too; they are told apart by reading them.
    """

    family: Family
    files: str
    case: type[Case]
    sizes: Callable[[Any, Parameters], Mapping[str, Any]]
    build: Callable[[Any, Parameters], Problem]
    cases: Callable[[Parameters], Sequence[Case]]
    told_apart: Callable[[Parameters], Parameters] = lambda parameters: parameters
    shared_names: bool = False

    def objects(self, folder: str | os.PathLike[str] | None = None) -> list[Path]:
        """Files of the family's code objects, sorted by name; ``folder`` as ``kernels.find_objects`` takes it.

        Raises:
            KernelNotFoundError: no folder to look in, or no such file. CodeObjectError: one that cannot be read.
        """
        found = find_objects(self.files, folder)
        if not self.shared_names:
            return found
        return [path for path in found if any(map(self.family.matches, codeobject.read(path).kernels.values()))]

    @property
    def name(self) -> str:
        """The family's name."""
        return self.family.name

    def parameters(self, kernel: KernelInfo) -> Parameters:
        """The kernel's parameters.

        Raises:
            KernelNotFoundError: a kernel of another family.
        """
        parameters = self.family.parameters(kernel)
        if parameters is None:
            raise KernelNotFoundError(f"kernel {kernel.name}", got="another family", need=f"a kernel of {self.name}")
        return {**parameters, "processor": kernel.target.processor}

    def problem(self, kernel: KernelInfo, case: Case, *, check: bool = True) -> Problem:
        """The problem of these sizes.

        Args:
            check: refuse sizes outside the domain on which the kernel is right.

        Raises:
            KernelNotFoundError: a kernel of another family. DomainError: sizes outside the domain.
            ArgumentError: sizes for which no operands can be made.
        """
        parameters = self.parameters(kernel)
        sizes = self.sizes(case, parameters)
        if check:
            self.family.require(kernel, sizes)
        try:
            problem = self.build(case, parameters)
        except (ValueError, MemoryError, IndexError) as error:
            raise ArgumentError(
                "problem", got=str(case), need=f"sizes that operands can be made of ({error})"
            ) from error
        return dataclasses.replace(problem, launches=tuple({**sizes, **one} for one in problem.launches))

    def run(
        self, kernel: Kernel, case: Case, *, check: bool = True, reference: str = "float64", **options: Any
    ) -> Outcome:
        """Build the problem, launch it, compare every element.

        Args:
            check: as for :meth:`problem`; False also skips the launch's own checks.
            reference: one of ``references.REFERENCES``; ``both`` says which of three results departs.
            options: launch options beside (and over) the ones the kernel needs.

        Raises:
            What :meth:`problem` and ``Kernel.launch`` raise.
        """
        if reference not in REFERENCES:
            raise ArgumentError("reference", got=repr(reference), need=f"one of {', '.join(REFERENCES)}")
        problem = self.problem(kernel.info, case, check=check)
        if reference != "float64" and any(output.triton is None for output in problem.outputs):
            hint = "float64 is there for every problem"
            raise ArgumentError("reference", got=reference, need="a problem that a Triton kernel computes", hint=hint)
        if len(problem.launches) > 1 and kernel.device.name != "emulator":
            raise LaunchError(
                f"{self.name} on {kernel.device.name}", got=f"{len(problem.launches)} ranks", need="the emulator"
            )
        before = {output.name: output.around.whole.copy() for output in problem.outputs if output.around}
        held = {output.name: output.result.copy() for output in problem.outputs}
        tile = tile_of(self.parameters(kernel.info))
        start = time.perf_counter()

        def launch(arguments: Mapping[str, Any]) -> LaunchResult:
            return kernel.launch(arguments, check=check, **{**problem.options_on(kernel), **options})

        if len(problem.launches) == 1:
            results = [launch(problem.launches[0])]
        else:
            with ThreadPoolExecutor(len(problem.launches)) as pool:
                results = list(pool.map(launch, problem.launches))
        seconds = time.perf_counter() - start
        three = {} if reference == "float64" else {output.name: output.compare_three() for output in problem.outputs}
        compared = {
            output.name: output.compare(held[output.name], tile) if not three else three[output.name].kernel
            for output in problem.outputs
        }
        if reference == "triton":
            compared, three = {name: one.between for name, one in three.items()}, {}
        return Outcome(
            case,
            compared,
            {
                output.name: output.around.spilled(before[output.name]) if output.around else 0
                for output in problem.outputs
            },
            tuple(results),
            seconds,
            three,
        )
