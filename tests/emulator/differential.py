"""Instructions compared with an oracle: operands for a signature, the text of a case, and what must come out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from emulator import pseudocode
from emulator.assembler import AssemblyError, assemble
from emulator.pseudocode import X, typed
from emulator.wave import LANES, Result
from numpy.typing import NDArray

from asmlaunch.emulator.isa import language as isa
from asmlaunch.emulator.isa.table import Compute, find, is_implicit, mnemonics

SIMM16 = (0x1234, 0x8765)
LITERAL = 0x3FC90FDB

#: Operands that the signature does not tell.
_TEXTS = {
    "v_readlane_b32": "v_readlane_b32 s20, v2, s10",
    "v_writelane_b32": "v_writelane_b32 v10, s8, 5",
    "v_fmaak_f32": f"v_fmaak_f32 v10, v2, v4, {LITERAL:#x}",
    "v_fmamk_f32": f"v_fmamk_f32 v10, v2, {LITERAL:#x}, v4",
    "v_accvgpr_read_b32": "v_accvgpr_write_b32 a3, v2\n    v_accvgpr_read_b32 v10, a3",
    "v_accvgpr_write_b32": "v_accvgpr_write_b32 a3, v2\n    v_accvgpr_read_b32 v10, a3",
    "v_accvgpr_mov_b32": "v_accvgpr_write_b32 a3, v2\n    v_accvgpr_mov_b32 a4, a3\n    v_accvgpr_read_b32 v10, a4",
    "v_bitop3_b32": "v_bitop3_b32 v10, v2, v4, v6 bitop3:0x6c",
    "v_bitop3_b16": "v_bitop3_b16 v10, v2, v4, v6 bitop3:0x6c",
    "s_getreg_b32": "s_getreg_b32 s20, hwreg(HW_REG_MODE, 4, 4)",
    "ds_bpermute_b32": "ds_bpermute_b32 v10, v2, v4 offset:12",
    "ds_permute_b32": "ds_permute_b32 v10, v2, v4 offset:12",
    "ds_swizzle_b32": "ds_swizzle_b32 v10, v2 offset:0x8055",
}


def operand(kind: type[isa.Value], unit: str, number: int) -> str:
    """The register of the ``number``-th source."""
    if kind is isa.Simm16:
        return f"{SIMM16[0]:#x}"
    if kind is isa.Mask:
        return "s[16:17]"
    first = (2 if unit == "valu" else 8) + 2 * number
    file = "v" if unit == "valu" else "s"
    return f"{file}{first}" if kind.bits <= 32 else f"{file}[{first}:{first + 1}]"


def text_of(mnemonic: str, definition: Compute) -> str:
    """An instruction with the case's registers."""
    if mnemonic in _TEXTS:
        return _TEXTS[mnemonic]
    if definition.exchanges:
        return f"{mnemonic} v10, v11"
    operands = []
    for kind in definition.results:
        if is_implicit(kind):
            continue
        if kind is isa.Mask:
            operands.append("vcc" if mnemonic.startswith("v_cmpx") else "s[20:21]")
        elif kind is isa.Sgpr:
            operands.append("s20")
        else:
            file, first = ("v", 10) if definition.unit == "valu" else ("s", 20)
            wide = kind.bits == 64 or (definition.packed and kind.bits == 32)
            operands.append(f"{file}[{first}:{first + 1}]" if wide else f"{file}{first}")
    number = 0
    for name, kind in definition.sources:
        if name != "d" and not is_implicit(kind):
            wide_kind = isa.U64 if definition.packed and kind.bits == 32 else kind
            operands.append(operand(wide_kind, definition.unit, number))
            number += kind is not isa.Mask
    return f"{mnemonic} {', '.join(operands)}"


@cache
def computes() -> dict[str, Compute]:
    """All definitions that compute, by mnemonic."""
    found = {name: find(name) for name in mnemonics()}
    return {name: one for name, one in found.items() if isinstance(one, Compute)}


@cache
def assembled() -> dict[str, str]:
    """Mnemonic -> a processor that has it, for the texts that assemble on one."""
    remaining = {name: text_of(name, one) for name, one in computes().items()}
    found: dict[str, str] = {}
    for processor in ("gfx950", "gfx942"):
        good = _those_that_assemble(remaining, processor)
        found |= dict.fromkeys(good, processor)
        remaining = {name: text for name, text in remaining.items() if name not in good}
    return found


