"""Why a result is wrong: the mistakes that give it, what speaks for them, and the line that would be right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from asmlaunch.errors import ArgumentError, AsmlaunchError, DomainError
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.compare import Bound, Comparison, compare
from asmlaunch.validate.diagnose import arguments, padding, schedules
from asmlaunch.validate.diagnose.emulated import Emulator, Relaunch
from asmlaunch.validate.diagnose.search import Executions, Explanation, Predictions, Tried, Wrong
from asmlaunch.validate.model import Model
from asmlaunch.validate.reference import Reference

if TYPE_CHECKING:
    from asmlaunch.module import Kernel
    from asmlaunch.validate.diagnose.origin import Origin
    from asmlaunch.validate.problems.base import Case, Definition, Output, Problem

PAIRS = 2000
"""Pairs of mistakes tried where no single one gives the result."""

_FEW = 4  # wrong elements: a chance hit explains fewer
_CHANCE = 0.05  # of the wrong elements are as predicted by chance


@dataclass(frozen=True)
class Diagnosis:
    """What is known of a wrong result.

    Attributes:
        comparison: the result against the reference.
        explanations: mistakes that give the whole result, the likeliest first.
        confidence: "right" where nothing is wrong; "high" if the explanations agree on what the mistake is about and
            reproduce numbers; "medium" if several do that this result cannot tell apart, or few numbers speak for it;
            "low" if the best explains a part only; "none".
        closest: where nothing explains the whole, what explains most of the wrong elements; None if that is chance.
        tried: hypotheses evaluated, pairs among them.
        notes: what else was found, and what was not tried and why.
        origin: where the first wrong element comes from, where nothing explains the whole.
    """

    comparison: Comparison
    explanations: tuple[Explanation, ...] = ()
    confidence: str = "none"
    closest: Explanation | None = None
    tried: int = 0
    notes: tuple[str, ...] = ()
    origin: Origin | None = None

    @property
    def first(self) -> Explanation | None:
        """The likeliest explanation of the whole result."""
        return self.explanations[0] if self.explanations else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "comparison": self.comparison.as_dict(),
            "confidence": self.confidence,
            "explanations": [one.as_dict() for one in self.explanations],
            "closest": self.closest.as_dict() if self.closest else None,
            "tried": self.tried,
            "notes": list(self.notes),
            "origin": self.origin.as_dict() if self.origin else None,
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The answer, a line each."""
        if self.confidence == "right":
            yield f"right: {self.comparison}"
            return
        if self.first is not None:
            yield self.first.text
            yield f"  confidence: {self.confidence}; {_evidence(self.first)}"
            if self.first.fix:
                yield f"  right would be: {self.first.fix}"
            by_subject: dict[Any, Explanation] = {}
            for one in self.explanations:
                by_subject.setdefault(one.about, one)
            others = [one for about, one in by_subject.items() if about != self.first.about]
            for one in others[:4]:
                yield f"  the same result follows if {one.text}"
            if len(others) > 4:
                yield f"  and {len(others) - 4} more"
        else:
            yield f"none of {self.tried} hypotheses explains it"
            if self.closest is not None:
                yield f"  closest ({self.closest.explained:.1%} of the wrong elements): {self.closest.text}"
        yield f"  errors: {self.comparison.structure}"
        for kind, count in self.comparison.kinds.items():
            yield f"  {count} of the wrong elements are {kind}"
        if self.origin is not None:
            yield f"  the first wrong element: {self.origin}"
        for note in self.notes:
            yield f"  {note}"


def _evidence(one: Explanation) -> str:
    if not one.whole:
        return f"on the emulator {one.explained:.1%} of the wrong elements are wrong too"
    how = "the reference on these inputs" if one.how == "float64" else "this launch on the emulator"
    return f"{how} reproduces the whole result"


