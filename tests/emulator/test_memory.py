"""Memory instructions in every width and form against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emulator.toolkit import build
from numpy.typing import NDArray

LANES = 64
LANE = np.arange(LANES)

#: s[4:5] = x, s[6:7] = out, s[8:11] and s[12:15] buffer resources of both, v1 = 4 * lane, v2 = 16 * lane.
START = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_lshlrev_b32 v2, 4, v0
    s_waitcnt lgkmcnt(0)
    s_mov_b32 s8, s4
    s_mov_b32 s9, s5
    s_mov_b32 s10, {x_bytes}
    s_mov_b32 s11, 0x00020000
    s_mov_b32 s12, s6
    s_mov_b32 s13, s7
    s_mov_b32 s14, {out_bytes}
    s_mov_b32 s15, 0x00020000
"""


def run(
    body: str, x: NDArray[Any], out: NDArray[Any], *, lds: int = 0, processor: str = "gfx950", mask: int | None = None
) -> Any:
    """Run the instructions on one wave; ``out`` is written in place. Returns the launch's result."""
    limit = (
        "" if mask is None else f"    s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}\n    s_mov_b32 exec_hi, {mask >> 32:#x}"
    )
    text = START.format(x_bytes=x.nbytes, out_bytes=out.nbytes) + limit + body
    kernel = build(text, "x:ptr out:ptr", processor=processor, vgprs=64, lds=lds)
    return kernel.launch({"x": x, "out": out}, grid=(1, 1, 1), block=(64, 1, 1))


def integers(count: int, seed: int = 1) -> NDArray[np.uint32]:
    """Random dwords."""
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32)


FORMS = {
    "global": ("v2, {value}, s[6:7]", "{value}, v2, s[4:5]"),
    "global_pair": ("v[4:5], {value}, off", "{value}, v[6:7], off"),
    "buffer": ("{value}, v2, s[12:15], 0 offen", "{value}, v2, s[8:11], 0 offen"),
    "flat": ("v[4:5], {value}", "{value}, v[6:7]"),
}
PAIRS = """
    v_mov_b32 v5, s7
    v_add_co_u32 v4, vcc, s6, v2
    v_addc_co_u32 v5, vcc, 0, v5, vcc
    v_mov_b32 v7, s5
    v_add_co_u32 v6, vcc, s4, v2
    v_addc_co_u32 v7, vcc, 0, v7, vcc
"""
FULL, PART = (1 << 64) - 1, 0x0FF0_FFFF_FFF1_FF0F


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", [FULL, PART], ids=["all lanes", "some lanes"])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_dwords(form: str, width: int, mask: int) -> None:
    """Each lane copies its first dwords; lanes that are off copy nothing."""
    prefix = form.removesuffix("_pair")
    suffix = "dword" if width == 1 else f"dwordx{width}"
    value = "v20" if width == 1 else f"v[20:{19 + width}]"
    store, load = (text.format(value=value) for text in FORMS[form])
    body = f"{PAIRS}\n    {prefix}_load_{suffix} {load}\n    s_waitcnt vmcnt(0)\n    {prefix}_store_{suffix} {store}\n"
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    run(body, x, out, mask=mask)
    want = np.zeros((LANES, 4), np.uint32)
    on = np.array([mask >> lane & 1 for lane in range(LANES)], bool)
    want[on, :width] = x.reshape(LANES, 4)[on, :width]
    np.testing.assert_array_equal(out.reshape(LANES, 4), want)


#: Loads of parts of a dword: what becomes of a register that held 0xabcd1234.
PARTS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "ubyte": lambda v: v & 0xFF, "sbyte": lambda v: ((v & 0xFF) ^ 0x80) - 0x80,
    "ushort": lambda v: v & 0xFFFF, "sshort": lambda v: ((v & 0xFFFF) ^ 0x8000) - 0x8000,
    "ubyte_d16": lambda v: 0xABCD0000 | v & 0xFF, "ubyte_d16_hi": lambda v: (v & 0xFF) << 16 | 0x1234,
    "sbyte_d16": lambda v: 0xABCD0000 | (((v & 0xFF) ^ 0x80) - 0x80) & 0xFFFF,
    "sbyte_d16_hi": lambda v: ((((v & 0xFF) ^ 0x80) - 0x80) & 0xFFFF) << 16 | 0x1234,
    "short_d16": lambda v: 0xABCD0000 | v & 0xFFFF, "short_d16_hi": lambda v: (v & 0xFFFF) << 16 | 0x1234,
}  # fmt: skip
#: Stores of parts: the first bit that is stored, and how many.
STORED = {"byte": (0, 8), "short": (0, 16), "byte_d16_hi": (16, 8), "short_d16_hi": (16, 16)}


