"""Which entry of an operand reaches which element of the result: the operand's memory layout, by experiment.

All operands are ones, but for two. The *anchor* (A, or B when A is probed) holds 1, 2, 4, 8 at four entries of K and
zeros elsewhere, so that a result tells which of these four K the other operand contributed to. The *probed* operand
holds, in launch b, bit b of each entry's own address. So a result of 5 in launch 3 says that bit 3 is set in the
addresses of the first and the third. log2(n) launches find the place of n entries, times the passes that it takes to
select every K, plus two: with all ones (what is reached at all) and with all zeros (what does not come from there).

K is counted as the anchor stores it: a permutation of K in both operands cannot be seen in any result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch import layouts
from asmlaunch.errors import ArgumentError, LayoutError
from asmlaunch.layouts.layout import Layout
from asmlaunch.layouts.plot import draw
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.probe import paged
from asmlaunch.validate.probe.contraction import Contraction, Operand, contraction_of
from asmlaunch.validate.probe.fit import known_as, layout_of, same_at
from asmlaunch.validate.probe.rig import Rig, declared

Sizes = tuple[int, int, int]

#: Rows and columns of a picture of addresses that no pattern describes.
_DRAWN = (32, 16)


@dataclass(frozen=True)
class LayoutProbe:
    """What a layout probe found.

    Attributes:
        kernel: its name.
        operand, anchor: arguments: the one probed, the one that K is counted by.
        sizes: m, n, k of the problem; of a paged cache tokens, heads and width of a block.
        addresses: ``[rows, entries along K]``, in entries; -1 where none was found.
        entries: entries in the operand's memory.
        itemsize: bytes of an entry.
        depth: elements of K an entry covers; 0 for a factor of the whole sum.
        shared: rows that share an entry.
        layout: the pattern that makes these addresses; None where there is none.
        known: names of the layouts that are the same.
        confirmed: sizes of a second problem in which every address is where the pattern puts it; None without one.
        order: for two elements an entry, ``"same"`` or ``"swapped"``: the order against that of the anchor.
        launches: how many it took.
        notes: what went wrong, what could not be read.
        seconds: wall time.
    """

    kernel: str
    operand: str
    anchor: str
    sizes: Sizes
    addresses: np.ndarray
    entries: int
    itemsize: int
    depth: int
    shared: int
    layout: Layout | None
    known: tuple[str, ...]
    confirmed: Sizes | None
    order: str
    launches: int
    notes: tuple[str, ...]
    seconds: float

    def __bool__(self) -> bool:
        """Whether a pattern was found and confirmed."""
        return self.layout is not None and self.confirmed is not None

    @property
    def unreached(self) -> int:
        """Entries of the operand that no result depends on."""
        return self.entries - len(np.unique(self.addresses[self.addresses >= 0]))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the addresses of what no pattern describes among them."""
        layout = self.layout
        return {
            "kernel": self.kernel,
            "operand": self.operand,
            "anchor": self.anchor,
            "sizes": list(self.sizes),
            "pattern": layout and layout.pattern,
            "axes": layout and dict(layout.sizes),
            "address": layout and layout.formula(),
            "known": list(self.known),
            "confirmed": self.confirmed and list(self.confirmed),
            "entry_bytes": self.itemsize,
            "entry_k": self.depth,
            "shared_rows": self.shared,
            "element_order": self.order,
            "entries": self.entries,
            "unreached": self.unreached,
            "launches": self.launches,
            "notes": list(self.notes),
            "seconds": self.seconds,
            **({} if layout else {"addresses": self.addresses.tolist()}),
        }

    def lines(self) -> list[tuple[str, str]]:
        """What it found, as (what, text)."""
        layout = self.layout
        m, n, k = self.sizes
        depth = f"{self.depth} of K" if self.depth else "the whole sum"
        cache = self.operand in ("K", "V")
        anchor = f"columns as in {self.anchor}" if cache else f"K as {self.anchor} stores it"
        rows = f" and {self.shared} rows" if self.shared > 1 else ""
        found = [
            ("operand", f"{self.operand} of {self.kernel}, {anchor}"),
            ("pattern", repr(layout)[len("<Layout ") : -1] if layout else "none that is a permutation of axes"),
            ("known as", ", ".join(self.known) or "no named layout"),
            ("address", layout.formula() if layout else ""),
            ("entry", f"{self.itemsize} bytes" + ("" if cache else f" for {depth}{rows}")),
            ("elements", f"two an entry, order {self.order}" if self.order else ""),
            ("by", f"{self.launches} launches at {m}x{n}x{k}, {self.entries} entries, {self.unreached} reach nothing"),
            ("confirmed", "x".join(map(str, self.confirmed)) if self.confirmed else "no"),
            *(("note", note) for note in self.notes),
        ]
        return [(what, text) for what, text in found if text]

    def picture(self, form: str = "text") -> str | bytes:
        """The addresses, drawn: of one tile where there is a pattern, else of the first rows and columns."""
        if self.layout is not None:
            return self.layout.plot(form)
        rows, columns = _DRAWN
        return draw(self.addresses[:rows, :columns], f"{self.operand}: no pattern", form)


