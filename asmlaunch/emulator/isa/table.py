"""The table of instructions: every definition registers itself here, once.

``find(mnemonic)`` is the only way in. What an instruction reads and writes is read off its definition's signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
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
        denormals: "mode" when float operands and results obey MODE's denormal setting, "keep" when they never flush,
            "flush" when those of f32 always do.
        all_lanes: written whatever EXEC says.
        packed: the meaning is of one element; it is applied to the low and to the high elements of the operands.
        mixed: each source may be f32 or f16, as OP_SEL_HI says.
        half: where a 16-bit result goes: "" (low half, the high one zeroed), "keep" (the half that OP_SEL says, the
            other preserved), "low" or "high" (the other preserved).
        saturates: with CLAMP an integer result is limited to its type's range; the meaning holds in 64 bits.
        exchanges: all operands are sources and destinations; the first is the parameter ``d``.
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
    packed: bool = False
    mixed: bool = False
    half: str = ""
    saturates: bool = False
    exchanges: bool = False

    def takes(self, kind: type[Value]) -> bool:
        """Whether a parameter has this type."""
        return any(source is kind for _, source in self.sources)


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
        action: "nothing", "end", "barrier", "wait" (a point where memory must have completed), "index_on" (and
            "index_number", "index_roles", which change one part), "index_off", "skip" (VSKIP), "mode" (MODE),
            "pc" (read the program counter), "jump" and "call" (to an address in SGPRs; a call leaves its own).
    """

    mnemonic: str
    action: str


@dataclass(frozen=True)
class Access:
    """A memory instruction: ``count`` elements of ``element`` in ``space`` for every lane (scalar: once).

    Attributes:
        space: "scalar", "scalar_buffer", "buffer", "global", "flat", "scratch" or "lds".
        kind: "load", "store" or "atomic".
        element: type of one element in memory; one smaller than a dword is extended by its sign.
        count: elements in consecutive memory and registers.
        half: for the D16 forms, the half of the register that takes part: "low" or "high"; a load leaves the other.
        pair: for the forms with two offsets, the bytes that one unit of an offset counts; else 0. Each offset addresses
            half of the elements.
        update: for atomics, (old, data) -> new, or (old, data, compare) -> new, over one element.
        returns: for LDS atomics, whether the old value is written back (elsewhere a modifier says so).
        tile: for transposing LDS reads, the bits of one matrix element.
        to_lds: whether the loaded data go to LDS instead of registers (for buffers a modifier says so).
    """

    mnemonic: str
    space: str
    kind: str
    element: type[Value]
    count: int = 1
    half: str = ""
    pair: int = 0
    update: Callable[..., Any] | None = None
    returns: bool = False
    tile: int = 0
    to_lds: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes a lane accesses, all elements together."""
        return self.element.bits // 8 * self.count

    @property
    def compares(self) -> bool:
        """Whether an atomic takes a second value to compare with."""
        return self.update is not None and len(inspect.signature(self.update).parameters) == 3


@dataclass(frozen=True)
class Mfma:
    """A matrix-core instruction: D[i, j] = C[i, j] + sum over k of A[i, k] * B[k, j], for each of ``blocks`` blocks.

    Attributes:
        m, n, k: shape of one block.
        scaled: the form with an E8M0 scale a 32-element K-block and operand.
        model: how rounding is done; it is reported with every run that uses the instruction.
        blocks: independent products of that shape.
        a, b: formats of the operands: "f64", "f32", "xf32", "f16", "bf16", "i8", "fp8", "bf8", or "mx" where CBSZ and
            BLGP choose among FP8, BF8, FP6, BF6 and FP4.
        result: type of C and D: "f32", "i32" or "f64".
        group: elements of K whose exact sum is rounded once; then comes the next group.
        cdna3: whether CDNA3 has the instruction too; else CDNA4 added it.
    """

    mnemonic: str
    m: int
    n: int
    k: int
    scaled: bool
    model: str
    blocks: int = 1
    a: str = "mx"
    b: str = "mx"
    result: str = "f32"
    group: int = 32
    cdna3: bool = True


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


@cache
def _load() -> None:
    # The modules register on import; importing them here keeps `find` complete whatever was imported before.
    from asmlaunch.emulator.isa import (  # noqa: F401
        compare,
        control,
        conversions,
        lanes,
        matrix,
        memory,
        scalar,
        scaled,
        transcendental,
        vector,
        vector_float,
    )


def signature(function: Callable[..., Any]) -> tuple[tuple[tuple[str, type[Value]], ...], tuple[type[Value], ...]]:
    """Sources and results of a defining function, from its annotations."""
    described = inspect.signature(function, eval_str=True)
    sources = tuple((name, parameter.annotation) for name, parameter in described.parameters.items())
    answer = described.return_annotation
    if get_origin(answer) is tuple:
        return sources, get_args(answer)
    return sources, () if answer is None else (answer,)


def compute(unit: str, mnemonic: str, meaning: Callable[..., Any], **properties: Any) -> None:
    """Register ``meaning`` as the definition of ``mnemonic``; ``properties`` are ``Compute``'s."""
    sources, results = signature(meaning)
    register(Compute(mnemonic, unit, meaning, sources, results, **properties))


F = Callable[..., Any]


def salu(meaning: F | None = None, **properties: Any) -> Any:
    """Decorator: a scalar instruction named like the function; ``properties`` are ``Compute``'s."""
    if meaning is None:
        return lambda function: salu(function, **properties)
    compute("salu", meaning.__name__, meaning, **properties)
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
