"""Bundles: round trip, replay, seeds, and archives that are refused."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import asmlaunch
from asmlaunch.capture import Capture
from asmlaunch.cli import app
from asmlaunch.errors import ArgumentError, DumpError
from asmlaunch.module import Kernel
from asmlaunch.validate import bundle as module
from asmlaunch.validate.bundle import Bundle, bundle, of_capture, replay, restored
from asmlaunch.validate.probe.rig import Rig
from asmlaunch.validate.problems.topksoftmax import Sizes

CASE = Sizes(batch=5, levels=128)


@pytest.fixture(scope="module")
def kernel(aiter_kernels: Path) -> Kernel:
    return asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel


@pytest.fixture(scope="module")
def made(kernel: Kernel) -> Bundle:
    return bundle(Rig(kernel, CASE, checks="all"))


def saved(made: Bundle, path: Path, **how: object) -> Path:
    made.save(path / "x.asml", **how)  # type: ignore[arg-type]
    return path / "x.asml"


def test_what_is_written_is_read(made: Bundle, tmp_path: Path) -> None:
    path = saved(made, tmp_path)
    assert Bundle.is_one(path)
    assert not Bundle.is_one(tmp_path / "none")
    read = Bundle.load(path)
    # Content that a launch did not change is stored once.
    assert read == dataclasses.replace(
        made,
        result=json.loads(json.dumps(read.result)),
        buffers=tuple(dataclasses.replace(b, after=None if b.after == b.before else b.after) for b in made.buffers),
    )
    assert read.result["instructions"] > 0
    assert read.result["fidelity"]["exact"] > 0
    assert set(read.versions) == {"asmlaunch", "python", "numpy", "platform"}
    before = path.read_bytes()
    made.save(path)
    assert path.read_bytes() == before
    assert Bundle.load(before) == read


def test_replay_compares_every_byte(made: Bundle, tmp_path: Path) -> None:
    read = Bundle.load(saved(made, tmp_path))
    again = replay(read)
    assert again.equal
    assert again.compared == sum(b.size for b in made.buffers)
    assert again.written > 0
    spoiled = [
        dataclasses.replace(b, after=bytes([b.after[0] ^ 1]) + b.after[1:]) if b.name == "ptr_W" and b.after else b
        for b in read.buffers
    ]
    wrong = replay(dataclasses.replace(read, buffers=tuple(spoiled)))
    assert (wrong.equal, wrong.different) == (False, 1)


def test_large_buffers_are_made_again_from_the_seed(made: Bundle, kernel: Kernel, tmp_path: Path) -> None:
    path = saved(made, tmp_path, limit=100, with_object=False)
    assert path.stat().st_size < 3000
    read = Bundle.load(path)
    assert all(b.before is None for b in read.buffers)
    with pytest.raises(DumpError, match="only the hash of its object"):
        replay(read)
    with pytest.raises(DumpError, match="code object of a bundle: got sha256"):
        read.with_object(b"another")
    read = read.with_object(kernel.code_object.data)
    assert replay(read).equal
    other = tuple(dataclasses.replace(b, after_hash="0" * 64) if b.name == "ptr_W" else b for b in read.buffers)
    assert not replay(dataclasses.replace(read, buffers=other)).equal
    with pytest.raises(DumpError, match="other bytes from its seed"):
        replay(dataclasses.replace(read, case="batch=5, levels=128, seed=9"))
    with pytest.raises(DumpError, match="no result stored"):
        restored(read)
    with pytest.raises(DumpError, match="at most 100"):
        dataclasses.replace(made, family="").save(path, limit=100)


def test_operands_that_were_changed_are_stored(kernel: Kernel, tmp_path: Path) -> None:
    rig = Rig(kernel, CASE)
    logits = np.zeros_like(rig.arrays["ptr_A"])
    made = bundle(rig, changed={"A": logits, "renormalize": 1})
    assert made.changed == ("ptr_A", "renormalize")
    read = Bundle.load(saved(made, tmp_path, limit=100))
    assert {b.name for b in read.buffers if b.before is not None} == {"ptr_A"}
    assert replay(read).equal
    with pytest.raises(ArgumentError, match="argument ptr_A: got 8 bytes"):
        bundle(Rig(kernel, CASE), changed={"A": np.zeros(2, np.float32)})


def test_a_launch_that_ends_early(kernel: Kernel, tmp_path: Path) -> None:
    made = bundle(Rig(kernel, CASE, budget=10))
    assert "InstructionBudgetError" in made.result["error"]
    assert Bundle.load(saved(made, tmp_path)).result["error"] == made.result["error"]


def test_a_launch_that_ends_early_keeps_what_was_noticed(kernel: Kernel) -> None:
    """Rows too far apart: the stores of the indices and those of the weights go astray, one of them is the error."""
    made = bundle(Rig(kernel, CASE, checks="all"), changed={"out_stride": 1 << 20})
    assert "MemoryFaultError" in made.result["error"]
    assert any(one.startswith("fault: ") for one in made.result["findings"])


def rewritten(path: Path, change: object) -> bytes:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(entries["manifest.json"])
    change(entries, manifest)  # type: ignore[operator]
    if "manifest.json" in entries:
        entries["manifest.json"] = json.dumps(manifest).encode()
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return memory.getvalue()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e, m: e.update({"../x": b""}), r"got '\.\./x', need the names"),
        (lambda e, m: e.update({"object.co": bytes(1 << 20)}), "another sha256"),
        (lambda e, m: e.update({"kernarg.bin": bytes(2 << 20)}), "more than 1048576 bytes"),
        (lambda e, m: e.pop("kernarg.bin"), "argument bytes, and a list"),
        (lambda e, m: e.pop("manifest.json"), "no manifest.json"),
        (lambda e, m: m.update(version=2), "version of bundle: got 2, need 1"),
        (lambda e, m: m.update(format="x"), "is no bundle"),
        (lambda e, m: m.update(grid=[1 << 20, 8, 1]), "at most 4194304 workgroups"),
        (lambda e, m: m.update(grid=[1, 1]), "not enough values"),
        (lambda e, m: m.update(kernel=7), "a text expected, found 7"),
        (lambda e, m: m["buffers"][0].update(size=-1), "an integer from 0"),
        (lambda e, m: m["buffers"][0].update(before_sha256="0" * 64), "another size or sha256"),
        (lambda e, m: m.update(buffers=[{}] * 300), "a list of buffers"),
        (lambda e, m: m["options"].update(trace="/tmp/x"), "launch option of a bundle: got trace"),
        (lambda e, m: m["options"].update(threads=10**6), "got threads=1000000"),
        (lambda e, m: m.update(result=[]), "by name"),
    ],
)
def test_archives_that_are_refused(made: Bundle, tmp_path: Path, change: object, message: str) -> None:
    with pytest.raises(DumpError, match=message):
        Bundle.load(rewritten(saved(made, tmp_path), change))


def test_bombs_and_other_files(made: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = rewritten(saved(made, tmp_path), lambda e, m: e.update({"buffers/99.after": bytes(64 << 20)}))
    assert len(bomb) < 200_000
    monkeypatch.setattr(module, "MAX_RATIO", 100)
    with pytest.raises(DumpError, match="this may be a zip bomb"):
        Bundle.load(bomb)
    with pytest.raises(DumpError, match="cannot read"):
        Bundle.load(tmp_path / "none")
    with pytest.raises(DumpError, match="is no bundle, or damaged"):
        Bundle.load(b"PK\x03\x04 and nothing")


def test_a_problem_too_large_to_make_again(made: Bundle) -> None:
    for case in ("batch=16777216, levels=16777216", "batch=3, nothing=4"):
        with pytest.raises((DumpError, ArgumentError)):
            dataclasses.replace(made, case=case).problem()
    with pytest.raises(DumpError, match="no declared problem"):
        dataclasses.replace(made, family="").problem()


def test_a_captured_launch(made: Bundle, tmp_path: Path) -> None:
    launch = dataclasses.replace(made.launch(), device=0)
    capture, kept = tmp_path / "run.json", tmp_path / "run.asml"
    Capture((launch,)).save(capture)
    result = CliRunner().invoke(app, ["bundle", str(capture), "-o", str(kept)])
    assert result.exit_code == 0, result.output
    read = Bundle.load(kept)
    assert [(b.name, b.size) for b in read.buffers] == [(b.name, b.size) for b in made.buffers]
    assert (read.device, read.family, read.result["error"]) == ("hip:0", "", None)
    assert replay(read).equal
    for changed, message in (
        ({"image": None}, "no code object"),
        ({"kernarg": None}, "no argument bytes"),
        ({"memory": ()}, "no memory"),
        ({"memory": (dataclasses.replace(launch.memory[0], before=b"x"),)}, "a part of it"),
    ):
        with pytest.raises(DumpError, match=message):
            of_capture(dataclasses.replace(launch, **changed))