def probe_layout(
    kernel: Kernel, operand: str, *, against: str | None = None, sizes: Sizes | None = None, **options: Any
) -> LayoutProbe:
    """Find the layout that a kernel reads an operand in.

    Args:
        kernel: of a family of matrix products, or of paged attention (K and V, a block of 16 tokens).
        operand: the argument, such as ``"ScaleA"``.
        against: the anchor; by default A, and B for A itself. Its own layout is the one its argument declares.
        sizes: m, n, k of the first problem; by default the family's.
        options: launch options of the device.

    Raises:
        KernelNotFoundError: another family. ArgumentError: no such operand, an anchor of unknown layout, or sizes for
            which no operands can be made.
    """
    start = time.perf_counter()
    if kernel.family is not None and kernel.family.name == "pa":
        return _probe_cache(kernel, operand, start, options)
    contraction = contraction_of(kernel)
    operand = _name(kernel, contraction, operand)
    left, right = contraction.factors
    anchor = _name(kernel, contraction, against) if against else (right if operand == left else left)
    if anchor == operand or anchor not in contraction.factors:
        raise ArgumentError("anchor of a layout probe", got=anchor, need=f"the other one of {left} and {right}")
    first, second = contraction.sizes(declared(kernel).parameters(kernel.info))
    found = _Search(kernel, contraction, operand, anchor, sizes or first, options)
    addresses, notes = found.addresses(), found.notes
    item = np.dtype(found.probed.codes.dtype).itemsize
    shared = _shared(addresses)
    layout = layout_of(addresses[::shared], item) if (addresses >= 0).all() else None
    if layout is not None and known_as(layout):
        names = known_as(layout)
        layout = layouts.LAYOUTS.get(names[0], layout)
    launches, confirmed = found.launches, None
    if layout is not None:
        again = _Search(kernel, contraction, operand, anchor, second, options)
        other = again.addresses()[::shared]
        index = tuple(np.indices(other.shape))
        if np.array_equal(other, layout.address(index, other.shape)):
            confirmed = second
        else:
            notes += [*again.notes, f"at {'x'.join(map(str, second))} the addresses are others"]
        launches += again.launches
    order = found.order()
    return LayoutProbe(
        kernel.name, operand, anchor, found.sizes, addresses, found.entries, item, found.probed.depth, shared, layout,
        known_as(layout) if layout is not None else (), confirmed, order, launches, tuple(notes),
        time.perf_counter() - start,
    )  # fmt: skip


