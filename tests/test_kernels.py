"""Where kernel files are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from asmlaunch import kernels
from asmlaunch.errors import KernelNotFoundError


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return folder


def test_the_wheel_is_found_without_importing_it(f4gemm_folder: Path) -> None:
    assert len(list(f4gemm_folder.glob("*.co"))) == 35


def test_a_folder_given_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.PATH_VARIABLE, str(touch(tmp_path / "env", "a.co")))
    given = touch(tmp_path / "given", "b.co")
    assert [path.name for path in kernels.find_objects("*.co", given)] == ["b.co"]
    assert [path.name for path in kernels.find_objects("*.co")] == ["a.co"]


def test_aiters_own_variable_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernels.PATH_VARIABLE, raising=False)
    monkeypatch.setenv(kernels.AITER_VARIABLE, str(touch(tmp_path / "hsa", "gfx950/a.co")))
    assert kernels.find_objects("*.co") == [tmp_path / "hsa/gfx950/a.co"]
    monkeypatch.setenv(kernels.PATH_VARIABLE, str(touch(tmp_path / "own", "b.co")))
    assert kernels.find_objects("*.co") == [tmp_path / "own/b.co"]


def test_an_earlier_folder_hides_the_same_file_of_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = touch(tmp_path / "1", "x/a.co"), touch(tmp_path / "2", "x/a.co", "x/b.co")
    monkeypatch.setenv(kernels.PATH_VARIABLE, f"{first}:{second}")
    assert kernels.find_objects("*.co") == [first / "x/a.co", second / "x/b.co"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelNotFoundError, match=r"nowhere.*no folder.*ASMLAUNCH_KERNEL_PATH"):
        kernels.search_path(tmp_path / "nowhere")


def test_without_the_wheel_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kernels.PATH_VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(KernelNotFoundError, match="install amd-aiter"):
        kernels.search_path()


def test_an_object_is_chosen_by_name_or_by_the_end_of_it() -> None:
    objects = [Path("f_noB_2.co"), Path("f_B_2.co"), Path("g_B_2.co"), Path("f_B_3.co")]
    assert kernels.choose_object(objects, "f_B_2.co") == Path("f_B_2.co")
    assert kernels.choose_object(objects, "noB_2") == Path("f_noB_2.co")
    with pytest.raises(KernelNotFoundError, match="need one of f_B_2, g_B_2"):
        kernels.choose_object(objects, "B_2")
    with pytest.raises(KernelNotFoundError, match="f_noB_2, f_B_2, g_B_2, f_B_3"):
        kernels.choose_object(objects, "B_4")
