"""Capturing a program that launches through hip-python in each way, showing, comparing and replaying it."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from capture.program import WAYS
from hip_runtime import standin
from typer.testing import CliRunner

from asmlaunch import capture as package
from asmlaunch.capture import Capture, replay
from asmlaunch.capture.reader import read_files
from asmlaunch.capture.record import recording_library
from asmlaunch.cli import app
from asmlaunch.errors import DeviceError, DumpError, LaunchError

TESTS = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture(scope="module")
def path(f4gemm_folder: Path) -> Path:
    return f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co"


@pytest.fixture(scope="module", autouse=True)
def environment(tmp_path_factory: pytest.TempPathFactory) -> object:
    """One device of the stand-in, for the programs that the tests run."""
    library = standin.build(tmp_path_factory.mktemp("runtime"))
    search = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STANDIN_LIBRARY", str(library))
        patch.setenv("PYTHONPATH", search)
        yield patch


@pytest.fixture
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_STANDIN_DEVICES", "1")


def run(*arguments: object, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture(scope="module")
def captured(path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capture of the program, with memory, as the command line makes it."""
    file = tmp_path_factory.mktemp("capture") / "run.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIP_STANDIN_DEVICES", "1")
        command = (sys.executable, PROGRAM, path)
        assert "6 launches in" in run("capture", "-o", file, "--memory", "--", *command)
    return file


def test_the_program_does_the_same_with_and_without_recording(path: Path, one_device: None, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), str(path)]
    alone = subprocess.run(command, capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    recorded = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"LD_PRELOAD": str(recording_library()), "ASMLAUNCH_CAPTURE_FOLDER": str(tmp_path)},
    )
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, alone.stdout, alone.stderr)
    assert len({line.split()[1] for line in alone.stdout.splitlines()}) == 1


def test_every_way_of_launching_is_captured(captured: Path, path: Path) -> None:
    launches = Capture.load(captured).launches
    assert [launch.entry for launch in launches] == [
        "hipModuleLaunchKernel" if way == "kernelParams" else way for way in WAYS
    ]
    (name,) = {launch.kernel for launch in launches}
    for launch in launches:
        assert launch.info.name == name
        assert launch.image == path.read_bytes()
        assert (launch.grid, launch.block, launch.dynamic_lds) == ((1, 1, 1), (256, 1, 1), 0)
        assert (launch.device, launch.stream, launch.result) == (0, 0, 0)
        values = launch.schema.unpack(launch.kernarg)
        assert (values["M"], values["N"], values["K"], values["alpha"]) == (32, 128, 256, 1.0)
    # kernelParams have the object's own size, `extra` the size that was passed.
    assert [len(launch.kernarg) for launch in launches] == [372, 384, 372, 372, 384, 372]
    assert len({launch.kernarg[:372] for launch in launches}) == 1


def test_replay_gives_the_same_bytes(captured: Path) -> None:
    for launch in Capture.load(captured).launches[:5]:
        result = replay(launch, "emulator")
        assert result.equal
        assert result.written >= 32 * 128  # of 8,192 bytes, those that are not 0xff as before
        assert result.device == "emulator"
    assert "on emulator: equal" in run("replay", captured, "--launch", 1)


def test_a_replay_that_differs_is_seen(captured: Path, tmp_path: Path) -> None:
    launch = Capture.load(captured).launch(1)
    changed = bytearray(launch.kernarg)
    changed[256] = 128 & 0xFF  # K = 128
    result = replay(dataclasses.replace(launch, kernarg=bytes(changed)))
    assert not result.equal
    assert result.first is not None
    file = tmp_path / "changed.json"
    Capture((dataclasses.replace(launch, kernarg=bytes(changed)),)).save(file)
    assert "bytes differ, the first at 0x" in run("replay", file, status=1)


def test_what_cannot_be_replayed_says_why(captured: Path) -> None:
    launch = Capture.load(captured).launch(1)
    (first, *rest) = launch.memory
    for change, message in (
        ({"memory": ()}, "capture with --memory"),
        ({"kernarg": None}, "no argument bytes"),
        ({"image": None}, "no code object"),
        ({"memory": (dataclasses.replace(first, before=b"x"), *rest)}, "larger --memory"),
    ):
        with pytest.raises(DumpError, match=message):
            replay(dataclasses.replace(launch, **change))
    assert "no memory in the capture" in run("replay", captured, "--launch", 6, status=1)


def test_show(captured: Path) -> None:
    text = run("show", captured)
    assert text.count("f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128") == 6
    assert "hipDrvLaunchKernelEx" in text
    text = run("show", captured, "--launch", 2)
    assert "stride_ScaleB0" in text
    assert "memory at 0x" in text
    (row,) = json.loads(run("show", captured, "--launch", 1, "--json"))
    assert (row["grid"], row["entry"], len(row["kernarg"])) == ([1, 1, 1], "hipModuleLaunchKernel", 744)
    assert "launch: got 7, need 1 to 6" in run("show", captured, "--launch", 7, status=2)


