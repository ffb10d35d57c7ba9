"""Kernels compared by machine code: small programs whose differences are known, and shipped kernels."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from emulator.assembler import assemble
from rich.console import Console

from asmlaunch import codeobject
from asmlaunch.codeobject import KernelInfo
from asmlaunch.emulator.codediff import CodeDiff, blocks_of, code_diff


@pytest.fixture(scope="module")
def info(f4gemm_folder: Path) -> KernelInfo:
    path = f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"
    return next(iter(codeobject.read(path).kernels.values()))


def with_code(info: KernelInfo, text: str) -> KernelInfo:
    code = assemble(text, "gfx950")
    return dataclasses.replace(info, code=code, text=code, text_address=info.code_address)


LOOP = """
s_load_dword s4, s[0:1], 0x10
v_mov_b32 v1, s4
L: v_add_u32 v1, v1, v2
s_add_u32 s5, s5, 1
s_cmp_lt_u32 s5, s6
s_cbranch_scc1 L
global_store_dword v[2:3], v1, off
s_endpgm
"""


def diff(info: KernelInfo, a: str, b: str) -> CodeDiff:
    return code_diff(with_code(info, a), with_code(info, b))


def shown(result: CodeDiff) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(result)
    return capture.get()


def test_blocks(info: KernelInfo) -> None:
    blocks = blocks_of(with_code(info, LOOP))
    assert [len(block.lines) for block in blocks] == [2, 4, 2]
    assert blocks[1].lines[-1] == "s_cbranch_scc1"
    assert blocks[1].mnemonics == ("v_add_u32", "s_add_u32", "s_cmp_lt_u32", "s_cbranch_scc1")


def test_the_same_code(info: KernelInfo) -> None:
    result = diff(info, LOOP, LOOP)
    assert not result
    assert (result.equal_blocks, result.arguments) == (3, {})
    assert result.summary() == "code: 8 instructions, the same in both"
    assert "scalar" not in shown(result)


def test_other_operands(info: KernelInfo) -> None:
    result = diff(info, LOOP, LOOP.replace("v_add_u32 v1, v1, v2", "v_add_u32 v1, v1, v9"))
    (change,) = result.changes
    assert (change.kind, change.removed, change.added, result.equal_blocks) == ("operands", 1, 1, 2)


def test_an_argument_that_moved(info: KernelInfo) -> None:
    result = diff(info, LOOP, LOOP.replace("0x10", "0x20"))
    assert result.arguments == {
        "loaded only by a": [(16, 20)], "loaded only by b": [(32, 36)],
        "used only by a": [(16, 20)], "used only by b": [(32, 36)],
    }  # fmt: skip
    assert "argument bytes loaded only by b: 32..35" in shown(result)


def test_other_code(info: KernelInfo) -> None:
    longer = LOOP.replace("s_add_u32 s5", "v_mul_lo_u32 v1, v1, v2\nv_mul_lo_u32 v1, v1, v2\ns_add_u32 s5")
    result = diff(info, LOOP, longer)
    assert [change.kind for change in result.changes] == ["code"]
    assert result.counts["v_mul_lo_u32"] == (0, 2)
    assert result.classes["vector"] == (2, 4)
    assert result.classes["branch"] == (2, 2)
    assert result.summary() == "code: 8 -> 10 instructions; blocks: 2 equal, 1 with other code"
    assert "+2" in shown(result)


def test_blocks_that_came_and_went(info: KernelInfo) -> None:
    more = LOOP.replace("s_endpgm", "s_cbranch_scc0 M\nds_write_b32 v1, v2\nM: s_endpgm")
    there, back = diff(info, LOOP, more), diff(info, more, LOOP)
    assert "new" in {change.kind for change in there.changes}
    assert "removed" in {change.kind for change in back.changes}
    answer = json.loads(json.dumps(there.to_json()))
    assert answer["mnemonics"]["ds_write_b32"] == [0, 1]
    assert answer["differs"] is True


def test_processors_that_liveness_does_not_know(info: KernelInfo) -> None:
    target = dataclasses.replace(info.target, processor="gfx1100")
    other = dataclasses.replace(with_code(info, "s_nop 0\ns_endpgm"), target=target)
    result = code_diff(other, other)
    assert (result.live, result.arguments, bool(result)) == (None, {}, False)


def test_shipped_kernels(info: KernelInfo, f4gemm_folder: Path) -> None:
    """Twice the rows of a tile are twice the matrix instructions, and the same arguments."""
    path = f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128.co"
    result = code_diff(info, next(iter(codeobject.read(path).kernels.values())))
    assert result.classes["matrix"] == (64, 128)
    assert result.classes["scalar memory"] == (16, 16)
    assert result.arguments == {}
