"""Atomics of floats, comparisons and exchanges in every space against numpy, with the old value given back or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulator.test_memory import LANE, LANES, PAIRS, integers, run
from numpy.typing import NDArray

Operation = Callable[[Any, Any], Any]


def halves(kind: Any) -> Operation:
    """Two additions of 16-bit floats, each rounded once."""
    return lambda old, data: (old.view(kind).astype(np.float64) + data.view(kind).astype(np.float64)).astype(kind)


#: Operation, type of an element, and what it does.
FLOATS: dict[str, tuple[Any, Operation]] = {
    "add_f32": (np.float32, np.add), "add_f64": (np.float64, np.add),
    "min_f32": (np.float32, np.minimum), "min_f64": (np.float64, np.minimum),
    "max_f32": (np.float32, np.maximum), "max_f64": (np.float64, np.maximum),
    "pk_add_f16": (np.uint32, halves(np.float16)), "pk_add_bf16": (np.uint32, halves(ml_dtypes.bfloat16)),
}  # fmt: skip


def elements(name: str, kind: Any, seed: int) -> NDArray[Any]:
    """64 random elements of an operation."""
    rng = np.random.default_rng(seed)
    if name.startswith("pk"):
        half = np.float16 if name.endswith("_f16") else ml_dtypes.bfloat16
        return rng.normal(0, 3, 2 * LANES).astype(half).view(np.uint32)
    return rng.normal(0, 3, LANES).astype(kind)


def bits(values: NDArray[Any]) -> NDArray[Any]:
    """Patterns, one an element."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(LANES, -1)


