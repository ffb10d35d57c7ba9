"""Text of the disassembler -> operands and modifiers; and a sample of real objects against llvm-objdump where it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from corpus.decode import differences
from emulator.assembler import AssemblyError, assemble
from typer.testing import CliRunner

from asmlaunch.cli import app
from asmlaunch.emulator.decode import Disassembler, Immediate, Register, Word, parse, parse_operand
from asmlaunch.errors import CodeObjectError

OBJDUMP = next((name for name in ("llvm-objdump-22", "llvm-objdump-21", "llvm-objdump-20") if shutil.which(name)), "")


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("v7", Register("v", 7)), ("s[4:7]", Register("s", 4, 4)), ("a[0:15]", Register("a", 0, 16)),
        ("-v3", Register("v", 3, neg=True)), ("|v3|", Register("v", 3, abs=True)),
        ("-|v[2:3]|", Register("v", 2, 2, neg=True, abs=True)), ("sext(v1)", Register("v", 1, sext=True)),
        ("vcc", Register("s", 106, 2)), ("exec_hi", Register("s", 127)), ("m0", Register("s", 124)),
        ("-1", Immediate("-1")), ("0x3f800000", Immediate("0x3f800000")), ("-0.5", Immediate("-0.5")),
        ("off", Word("off")), ("src_shared_base", Word("src_shared_base")),
    ],
)  # fmt: skip
def test_operands(text: str, operand: object) -> None:
    assert parse_operand(text) == operand


def test_numbers() -> None:
    assert Immediate("1.0").as_int() == 0x3F800000
    assert Immediate("-4.0").as_float() == -4
    assert Immediate("0x80").as_int() == 128
    assert Immediate("-16").as_int() == -16
    assert Immediate("0x80").as_float() is None


@pytest.mark.parametrize(
    ("text", "mnemonic", "encoding", "count", "modifiers"),
    [
        ("v_add_u32_e32 v0, s1, v2", "v_add_u32", "e32", 3, {}),
        ("v_mul_f32_dpp v1, v2, v3 row_newbcast:5 row_mask:0xf bank_mask:0xf", "v_mul_f32", "dpp", 3,
         {"row_newbcast": 5, "row_mask": 15, "bank_mask": 15}),
        ("v_mov_b32_dpp v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1", "v_mov_b32", "dpp", 2,
         {"quad_perm": (1, 0, 3, 2), "row_mask": 15, "bank_mask": 15, "bound_ctrl": 1}),
        ("v_cvt_f32_f16_sdwa v0, v1 dst_sel:DWORD dst_unused:UNUSED_PRESERVE src0_sel:WORD_1",
         "v_cvt_f32_f16", "sdwa", 2, {"dst_sel": "DWORD", "dst_unused": "UNUSED_PRESERVE", "src0_sel": "WORD_1"}),
        ("s_waitcnt vmcnt(3) lgkmcnt(0)", "s_waitcnt", "", 0, {"vmcnt": 3, "lgkmcnt": 0}),
        ("s_endpgm", "s_endpgm", "", 0, {}),
        ("buffer_load_dword v3, s[4:7], 0 offen offset:16 lds", "buffer_load_dword", "", 3,
         {"offen": True, "offset": 16, "lds": True}),
        ("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], a[0:3], v[4:7], v[0:3], v8, v9 op_sel:[0,1,0] op_sel_hi:[0,0,0] "
         "cbsz:4 blgp:4", "v_mfma_scale_f32_16x16x128_f8f6f4", "", 6,
         {"op_sel": (0, 1, 0), "op_sel_hi": (0, 0, 0), "cbsz": 4, "blgp": 4}),
        ("s_set_gpr_idx_on s4, gpr_idx(SRC0,DST)", "s_set_gpr_idx_on", "", 2, {}),
        ("s_getreg_b32 s0, hwreg(HW_REG_MODE, 4, 2)", "s_getreg_b32", "", 2, {}),
    ],
)  # fmt: skip
def test_instructions(text: str, mnemonic: str, encoding: str, count: int, modifiers: dict[str, object]) -> None:
    one = parse(text)
    assert (one.mnemonic, one.encoding, len(one.operands), dict(one.modifiers)) == (
        mnemonic,
        encoding,
        count,
        modifiers,
    )


def test_branches_count_dwords_from_the_next_instruction() -> None:
    assert parse("s_branch 3", 0x100).branch_target == 0x110
    assert parse("s_cbranch_scc0 65535", 0x100).branch_target == 0x100


@pytest.mark.parametrize("processor", ["gfx942", "gfx950"])
def test_assembled_text_comes_back(processor: str) -> None:
    lines = [
        "s_load_dwordx4 s[4:7], s[0:1], 0x10", "v_add_f32_e64 v0, |v1|, -v2 clamp", "ds_read_b64 v[2:3], v1 offset:8",
        "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] op_sel_hi:[1,0,1]",
        "global_load_dwordx2 v[0:1], v2, s[4:5] offset:16",
    ]  # fmt: skip
    decoded = Disassembler(processor).text(assemble("\n".join(lines), processor), 0x40)
    assert [text for _, _, text in decoded[: len(lines)]] == lines
    assert decoded[1][0] == 0x48


def test_what_is_no_instruction_is_refused_with_its_address() -> None:
    with pytest.raises(CodeObjectError, match=r"0x1000.*ff ff ff ff"):
        Disassembler("gfx950").one(b"\xff" * 16, 0x1000)
    with pytest.raises(AssemblyError, match="invalid instruction"):
        assemble("v_nonsense v0", "gfx950")


def test_swizzle_offsets_are_whole() -> None:
    code = assemble("ds_swizzle_b32 v0, v1 offset:0xc0a3", "gfx950")
    one = Disassembler("gfx950").one(code, 0)
    assert one.modifiers == {"offset": 0xC0A3}
    assert "swizzle(ROTATE" in one.text


@pytest.mark.parametrize("number", range(5))
def test_real_objects_decode_as_llvm_objdump_decodes_them(aiter_kernels: Path, number: int) -> None:
    """A sample; tests/corpus/decode.py compares them all."""
    if not OBJDUMP:  # an independent decoder is a tool of the machine, not a package
        return
    files = sorted(aiter_kernels.rglob("*.co"), key=lambda path: path.stat().st_size)[: 5 * 300 : 300]
    count, found = differences(files[number], OBJDUMP)
    assert count > 100
    assert not found, found[:3]


def test_disasm_command(f4gemm_folder: Path) -> None:
    path = f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"
    plain = CliRunner().invoke(app, ["disasm", str(path)])
    assert plain.exit_code == 0
    assert "s_load_dwordx2 s[4:5], s[0:1], 0x0" in plain.output
    assert plain.output.splitlines()[1].split(":")[0].strip() == "0x2c00"
    blocks = CliRunner().invoke(app, ["disasm", str(path), "--cfg"])
    assert blocks.exit_code == 0
    assert "block 0x2cec: jumps to 0x2ce4" in blocks.output
    assert "ends" in blocks.output