@pytest.mark.parametrize("prefix", ["global", "buffer", "flat"])
def test_parts_of_a_dword(prefix: str) -> None:
    store, load = FORMS[prefix]
    form = PAIRS if prefix == "flat" else ""
    x = integers(4 * LANES)
    for name, want in PARTS.items():
        out = np.zeros(4 * LANES, np.uint32)
        body = f"""{form}
    v_mov_b32 v20, 0xabcd1234
    {prefix}_load_{name} {load.format(value="v20")}
    s_waitcnt vmcnt(0)
    {prefix}_store_dword {store.format(value="v20")}"""
        run(body, x, out)
        expected = np.asarray(want(x.reshape(LANES, 4)[:, 0].astype(np.int64))).astype(np.int64) & 0xFFFFFFFF
        np.testing.assert_array_equal(out.reshape(LANES, 4)[:, 0], expected, err_msg=name)
    for name, (shift, bits) in STORED.items():
        out = np.full(4 * LANES, 0x55555555, np.uint32)
        body = f"""{form}
    {prefix}_load_dword {load.format(value="v20")}
    s_waitcnt vmcnt(0)
    {prefix}_store_{name} {store.format(value="v20")}"""
        run(body, x, out)
        part = x.reshape(LANES, 4)[:, 0] >> shift & ((1 << bits) - 1)
        expected = part | (0x55555555 >> bits << bits)
        np.testing.assert_array_equal(out.reshape(LANES, 4)[:, 0], expected, err_msg=name)


# ---------------------------------------------------------------- atomics


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


