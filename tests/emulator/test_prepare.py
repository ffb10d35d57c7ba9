"""Preparing kernels: the cache on disk, and what it must survive."""

from __future__ import annotations

from pathlib import Path

import pytest

import asmlaunch
from asmlaunch.devices.emulator import EmulatorDevice
from asmlaunch.emulator import cache, prepare
from asmlaunch.validate import a4w4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASMLAUNCH_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def path(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"


def passes(path: Path) -> bool:
    """Whether the kernel computes the right result on a fresh device."""
    kernel = asmlaunch.load(path, device=EmulatorDevice()).kernel
    problem = a4w4.build(kernel.info, a4w4.Case(*a4w4.tile(kernel.info), 256))
    kernel.launch(problem.arguments)
    return problem.compare().passed


def count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    compile_one = prepare._compile

    def counted(kernel, *rest):
        done.append(kernel.name)
        return compile_one(kernel, *rest)

    monkeypatch.setattr(prepare, "_compile", counted)
    return done


def test_a_second_device_loads_what_the_first_compiled(
    folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = count_compilations(monkeypatch)
    assert passes(path)
    assert len(done) == 1
    assert list(folder.glob("kernel-*"))
    assert passes(path)
    assert len(done) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: b"something else altogether",
    ],
    ids=["cut off", "empty", "one bit", "foreign"],
)
def test_a_damaged_entry_is_made_again(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch, damage) -> None:
    done = count_compilations(monkeypatch)
    assert passes(path)
    (entry,) = folder.glob("kernel-*")
    sound = entry.read_bytes()
    entry.write_bytes(damage(sound))
    assert passes(path)
    assert len(done) == 2
    assert len(entry.read_bytes()) == len(sound)


def test_a_missing_helper_is_made_again(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes(path)
    for entry in folder.glob("helper-*"):
        entry.unlink()
    assert passes(path)


def test_no_folder_no_cache(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASMLAUNCH_CACHE", "")
    done = count_compilations(monkeypatch)
    assert passes(path)
    assert passes(path)
    assert len(done) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("ASMLAUNCH_CACHE", str(blocked / "below"))
    assert passes(path)


def test_the_oldest_entries_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT", 3000)
    for number in range(4):
        cache.store("kernel", (number,), {"object": bytes(1000)})
        assert cache.load("kernel", (number,)) == {"object": bytes(1000)}
    kept = [number for number in range(4) if cache.load("kernel", (number,))]
    assert kept == [2, 3]
