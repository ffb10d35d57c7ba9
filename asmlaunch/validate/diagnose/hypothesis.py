"""What a hypothesis is: one mistake that could have been made, and what a kernel would have computed then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from asmlaunch.validate.compare import Bound
from asmlaunch.validate.model import Inputs, Model
from asmlaunch.validate.reference import Reference


@dataclass(frozen=True)
class State:
    """What a kernel was given and what became of its result, under some hypotheses.

    Attributes:
        inputs: what it computed with.
        after: what happened to the result, in order.
        rounding: how it was rounded to its type; None for the way that is right.
    """

    inputs: Inputs
    after: tuple[Callable[[Reference], Reference], ...] = ()
    rounding: str | None = None

    def then(self, change: Callable[[Reference], Reference]) -> State:
        """With one more thing happening to the result."""
        return replace(self, after=(*self.after, change))

    def bound(self, bound: Bound) -> Bound:
        """What a result keeps: one cut off instead of rounded may be a whole step away."""
        if self.rounding is None:
            return bound
        return replace(bound, rounding=self.rounding, relative=2 * bound.relative)

    def predict(self, model: Model) -> Reference:
        """The result."""
        return self.finished(model.evaluate(self.inputs))

    def finished(self, reference: Reference) -> Reference:
        """The result, from what the inputs give."""
        for change in self.after:
            reference = change(reference)
        return reference


@dataclass(frozen=True)
class Hypothesis:
    """One mistake.

    Attributes:
        kind: of mistake, "layout" for example; with ``subject`` it names the hypothesis.
        subject: the argument or operand that it is about.
        text: what was done and what would have been right, in one line.
        fix: the line of code that would be right; "" where no line is.
        cost: how unlikely it is: 1 for what happens every week. The search goes from cheap to dear.
        change: what the kernel was given, from what it should have been given. It may raise LayoutError or ValueError
            where the mistake cannot be made with these sizes.
    """

    kind: str
    subject: str
    text: str
    fix: str
    cost: int
    change: Callable[[State], State]