def laid_out(values: NDArray[Any]) -> NDArray[np.uint32]:
    """Elements 16 bytes apart."""
    rows = np.zeros((LANES, 16), np.uint8)
    rows[:, : values.itemsize * len(values) // LANES] = bits(values)
    return rows.view(np.uint32).ravel()


def registers(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def update(space: str, name: str, words: int, data: str, old: str | None) -> str:
    """The instruction on the cell at v2 of ``out`` (in LDS: at v2); ``old`` gets the old value."""
    if space == "lds":
        stem, _, kind = name.rpartition("_")
        return f"ds_{stem}_rtn_{kind} {old}, v2, {data}" if old else f"ds_{name} v2, {data}"
    returns = " sc0" if old else ""
    if space == "buffer":
        # The data's registers get the old value.
        copy = "".join(f"v_mov_b32 v{24 + n}, v{20 + n}\n    " for n in range(words))
        return f"{copy}buffer_atomic_{name} {registers(24, words)}, v2, s[12:15], 0 offen{returns}"
    target = f"{old}, " if old else ""
    if space == "flat":
        return f"{PAIRS.strip()}\n    flat_atomic_{name} {target}v[4:5], {data}{returns}"
    return f"global_atomic_{name} {target}v2, {data}, s[6:7]{returns}"


CASES = [
    (space, name)
    for space in ("global", "buffer", "flat", "lds")
    for name in FLOATS
    if space == "lds" or name not in ("min_f32", "max_f32")
]


@pytest.mark.parametrize("returns", [False, True], ids=["", "old value"])
@pytest.mark.parametrize(("space", "name"), CASES)
def test_floats(space: str, name: str, returns: bool) -> None:
    kind, operation = FLOATS[name]
    words = np.dtype(kind).itemsize // 4
    width = "dword" if words == 1 else "dwordx2"
    data, cell = elements(name, kind, 1), elements(name, kind, 2)
    value, old = registers(20, words), registers(24, words)
    body = f"""
    global_load_{width} {value}, v2, s[4:5]
    global_load_{width} {registers(28, words)}, v2, s[6:7]
    s_waitcnt vmcnt(0)
    {f"ds_write_b{32 * words} v2, {registers(28, words)}" if space == "lds" else "s_nop 0"}
    {update(space, name, words, value, old if returns else None)}
    s_waitcnt vmcnt(0) lgkmcnt(0)
    {f"ds_read_b{32 * words} {registers(28, words)}, v2" if space == "lds" else "s_nop 0"}
    s_waitcnt lgkmcnt(0)
    {f"global_store_{width} v2, {registers(28, words)}, s[6:7]" if space == "lds" else "s_nop 0"}
    {f"global_store_{width} v2, {old}, s[6:7] offset:8" if returns else "s_nop 0"}"""
    x, out = laid_out(data), laid_out(cell)
    run(body, x, out, lds=4096 if space == "lds" else 0)
    got = out.view(np.uint8).reshape(LANES, 2, 8)[:, :, : 4 * words]
    np.testing.assert_array_equal(got[:, 0], bits(operation(cell, data)))
    if returns:
        np.testing.assert_array_equal(got[:, 1], bits(cell))


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("space", ["global", "buffer", "flat", "lds", "lds no result"])
def test_compare_and_swap(space: str, width: int) -> None:
    """In memory the new value comes first, then what the cell is compared with; in LDS the other way round."""
    words, kind = width // 32, np.uint32 if width == 32 else np.uint64
    suffix, load = ("", "dword") if width == 32 else ("_x2", "dwordx2")
    x, out = integers(4 * LANES, 1), integers(4 * LANES, 2)
    new, compare = (x.view(kind)[place :: 4 // words] for place in range(2))
    cells = out.view(kind)[:: 4 // words]
    cells[::2] = compare[::2]
    before = cells.copy()
    one, two, old = registers(20, words), registers(20 + words, words), registers(28, words)
    both = registers(20, 2 * words)
    place = f"global_store_{load} v2, {old}, s[6:7] offset:8"
    atomic = {
        "global": f"global_atomic_cmpswap{suffix} {old}, v2, {both}, s[6:7] sc0",
        "flat": f"{PAIRS.strip()}\n    flat_atomic_cmpswap{suffix} {old}, v[4:5], {both} sc0",
        "buffer": f"buffer_atomic_cmpswap{suffix} {both}, v2, s[12:15], 0 offen sc0\n    s_waitcnt vmcnt(0)\n"
        + "".join(f"    v_mov_b32 v{28 + n}, v{20 + n}\n" for n in range(words)),
        "lds": f"ds_cmpst_rtn_b{width} {old}, v2, {two}, {one}",
        "lds no result": f"ds_cmpst_b{width} v2, {two}, {one}",
    }[space]
    lds = space.startswith("lds")
    body = f"""
    global_load_dwordx4 v[20:23], v2, s[4:5]
    global_load_{load} {registers(32, words)}, v2, s[6:7]
    s_waitcnt vmcnt(0)
    {f"ds_write_b{width} v2, {registers(32, words)}" if lds else "s_nop 0"}
    {atomic}
    s_waitcnt vmcnt(0) lgkmcnt(0)
    {f"ds_read_b{width} {registers(32, words)}, v2" if lds else "s_nop 0"}
    s_waitcnt lgkmcnt(0)
    {f"global_store_{load} v2, {registers(32, words)}, s[6:7]" if lds else "s_nop 0"}
    {place if space != "lds no result" else "s_nop 0"}"""
    run(body, x, out, lds=4096 if lds else 0)
    np.testing.assert_array_equal(out.view(kind)[:: 4 // words], np.where(LANE % 2, before, new))
    if space != "lds no result":
        np.testing.assert_array_equal(out.view(kind)[2 // words :: 4 // words], before)


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("buffer", [False, True])
def test_scalar_compare_and_swap(buffer: bool, width: int) -> None:
    words, kind = width // 32, np.uint32 if width == 32 else np.uint64
    suffix, load, move = ("", "dword", "b32") if width == 32 else ("_x2", "dwordx2", "b64")
    base, stem = ("s[12:15]", "s_buffer_atomic") if buffer else ("s[6:7]", "s_atomic")

    def span(first: int, count: int) -> str:
        return f"s{first}" if count == 1 else f"s[{first}:{first + count - 1}]"

    x, out = integers(8, 1), integers(8, 2)
    step = 2 // words  # elements 8 bytes apart
    out.view(kind)[0] = x.view(kind)[step]
    before = out.view(kind)[::step].copy()
    body = "".join(
        f"""
    s_load_dwordx2 s[20:21], s[4:5], 0x0
    s_load_dwordx2 s[24:25], s[4:5], 0x8
    s_waitcnt lgkmcnt(0)
    s_mov_{move} {span(20 + words, words)}, {span(24, words)}
    {stem}_cmpswap{suffix} {span(20, 2 * words)}, {base}, {cell:#x} glc
    s_waitcnt lgkmcnt(0)
    s_store_{load} {span(20, words)}, s[6:7], {16 + cell:#x}"""
        for cell in (0, 8)
    )
    run(body, x, out, processor="gfx942")
    cells = out.view(kind)[::step]
    assert [int(cell) for cell in cells] == [int(x.view(kind)[0]), int(before[1]), int(before[0]), int(before[1])]


@pytest.mark.parametrize("width", [32, 64])
def test_exchanges_reversed_subtractions_and_masks_in_lds(width: int) -> None:
    """Each lane's cell holds x1 before every instruction; x0 is the data, and x2 what a mask lets through."""
    words, kind = width // 32, np.uint32 if width == 32 else np.uint64
    modulus = (1 << width) - 1
    x = integers(8 * LANES, 1)
    data, cell, third = (x.view(kind)[place * LANES :][:LANES].copy() for place in range(3))
    one, before, other = (registers(first, words) for first in (20, 24, 28))
    cases: dict[str, tuple[str, Callable[[int, int, int], int]]] = {
        f"wrxchg_rtn_b{width}": (one, lambda old, new, _: new),
        f"rsub_u{width}": (one, lambda old, new, _: new - old),
        f"rsub_rtn_u{width}": (one, lambda old, new, _: new - old),
    }
    if width == 32:
        cases |= {
            name: (f"{one}, {other}", lambda old, mask, new: old & ~mask | new)
            for name in ("mskor_b32", "mskor_rtn_b32")
        }
    load, stride = ("dword", 4) if width == 32 else ("dwordx2", 8)
    text = f"""
    v_lshlrev_b32 v3, {2 if width == 32 else 3}, v0
    global_load_{load} {one}, v3, s[4:5]
    global_load_{load} {before}, v3, s[4:5] offset:{stride * LANES}
    global_load_{load} {other}, v3, s[4:5] offset:{2 * stride * LANES}
    s_waitcnt vmcnt(0)"""
    for name, (operands, _) in cases.items():
        target = f"{registers(32, words)}, " if "rtn" in name else ""
        text += f"""
    ds_write_b{width} v3, {before}
    ds_{name} {target}v3, {operands}
    ds_read_b{width} {registers(36, words)}, v3
    s_waitcnt lgkmcnt(0)
    global_store_{load} v3, {registers(36, words)}, s[6:7]
    s_add_u32 s6, s6, {stride * LANES}
    s_addc_u32 s7, s7, 0
    {f"global_store_{load} v3, {registers(32, words)}, s[6:7]" if target else "s_nop 0"}
    s_add_u32 s6, s6, {stride * LANES}
    s_addc_u32 s7, s7, 0"""
    out = np.zeros(2 * len(cases) * LANES, kind)
    run(text, x, out, lds=1024)
    for number, (name, (_, operation)) in enumerate(cases.items()):
        after, old = out.reshape(-1, 2, LANES)[number]
        want = [operation(int(c), int(d), int(t)) & modulus for c, d, t in zip(cell, data, third, strict=True)]
        np.testing.assert_array_equal(after, np.array(want, kind), err_msg=name)
        if "rtn" in name:
            np.testing.assert_array_equal(old, cell, err_msg=name)
