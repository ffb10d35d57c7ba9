"""Bundles, compressed bundles and fat binaries, built here from the published layouts."""

from __future__ import annotations

import hashlib
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from asmlaunch import codeobject
from asmlaunch.codeobject import container
from asmlaunch.codeobject.container import entries
from asmlaunch.codeobject.target import GENERIC, MACHINES, compatible, parse_target
from asmlaunch.errors import CodeObjectError, TargetError

#: The first 32 bytes of a compressed bundle that hipcc --genco wrote, from a public report.
PUBLIC_HEADER = bytes.fromhex("43434f42030001004b0d000000000000d02e0000000000000865abc32600f3bf")

HOST = "host-x86_64-unknown-linux-gnu"


def bundle(parts: Sequence[tuple[str, bytes]], align: int = 4096) -> bytes:
    table_size = 32 + sum(24 + len(name) for name, _ in parts)
    table, body = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(parts)), b""
    start = -(-table_size // align) * align
    for name, data in parts:
        table += struct.pack("<QQQ", start + len(body), len(data), len(name)) + name.encode()
        body += data + bytes(-len(data) % align)
    return table.ljust(start, b"\0") + body


def compressed(data: bytes, version: int, method: int) -> bytes:
    packed = container._zstd_module().compress(data) if method == 1 else zlib.compress(data)
    digest = hashlib.md5(data, usedforsecurity=False).digest()[:8]
    code = {1: "", 2: "I", 3: "Q"}[version]
    size = 8 + 8 + {1: 4, 2: 8, 3: 16}[version] + len(packed)
    numbers = struct.pack("<" + code + (code or "I"), *([size] if code else []), len(data))
    return b"CCOB" + struct.pack("<HH", version, method) + numbers + digest + packed


def host_elf(section: bytes, name: bytes = b".hip_fatbin", machine: int = 62) -> bytes:
    names = b"\0.shstrtab\0" + name + b"\0"
    at = 64 + 3 * 64
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64, 0, 64, 56, 0, 64, 3, 1)
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 11, 1, 2, 0, at + len(names), len(section), 0, 0, 4096, 0)
    return header + sections + names + section


@pytest.fixture(scope="module")
def gfx900(objects: Path) -> bytes:
    return (objects / "plain_gfx900.co").read_bytes()


@pytest.fixture(scope="module")
def gfx1100(objects: Path) -> bytes:
    return (objects / "plain_gfx1100.co").read_bytes()


