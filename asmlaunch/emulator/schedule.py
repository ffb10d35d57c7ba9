"""Schedules: in which order workgroups start, and how the waves that are alive take turns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from asmlaunch.errors import LaunchError

#: Blocks a wave runs before the next one's turn, where nothing else ends its turn: a wave that waits for another one's
#: store must not keep it from running.
LONG = 1 << 16

_WORD = (1 << 64) - 1


@dataclass(frozen=True)
class Schedule:
    """One order of events.

    Attributes:
        waits: whether a wave may stop at ``s_waitcnt`` too, and not only at branches and barriers.
        quantum: blocks a wave runs before the next one's turn.
        backwards: the last workgroup starts first, and the last wave has the first turn.
        seed: workgroups start in an order of its own, a wave misses its turn at random, and a turn takes 1 to 16
            blocks; None: nothing is random.
    """

    waits: bool
    quantum: int
    backwards: bool = False
    seed: int | None = None

    @property
    def random(self) -> int:
        """The first state of the random numbers (``turn``); 0 where nothing is random."""
        return 0 if self.seed is None else (self.seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) & _WORD or 1

    def order(self, total: int) -> tuple[int, int]:
        """The number of the first of ``total`` workgroups, and the distance to the next, modulo ``total``."""
        if self.backwards:
            return total - 1, -1
        if self.seed is None or total < 2:
            return 0, 1
        state = self.random
        step = 1 + state % min(total - 1, 1 << 15)
        while math.gcd(step, total) > 1:  # 1 ends this
            step -= 1
        return (state >> 32) % total, step

    def numbers(self, total: int) -> Iterator[int]:
        """The workgroups' numbers in their order."""
        first, step = self.order(total)
        return ((first + step * number) % total for number in range(total))


def turn(state: int) -> tuple[int, bool, int]:
    """The next state of the random numbers (Marsaglia's xorshift), whether the wave misses its turn, and how many
    blocks the turn takes otherwise. ``native.waves`` does the same.
    """
    state ^= state << 13 & _WORD
    state ^= state >> 7
    state ^= state << 17 & _WORD
    return state, bool(state >> 33 & 1), 1 + (state >> 40 & 15)


_NAMED = {
    "barrier": Schedule(waits=False, quantum=LONG),  # each wave to its next barrier: fastest
    "lockstep": Schedule(waits=True, quantum=1),  # all waves advance together, as on the hardware
    "reverse": Schedule(waits=False, quantum=LONG, backwards=True),
}

#: What ``schedule_of`` takes.
SCHEDULES = (*_NAMED, "random(SEED)")


def chosen(names: str | Sequence[str]) -> list[str]:
    """The schedules that a launch asks for: a name, several with commas between them, or a sequence.

    Raises:
        LaunchError: a name that is none.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    for name in wanted or [""]:
        schedule_of(name)
    return wanted


def schedule_of(name: str) -> Schedule:
    """A schedule by its name: one of ``SCHEDULES``.

    Raises:
        LaunchError: another name.
    """
    if name in _NAMED:
        return _NAMED[name]
    if match := re.fullmatch(r"random\((\d{1,19})\)", name):
        return Schedule(waits=True, quantum=1, seed=int(match[1]))
    raise LaunchError("schedule", got=repr(name), need=f"one of {', '.join(SCHEDULES)}, or several with commas")