def _those_that_assemble(texts: dict[str, str], processor: str) -> set[str]:
    lines = {name: text.replace("\n", " ; ") for name, text in texts.items()}
    try:
        assemble("\n".join(lines.values()), processor)
    except AssemblyError as error:
        bad = {int(number) for number in re.findall(r"<inline asm>:(\d+):", str(error))}
        return {name for number, name in enumerate(lines, 1) if number not in bad}
    return set(lines)


# ---------------------------------------------------------------- operands

_EDGES: dict[tuple[bool, int], Sequence[int]] = {
    (False, 32): (0, 1, 2, 31, 32, 33, 63, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFF, 0x8000,
                  0x7F, 0x80, 0x00FFFFFF, 0x00800000),
    (True, 32): (0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 1,
                 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F000000, 0x3FC00000, 0x40200000, 0x4B800000,
                 0x4F000000, 0xCF000000, 0x4F800000, 0x33800000),
    (True, 16): (0, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 1, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3800,
                 0x3E00, 0x4100, 0x6400),
    (False, 16): (0, 1, 15, 16, 17, 0x7FFF, 0x8000, 0xFFFF, 0xFFFE, 0x00FF),
    (True, 64): (0, 1 << 63, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000, 0xFFF0000000000000,
                 0x7FF8000000000000, 0x7FF0000000000001, 1, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF,
                 0x3FE0000000000000, 0x41E0000000000000, 0xC1E0000000000000, 0x41F0000000000000, 0x4330000000000000),
    (False, 64): (0, 1, 63, 64, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, 1 << 32, (1 << 32) - 1),
}  # fmt: skip


def values(kind: type[isa.Value], rng: np.random.Generator, count: int = LANES) -> NDArray[np.uint64]:
    """Random patterns and edge cases of a type; floats also of moderate size, so that sums do not all vanish."""
    floating = issubclass(kind, isa.Float)
    bits = kind.bits if kind.bits in (16, 32, 64) else 32
    random = rng.integers(0, 1 << 64, count, dtype=np.uint64) & np.uint64((1 << bits) - 1)
    if floating:
        moderate = rng.normal(0, 8, count)
        size = {16: np.float16, 32: np.float32, 64: np.float64}[bits]
        patterns = moderate.astype(size).view(f"u{bits // 8}").astype(np.uint64)
        random = np.where(rng.random(count) < 0.4, patterns, random)
    elif bits >= 32:
        random = np.where(rng.random(count) < 0.3, random & np.uint64(63), random)
    edges = np.array(_EDGES[floating, bits], np.uint64)
    chosen = rng.choice(edges, count)
    result: NDArray[np.uint64] = np.where(rng.random(count) < 0.4, chosen, random)
    return result


@dataclass(frozen=True)
class Operands:
    """Registers of one run: 64-bit sources and old destination a lane, and the scalar ones."""

    sources: NDArray[np.uint64]  # (3, 64)
    old: NDArray[np.uint64]
    scalars: tuple[int, int, int]
    old_scalar: int
    mask: int
    exec: int
    scc: int

    @property
    def vgprs(self) -> dict[int, NDArray[np.uint32]]:
        """v2..v9."""
        words = [*self.sources, self.old]
        found = {}
        for number, word in enumerate(words):
            found[2 + 2 * number] = (word & np.uint64(0xFFFFFFFF)).astype(np.uint32)
            found[3 + 2 * number] = (word >> np.uint64(32)).astype(np.uint32)
        return found

    @property
    def sgprs(self) -> dict[int, int]:
        """s8..s19 and s30."""
        pairs = {8: self.scalars[0], 10: self.scalars[1], 12: self.scalars[2], 14: self.old_scalar, 16: self.mask,
                 18: self.exec}  # fmt: skip
        found = {30: self.scc}
        for first, value in pairs.items():
            found[first], found[first + 1] = value & 0xFFFFFFFF, value >> 32
        return found


def random_operands(kinds: Sequence[type[isa.Value]], seed: int, full: bool) -> Operands:
    """Operands for sources of the given types."""
    rng = np.random.default_rng(seed)
    types = [*kinds, isa.U32, isa.U32, isa.U32][:3]
    sources = np.stack([values(kind, rng) for kind in types])
    packed = [kind.bits <= 16 for kind in types]
    for number, narrow in enumerate(packed):
        if narrow:  # something in the upper half, which must not matter
            sources[number] |= values(types[number], rng) << np.uint64(16)
        elif types[number].bits == 32:
            sources[number] |= values(types[number], rng) << np.uint64(32)
    scalars = tuple(int(values(kind, rng, 1)[0]) for kind in types)
    number = int(rng.integers(0, 1 << 63))
    exec_mask = (1 << 64) - 1 if full else int(rng.integers(1, 1 << 63)) << 1 | 1
    return Operands(
        sources, rng.integers(0, 1 << 64, LANES, dtype=np.uint64), scalars, number,
        int(rng.integers(0, 1 << 63)) * 2 + 1, exec_mask, int(rng.integers(0, 2)),
    )  # fmt: skip


