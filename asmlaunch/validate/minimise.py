"""The smallest problem that still fails in the same way: sizes first, then inputs that are not zero, then arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from asmlaunch.errors import AsmlaunchError, MismatchError
from asmlaunch.validate.compare import Comparison, compare
from asmlaunch.validate.problems.base import Case, Definition, Parameters, Problem, tile_of

if TYPE_CHECKING:
    from asmlaunch.module import Kernel

RUNS = 400
"""Launches that a search may take."""


@dataclass(frozen=True)
class Minimised:
    """A failing problem, and the smallest found that fails in the same way.

    Attributes:
        start: the problem as given.
        case: the smallest sizes.
        nonzero: elements of each operand that are still not zero, by argument.
        elements: elements of each operand.
        kept: the indices of those that are not zero, up to eight an operand.
        comparison: its result.
        runs: launches it took.
        failure: the way in which it fails.
    """

    start: Case
    case: Case
    nonzero: Mapping[str, int]
    elements: Mapping[str, int]
    kept: Mapping[str, tuple[tuple[int, ...], ...]]
    comparison: Comparison | None
    runs: int
    failure: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "start": str(self.start),
            "case": str(self.case),
            "nonzero": dict(self.nonzero),
            "elements": dict(self.elements),
            "kept": {name: [list(index) for index in indices] for name, indices in self.kept.items()},
            "comparison": self.comparison.as_dict() if self.comparison else None,
            "runs": self.runs,
            "failure": self.failure,
        }

    def __str__(self) -> str:
        lines = [f"smallest that fails ({self.failure}): {self.case.short() or self.case}, after {self.runs} launches"]
        for name, count in self.nonzero.items():
            where = ", ".join(map(str, self.kept[name]))
            shown = f": {where}{', ...' if count > len(self.kept[name]) else ''}" if count < self.elements[name] else ""
            lines.append(f"  {name}: {count} of {self.elements[name]} elements are not zero{shown}")
        if self.comparison is not None and self.comparison.structure is not None and self.comparison.structure.axes:
            lines.append(f"  {self.comparison.structure}")
        return "\n".join(lines)


def minimise(
    definition: Definition,
    kernel: Kernel,
    case: Case,
    *,
    change: Callable[[dict[str, Any]], Any] | None = None,
    runs: int = RUNS,
    **options: Any,
) -> Minimised:
    """Shrink a failing problem: its sizes, then its inputs that are not zero, then its other numbers.

    Two failures are alike if the same output is wrong and most of its wrong elements are alike: NaN, not written, or
    other values; or if the launch ends with the same kind of error. Problems inside the kernel's domain stay there.

    Args:
        definition, kernel, case: as for ``diagnose``.
        change: the mistake, where the declared launch is right: it changes the arguments, by name, of each launch.
        runs: launches that the search may take.
        options: of each launch.

    Raises:
        MismatchError: a problem that does not fail. ArgumentError: sizes of which no operands can be made.
    """
    search = _Search(definition, kernel, change, runs, options)
    search.failure, search.comparison = search.attempt(definition.problem(kernel.info, case, check=False), {})
    if not search.failure:
        raise MismatchError("problem to minimise", got=f"{case}, which passes", need="one that fails")
    search.inside = search.allowed(case, check=True)
    smallest = search.shrink_sizes(case)
    values = search.shrink_inputs(smallest)
    smallest = search.shrink_rest(smallest, values)
    kept = {name: np.argwhere(array != 0) for name, array in values.items()}
    return Minimised(
        case,
        smallest,
        {name: len(indices) for name, indices in kept.items()},
        {name: array.size for name, array in values.items()},
        {name: tuple(tuple(map(int, one)) for one in indices[:8]) for name, indices in kept.items()},
        search.comparison,
        search.runs,
        search.failure,
    )


class _Search:
    def __init__(
        self,
        definition: Definition,
        kernel: Kernel,
        change: Callable[[dict[str, Any]], Any] | None,
        most: int,
        options: Mapping[str, Any],
    ) -> None:
        self._definition, self._kernel, self._change, self._most = definition, kernel, change, most
        self._options = options
        self._parameters: Parameters = definition.parameters(kernel.info)
        self.runs = 0
        self.failure = ""
        self.inside = False
        self.comparison: Comparison | None = None

    def allowed(self, case: Case, check: bool) -> bool:
        """Whether operands of these sizes can be made, and with ``check`` the kernel is right on them."""
        try:
            self._definition.problem(self._kernel.info, case, check=check)
        except AsmlaunchError:
            return False
        return True

    def attempt(self, problem: Problem, values: Mapping[str, np.ndarray]) -> tuple[str, Comparison | None]:
        """Launch a problem with some operands replaced: the way in which it fails, "" where it passes."""
        self.runs += 1
        arguments = dict(problem.launches[0])
        outputs = problem.outputs
        for name, array in values.items():
            model = outputs[0].model
            assert model is not None
            arguments[name] = model.operands[name].stored(array).reshape(np.shape(arguments[name]))
        if self._change is not None:
            self._change(arguments)
        before = [None if one.around is None else one.around.whole.copy() for one in outputs]
        held = [one.result.copy() for one in outputs]
        try:
            self._kernel.launch(arguments, check=False, **{**problem.options_on(self._kernel), **self._options})
        except AsmlaunchError as error:
            return type(error).__name__, None
        for one, old, start in zip(outputs, held, before, strict=True):
            if values and one.model is not None:
                reference = one.model.evaluate(one.model.inputs.with_values(**values))
                found = compare(one.result, reference, one.bound, before=old, tile=tile_of(self._parameters))
            else:
                found = one.compare(old, tile_of(self._parameters))
            if not found:
                counts = {"NaN": found.nan, "nothing written": found.unwritten}
                counts["wrong values"] = max(found.beyond, 1) - sum(counts.values())
                return f"{one.name}: {max(counts, key=lambda kind: counts[kind])}", found
            if one.around is not None and start is not None and one.around.spilled(start):
                return f"{one.name}: elements outside of it are written", found
        return "", None

    def fails_alike(self, case: Case, values: Mapping[str, np.ndarray]) -> bool:
        """Whether the problem fails in the way the first one did; its comparison is kept then."""
        if self.runs >= self._most:
            return False
        try:
            problem = self._definition.problem(self._kernel.info, case, check=self.inside)
            failure, comparison = self.attempt(problem, values)
        except AsmlaunchError:  # no such problem, or a bound that says nothing about it
            return False
        if failure == self.failure:
            self.comparison = comparison
        return failure == self.failure

    def shrink_sizes(self, case: Case) -> Case:
        """Each size as small as it gets, over and over until none gets smaller."""
        while True:
            before = case
            for name in case.names():
                if name != "seed" and isinstance(getattr(case, name), int):
                    case = self._shrink(case, name)
            if case == before:
                return case

    def _shrink(self, case: Case, name: str) -> Case:
        value = getattr(case, name)
        for smaller in _smaller(value):
            changed = dataclasses.replace(case, **{name: smaller})
            if self.fails_alike(changed, {}):
                return changed
        return case

    def shrink_inputs(self, case: Case) -> dict[str, np.ndarray]:
        """Operands in which as much as possible is zero (or, of scales, 1); none where no model is declared."""
        problem = self._definition.problem(self._kernel.info, case, check=False)
        model = problem.outputs[0].model
        if model is None or len(problem.outputs) != 1:
            return {}
        outputs = {name for name, array in problem.launches[0].items() if array is _whole(problem)}
        values = {name: one.values.copy() for name, one in model.operands.items() if name not in outputs}
        for name, operand in model.operands.items():
            if operand.neutral is not None and name in values:
                self._accept(case, values, name, np.full_like(operand.values, operand.neutral))
        for name, operand in model.operands.items():
            if operand.neutral is None and name in values:
                for axis in range(operand.values.ndim):
                    self._thin_out(case, values, name, axis)
        return values

    def _accept(self, case: Case, values: dict[str, np.ndarray], name: str, array: np.ndarray) -> bool:
        if np.array_equal(array, values[name]) or not self.fails_alike(case, {**values, name: array}):
            return False
        values[name] = array
        return True

    def _thin_out(self, case: Case, values: dict[str, np.ndarray], name: str, axis: int) -> None:
        """Zero halves, quarters, ... of the positions along an axis (delta debugging by complements)."""
        others = tuple(i for i in range(values[name].ndim) if i != axis)
        left = np.flatnonzero((values[name] != 0).any(axis=others)).tolist()
        size = len(left) // 2
        while size:
            position = 0
            while position < len(left) > 1:
                tried = values[name].copy()
                index: list[Any] = [slice(None)] * tried.ndim
                index[axis] = left[position : position + size]
                tried[tuple(index)] = 0
                if self._accept(case, values, name, tried):
                    del left[position : position + size]
                else:
                    position += size
            size //= 2

    def shrink_rest(self, case: Case, values: Mapping[str, np.ndarray]) -> Case:
        """The numbers that have a default, such as factors and padding, at their default where it still fails."""
        for entry in dataclasses.fields(case):
            usual = entry.default
            if entry.name == "seed" or usual is dataclasses.MISSING or getattr(case, entry.name) == usual:
                continue
            changed = dataclasses.replace(case, **{entry.name: usual})
            if self._same_operands(changed, values) and self.fails_alike(changed, values):
                case = changed
        return case

    def _same_operands(self, case: Case, values: Mapping[str, np.ndarray]) -> bool:
        """Whether the operands of other numbers have the shapes of the thinned out ones."""
        if not self.allowed(case, check=self.inside):
            return False
        model = self._definition.problem(self._kernel.info, case, check=False).outputs[0].model
        return model is None or all(model.operands[name].values.shape == one.shape for name, one in values.items())


def _whole(problem: Problem) -> np.ndarray | None:
    around = problem.outputs[0].around
    return None if around is None else around.whole


def _smaller(value: int) -> Iterator[int]:
    """Numbers to try in place of a size, the smallest first: powers of two, then what is a power of two less."""
    powers: Sequence[int] = [1 << power for power in range(value.bit_length()) if 1 << power < value]
    yield from powers
    yield from sorted({value - power for power in powers if value - power > 0} - set(powers))
