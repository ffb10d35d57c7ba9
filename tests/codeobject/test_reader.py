"""Reading code objects: what is in them, as the assembly source and LLVM's tools state it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.errors import CodeObjectError, KernelNotFoundError

ENDPGM = bytes.fromhex("000081bf")


@pytest.mark.parametrize("version", [4, 5, 6])
def test_versions_that_llvm_writes(objects: Path, version: int) -> None:
    assert codeobject.read(objects / f"two_kernels_v{version}.co").version == version


def test_version_3_has_one_bit_a_feature(two_kernels: bytes) -> None:
    data = bytearray(two_kernels)
    data[8] = 1
    struct.pack_into("<I", data, 48, 0x4F | 0x200)
    found = codeobject.read(bytes(data))
    assert (found.version, str(found.target)) == (3, "gfx950:sramecc+:xnack-")


def test_path_string_and_bytes_give_the_same(objects: Path) -> None:
    path = objects / "two_kernels_v5.co"
    found = [codeobject.read(source) for source in (path, str(path), path.read_bytes(), memoryview(path.read_bytes()))]
    assert len({tuple(o.kernels["scale"].code for o in [one]) for one in found}) == 1
    assert [o.path for o in found] == [path, path, None, None]


def test_kernel_facts_are_those_of_the_source(two_kernels: bytes) -> None:
    found = codeobject.read(two_kernels)
    assert list(found.kernels) == ["add_one", "scale"]
    kernel = found.kernels["scale"]
    assert kernel.symbol == "scale_body.kd"
    assert (kernel.kernarg_size, kernel.kernarg_align, kernel.lds_size, kernel.scratch_size) == (280, 8, 4096, 16)
    assert (kernel.sgpr_count, kernel.vgpr_count, kernel.agpr_count, kernel.wavefront_size) == (20, 40, 8, 64)
    assert (kernel.max_workgroup_size, kernel.required_workgroup_size) == (128, (64, 2, 1))
    assert found.kernels["add_one"].required_workgroup_size is None
    out, source, n, factor, *hidden = kernel.arguments
    assert (out.name, out.offset, out.size, out.access, out.address_space) == ("out", 0, 8, "write_only", "global")
    assert out.is_pointer
    assert out.is_restrict
    assert source.is_const
    assert (n.offset, factor.offset, n.is_pointer) == (16, 20, False)
    assert len(hidden) == 13
    assert all(argument.hidden for argument in hidden)
    assert hidden[0].value_kind == "hidden_block_count_x"


def test_code_is_the_function_and_no_more(two_kernels: bytes) -> None:
    found = codeobject.read(two_kernels)
    add_one, scale = found.kernels["add_one"], found.kernels["scale"]
    assert len(add_one.code) == 12
    assert len(scale.code) == 24
    assert add_one.code.endswith(ENDPGM)
    assert scale.code.endswith(ENDPGM)
    start = scale.code_address - scale.text_address
    assert scale.text[start : start + len(scale.code)] == scale.code
    assert (scale.code_address - add_one.code_address) == 256


def test_a_function_without_size_ends_at_the_next_one(two_kernels: bytes) -> None:
    data = bytearray(two_kernels)
    for kernel in codeobject.read(two_kernels).kernels.values():
        symbol, unsized = (struct.pack("<QQ", kernel.code_address, size) for size in (len(kernel.code), 0))
        assert data.count(symbol) == 2  # in .dynsym and .symtab
        data = data.replace(symbol, unsized)
    found = codeobject.read(bytes(data))
    assert len(found.kernels["add_one"].code) == 256
    assert found.kernels["scale"].code.startswith(codeobject.read(two_kernels).kernels["scale"].code)


def test_unknown_kernel_lists_the_names(two_kernels: bytes) -> None:
    kernels = codeobject.read(two_kernels).kernels
    with pytest.raises(KernelNotFoundError, match=r"'Scale'.*add_one, scale"):
        kernels["Scale"]
    assert "Scale" not in kernels
    assert len(kernels) == 2


def test_reprs_name_what_they_are(two_kernels: bytes) -> None:
    found = codeobject.read(two_kernels)
    assert "gfx950" in repr(found)
    assert "add_one, scale" in repr(found)
    assert "280 bytes" in repr(found.kernels["scale"])


def test_every_object_of_the_wheel_parses(aiter_kernels: Path) -> None:
    paths = sorted(aiter_kernels.rglob("*.co"))
    assert len(paths) == 2501
    for path in paths:
        found = codeobject.read(path)
        (kernel,) = found.kernels.values()
        assert found.target.processor == path.relative_to(aiter_kernels).parts[0]
        assert kernel.arguments
        assert kernel.kernarg_size >= max(a.offset + a.size for a in kernel.arguments if not a.name.startswith("pad"))
        assert kernel.code
        assert kernel.descriptor.kernarg_size in (0, kernel.kernarg_size)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda data: b"", r"not an ELF file or offload bundle: got first bytes \(none\)"),
        (lambda data: b"PK\x03\x04" + data, "not an ELF file or offload bundle.*50 4b 03 04"),
        (lambda data: data[:40], "truncated.*40 bytes.*64 bytes"),
        (lambda data: data[:4] + b"\x01" + data[5:], "class and byte order: got 01 01"),
        (lambda data: data[:18] + b"\x3e\x00" + data[20:], "ELF machine: got 62 and no .hip_fatbin section, need 224"),
        (lambda data: data[:7] + b"\x00" + data[8:], "OS/ABI: got 0, need 64"),
        (lambda data: data[:8] + b"\x05" + data[9:], r"ABI version: got 5.*4 \(v6\)"),
        (lambda data: data[:8] + b"\x00" + data[9:], "ABI version: got 0"),
        (lambda data: data[:54] + b"\x39\x00" + data[56:], "program header size: got 57, need 56"),
        (lambda data: data[:-1], "section headers: the file is truncated"),
        (lambda data: data.replace(b"scale_body.kd\0", b"scale_bodx.kd\0"), "scale_body.kd is not in the symbol table"),
        (lambda data: data.replace(b"AMDGPU\0", b"AMDGPV\0"), "no AMDGPU metadata note; HIP would fail with error 303"),
    ],
)
def test_bad_input_is_refused_and_explained(two_kernels: bytes, make: object, says: str) -> None:
    with pytest.raises(CodeObjectError, match=says):
        codeobject.read(make(two_kernels))  # type: ignore[operator]


def test_files_that_cannot_be_used(objects: Path, tmp_path: Path) -> None:
    with pytest.raises(CodeObjectError, match="No such file"):
        codeobject.read(tmp_path / "absent.co")
    with pytest.raises(CodeObjectError, match="link it first"):
        codeobject.read(objects / "relocatable.o")
    with pytest.raises(CodeObjectError, match="no AMDGPU metadata note"):
        codeobject.read(objects / "no_metadata.co")


def test_truncation_at_every_byte_is_an_error(two_kernels: bytes) -> None:
    for length in range(len(two_kernels)):
        with pytest.raises(CodeObjectError):
            codeobject.read(two_kernels[:length])