def _probe_cache(kernel: Kernel, operand: str, start: float, options: dict[str, Any]) -> LayoutProbe:
    """:func:`probe_layout` for keys and values of paged attention: one block, confirmed by another."""
    name = kernel.schema[operand].name.removeprefix("ptr_")
    if name not in ("K", "V"):
        raise ArgumentError("operand", got=operand, need="K or V")
    addresses, again, entries, notes, launches = paged.locate(kernel, name, **options)
    item = 2 if declared(kernel).parameters(kernel.info)["cache"] == "noquant" else 1
    layout = layout_of(addresses, item) if (addresses >= 0).all() else None
    known = known_as(layout) if layout is not None else ()
    if layout is not None and not known:
        # A block may be too small to show all of the pattern: 16 tokens of which 16 lie together.
        known = tuple(one for one in same_at(addresses, item) if one.startswith("paged"))
        notes += [f"{known[0]} is the same in a block of {len(addresses)} tokens"] if known else []
    if layout is not None and known:
        layout = layouts.LAYOUTS.get(known[0], layout)
    tokens, width = addresses.shape
    sizes = (tokens, 1, width)
    confirmed = sizes if layout is not None and np.array_equal(addresses, again) else None
    return LayoutProbe(
        kernel.name, name, "Q" if name == "K" else "O", sizes, addresses, entries, item, 1, 1, layout, known, confirmed,
        "", launches, tuple(notes), time.perf_counter() - start,
    )  # fmt: skip


def _name(kernel: Kernel, contraction: Contraction, name: str) -> str:
    """The operand called ``name``, by any name its argument has."""
    wanted = kernel.schema[name].name
    for one in contraction.operands:
        if kernel.schema[one].name == wanted:
            return one
    raise ArgumentError("operand", got=name, need=f"one of {', '.join(contraction.operands)}")