INTEGER: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda old, data, bits: old + data, "sub": lambda old, data, bits: old - data,
    "smin": lambda old, data, bits: min((old, data), key=lambda v: _signed(v, bits)),
    "umin": lambda old, data, bits: min(old, data),
    "smax": lambda old, data, bits: max((old, data), key=lambda v: _signed(v, bits)),
    "umax": lambda old, data, bits: max(old, data), "and": lambda old, data, bits: old & data,
    "or": lambda old, data, bits: old | data, "xor": lambda old, data, bits: old ^ data,
    "inc": lambda old, data, bits: 0 if old >= data else old + 1,
    "dec": lambda old, data, bits: data if old == 0 or old > data else old - 1,
    "swap": lambda old, data, bits: data,
}  # fmt: skip
LDS_NAMES = {
    "smin": "min_{i}", "umin": "min_{u}", "smax": "max_{i}", "umax": "max_{u}", "add": "add_{u}", "sub": "sub_{u}",
    "and": "and_{b}", "or": "or_{b}", "xor": "xor_{b}", "inc": "inc_{u}", "dec": "dec_{u}",
}  # fmt: skip


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("prefix", ["global", "buffer", "flat"])
def test_integer_atomics_give_back_the_old_value(prefix: str, bits: int) -> None:
    """16 bytes a lane in ``out``: the cell, and where the old value is put."""
    data = "v20" if bits == 32 else "v[20:21]"
    old = "v24" if bits == 32 else "v[24:25]"
    words = bits // 32
    kind = np.uint32 if bits == 32 else np.uint64
    suffix, width = ("", "dword") if bits == 32 else ("_x2", "dwordx2")
    for name, operation in INTEGER.items():
        x = integers(4 * LANES, 1)
        x[::12] &= 3
        out = integers(4 * LANES, 2)
        out[::8] &= 3
        if name in ("inc", "dec"):
            out[4 * LANE[::3]] = x[4 * LANE[::3]]
        before = out.view(kind)[:: 4 // words].copy()
        values = x.view(kind)[:: 4 // words]
        if prefix == "global":
            atomic = f"global_atomic_{name}{suffix} {old}, v2, {data}, s[6:7] sc0"
        elif prefix == "flat":
            atomic = f"{PAIRS.strip()}\n    flat_atomic_{name}{suffix} {old}, v[4:5], {data} sc0"
        else:
            copy = "\n".join(f"    v_mov_b32 v{24 + n}, v{20 + n}" for n in range(words))
            atomic = f"{copy.strip()}\n    buffer_atomic_{name}{suffix} {old}, v2, s[12:15], 0 offen sc0"
        body = f"""
    global_load_{width} {data}, v2, s[4:5]
    s_waitcnt vmcnt(0)
    {atomic}
    s_waitcnt vmcnt(0)
    global_store_{width} v2, {old}, s[6:7] offset:8"""
        run(body, x, out)
        cells = out.view(kind)[:: 4 // words]
        mask = (1 << bits) - 1
        want = [operation(int(o), int(d), bits) & mask for o, d in zip(before, values, strict=True)]
        np.testing.assert_array_equal(cells, np.array(want, kind), err_msg=name)
        returned = out.view(kind)[2 // words :: 4 // words]
        np.testing.assert_array_equal(returned, before, err_msg=name)


@pytest.mark.parametrize("bits", [32, 64])
def test_lds_atomics(bits: int) -> None:
    data, old = ("v20", "v24") if bits == 32 else ("v[20:21]", "v[24:25]")
    kind = np.uint32 if bits == 32 else np.uint64
    words, width = bits // 32, "dword" if bits == 32 else "dwordx2"
    for name, operation in INTEGER.items():
        if name not in LDS_NAMES:
            continue
        stem, kind_name = LDS_NAMES[name].format(i=f"i{bits}", u=f"u{bits}", b=f"b{bits}").split("_")
        x, out = integers(4 * LANES, 1), np.zeros(4 * LANES, np.uint32)
        x.view(kind)[1 :: 4 // words] = np.where(
            LANE % 3 == 0, x.view(kind)[:: 4 // words], x.view(kind)[1 :: 4 // words]
        )
        body = f"""
    global_load_{width} {data}, v2, s[4:5]
    global_load_{width} v[30:{29 + words}], v2, s[4:5] offset:{4 * words}
    s_waitcnt vmcnt(0)
    ds_write_b{bits} v2, v[30:{29 + words}]
    ds_{stem}_{kind_name} v2, {data} offset:{8 * LANES * 4}
    ds_{stem}_rtn_{kind_name} {old}, v2, {data}
    ds_read_b{bits} v[34:{33 + words}], v2
    s_waitcnt lgkmcnt(0)
    global_store_{width} v2, {old}, s[6:7]
    global_store_{width} v2, v[34:{33 + words}], s[6:7] offset:{4 * words}"""
        run(body.replace("v[30:30]", "v30").replace("v[34:34]", "v34"), x, out, lds=4096)
        before, values = x.view(kind)[1 :: 4 // words], x.view(kind)[:: 4 // words]
        mask = (1 << bits) - 1
        want = [operation(int(o), int(d), bits) & mask for o, d in zip(before, values, strict=True)]
        np.testing.assert_array_equal(out.view(kind)[:: 4 // words], before, err_msg=name)
        np.testing.assert_array_equal(out.view(kind)[1 :: 4 // words], np.array(want, kind), err_msg=name)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("buffer", [False, True])
def test_scalar_atomics(buffer: bool, bits: int) -> None:
    suffix, width, mask = ("", "dword", 0xFFFFFFFF) if bits == 32 else ("_x2", "dwordx2", (1 << 64) - 1)
    data = "s20" if bits == 32 else "s[20:21]"
    base, stem = ("s[12:15]", "s_buffer_atomic") if buffer else ("s[6:7]", "s_atomic")
    kind = np.uint32 if bits == 32 else np.uint64
    body, want = "", []
    x, out = integers(64, 1), integers(64, 2)
    for number, (name, operation) in enumerate(INTEGER.items()):
        body += f"""
    s_load_{width} {data}, s[4:5], {8 * number:#x}
    s_waitcnt lgkmcnt(0)
    {stem}_{name}{suffix} {data}, {base}, {8 * number:#x} glc
    s_waitcnt lgkmcnt(0)
    s_store_{width} {data}, s[6:7], {128 + 8 * number:#x}"""
        step = 8 // np.dtype(kind).itemsize
        old, given = int(out.view(kind)[step * number]), int(x.view(kind)[step * number])
        want.append((old, operation(old, given, bits) & mask))
    run(body, x, out, processor="gfx942")
    step = 8 // np.dtype(kind).itemsize
    cells = out.view(kind)[::step]
    for number, (old, new) in enumerate(want):
        assert (int(cells[16 + number]), int(cells[number])) == (old, new), list(INTEGER)[number]


def test_compare_and_swap() -> None:
    x, out = integers(4 * LANES, 1), integers(4 * LANES, 2)
    out[::4] = np.where(LANE % 2, x[1::4], out[::4])
    before = out[::4].copy()
    body = """
    global_load_dwordx2 v[20:21], v2, s[4:5]
    s_waitcnt vmcnt(0)
    global_atomic_cmpswap v24, v2, v[20:21], s[6:7] sc0
    s_waitcnt vmcnt(0)
    global_store_dword v2, v24, s[6:7] offset:4
    ds_write_b32 v2, v24
    ds_cmpst_rtn_b32 v26, v2, v24, v20
    ds_read_b32 v27, v2
    s_waitcnt lgkmcnt(0)
    global_store_dwordx2 v2, v[26:27], s[6:7] offset:8"""
    run(body, x, out, lds=4096)
    np.testing.assert_array_equal(out[::4], np.where(before == x[1::4], x[::4], before))
    np.testing.assert_array_equal(out[1::4], before)
    np.testing.assert_array_equal(out[2::4], before)
    np.testing.assert_array_equal(out[3::4], x[::4])


@pytest.mark.parametrize(("name", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_packed_atomics(name: str, kind: Any) -> None:
    """Two additions, each rounded on its own."""
    rng = np.random.default_rng(1)
    values = [rng.normal(0, 3, (2 * LANES)).astype(kind) for _ in range(2)]
    for text in (
        f"global_atomic_pk_add_{name} v1, v20, s[6:7]", f"buffer_atomic_pk_add_{name} v20, v1, s[12:15], 0 offen",
        f"ds_write_b32 v1, v21\n    ds_pk_add_{name} v1, v20\n    ds_read_b32 v22, v1\n    s_waitcnt lgkmcnt(0)\n"
        "    global_store_dword v1, v22, s[6:7]",
    ):  # fmt: skip
        x, out = values[0].view(np.uint32).copy(), values[1].view(np.uint32).copy()
        load = """
    global_load_dword v20, v1, s[4:5]
    global_load_dword v21, v1, s[6:7]
    s_waitcnt vmcnt(0)
    """
        run(load + text, x, out, lds=4096)
        want = (values[0].astype(np.float32) + values[1].astype(np.float32)).astype(kind)
        np.testing.assert_array_equal(out.view(np.uint16), want.view(np.uint16), err_msg=text)


def test_float_atomics() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(0, 3, LANES).astype(np.float32) for _ in range(2))
    a[:2] = np.array([1, 0x80000001], np.uint32).view(np.float32)  # denormals count as zero in L2
    b[:2] = 0
    for text in ("global_atomic_add_f32 v1, v20, s[6:7]", "buffer_atomic_add_f32 v20, v1, s[12:15], 0 offen"):
        x, out = a.copy(), b.copy()
        run(f"\n    global_load_dword v20, v1, s[4:5]\n    s_waitcnt vmcnt(0)\n    {text}", x, out)
        want = a + b
        want[:2] = 0
        np.testing.assert_array_equal(out, want)
    wide = [rng.normal(0, 3, LANES) for _ in range(2)]
    for name, operation in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
        x, out = wide[0].copy(), wide[1].copy()
        text = f"""
    v_lshlrev_b32 v3, 3, v0
    global_load_dwordx2 v[20:21], v3, s[4:5]
    s_waitcnt vmcnt(0)
    global_atomic_{name}_f64 v3, v[20:21], s[6:7]"""
        run(text, x, out)
        np.testing.assert_array_equal(out, operation(*wide))


def test_an_atomic_on_one_cell_counts_all_lanes() -> None:
    x, out = np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    run("\n    v_mov_b32 v3, 0\n    v_mov_b32 v4, 1\n    global_atomic_add v3, v4, s[6:7]", x, out)
    assert out[0] == LANES


# ---------------------------------------------------------------- LDS


def test_two_addresses() -> None:
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    body = """
    global_load_dwordx4 v[20:23], v2, s[4:5]
    s_waitcnt vmcnt(0)
    v_lshlrev_b32 v3, 3, v0
    ds_write2_b32 v3, v20, v21 offset1:1
    ds_write2st64_b64 v3, v[20:21], v[22:23] offset0:1 offset1:3
    s_waitcnt lgkmcnt(0)
    ds_read2_b32 v[24:25], v3 offset0:1
    ds_read2st64_b64 v[28:31], v3 offset0:3 offset1:1
    s_waitcnt lgkmcnt(0)
    global_store_dwordx2 v2, v[24:25], s[6:7]
    global_store_dwordx2 v2, v[30:31], s[6:7] offset:8"""
    run(body, x, out, lds=8192)
    rows = x.reshape(LANES, 4)
    want = np.stack([rows[:, 1], rows[:, 0], rows[:, 0], rows[:, 1]], 1)
    np.testing.assert_array_equal(out.reshape(LANES, 4), want)


def test_two_addresses_of_the_other_widths() -> None:
    """Offsets of the 64-bit form count 8 bytes, those of the 32-bit st64 form 256."""
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    body = """
    global_load_dwordx4 v[20:23], v2, s[4:5]
    s_waitcnt vmcnt(0)
    ds_write2_b64 v2, v[20:21], v[22:23] offset0:1 offset1:2
    s_waitcnt lgkmcnt(0)
    ds_read2_b64 v[24:27], v2 offset0:2 offset1:1
    s_waitcnt lgkmcnt(0)
    ds_write2st64_b32 v1, v24, v27 offset0:3 offset1:1
    s_waitcnt lgkmcnt(0)
    ds_read2st64_b32 v[28:29], v1 offset0:1 offset1:3
    s_waitcnt lgkmcnt(0)
    global_store_dwordx2 v2, v[28:29], s[6:7]
    ds_read_b32 v28, v1 offset:256
    ds_read_b32 v29, v1 offset:768
    s_waitcnt lgkmcnt(0)
    global_store_dwordx2 v2, v[28:29], s[6:7] offset:8"""
    run(body, x, out, lds=4096)
    rows = x.reshape(LANES, 4)
    want = np.stack([rows[:, 1], rows[:, 2]] * 2, 1)
    np.testing.assert_array_equal(out.reshape(LANES, 4), want)


def test_parts_of_a_dword_in_lds() -> None:
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    body = """
    global_load_dword v20, v2, s[4:5]
    v_mov_b32 v21, 0x11112222
    v_mov_b32 v22, 0x33334444
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v20
    ds_write_b8 v1, v20 offset:1
    ds_write_b16_d16_hi v1, v20 offset:2
    ds_read_i8 v23, v1
    ds_read_u16 v24, v1 offset:2
    ds_read_u16_d16 v21, v1 offset:2
    ds_read_u8_d16_hi v22, v1 offset:1
    s_waitcnt lgkmcnt(0)
    global_store_dword v2, v23, s[6:7]
    global_store_dword v2, v24, s[6:7] offset:4
    global_store_dword v2, v21, s[6:7] offset:8
    global_store_dword v2, v22, s[6:7] offset:12"""
    run(body, x, out, lds=4096)
    first = x[::4]
    low, high = first & 0xFF, first >> 16
    want = [
        low.astype(np.uint8).view(np.int8).astype(np.int32).view(np.uint32),
        high,
        0x11110000 | high,
        low << 16 | 0x4444,
    ]
    np.testing.assert_array_equal(out.reshape(LANES, 4), np.stack(want, 1).astype(np.uint32))


@pytest.mark.parametrize(("name", "bits", "nbytes"), [("b64_tr_b16", 16, 8), ("b64_tr_b8", 8, 8), ("b64_tr_b4", 4, 8),
                                                      ("b96_tr_b6", 6, 16)])  # fmt: skip
def test_transposed_reads(name: str, bits: int, nbytes: int) -> None:
    """16 lanes hold an E x 16 tile, row after row; afterwards each has one column."""
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    count = 3 if bits == 6 else 2
    registers = f"v[20:{19 + count}]"
    body = f"""
    global_load_dwordx4 v[24:27], v2, s[4:5]
    s_waitcnt vmcnt(0)
    v_mul_u32_u24 v3, {nbytes}, v0
    ds_write_b{32 * count} v3, v[24:{23 + count}]
    s_waitcnt lgkmcnt(0)
    ds_read_{name} {registers}, v3
    s_waitcnt lgkmcnt(0)
    global_store_dwordx{count} v2, {registers}, s[6:7]"""
    run(body, x, out, lds=4096)
    elements = 32 * count // bits
    unpack = np.unpackbits(x.reshape(LANES, 4)[:, :count].copy().view(np.uint8), axis=1, bitorder="little")
    rows = unpack.reshape(LANES, elements, bits)
    for group in range(0, LANES, 16):
        tile = rows[group : group + 16].reshape(elements, 16, bits)  # row n is held by 16 / E lanes
        got = np.unpackbits(
            out.reshape(LANES, 4)[group : group + 16, :count].copy().view(np.uint8), axis=1, bitorder="little"
        ).reshape(16, elements, bits)
        np.testing.assert_array_equal(got, tile.transpose(1, 0, 2))


@pytest.mark.parametrize(("suffix", "dwords"), [("dword", 1), ("dwordx3", 3), ("dwordx4", 4)])
@pytest.mark.parametrize("prefix", ["global", "buffer"])
def test_loads_to_lds(prefix: str, suffix: str, dwords: int) -> None:
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    step = 4 if dwords == 1 else 16
    load = (
        f"global_load_lds_{suffix} v2, s[4:5]"
        if prefix == "global"
        else f"buffer_load_{suffix} v2, s[8:11], 0 offen lds"
    )
    body = f"""
    s_mov_b32 m0, 256
    {load}
    s_waitcnt vmcnt(0)
    v_mul_u32_u24 v3, {step}, v0
    ds_read_b{32 * dwords} v[20:{19 + dwords}], v3 offset:256
    s_waitcnt lgkmcnt(0)
    global_store_{suffix} v2, v[20:{19 + dwords}], s[6:7]"""
    run(body.replace("v[20:20]", "v20"), x, out, lds=8192)
    want = np.zeros((LANES, 4), np.uint32)
    want[:, :dwords] = x.reshape(LANES, 4)[:, :dwords]
    np.testing.assert_array_equal(out.reshape(LANES, 4), want)


def test_flat_reaches_lds() -> None:
    """The aperture is where src_shared_base says."""
    x, out = integers(LANES), np.zeros(LANES, np.uint32)
    body = """
    global_load_dword v20, v1, s[4:5]
    s_mov_b64 s[16:17], src_shared_base
    v_mov_b32 v5, s17
    v_mov_b32 v4, v1
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v20
    s_waitcnt lgkmcnt(0)
    flat_load_dword v21, v[4:5]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    global_store_dword v1, v21, s[6:7]"""
    run(body, x, out, lds=4096)
    np.testing.assert_array_equal(out, x)


# ---------------------------------------------------------------- scalar memory and buffer resources


def test_scalar_memory() -> None:
    x, out = integers(64), np.zeros(64, np.uint32)
    body = """
    s_load_dwordx8 s[16:23], s[4:5], 0x10
    s_mov_b32 s24, 0x40
    s_load_dwordx2 s[26:27], s[4:5], s24
    s_mov_b32 s10, 0x20
    s_buffer_load_dwordx4 s[28:31], s[8:11], 0x18
    s_waitcnt lgkmcnt(0)
    s_store_dwordx4 s[16:19], s[6:7], 0x0
    s_store_dwordx2 s[26:27], s[6:7], 0x10
    s_store_dwordx4 s[28:31], s[6:7], 0x20
    s_mov_b32 s24, 5
    s_atomic_add s24, s[6:7], 0x40 glc
    s_waitcnt lgkmcnt(0)
    s_store_dword s24, s[6:7], 0x44"""
    out[16] = 37
    run(body, x, out, processor="gfx942")
    np.testing.assert_array_equal(out[:4], x[4:8])
    np.testing.assert_array_equal(out[4:6], x[16:18])
    np.testing.assert_array_equal(out[8:12], [x[6], x[7], 0, 0])  # beyond the resource's records: 0
    np.testing.assert_array_equal(out[16:18], [42, 37])


def test_scalar_memory_in_every_width() -> None:
    x, out = integers(64), np.zeros(64, np.uint32)
    body = """
    s_load_dwordx16 s[16:31], s[4:5], 0x14
    s_waitcnt lgkmcnt(0)
    s_store_dwordx4 s[16:19], s[6:7], 0x0
    s_buffer_store_dwordx4 s[28:31], s[12:15], 0x10
    s_buffer_load_dwordx16 s[16:31], s[8:11], 0x80
    s_waitcnt lgkmcnt(0)
    s_buffer_store_dwordx2 s[16:17], s[12:15], 0x20
    s_buffer_store_dword s31, s[12:15], 0x28
    s_buffer_load_dwordx8 s[16:23], s[8:11], 0x44
    s_buffer_load_dwordx2 s[24:25], s[8:11], 0x70
    s_buffer_load_dword s26, s[8:11], 0x7c
    s_waitcnt lgkmcnt(0)
    s_store_dwordx4 s[16:19], s[6:7], 0x30
    s_store_dwordx4 s[20:23], s[6:7], 0x40
    s_store_dwordx2 s[24:25], s[6:7], 0x50
    s_store_dword s26, s[6:7], 0x58
    s_mov_b32 s14, 0x60
    s_buffer_store_dwordx2 s[24:25], s[12:15], 0x5c"""
    run(body, x, out, processor="gfx942")
    np.testing.assert_array_equal(out[:8], [*x[5:9], *x[17:21]])
    np.testing.assert_array_equal(out[8:12], [x[32], x[33], x[47], 0])
    np.testing.assert_array_equal(out[12:23], [*x[17:25], x[28], x[29], x[31]])
    np.testing.assert_array_equal(out[23:25], [x[28], 0])  # beyond the resource's records nothing is stored


def test_structured_buffers() -> None:
    """With an index and a stride, records count: lanes beyond the last one read 0."""
    x, out = integers(4 * LANES), np.full(4 * LANES, 7, np.uint32)
    body = """
    s_or_b32 s9, s9, 0x000c0000
    s_mov_b32 s10, 50
    buffer_load_dword v20, v0, s[8:11], 0 idxen offset:4
    s_waitcnt vmcnt(0)
    global_store_dword v1, v20, s[6:7]"""
    run(body, x, out)
    want = np.where(LANE < 50, x[np.minimum(3 * LANE + 1, 4 * LANES - 1)], 0)
    np.testing.assert_array_equal(out[:LANES], want)


def test_an_access_beyond_the_arrays_is_named() -> None:
    x, out = integers(LANES), np.zeros(LANES, np.uint32)
    body = """
    global_load_dword v20, v1, s[4:5] offset:4
    s_waitcnt vmcnt(0)
    global_store_dword v1, v20, s[6:7]"""
    result = run(body, x, out)
    assert any("global_load_dword" in str(finding) for finding in result.findings)
    np.testing.assert_array_equal(out, [*x[1:], 0])


@pytest.mark.parametrize("mask", [FULL, PART], ids=["all lanes", "some lanes"])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_dwords_in_lds(width: int, mask: int) -> None:
    value, back = (f"v{first}" if width == 1 else f"v[{first}:{first + width - 1}]" for first in (20, 24))
    suffix = "dword" if width == 1 else f"dwordx{width}"
    body = f"""
    global_load_{suffix} {value}, v2, s[4:5]
    s_waitcnt vmcnt(0)
    ds_write_b{32 * width} v2, {value} offset:16
    s_waitcnt lgkmcnt(0)
    ds_read_b{32 * width} {back}, v2 offset:16
    s_waitcnt lgkmcnt(0)
    global_store_{suffix} v2, {back}, s[6:7]"""
    x, out = integers(4 * LANES), np.zeros(4 * LANES, np.uint32)
    run(body, x, out, lds=2048, mask=mask)
    want = np.zeros((LANES, 4), np.uint32)
    on = np.array([mask >> lane & 1 for lane in range(LANES)], bool)
    want[on, :width] = x.reshape(LANES, 4)[on, :width]
    np.testing.assert_array_equal(out.reshape(LANES, 4), want)


def test_signed_parts_in_lds() -> None:
    x, out = integers(LANES), np.zeros(4 * LANES, np.uint32)
    body = """
    global_load_dword v20, v1, s[4:5]
    v_mov_b32 v24, 0x11112222
    v_mov_b32 v25, 0x33334444
    s_waitcnt vmcnt(0)
    ds_write_b16 v1, v20
    ds_write_b8_d16_hi v1, v20 offset:3
    s_waitcnt lgkmcnt(0)
    ds_read_u8 v22, v1 offset:3
    ds_read_i16 v23, v1
    ds_read_i8_d16 v24, v1
    ds_read_u16_d16_hi v25, v1
    s_waitcnt lgkmcnt(0)
    global_store_dwordx4 v2, v[22:25], s[6:7]"""
    run(body, x, out, lds=1024)
    wide = x.astype(np.int64)
    low, byte = wide & 0xFFFF, wide & 0xFF
    signed = ((byte ^ 0x80) - 0x80) & 0xFFFF
    want = [wide >> 16 & 0xFF, (low ^ 0x8000) - 0x8000, 0x11110000 | signed, low << 16 | 0x4444]
    np.testing.assert_array_equal(out.reshape(LANES, 4), np.stack(want, 1) & 0xFFFFFFFF)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("i8_d16_hi", lambda v: ((((v & 0xFF) ^ 0x80) - 0x80) & 0xFFFF) << 16 | 0x1234),
        ("u8_d16", lambda v: 0xABCD0000 | v & 0xFF),
        ("u8_d16_hi", lambda v: (v & 0xFF) << 16 | 0x1234),
        ("u16_d16", lambda v: 0xABCD0000 | v & 0xFFFF),
    ],
)
def test_parts_in_lds_to_half_a_register(name: str, want: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    x, out = integers(LANES), np.zeros(LANES, np.uint32)
    body = f"""
    global_load_dword v20, v1, s[4:5]
    v_mov_b32 v21, 0xabcd1234
    s_waitcnt vmcnt(0)
    ds_write_b32 v1, v20
    ds_read_{name} v21, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v21, s[6:7]"""
    run(body, x, out, lds=256)
    np.testing.assert_array_equal(out, want(x.astype(np.int64)))


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("ubyte", lambda v: v & 0xFF),
        ("sbyte", lambda v: ((v & 0xFF) ^ 0x80) - 0x80),
        ("ushort", lambda v: v & 0xFFFF),
        ("sshort", lambda v: ((v & 0xFFFF) ^ 0x8000) - 0x8000),
    ],
)
def test_parts_of_a_dword_straight_to_lds(name: str, want: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """Each lane's part becomes a dword of its own: at M0 plus the offset plus 4 * lane."""
    x, out = integers(4 * LANES), np.zeros(LANES, np.uint32)
    body = f"""
    s_mov_b32 m0, 0x100
    global_load_lds_{name} v2, s[4:5] offset:16
    s_waitcnt vmcnt(0)
    ds_read_b32 v20, v1 offset:272
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v20, s[6:7]"""
    x = np.concatenate([np.zeros(4, np.uint32), x])
    run(body, x, out, lds=1024)
    np.testing.assert_array_equal(out, want(x[4::4].astype(np.int64)) & 0xFFFFFFFF)
