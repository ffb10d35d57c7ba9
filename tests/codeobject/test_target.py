"""Target ids against LLVM's tools."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from asmlaunch import codeobject
from asmlaunch.codeobject.target import MACHINES, TargetId, parse_target, target_from_flags

#: Processors that older compilers knew and LLVM 22 no longer names.
GONE = {0x40, 0x4B}


def test_machine_numbers_are_llvms(objects: Path) -> None:
    listed = {}
    for line in (objects / "machines.txt").read_text().splitlines():
        number, name, *features = line.split()
        listed[int(number, 16)] = (name, tuple(features))
    assert {number: entry for number, entry in MACHINES.items() if number not in GONE} == listed


@pytest.mark.parametrize(
    "name", ["gfx900", "gfx906", "gfx1030", "gfx1100", "gfx1201", "gfx11-generic", "gfx12-generic"]
)
def test_flags_read_as_llvm_reads_them(objects: Path, name: str) -> None:
    target = codeobject.read(objects / f"plain_{name}.co").target
    _, processor, *features = (objects / f"plain_{name}.flags.txt").read_text().strip().split(", ")
    shown = {feature.rstrip("+-"): feature for feature in features if not feature.startswith("generic")}
    assert target.processor == processor
    for feature in ("xnack", "sramecc"):
        spelled = {"on": feature + "+", "off": feature + "-", "any": feature, "unsupported": None}
        assert spelled[getattr(target, feature)] == shown.get(feature)


def test_objects_of_every_machine_are_read(objects: Path) -> None:
    data = bytearray((objects / "plain_gfx1100.co").read_bytes())
    for number, (name, _) in MACHINES.items():
        struct.pack_into("<I", data, 48, number)
        found = codeobject.read(bytes(data))
        assert found.target.processor == name
        assert found.kernels["nothing"].descriptor.user_sgpr_count >= 0
    struct.pack_into("<I", data, 48, 0xFE)
    assert str(codeobject.read(bytes(data)).target) == "machine 0xfe"


def test_text_form_and_back() -> None:
    assert str(TargetId("gfx950", "on", "off")) == "gfx950:sramecc+:xnack-"
    assert str(TargetId("gfx950", "any", "any")) == "gfx950"
    assert parse_target("gfx950:sramecc+:xnack-") == TargetId("gfx950", "on", "off")
    assert parse_target("amdgcn-amd-amdhsa--gfx942:xnack+") == TargetId("gfx942", "any", "on")
    assert parse_target("gfx1100") == TargetId("gfx1100")


def test_unknown_machine_shows_its_number_or_takes_the_metadatas_name() -> None:
    assert target_from_flags(0xFE, 5).processor == "machine 0xfe"
    assert target_from_flags(0xFE, 5, "amdgcn-amd-amdhsa--gfx9999").processor == "gfx9999"
    assert target_from_flags(0x4F, 5, "amdgcn-amd-amdhsa--gfx9999").processor == "gfx950"
