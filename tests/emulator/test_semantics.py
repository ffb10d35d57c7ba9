"""Every instruction that computes against the manual's pseudocode, on edge cases and random operands."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from emulator import differential
from emulator.differential import Compute, is_implicit, isa
from emulator.wave import Wave


def kinds_of(definition: Compute) -> tuple[type[isa.Value], ...]:
    """Types of the sources that take registers of their own."""
    return tuple(
        kind for name, kind in definition.sources if name != "d" and not is_implicit(kind) and kind is not isa.Mask
    )


@cache
def groups() -> dict[tuple[str, tuple[type[isa.Value], ...]], list[str]]:
    """Instructions with pseudocode by processor and types of their sources."""
    found: dict[tuple[str, tuple[type[isa.Value], ...]], list[str]] = defaultdict(list)
    for name, processor in sorted(differential.assembled().items()):
        if differential.has_pseudocode(name):
            found[processor, kinds_of(differential.computes()[name])].append(name)
    return dict(found)


def mismatches(
    processor: str, names: list[str], kinds: tuple[type[isa.Value], ...], seed: int, full: bool
) -> list[str]:
    """One line an instruction that differs."""
    definitions = differential.computes()
    wave = Wave([differential.text_of(name, definitions[name]) for name in names], full=full, processor=processor)
    given = differential.random_operands(kinds, seed, full)
    found = []
    for name, result in zip(names, wave.run(given.vgprs, given.sgprs), strict=True):
        scalar = definitions[name].unit == "salu"
        compare = differential.scalar_mismatches if scalar else differential.vector_mismatches
        different = compare(name, definitions[name], given, result)
        if different:
            found.append(f"{name}: {len(different)} times, {different[0]}")
    return found


def _label(group: tuple[str, tuple[type[isa.Value], ...]]) -> str:
    return "-".join([group[0], *(kind.__name__ for kind in group[1])])


@pytest.mark.parametrize("group", groups(), ids=_label)
def test_pseudocode_agrees(group: tuple[str, tuple[type[isa.Value], ...]]) -> None:
    processor, kinds = group
    names = groups()[group]
    found = mismatches(processor, names, kinds, seed=1, full=False)
    assert not found, "\n".join(found)


def test_pseudocode_agrees_where_all_lanes_are_known_to_be_on() -> None:
    for (processor, kinds), names in groups().items():
        found = mismatches(processor, names[::9], kinds, seed=2, full=True)
        assert not found, "\n".join(found)


def test_every_definition_is_an_instruction() -> None:
    """A mnemonic that no processor has is a slip of the pen."""
    missing = sorted(set(differential.computes()) - set(differential.assembled()))
    assert not missing, missing


def test_the_pseudocode_covers_most() -> None:
    assert sum(map(len, groups().values())) >= 560
