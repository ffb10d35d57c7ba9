"""Composition of two layouts into one."""

from __future__ import annotations

import math
from itertools import count

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.layout import Layout

Axes = list[tuple[str, "int | None"]]
Match = tuple["int | None", str, str]


def compose(first: Layout, second: Layout) -> Layout:
    """``second`` applied to the result of ``first`` (a tensor of the same shape), as one layout.

    Each dimension of ``second`` must be a whole run of ``first``'s axes in memory. The two ways of splitting it are
    refined until they agree; then the axes of the result are those common parts.

    Raises:
        LayoutError: different ranks or element sizes, or memory orders that do not fit.
    """
    if (first.rank, first.itemsize) != (second.rank, second.itemsize):
        raise LayoutError(
            f"composition of {first.label} and {second.label}",
            got=f"rank {first.rank} of {first.itemsize} bytes and rank {second.rank} of {second.itemsize} bytes",
            need="equal ranks and element sizes",
        )
    sizes: dict[str, int] = {}
    in_first: dict[str, list[str]] = {axis: [] for axis in first.order}
    in_second: dict[str, list[str]] = {axis: [] for axis in second.order}
    rest, numbers = list(first.order), count()
    for dimension in reversed(range(first.rank)):
        ours = _take(first, second, rest, dimension)
        outer, core, inner = _matches(
            [(axis, first.sizes.get(axis)) for axis in reversed(ours)],
            [(axis, second.sizes.get(axis)) for axis in reversed(second.groups[dimension])],
            f"composition of {first.label} and {second.label}",
        )
        for size, a, b in [*outer, core, *reversed(inner)]:
            name = f"a{next(numbers)}"
            in_first[a].append(name)
            in_second[b].append(name)
            if size is not None:
                sizes[name] = size
    dims = ["(" + " ".join(name for axis in group for name in in_first[axis]) + ")" for group in first.groups]
    order = " ".join(name for axis in second.order for name in in_second[axis])
    return Layout(f"{' '.join(dims)} -> {order}", sizes, pad_value=second.pad_value, itemsize=first.itemsize)


def _take(first: Layout, second: Layout, rest: list[str], dimension: int) -> list[str]:
    """Take off the end of ``rest`` the axes of ``first`` that make up the extent of ``dimension``."""
    free = next(axis for axis in first.groups[dimension] if axis not in first.sizes)
    run: list[str] = []
    while rest and (free not in run or math.prod(first.sizes.get(a, 1) for a in run) < first.tile[dimension]):
        run.insert(0, rest.pop())
    others = [axis for axis in run if axis not in first.sizes and axis != free]
    if others or free not in run or math.prod(first.sizes.get(a, 1) for a in run) != first.tile[dimension]:
        raise LayoutError(
            f"composition of {first.label} and {second.label}",
            got=f"memory order {' '.join(first.order)}",
            need=f"the extent of dimension {dimension} as a run of whole axes",
        )
    return run


def _matches(ours: Axes, theirs: Axes, what: str) -> tuple[list[Match], Match, list[Match]]:
    """The common parts of two factorings of one extent, given fastest axis first: those above the free part (slowest
    first), the free part, and those below it (fastest first)."""
    ours, theirs = ([axis for axis in axes if axis[1] != 1] for axes in (ours, theirs))
    inner = _from_one_end(ours, theirs, what)
    ours.reverse()
    theirs.reverse()
    outer = _from_one_end(ours, theirs, what)
    return outer, (None, ours[0][0], theirs[0][0]), inner


def _from_one_end(ours: Axes, theirs: Axes, what: str) -> list[Match]:
    """Match axes from the front of both lists, which are used up to where both are free."""
    found: list[Match] = []
    while ours[0][1] is not None or theirs[0][1] is not None:
        (a, size_a), (b, size_b) = ours[0], theirs[0]
        factor = math.gcd(size_a or size_b or 1, size_b or size_a or 1)
        if factor == 1:
            raise LayoutError(what, got=f"axes {a}={size_a} and {b}={size_b}", need="sizes that divide one another")
        found.append((factor, a, b))
        for axes, (name, size) in ((ours, (a, size_a)), (theirs, (b, size_b))):
            if size == factor:
                axes.pop(0)
            elif size is not None:
                axes[0] = (name, size // factor)
    return found