def explain(
    model: Model,
    result: np.ndarray,
    bound: Bound,
    *,
    before: np.ndarray | None = None,
    tile: tuple[int, int] | None = None,
    pairs: int = PAIRS,
    advance: Callable[[], Any] = lambda: None,
) -> Diagnosis:
    """Explain a result by its model alone, without a kernel: mistakes in layouts, formats, factors, order and sums.

    Args:
        model: what should have been computed.
        result, bound, before, tile: as ``validate.compare`` takes them.
        pairs: how many pairs of mistakes to try where no single one gives the result.
        advance: called for every pair.

    Raises:
        What ``validate.compare`` raises.
    """
    reference = model.reference()
    comparison = compare(result, reference, bound, before=before, tile=tile)
    if comparison:
        return Diagnosis(comparison, confidence="right")
    predictions = Predictions(model, _wrong(result, bound, reference, before))
    found, states = predictions.singles()
    if not any(one.whole for one in found):
        found += predictions.pairs(states, pairs, advance)
    return _concluded(comparison, result, found, predictions.tried, ())


def diagnose(
    definition: Definition,
    kernel: Kernel,
    case: Case,
    result: np.ndarray | None = None,
    *,
    output: str | None = None,
    before: np.ndarray | None = None,
    pairs: int = PAIRS,
    emulate: bool = True,
    advance: Callable[[], Any] = lambda: None,
    **options: Any,
) -> Diagnosis:
    """Explain a result of a declared problem.

    Hypotheses about operands are evaluated in float64, those about arguments, padding and schedules executed on the
    emulator, each on the problem's own operands.

    Args:
        definition: of the kernel's family.
        kernel: on any device.
        case: the problem; its operands are those that the result was computed from.
        result: what a kernel made of it; None runs ``kernel`` on its device.
        output: name of the output that it is; None for the first, or with ``result`` None the first that is wrong.
        before: what the result's memory held before the launch; None for what the problem's has.
        pairs: how many pairs of mistakes to try where no single one gives the result.
        emulate: also execute hypotheses on the emulator.
        advance: called for every pair and every execution.
        options: of the launch that makes the result.

    Raises:
        ArgumentError: no output of that name, or sizes of which no operands can be made. MismatchError: a result of
            another shape. What ``Kernel.launch`` raises, with ``result`` None.
    """
    problem = definition.problem(kernel.info, case, check=False)
    number = _number(problem, output)
    if result is None:
        number, result = _run(definition, kernel, case, output, number, options)
    chosen = problem.outputs[number]
    old = chosen.result.copy() if before is None else before
    tile = _tile(definition, kernel)
    before_and_after = [_decoded(chosen, one) for one in (old, result)]
    reference = chosen.reference()
    comparison = compare(before_and_after[1], reference, chosen.bound, before=before_and_after[0], tile=tile)
    if comparison:
        return Diagnosis(comparison, confidence="right")
    notes: list[str] = []
    found: list[Explanation] = []
    states: list[Tried] = []
    predictions = executions = None
    if chosen.model is None:
        notes.append(f"no model of {definition.name} is declared: layouts, formats, factors and sums were not tried")
    else:
        predictions = Predictions(chosen.model, _wrong(result, chosen.bound, reference, before))
        singles, states = predictions.singles()
        found += singles
    if emulate and chosen.decode is None:
        try:
            executions = Executions(
                Emulator(kernel, definition.problem(kernel.info, case, check=False)),
                Wrong(result, chosen.bound, reference), number,
            )  # fmt: skip
        except AsmlaunchError as error:
            notes.append(f"nothing was executed on the emulator: {error}")
    if executions is not None:
        found += executions.singles(_launches(chosen, executions.emulator), advance)
        notes += _reproduced(definition, kernel, case, executions, found)
    if predictions is not None and not any(one.whole for one in found):
        found += predictions.pairs(states, pairs, advance)
    tried = sum(one.tried for one in (predictions, executions) if one is not None)
    diagnosis = _concluded(comparison, result, found, tried, tuple(notes))
    if diagnosis.first is None and executions is not None:
        return _traced(diagnosis, chosen, executions, before_and_after, tile)
    return diagnosis


def _traced(
    diagnosis: Diagnosis,
    output: Output,
    executions: Executions,
    before_and_after: list[np.ndarray],
    tile: tuple[int, int] | None,
) -> Diagnosis:
    """With the errors' structure by waves and lanes too, and the way of the first wrong element."""
    from asmlaunch.validate.diagnose.origin import Marks, can_trace, trace

    emulator, number = executions.emulator, executions.output
    if not can_trace(emulator, number):
        return diagnosis
    before, after = before_and_after
    first = tuple(int(i) for i in np.argwhere(executions.wrong.elements)[0])
    try:
        labels = Marks(emulator, number).labels()
        found = trace(emulator, number, first, output.model)
    except AsmlaunchError as error:
        return replace(diagnosis, notes=(*diagnosis.notes, f"the first wrong element was not traced: {error}"))
    reference = executions.wrong.reference
    comparison = compare(after, reference, output.bound, before=before, tile=tile, labels=labels)
    return replace(diagnosis, comparison=comparison, origin=found)


