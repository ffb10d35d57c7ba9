"""Which instructions runs executed, as keys: a mnemonic with what else changes its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asmlaunch.devices import LaunchResult

#: What a record of a sweep holds: the keys that ran, and those of reachable code that did not.
Keys = dict[str, list[str]]


def key_of(text: str) -> str:
    """The key of an instruction: mnemonic, encoding where it permutes lanes or selects bytes, LDS as the destination,
    formats of matrix operands.

    Example:
        >>> key_of("v_mul_f32_dpp v1, v2, v3 row_newbcast:1 row_mask:0xf bank_mask:0xf")
        'v_mul_f32 dpp'
    """
    # Numbers matter in formats of matrix operands only; without them few texts are left to take apart.
    name, _, rest = text.partition(" ")
    return _key_of(name, rest if "cbsz" in rest else re.sub(r"\d+", "0", rest))


@lru_cache(maxsize=1 << 14)
def _key_of(name: str, rest: str) -> str:
    from asmlaunch.emulator.decode import parse

    one = parse(f"{name} {rest}")
    marks = [one.encoding] if one.encoding in ("sdwa", "dpp") else []
    marks += ["lds"] * ("lds" in one.modifiers)
    marks += [f"{word}:{one.modifiers[word]}" for word in ("cbsz", "blgp") if word in one.modifiers]
    return " ".join([one.mnemonic, *marks])


def keys_of(launches: Iterable[LaunchResult]) -> Keys:
    """The keys that launches on the emulator executed, and those that their kernels hold besides."""
    executed: set[str] = set()
    reachable: set[str] = set()
    for launch in launches:
        for row in launch.profile.rows if launch.profile else ():
            key = key_of(row.text)
            reachable.add(key)
            if row.executed:
                executed.add(key)
    return {"executed": sorted(executed), "not executed": sorted(reachable - executed)}


def union(records: Iterable[Mapping[str, Any]]) -> tuple[Sequence[str], Mapping[str, int]]:
    """Over the records of a sweep: keys that ran, and those that no run executed with the number of records whose
    kernels hold them.
    """
    executed: set[str] = set()
    others: dict[str, int] = {}
    for record in records:
        keys = record.get("keys", {"executed": (), "not executed": ()})
        executed.update(keys["executed"])
        for key in keys["not executed"]:
            others[key] = others.get(key, 0) + 1
    return sorted(executed), {key: count for key, count in sorted(others.items()) if key not in executed}