# ---------------------------------------------------------------- the oracle


def has_pseudocode(name: str) -> bool:
    """Whether the pseudocode can be evaluated for the instruction, and is its oracle."""
    if name in OWN_MODEL:
        return False
    try:
        pseudocode.parse(name)
        state = {f"S{number}": X(0, 64, "b") for number in range(3)}
        pseudocode.run(name, {**state, **_state(0, 0, 0, 0)})
    except (KeyError, NotImplementedError, AttributeError):
        return False
    return True


def _state(vcc: int, exec_mask: int, scc: int, lane: int) -> dict[str, Any]:
    return {
        "VCC": X(vcc, 64, "b"), "EXEC": X(exec_mask, 64, "b"), "SCC": X(scc, 1, "u"), "laneId": X(lane, 32, "u"),
        "SIMM16": X(SIMM16[0], 16, "b"), "SIMM32": X(LITERAL, 32, "b"), "OPSEL": X(0, 4, "b"), "M0": X(0, 32, "b"),
    }  # fmt: skip


def _source_bits(definition: Compute, given: Sequence[int]) -> list[int]:
    kinds = [
        kind for name, kind in definition.sources if name != "d" and not is_implicit(kind) and kind is not isa.Mask
    ]
    found = []
    for number, bits in enumerate(given):
        if number < len(kinds) and kinds[number] is isa.Simm16:
            found.append(SIMM16[0])
            continue
        wide = number < len(kinds) and (kinds[number].bits == 64 or (definition.packed and kinds[number].bits == 32))
        bits = bits if wide else bits & 0xFFFFFFFF
        if number < len(kinds) and definition.denormals == "flush" and kinds[number] is isa.F32:
            bits = flushed(bits)
        found.append(bits)
    return found


def _is_zero(bits: int, width: int) -> bool:
    return bits & ((1 << (width - 1)) - 1) == 0


#: Instructions whose pseudocode is not their oracle: it leaves out a table, a lane exchange, or overflows in between.
OWN_MODEL = frozenset(("v_cvt_off_f32_i4", "v_ldexp_f16", "v_swap_b32", "ds_permute_b32"))

#: Where the pseudocode is not followed: instruction -> whether source 0, result and expected result are such a case.
#: frexp_exp of zero is 0 and of a denormal fits its mantissa (LLVM's constant folding of the same instruction), and
#: rndne keeps the sign of what it rounds to zero, as IEEE 754 says.
EXCUSED: dict[str, Any] = {
    **{f"v_rndne_f{width}": lambda source, got, want, width=width: _is_zero(got, width) and _is_zero(want, width)
       for width in (16, 32, 64)},
    "v_frexp_exp_i32_f32": lambda source, got, want: source & 0x7F800000 == 0,
    "v_frexp_exp_i32_f64": lambda source, got, want: source & 0x7FF << 52 == 0,
    "v_frexp_exp_i16_f16": lambda source, got, want: source & 0x7C00 == 0,
}  # fmt: skip


def _apart(kind: type[isa.Value], one: int, other: int) -> int:
    """Units in the last place between two floats of the same sign."""
    return abs(one - other)


def flushed(bits: int) -> int:
    """An f32 denormal as a zero of its sign."""
    return bits & 0x80000000 if bits & 0x7F800000 == 0 else bits


def expected_lanes(name: str, definition: Compute, given: Operands) -> Iterator[tuple[int, dict[str, Any]]]:
    """The pseudocode's final state for every lane that is on."""
    for lane in range(LANES):
        if not given.exec >> lane & 1:
            continue
        bits = _source_bits(definition, [int(source[lane]) for source in given.sources])
        state = {f"S{number}": X(value, 64, "b") for number, value in enumerate(bits)}
        # v_div_scale leaves D0 open where nothing is scaled: it is S0 then.
        old = bits[0] if "div_scale" in name else int(given.old[lane])
        yield (
            lane,
            pseudocode.run(name, {**state, **_state(given.mask, given.exec, given.scc, lane), "D0": X(old, 64, "b")}),
        )


