"""Scratch memory: each lane's own bytes, by every way of addressing them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from emulator.test_memory import LANE, LANES, PARTS, STORED, integers
from emulator.toolkit import build
from numpy.typing import NDArray

from asmlaunch.devices import LaunchResult

#: v1 = 4 * lane, x in s[4:5], out in s[6:7].
START = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_and_b32 v2, 0xff, v1
    s_waitcnt lgkmcnt(0)
    global_load_dword v20, v1, s[4:5]
    s_waitcnt vmcnt(0)
"""
END = """
    s_waitcnt vmcnt(0)
    global_store_dword v1, v21, s[6:7]
"""


def run(body: str, size: int, *, waves: int = 1, grid: int = 1, **options: Any) -> tuple[NDArray[Any], LaunchResult]:
    """Run with ``size`` bytes of scratch memory a lane; x and the dword that each work-item stores are given back."""
    items = LANES * waves * grid
    x, out = integers(items), np.zeros(items, np.uint32)
    offset = f"""
    s_mul_i32 s3, s2, {4 * LANES * waves}
    s_add_u32 s4, s4, s3
    s_addc_u32 s5, s5, 0
    s_add_u32 s6, s6, s3
    s_addc_u32 s7, s7, 0"""
    start = START.replace("s_waitcnt lgkmcnt(0)", f"s_waitcnt lgkmcnt(0)\n{offset}", 1)
    kernel = build(start + body + END, "x:ptr out:ptr")
    kernel.info = dataclasses.replace(kernel.info, scratch_size=size)
    result = kernel.launch({"x": x, "out": out}, grid=grid, block=LANES * waves, **options)
    return np.stack([x, out]), result


FORMS = {
    "offset": ("off, {v}, off offset:8", "off, off offset:8"),
    "SGPR": ("off, {v}, s10 offset:-4", "off, s10 offset:-4"),
    "VGPR": ("v9, {v}, off offset:4", "v9, off offset:4"),
    "both": ("v10, {v}, s11 offset:4", "v10, s11 offset:4"),
}


@pytest.mark.parametrize("checks", ["bounds", "all"])
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_byte_8(form: str, checks: str) -> None:
    """What one way stores is loaded by another; every lane finds its own value."""
    store, load = FORMS[form][0].format(v="v20"), FORMS["offset"][1]
    body = f"""
    s_mov_b32 s10, 12
    s_mov_b32 s11, 3
    v_mov_b32 v9, 4
    v_mov_b32 v10, 1
    scratch_store_dword {store}
    s_waitcnt vmcnt(0)
    scratch_load_dword v21, {load}"""
    (x, out), result = run(body, 12, waves=2, grid=3, checks=checks)
    np.testing.assert_array_equal(out, x)
    assert result.findings == ()
    body = body.replace(store, FORMS["offset"][0].format(v="v20")).replace(f"v21, {load}", f"v21, {FORMS[form][1]}")
    (x, out), _ = run(body, 12, checks=checks)
    np.testing.assert_array_equal(out, x)


def test_flat_instructions_reach_it_through_their_aperture() -> None:
    body = """
    s_mov_b64 s[10:11], src_private_base
    v_mov_b32 v8, 20
    v_mov_b32 v9, s11
    scratch_store_dword off, v20, off offset:16
    v_not_b32 v20, v20
    flat_store_dword v[8:9], v20
    s_waitcnt vmcnt(0) lgkmcnt(0)
    flat_load_dwordx2 v[22:23], v[8:9] offset:0
    scratch_load_dwordx2 v[24:25], off, off offset:16
    s_waitcnt vmcnt(0) lgkmcnt(0)
    v_xor_b32 v21, v24, v25
    v_and_b32 v21, v21, v24
    v_cmp_eq_u32 vcc, v22, v25
    v_cndmask_b32 v21, 0, v21, vcc"""
    (x, out), result = run(body, 28, checks="all")
    np.testing.assert_array_equal(out, x)
    assert result.findings == ()


@pytest.mark.parametrize("name", PARTS)
def test_loads_of_parts_of_a_dword(name: str) -> None:
    body = f"""
    v_mov_b32 v21, 0xabcd1234
    scratch_store_dword off, v20, off offset:4
    s_waitcnt vmcnt(0)
    scratch_load_{name} v21, off, off offset:4"""
    (x, out), _ = run(body, 8)
    np.testing.assert_array_equal(out, np.asarray(PARTS[name](x.astype(np.int64))) & 0xFFFFFFFF)


@pytest.mark.parametrize("name", STORED)
def test_stores_of_parts_of_a_dword(name: str) -> None:
    shift, bits = STORED[name]
    body = f"""
    v_mov_b32 v22, 0x55555555
    scratch_store_dword off, v22, off offset:4
    scratch_store_{name} off, v20, off offset:4
    s_waitcnt vmcnt(0)
    scratch_load_dword v21, off, off offset:4"""
    (x, out), _ = run(body, 8)
    np.testing.assert_array_equal(out, x >> shift & ((1 << bits) - 1) | (0x55555555 >> bits << bits))


@pytest.mark.parametrize("width", [2, 3, 4])
def test_several_dwords(width: int) -> None:
    body = f"""
    v_mov_b32 v21, v1
    v_not_b32 v22, v20
    v_mov_b32 v23, 9
    scratch_store_dwordx{width} off, v[20:{19 + width}], off offset:4
    s_waitcnt vmcnt(0)
    scratch_load_dwordx{width} v[24:{23 + width}], off, off offset:4
    s_waitcnt vmcnt(0)
    v_mov_b32 v21, v{23 + width}"""
    (x, out), _ = run(body, 4 + 4 * width)
    np.testing.assert_array_equal(out, (4 * LANE, ~x, np.full(LANES, 9))[width - 2])


def test_a_wave_finds_zeros() -> None:
    """Not what an earlier workgroup has left."""
    body = """
    scratch_load_dword v21, off, off
    s_waitcnt vmcnt(0)
    scratch_store_dword off, v20, off"""
    (_, out), _ = run(body, 4, grid=4, threads=1)
    assert not out.any()


@pytest.mark.parametrize(("text", "verb"), [("scratch_store_dword off, v20, off offset:6", "writes"),
                                            ("scratch_load_dword v21, off, off offset:6", "reads")])  # fmt: skip
def test_beyond_a_lane_s_share(text: str, verb: str) -> None:
    """The next lane's share is not touched."""
    body = f"""
    scratch_store_dword off, v20, off
    v_mov_b32 v21, 0
    s_waitcnt vmcnt(0)
    {text}
    s_waitcnt vmcnt(0)
    v_mov_b32 v22, v21
    scratch_load_dword v21, off, off
    s_waitcnt vmcnt(0)
    v_or_b32 v21, v21, v22"""
    (x, out), result = run(body, 8)
    np.testing.assert_array_equal(out, x)
    (finding,) = result.findings
    assert finding.kind == "scratch"
    assert f"{verb} byte 6 of scratch memory, which has 8 bytes a lane (64x)" in finding.message