@pytest.fixture(scope="module")
def both(gfx900: bytes, gfx1100: bytes) -> bytes:
    return bundle(
        [
            (HOST, b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx900:xnack+", gfx900),
            ("hipv4-amdgcn-amd-amdhsa--gfx1100", gfx1100),
        ]
    )


def test_entries(both: bytes, gfx900: bytes, gfx1100: bytes) -> None:
    host, first, second = entries(both)
    assert (host.target, host.size) == (None, 0)
    assert (str(first.target), first.data) == ("gfx900:xnack+", gfx900)
    assert (str(second.target), second.data) == ("gfx1100", gfx1100)
    assert "gfx900" in repr(first)
    assert len(repr(first)) < 300


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("method", [0, 1])
def test_compressed(both: bytes, gfx1100: bytes, version: int, method: int) -> None:
    packed = compressed(both, version, method)
    assert len(packed) < len(both)
    assert codeobject.read(packed, target="gfx1100").data == gfx1100


@pytest.mark.parametrize("version", [1, 2, 3])
def test_several_one_after_the_other(gfx900: bytes, gfx1100: bytes, version: int) -> None:
    parts = [bundle([("hip-amdgcn-amd-amdhsa--gfx900", gfx900)]), bundle([("hip-amdgcn-amd-amdhsa-gfx1100", gfx1100)])]
    packed = [compressed(part, version, 0) for part in parts]
    for pieces in (parts, packed, [packed[0], parts[1]], [parts[0], packed[1]]):
        data = b"".join(piece + bytes(-len(piece) % 4096) for piece in pieces)
        assert [str(entry.target) for entry in entries(data)] == ["gfx900", "gfx1100"]
        assert codeobject.read(host_elf(data), target="gfx1100").data == gfx1100


def test_public_header_is_read_as_the_report_states_it() -> None:
    with pytest.raises(CodeObjectError, match="compressed bundle is truncated: got 32 bytes, need 3403 bytes"):
        entries(PUBLIC_HEADER)
    with pytest.raises(CodeObjectError, match="damaged zstd stream"):
        entries(PUBLIC_HEADER + bytes(3403 - 32))


def test_without_a_zstd_module(both: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compressed(both, 3, 1)
    monkeypatch.setitem(sys.modules, "compression", None)
    monkeypatch.setitem(sys.modules, "backports", None)
    with pytest.raises(CodeObjectError, match=r"compressed with zstd.*pip install 'asmlaunch\[zstd\]'"):
        entries(packed)


def test_choice_of_the_entry(objects: Path, gfx900: bytes) -> None:
    generic = (objects / "plain_gfx11-generic.co").read_bytes()
    exact = (objects / "plain_gfx1100.co").read_bytes()
    data = bundle([("hipv4-amdgcn-amd-amdhsa--gfx11-generic", generic), ("hipv4-amdgcn-amd-amdhsa--gfx1100", exact)])
    assert codeobject.read(data, target="gfx1100").data == exact
    assert codeobject.read(data, target="gfx1151").data == generic
    with pytest.raises(
        TargetError, match="holds several targets: got gfx11-generic, gfx1100, need a choice; pass target="
    ):
        codeobject.read(data)
    with pytest.raises(TargetError, match="got entries for gfx11-generic, gfx1100, need gfx950"):
        codeobject.read(data, target="gfx950")
    fixed = bundle([("hip-amdgcn-amd-amdhsa--gfx900", b"any"), ("hip-amdgcn-amd-amdhsa--gfx900:xnack+", gfx900)])
    assert codeobject.read(fixed, target="gfx900:xnack+").data == gfx900
    assert codeobject.read(bundle([(HOST, b"x"), ("hip-amdgcn-amd-amdhsa--gfx900", gfx900)])).data == gfx900


def test_a_code_object_alone_has_to_run_on_the_target(gfx900: bytes, tmp_path: Path) -> None:
    path = tmp_path / "k.hsaco"
    path.write_bytes(gfx900)
    assert codeobject.read(path, target="gfx900").path == path
    with pytest.raises(TargetError, match=r"k.hsaco: got gfx900:xnack\+, need gfx950"):
        codeobject.read(path, target="gfx950")
    with pytest.raises(TargetError, match=r"got gfx900:xnack\+, need gfx900:xnack-"):
        codeobject.read(path, target=parse_target("gfx900:xnack-"))


@pytest.mark.parametrize(
    ("code", "device", "runs"),
    [
        ("gfx950", "gfx950:sramecc+:xnack-", True),
        ("gfx950:xnack-", "gfx950:sramecc+:xnack-", True),
        ("gfx950:xnack+", "gfx950:sramecc+:xnack-", False),
        ("gfx950:sramecc-", "gfx950:sramecc+:xnack-", False),
        ("gfx950:xnack+", "gfx950", True),
        ("gfx942", "gfx950", False),
        ("gfx9-4-generic", "gfx950:sramecc+:xnack-", True),
        ("gfx9-4-generic:xnack+", "gfx950:sramecc+:xnack-", False),
        ("gfx950", "gfx9-4-generic", False),
        ("gfx12-generic", "gfx1201", True),
        ("gfx12-generic", "gfx1100", False),
        ("gfx1100", "gfx1100", True),
    ],
)
def test_compatibility(code: str, device: str, runs: bool) -> None:
    assert compatible(parse_target(code), parse_target(device)) is runs


def test_generic_targets_cover_processors_that_exist() -> None:
    names = {name for name, _ in MACHINES.values()}
    assert set(GENERIC) == {name for name in names if name.endswith("generic")}
    covered = [name for group in GENERIC.values() for name in group]
    assert set(covered) <= names
    assert len(covered) == len(set(covered))


def edit(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda b: b"__CLANG_OFFLOAD_BUNDLE__", "offload bundle is truncated: got 24 bytes, need 32 bytes"),
        (lambda b: edit(b, 24, b"\xff" * 8), "a table of 18446744073709551615 entries"),
        (lambda b: edit(b, 48, b"\xff\xff\0\0\0\0\0\0")[:200], "an id of 65535"),
        (lambda b: b[:5000], "is truncated: got 5000 bytes"),
        (lambda b: edit(compressed(b, 3, 0), 4, b"\x09"), "compressed bundle version: got 9, need 1, 2 or 3"),
        (lambda b: edit(compressed(b, 3, 0), 6, b"\x07"), "compression method of the bundle: got 7"),
        (lambda b: compressed(b, 3, 0)[:20], "compressed bundle header is truncated: got 20 bytes, need 32"),
        (lambda b: compressed(b, 3, 0)[:-4], "compressed bundle is truncated"),
        (lambda b: compressed(b, 1, 0)[:-20], r"got \d+ bytes inside, need|damaged zlib stream"),
        (lambda b: edit(compressed(b, 2, 0), 24, b"\0\0\0\0"), "damaged zlib stream"),
        (lambda b: edit(compressed(b, 3, 0), 16, b"\xff" * 7), "at most 256 times"),
        (lambda b: compressed(b"nonsense" * 8, 3, 0), "first bytes 6e 6f 6e 73"),
        (lambda b: host_elf(b, b".text"), "ELF machine: got 62 and no .hip_fatbin section"),
        (lambda b: host_elf(b)[:-100], "section .hip_fatbin is truncated"),
        (lambda b: host_elf(b"garbage"), "not an ELF file or offload bundle: got first bytes 67 61"),
        (lambda b: host_elf(b)[:70], "damaged host ELF file"),
    ],
)
def test_bad_containers(both: bytes, make: Any, says: str) -> None:
    with pytest.raises(CodeObjectError, match=says):
        codeobject.read(make(both), target="gfx1100")


def test_many_small_bundles_take_no_time() -> None:
    assert entries(bundle([], align=1) * 20000 + bundle([(HOST, b"")], align=1))[0].id == HOST
