"""The table of instructions: every definition registers itself here, once.

``find(mnemonic)`` is the only way in. What an instruction reads and writes is read off its definition's signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from asmlaunch.emulator.isa.language import IMPLICIT, Value


@dataclass(frozen=True)
class Compute:
    """Registers in, registers out.

    Attributes:
        mnemonic: the name without encoding suffix.
        unit: "salu" (once a wave) or "valu" (once a lane, under EXEC).
        meaning: the defining function over ``Value``s.
        sources: parameter names and types; an ``IMPLICIT`` type reads machine state, the name ``d`` the
        destination's old
            value, anything else the next source operand.
        results: types of what is written: destinations in order, then machine state.
        exact: whether the definition is bit for bit what the manual states.
        note: where it is not, how it differs; where the manual is silent, what was assumed.
        denormals: "mode" when F32 operands and results obey MODE's denormal setting, "keep" when they never flush.
        all_lanes: written whatever EXEC says.
    """

    mnemonic: str
    unit: str
    meaning: Callable[..., Any]
    sources: tuple[tuple[str, type[Value]], ...]
    results: tuple[type[Value], ...]
    exact: bool = True
    note: str = ""
    denormals: str = "mode"
    all_lanes: bool = False


@dataclass(frozen=True)
class Branch:
    """Jumps to the target in its operand when ``condition`` holds; ``condition`` None always jumps."""

    mnemonic: str
    condition: Callable[..., Any] | None
    sources: tuple[tuple[str, type[Value]], ...] = ()


@dataclass(frozen=True)
class Control:
    """An instruction that steers the wave rather than computes.

    Attributes:
        action: "nothing", "end", "barrier", "wait" (a point where memory must have completed), "index_on", "index_off".
    """

    mnemonic: str
    action: str


@dataclass(frozen=True)
class Access:
    """A memory instruction: ``count`` elements of ``element`` in ``space`` for every lane (scalar: once).

    Attributes:
        space: "scalar", "buffer" or "lds".
        kind: "load", "store" or "atomic".
        element: type of one element in memory; smaller than a dword it is extended by its sign.
        count: elements in consecutive memory and registers.
        update: for atomics, (old, data) -> new, over one element.
    """

    mnemonic: str
    space: str
    kind: str
    element: type[Value]
    count: int = 1
    update: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True)
class Mfma:
    """A matrix-core instruction: D[i, j] = C[i, j] + sum over k of A[i, k] * B[k, j].

    Attributes:
        m, n, k: shape of one block.
        scaled: the form with an E8M0 scale a 32-element K-block and operand.
        model: how rounding is done; it is reported with every run that uses the instruction.
    """

    mnemonic: str
    m: int
    n: int
    k: int
    scaled: bool
    model: str


Definition = Compute | Branch | Control | Access | Mfma

_TABLE: dict[str, Definition] = {}


def register(definition: Definition) -> None:
    """Add one definition; a mnemonic has exactly one."""
    assert definition.mnemonic not in _TABLE, f"{definition.mnemonic} is defined twice"
    _TABLE[definition.mnemonic] = definition


def find(mnemonic: str) -> Definition | None:
    """The definition of ``mnemonic`` (without encoding suffix), or None where there is none."""
    _load()
    return _TABLE.get(mnemonic)


def mnemonics() -> list[str]:
    """All defined mnemonics, sorted."""
    _load()
    return sorted(_TABLE)


def _load() -> None:
    # The modules register on import; importing them here keeps `find` complete whatever was imported before.
    from asmlaunch.emulator.isa import control, matrix, memory, scalar, vector  # noqa: F401


def signature(function: Callable[..., Any]) -> tuple[tuple[tuple[str, type[Value]], ...], tuple[type[Value], ...]]:
    """Sources and results of a defining function, from its annotations."""
    described = inspect.signature(function, eval_str=True)
    sources = tuple((name, parameter.annotation) for name, parameter in described.parameters.items())
    answer = described.return_annotation
    if get_origin(answer) is tuple:
        return sources, get_args(answer)
    return sources, () if answer is None else (answer,)


def compute(unit: str, mnemonic: str, meaning: Callable[..., Any], **properties: Any) -> None:
    """Register ``meaning`` as the definition of ``mnemonic``."""
    sources, results = signature(meaning)
    register(Compute(mnemonic, unit, meaning, sources, results, **properties))


F = Callable[..., Any]


def salu(meaning: F) -> F:
    """Decorator: a scalar instruction named like the function."""
    compute("salu", meaning.__name__, meaning)
    return meaning


def valu(meaning: F | None = None, **properties: Any) -> Any:
    """Decorator: a vector instruction named like the function; ``properties`` are ``Compute``'s."""
    if meaning is None:
        return lambda function: valu(function, **properties)
    compute("valu", meaning.__name__, meaning, **properties)
    return meaning


def branch(meaning: F) -> F:
    """Decorator: a conditional branch named like the function, which gives the condition."""
    register(Branch(meaning.__name__, meaning, signature(meaning)[0]))
    return meaning


def is_implicit(kind: type[Value]) -> bool:
    """Whether a source or result type is machine state rather than an operand."""
    return kind in IMPLICIT