def test_diff_with_arguments(captured: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.json"
    launch = Capture.load(captured).launch(1)
    right = {name: value for name, value in launch.schema.unpack(launch.kernarg).items() if value is not None}
    values.write_text(json.dumps(right))
    run("diff", captured, "--with", values)
    values.write_text(json.dumps(right | {"stride_ScaleB0": 4}))
    assert "stride_ScaleB0" in run("diff", captured, "--with", values, "--dump", 1, status=1)


def test_the_exit_status_is_passed_on_and_nothing_launched_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    assert "0 launches" in run("capture", "-o", file, "--", sys.executable, "-c", "exit(3)", status=3)
    assert Capture.load(file).launches == ()
    assert "launch: got 1, need (none captured)" in run("show", file, "--launch", 1, status=2)
    with pytest.raises(LaunchError, match=r"cannot run /nowhere \(No such file"):
        package.record(["/nowhere"])


LOOP = """
import ctypes, os, sys, threading
raw = ctypes.CDLL(os.environ["STANDIN_LIBRARY"])
raw.hipInit(0)
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert raw.hipModuleLoad(ctypes.byref(module), sys.argv[1].encode()) == 0
assert raw.hipModuleGetFunction(ctypes.byref(function), module, sys.argv[2].encode()) == 0
buffer = (ctypes.c_char * 372)()
size = ctypes.c_size_t(372)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
def loop(count):
    for _ in range(count):
        assert raw.hipModuleLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, None, None, extra) == 0
"""


@pytest.fixture(scope="module")
def name(captured: Path) -> str:
    return Capture.load(captured).launches[0].kernel


def loop(path: Path, name: str, code: str, **options: int) -> Capture:
    captured, status = package.record([sys.executable, "-c", LOOP + code, str(path), name], **options)
    assert status == 0
    return captured


def test_a_kernel_that_the_program_carries_itself(path: Path, name: str, one_device: None, tmp_path: Path) -> None:
    """What hipcc makes of ``kernel<<<1, 256>>>(...)``: a registered bundle, and a launch by a host stub's address."""
    program, bundle = tmp_path / "program", tmp_path / "bundle"
    library = Path(os.environ["STANDIN_LIBRARY"])
    source = Path(__file__).with_name("fatbinary.c")
    linked = ["-L", library.parent, "-lamdhip64", f"-Wl,-rpath,{library.parent}"]
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source, *linked], check=True)
    target, image = b"hipv4-amdgcn-amd-amdhsa--gfx950", path.read_bytes()
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<4Q", 1, 4096, len(image), len(target)) + target
    bundle.write_bytes(head.ljust(4096, b"\0") + image)
    captured, status = package.record([str(program), str(bundle), name])
    assert status == 0
    (launch,) = captured.launches
    assert (launch.entry, launch.kernel, launch.image) == ("hipLaunchKernel", name, image)
    # The program passes argument number i with all its bytes equal to i.
    shown = [argument for argument in launch.info.arguments if not argument.hidden]
    for number, argument in enumerate(shown):
        assert launch.kernarg[argument.offset : argument.offset + argument.size] == bytes([number]) * argument.size


def test_threads(path: Path, name: str, one_device: None) -> None:
    code = (
        "t = [threading.Thread(target=loop, args=(500,)) for _ in range(8)]\n"
        "[x.start() for x in t]; [x.join() for x in t]"
    )
    launches = loop(path, name, code).launches
    assert len(launches) == 4000
    assert sorted(launch.sequence for launch in launches) == list(range(4000))
    assert len({launch.thread for launch in launches}) == 8
    assert {launch.kernel for launch in launches} == {name}


def test_a_fork_has_a_file_of_its_own(path: Path, name: str, one_device: None) -> None:
    code = "loop(2)\nif os.fork() == 0:\n    loop(3)\n    os._exit(0)\nos.wait()\nloop(1)"
    launches = loop(path, name, code).launches
    by_process = [sum(launch.process == process for launch in launches) for process in {x.process for x in launches}]
    assert sorted(by_process) == [3, 3]


def test_what_was_recorded_survives_a_crash(path: Path, name: str, one_device: None) -> None:
    code = "loop(5); os.kill(os.getpid(), 9)"
    captured, status = package.record([sys.executable, "-c", LOOP + code, str(path), name])
    assert (len(captured.launches), status) == (5, -9)


def test_the_size_is_bounded(path: Path, name: str, one_device: None) -> None:
    captured = loop(path, name, "loop(1000)", limit=path.stat().st_size + 20_000)
    assert 0 < len(captured.launches) < 50
    assert captured.dropped == 1000 - len(captured.launches)


def test_a_failed_launch_keeps_its_error_code(path: Path, name: str, one_device: None) -> None:
    code = "assert raw.hipModuleLaunchKernel(function, 0, 1, 1, 256, 1, 1, 0, None, None, extra) == 9"
    (launch,) = loop(path, name, code).launches
    assert (launch.result, launch.grid) == (9, (0, 1, 1))


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": "asmlaunch capture", "version": 2}', "\xff"])
def test_a_file_that_is_not_a_capture(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content.encode("latin-1"))
    assert "error: DumpError" in run("show", file, status=2)
    assert "cannot read" in run("show", tmp_path / "nothing", status=2)


def test_a_damaged_capture(captured: Path, tmp_path: Path) -> None:
    whole = json.loads(captured.read_text())
    file = tmp_path / "damaged.json"
    for damage in ({"objects": ["!"]}, {"launches": [{}]}, {"dropped": None}, {"objects": []}):
        file.write_text(json.dumps(whole | damage))
        with pytest.raises(DumpError, match="is damaged"):
            Capture.load(file)


def test_a_recording_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.capture").write_bytes(b"nothing of the kind")
    with pytest.raises(DumpError, match="is not a recording"):
        read_files([tmp_path / "x.capture"])


def test_the_library_is_compiled_once_and_needs_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASMLAUNCH_CACHE", str(tmp_path))
    first = recording_library()
    assert first.parent == tmp_path
    time = first.stat().st_mtime_ns
    assert recording_library().stat().st_mtime_ns == time
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(DeviceError, match="got no no-such-compiler, need a C compiler"):
        recording_library()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(DeviceError, match=r"compiling preload\.c with false"):
        recording_library()
