"""The sequences of a problem over a paged cache: how many tokens each has, and how many of them ask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from asmlaunch.validate.paged import numbers
from asmlaunch.validate.problems.base import Case


@dataclass(frozen=True)
class Contexts(Case):
    """Sizes that families add their own to.

    Attributes:
        contexts: tokens of each sequence, "1 17 700".
        queries: query tokens of each sequence, repeated: "1 4".
    """

    contexts: str
    queries: str = "1"

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return numbers(self.contexts)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Query tokens of each sequence."""
        return numbers(self.queries, len(self.lengths))