class _Search:
    """The launches at one size."""

    def __init__(
        self,
        kernel: Kernel,
        contraction: Contraction,
        operand: str,
        anchor: str,
        sizes: Sizes,
        options: dict[str, Any],
    ) -> None:
        self.sizes, self.launches = sizes, 0
        self.notes: list[str] = []
        self.probed, self._anchor = contraction.operands[operand], contraction.operands[anchor]
        m, n, k = sizes
        self._rig = Rig(kernel, declared(kernel).case(m=m, n=n, k=k), **options)  # type: ignore[call-arg]
        arrays = {name: self._rig.arrays[kernel.schema[name].name] for name in contraction.operands}
        for name, one in contraction.operands.items():
            _entries(arrays[name], one)[:] = one.codes.one
        for name in contraction.zeroed:
            self._rig.arrays[kernel.schema[name].name][...] = 0
        self._memory = _entries(arrays[operand], self.probed)
        self._anchor_memory = _entries(arrays[anchor], self._anchor)
        self._anchor_layout = _declared_layout(kernel, anchor)
        if self.probed.depth and self.probed.depth % self._anchor.depth:
            raise ArgumentError("anchor of a layout probe", got=f"entries of {self._anchor.depth} K", need="finer ones")
        self.entries = self._memory.size
        self._rows = sizes[self.probed.rows]
        self._units = -(-k // self.probed.depth) if self.probed.depth else 1
        self._weights = self._anchor.codes.weights if self._units > 1 else self._anchor.codes.weights[:1]

    def addresses(self) -> np.ndarray:
        """``[rows, units]``: the entry that each row and unit of K is read from, -1 where none was found."""
        zero, one = self.probed.codes.zero, self.probed.codes.one
        index = np.arange(self.entries)
        bits = max(1, (self.entries - 1).bit_length())
        found = np.full((self._rows, self._units), -1, np.int64)
        for units in self._passes():
            reached = self._read(np.full(self.entries, one), units)
            silent = self._read(np.full(self.entries, zero), units)
            place = np.zeros(reached.shape, np.int64)
            good = (reached == 1) & (silent == 0)
            for bit in range(bits):
                seen = self._read(np.where(index >> bit & 1, one, zero), units)
                place |= seen << bit
                good &= seen < 2
            good &= place < self.entries
            found[:, units] = np.where(good, place, -1)
        if (found < 0).any():
            self.notes.append(f"{int((found < 0).sum())} of {found.size} places could not be read")
        return found

    def order(self) -> str:
        """For entries of two elements: whether the low one meets the anchor's low one."""
        if self.probed.codes.zero == self.probed.codes.one & 0xF or self.probed.codes.dtype is not np.uint8:
            return ""
        if self.probed.depth != 2:
            return ""
        units = next(iter(self._passes()))
        low = self._read(np.full(self.entries, self.probed.codes.one & 0x0F), units)
        return "same" if (low == 1).all() else "swapped" if (low == 0).all() else ""

    def _passes(self) -> Iterator[np.ndarray]:
        """Select some units of K in the anchor; gives their numbers."""
        groups = -(-self._units // len(self._weights))
        rows = self.sizes[self._anchor.rows]
        step = 1 if self._anchor.rows == self.probed.rows else rows
        for first in range(0, groups, step):
            chosen = np.arange(first, min(first + step, groups))
            units = chosen[:, None] * len(self._weights) + np.arange(len(self._weights))
            logical = np.zeros((rows, -(-self.sizes[2] // self._anchor.depth)), self._anchor.codes.dtype)
            logical[...] = self._anchor.codes.zero
            for row in range(rows) if step == 1 else range(len(chosen)):
                for unit, weight in zip(units[0 if step == 1 else row], self._weights, strict=True):
                    if unit < self._units:
                        logical[row, unit * self.probed.depth // self._anchor.depth] = weight
            laid = logical if self._anchor_layout is None else self._anchor_layout.apply(logical)
            self._anchor_memory[...] = self._anchor.codes.zero
            self._anchor_memory[: laid.size] = laid.reshape(-1)
            self._selected = len(chosen)
            yield units.reshape(-1)[units.reshape(-1) < self._units]

    def _read(self, contents: np.ndarray, units: np.ndarray) -> np.ndarray:
        """``[rows, len(units)]``: how much of each unit arrives with these contents, 0 or 1; 2 where unreadable."""
        self._memory[...] = contents
        seen = self._rig.run()
        self.launches += 1
        if seen.error is not None:
            self.notes.append(f"launch {self.launches}: {seen.ended}: {seen.error}")
            return np.full((self._rows, len(units)), 2)
        result = to_float64(self._rig.problem.outputs[0].result) / self._anchor.codes.unit
        if self._anchor.rows == self.probed.rows:
            amounts = (result[:, 0] if self.probed.rows == 0 else result[0])[None]
        else:
            amounts = (result if self._anchor.rows == 0 else result.T)[: self._selected]
        whole = np.rint(np.where(np.isfinite(amounts), amounts, -1))
        readable = (np.abs(whole - amounts) < 2.0**-10) & (whole >= 0) & (whole < 1 << len(self._weights))
        digits = whole.astype(np.int64)[:, :, None] >> np.arange(len(self._weights)) & 1  # [groups, rows, digits]
        digits = np.where(readable[:, :, None], digits, 2)
        return digits.transpose(1, 0, 2).reshape(self._rows, -1)[:, : len(units)]


def _entries(array: np.ndarray, operand: Operand) -> np.ndarray:
    return array.reshape(-1).view(operand.codes.dtype)


def _declared_layout(kernel: Kernel, anchor: str) -> Layout | None:
    """The layout of the anchor, None for rows one after the other.

    Raises:
        ArgumentError: its argument declares none, and it is not the left operand (of which rows are stored plainly).
    """
    tiling = kernel.schema[anchor].tiling
    if tiling == "plain" or (not tiling and anchor == "A"):
        return None
    try:
        return layouts.get(tiling)
    except LayoutError as error:
        raise ArgumentError(
            f"anchor {anchor} of {kernel.name}", got="no declared layout", need="an operand whose layout is known"
        ) from error


def _shared(addresses: np.ndarray) -> int:
    """How many neighbouring rows have the same addresses throughout."""
    rows = len(addresses)
    return max(
        step
        for step in range(1, rows + 1)
        if rows % step == 0 and (addresses.reshape(rows // step, step, -1) == addresses[::step, None]).all()
    )