def _run(
    definition: Definition, kernel: Kernel, case: Case, output: str | None, number: int, options: dict[str, Any]
) -> tuple[int, np.ndarray]:
    """Run the kernel on a fresh problem: the number of the output to look at and its result."""
    problem = definition.problem(kernel.info, case, check=False)
    if len(problem.launches) != 1:
        raise ArgumentError("result", got="none", need=f"one, for a problem of {len(problem.launches)} launches")
    kernel.launch(problem.launches[0], check=False, **{**problem.options_on(kernel), **options})
    if output is None:
        wrong = (n for n, one in enumerate(problem.outputs) if not one.compare())
        number = next(wrong, number)
    return number, problem.outputs[number].result.copy()


def _launches(output: Output, emulator: Emulator) -> Iterator[Relaunch]:
    yield from schedules.hypotheses(emulator)
    if output.model is not None:
        yield from padding.hypotheses(output.model, emulator)
    yield from arguments.hypotheses(emulator, output.model)


def _reproduced(
    definition: Definition, kernel: Kernel, case: Case, executions: Executions, found: list[Explanation]
) -> list[str]:
    """What follows when the launch as it should be gives the wrong result as well; a broken rule of the family's domain
    goes to ``found``."""
    try:
        definition.family.require(kernel.info, definition.sizes(case, definition.parameters(kernel.info)))
    except DomainError as error:
        outside: DomainError | None = error
    else:
        outside = None
    overlap, whole = executions.reproduced()
    if outside is not None and overlap > 0.5:
        fix = outside.hint or f"{outside.what.split()[0]}: {outside.need}"
        rule = Relaunch("domain", outside.what.split()[0], str(outside), fix, 0, lambda launch: launch)
        found.insert(0, Explanation((rule,), 1.0 if whole else overlap, whole, "emulator"))
        return []
    if outside is not None:
        return [f"outside the kernel's domain: {outside}"]
    if whole:
        return ["the launch as declared gives this result on the emulator too: look at the kernel and its domain"]
    return []


def _concluded(
    comparison: Comparison, result: np.ndarray, found: list[Explanation], tried: int, notes: tuple[str, ...]
) -> Diagnosis:
    whole = [one for one in found if one.whole or one.mistakes[0].kind == "domain"]
    whole.sort(key=lambda one: (len(one.mistakes), one.cost))
    if whole:
        numbers = np.count_nonzero(np.isfinite(to_float64(result)))
        wrong = comparison.beyond or comparison.elements
        outside = whole[0].mistakes[0].kind == "domain"
        agree = whole[0].whole and (outside or len({one.about for one in whole}) == 1)
        sure = agree and wrong >= _FEW and numbers >= max(_FEW, comparison.elements / 20)
        return Diagnosis(comparison, tuple(whole), "high" if sure else "medium", None, tried, notes)
    closest = max(found, key=lambda one: (one.explained, -one.cost), default=None)
    if closest is None or closest.explained < _CHANCE:
        return Diagnosis(comparison, (), "none", None, tried, notes)
    if closest.explained < 0.5:
        return Diagnosis(comparison, (), "none", closest, tried, notes)
    return Diagnosis(comparison, (), "low", closest, tried, notes)


def _wrong(result: np.ndarray, bound: Bound, reference: Reference, before: np.ndarray | None) -> Wrong:
    return Wrong(result, bound, reference, None if before is None else to_float64(before))


def _number(problem: Problem, output: str | None) -> int:
    names = [one.name for one in problem.outputs]
    if output is None:
        return 0
    if output not in names:
        raise ArgumentError("output", got=repr(output), need=f"one of {', '.join(names)}")
    return names.index(output)


def _tile(definition: Definition, kernel: Kernel) -> tuple[int, int] | None:
    from asmlaunch.validate.problems.base import tile_of

    return tile_of(definition.parameters(kernel.info))


def _decoded(output: Output, codes: np.ndarray) -> np.ndarray:
    return output.decode(codes) if output.decode else codes
