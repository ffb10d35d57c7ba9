"""The layout of keys and values in a block of a paged cache, by experiment on attention kernels.

Context lengths and queries select. *Values*: with queries of zeros every weight is equal, so sequence i, of i + 1
tokens, gives the mean of the first i + 1 values; differences of neighbours are single values. *Keys*: the value of
token t is 1 at column t (in the layout just found), so that a result shows each token's weight; query number d is not
zero at element d only, and a token weighs more than a reference token of zeros where bit b of its key's address is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from asmlaunch.errors import KernelNotFoundError
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import bfloat16_bits, to_float64
from asmlaunch.validate.probe.contraction import BF16, E4M3, E4M3_FNUZ, INT8
from asmlaunch.validate.probe.rig import Rig, declared

#: Elements of a head.
_WIDTH = 128

#: Tokens of a block that are probed.
_TOKENS = 16

#: What a query holds at its one element: weights then differ by a factor of e^(32 / sqrt(128)), 17.
_QUERY = 32.0

#: A weight above this many times the reference token's comes of a key of 1.
_HEAVY = 4.0

#: Sequences of a problem for keys; with 8 heads each, 128 queries.
_SEQUENCES = 16

#: Blocks of the cache that are used: one that is probed, one for the reference token, and the same for confirmation.
_FIRST, _SECOND = (0, 1), (3, 2)

_F16_ONE = 0x3C00


def locate(kernel: Kernel, operand: str, **options: Any) -> tuple[np.ndarray, np.ndarray, int, list[str], int]:
    """Addresses in a block of the cache, in entries: ``[tokens, width]``.

    Args:
        operand: ``"K"`` or ``"V"``.
        options: launch options of the device.

    Returns:
        The addresses in one block and, found once more, in another; entries of a block; notes; launches.

    Raises:
        KernelNotFoundError: a kernel that is none of paged attention with blocks of 16 tokens.
    """
    search = _Search(kernel, options)
    found = [search.values(blocks) for blocks in (_FIRST, _SECOND)]
    if operand == "K":
        if any((one < 0).any() for one in found):
            return found[0], found[1], search.block, [*search.notes, "values could not be found"], search.launches
        found = [search.keys(blocks, values) for blocks, values in zip((_FIRST, _SECOND), found, strict=True)]
    return found[0], found[1], search.block, search.notes, search.launches


class _Search:
    def __init__(self, kernel: Kernel, options: Mapping[str, Any]) -> None:
        definition = declared(kernel)
        p = definition.parameters(kernel.info)
        if definition.name != "pa" or p.get("block") != _TOKENS:
            raise KernelNotFoundError(
                f"kernel {kernel.name}", got=f"family {definition.name}", need="paged attention, blocks of 16 tokens"
            )
        self._kernel, self._options, self._definition = kernel, options, definition
        self._heads: int = min(int(p["max_heads"]), 8)
        self.wide = p["cache"] == "noquant"
        self.dtype = np.uint16 if self.wide else np.uint8
        self._one_q = _F16_ONE if p["dtype"] == "fp16" else BF16.one
        if self.wide:
            self._one = self._one_q
        elif p["cache"] == "pertokenInt8":
            self._one = INT8.one
        else:
            self._one = (E4M3_FNUZ if p["processor"] == "gfx942" else E4M3).one
        self._f16 = p["dtype"] == "fp16"
        self.block = _TOKENS * _WIDTH
        self.notes: list[str] = []
        self.launches = 0

    def values(self, blocks: tuple[int, int]) -> np.ndarray:
        """``[tokens, width]``: the entry of the block that each value is read from, -1 where none was found."""
        rig = self._rig(" ".join(str(length + 1) for length in range(_TOKENS)), blocks)
        rig.arrays["ptr_Q"][...] = 0
        self._cache(rig, "ptr_K")[...] = 0
        counts = np.arange(1, _TOKENS + 1)[:, None]

        def read() -> np.ndarray:
            means = to_float64(rig.problem.outputs[0].result)[:, :_WIDTH]
            sums = np.rint(np.nan_to_num(means, nan=-9.0) * counts)
            return np.diff(sums, axis=0, prepend=0)

        return self._addresses(rig, "ptr_V", blocks[0], read)

    def keys(self, blocks: tuple[int, int], values: np.ndarray) -> np.ndarray:
        """``[tokens, width]``: the entry of the block that each element of a key is read from."""
        rig = self._rig(" ".join([str(_TOKENS + 1)] * _SEQUENCES), blocks)
        cache = self._cache(rig, "ptr_V")
        cache[...] = 0
        token = np.arange(_TOKENS)
        cache[blocks[0] * self.block + values[token, token]] = self._one
        # The reference token is the first of the second block.
        cache[blocks[1] * self.block + values[0, _TOKENS]] = self._one
        queries = np.zeros((_SEQUENCES, self._heads, _WIDTH))
        number = np.arange(_SEQUENCES * self._heads)
        queries[number // self._heads, number % self._heads, number] = _QUERY
        row = queries.reshape(_SEQUENCES, -1)
        rig.arrays["ptr_Q"][...] = row.astype(np.float16) if self._f16 else bfloat16_bits(row)
        self._cache(rig, "ptr_K")[...] = 0

        def read() -> np.ndarray:
            weights = to_float64(rig.problem.outputs[0].result).reshape(_SEQUENCES * self._heads, _WIDTH)
            with np.errstate(invalid="ignore", divide="ignore"):
                return (weights[:, :_TOKENS] / weights[:, _TOKENS : _TOKENS + 1] > _HEAVY).T.astype(np.int64)

        return self._addresses(rig, "ptr_K", blocks[0], read)

    def _addresses(self, rig: Rig, name: str, block: int, read: Callable[[], np.ndarray]) -> np.ndarray:
        """One launch a bit of the addresses in ``block``, one with all ones and one with all zeros."""
        place = self._cache(rig, name)[block * self.block : (block + 1) * self.block]
        index = np.arange(self.block)
        everything = np.ones(self.block, np.bool_)
        found: list[np.ndarray] = []
        for bits in (everything, ~everything, *(index >> b & 1 == 1 for b in range((self.block - 1).bit_length()))):
            place[...] = np.where(bits, self._one, 0)
            seen = rig.run()
            self.launches += 1
            if seen.error is not None:
                self.notes.append(f"launch {self.launches}: {seen.ended}: {seen.error}")
                found.append(np.full((_TOKENS, _WIDTH), 2))
            else:
                found.append(read())
        full, empty, *digits = found
        address = sum((np.where(digit == 1, 1, 0).astype(np.int64) << b for b, digit in enumerate(digits)), np.int64(0))
        good = (full == 1) & (empty == 0)
        for digit in digits:
            good &= (digit == 0) | (digit == 1)
        if not good.all():
            self.notes.append(f"{int((~good).sum())} of {good.size} places of {name} could not be read")
        return np.where(good, address, -1)

    def _rig(self, contexts: str, blocks: tuple[int, int]) -> Rig:
        """A problem of one key head whose sequences all have these blocks."""
        case = self._definition.case(contexts=contexts, kv_heads=1, gqa=self._heads)  # type: ignore[call-arg]
        rig = Rig(self._kernel, case, **self._options)
        rig.arrays["ptr_BT"][...] = blocks[1]
        rig.arrays["ptr_BT"][:, 0] = blocks[0]
        for name in ("ptr_KQ", "ptr_VQ"):
            if name in rig.arrays:
                rig.arrays[name][...] = 1
        return rig

    def _cache(self, rig: Rig, name: str) -> np.ndarray:
        return rig.arrays[name].reshape(-1).view(self.dtype)