def expected_scalar(name: str, definition: Compute, given: Operands) -> dict[str, Any]:
    """The pseudocode's final state of a scalar instruction."""
    bits = _source_bits(definition, given.scalars)
    state = {f"S{number}": X(value, 64, "b") for number, value in enumerate(bits)}
    return pseudocode.run(
        name, {**state, **_state(given.mask, given.exec, given.scc, 0), "D0": X(given.old_scalar, 64, "b")}
    )


def same(kind: type[isa.Value], got: int, want: int, packed: bool = False) -> bool:
    """Equal patterns; any NaN equals any other."""
    if not issubclass(kind, isa.Float):
        return got == want
    if packed:
        count = 2
        parts = [
            (value >> (kind.bits * number)) & ((1 << kind.bits) - 1) for value in (got, want) for number in range(count)
        ]
        return all(same(kind, parts[number], parts[number + count]) for number in range(count))
    if got == want:
        return True
    return bool(np.isnan(typed(got, kind.bits, "f").value) and np.isnan(typed(want, kind.bits, "f").value))


def vector_mismatches(name: str, definition: Compute, given: Operands, result: Result) -> list[str]:
    """What differs from the pseudocode, in words."""
    found: list[str] = []
    masks = [kind for kind in definition.results if kind is isa.Mask]
    value_kinds = [kind for kind in definition.results if kind not in (isa.Mask, isa.Active)]
    want_mask = 0
    for lane, state in expected_lanes(name, definition, given):
        for kind in value_kinds:
            width = 64 if kind.bits == 64 or (definition.packed and kind.bits == 32) else 32
            got = int(result.wide[lane]) & ((1 << width) - 1)
            want = state["D0"].bits & ((1 << width) - 1)
            if definition.denormals == "flush" and kind is isa.F32:
                want = flushed(want)
            if kind.bits == 16 and not definition.packed:
                keep = int(given.old[lane]) & 0xFFFF0000 if definition.half == "keep" else 0
                want = want & 0xFFFF | keep
                if issubclass(kind, isa.Float) and got >> 16 == want >> 16:
                    got, want = got & 0xFFFF, want & 0xFFFF
            if name.startswith("v_rsq"):
                got = want if _apart(kind, got, want) <= 1 else got
            excused = name in EXCUSED and EXCUSED[name](int(given.sources[0][lane]), got, want)
            if not excused and not same(kind, got, want, definition.packed):
                sources = [hex(int(source[lane])) for source in given.sources]
                found.append(f"lane {lane} {sources} old {int(given.old[lane]):#x}: {got:#x}, expected {want:#x}")
        if masks:
            bits = state["D1"].bits << lane if "D1" in state else state["VCC" if value_kinds else "D0"].bits
            want_mask |= (bits if "D1" in state else bits & 1 << lane) & (1 << lane)
            if "div_scale" in name:
                want_mask = want_mask & ~(1 << lane) | (state["VCC"].bits & 1) << lane
    mask = result.vcc if name.startswith("v_cmpx") else result.sdst
    if masks and mask != want_mask:
        found.append(f"mask {mask:#x}, expected {want_mask:#x}")
    if isa.Active in definition.results and result.exec != want_mask:
        found.append(f"EXEC {result.exec:#x}, expected {want_mask:#x}")
    off = [lane for lane in range(LANES) if not given.exec >> lane & 1]
    if value_kinds and any(int(result.wide[lane]) != int(given.old[lane]) for lane in off):
        found.append("a lane that EXEC disables was written")
    return found


def scalar_mismatches(name: str, definition: Compute, given: Operands, result: Result) -> list[str]:
    """What differs from the pseudocode, in words."""
    state = expected_scalar(name, definition, given)
    found = []
    inputs = [hex(value) for value in given.scalars]
    for kind in definition.results:
        if not is_implicit(kind):
            mask = (1 << kind.bits) - 1
            if result.sdst & mask != state["D0"].bits & mask:
                found.append(f"{inputs}: {result.sdst & mask:#x}, expected {state['D0'].bits & mask:#x}")
    want_scc = int(bool(state["SCC"]))
    if result.scc != want_scc:
        found.append(f"{inputs}: SCC {result.scc}, expected {want_scc}")
    if result.exec != state["EXEC"].bits:
        found.append(f"{inputs}: EXEC {result.exec:#x}, expected {state['EXEC'].bits:#x}")
    return found
