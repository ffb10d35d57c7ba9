"""Sweeps: plans, results on disk, executors, processes that die, and the report."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from asmlaunch import codeobject
from asmlaunch.cli import app
from asmlaunch.errors import DeviceError, LaunchError
from asmlaunch.kernels import PATH_VARIABLE
from asmlaunch.validate import corpus, sweep
from asmlaunch.validate.problems import DEFINITIONS
from asmlaunch.validate.problems.topksoftmax import Sizes
from asmlaunch.validate.sweep import Results, execute, make_plan, run


@pytest.fixture
def softmax(aiter_kernels: Path) -> list[Path]:
    """Four kernels that compile fast."""
    return sorted((aiter_kernels / "gfx942" / "topksoftmax").glob("*_4x*.co"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks that are only noted."""
    ran: list[str] = []

    def note(task: sweep.Task) -> sweep.Record:
        ran.append(task.key)
        return {"key": task.key, "family": task.family, "file": task.file, "case": str(task.case), "status": "error",
                "error": "made up"}  # fmt: skip

    monkeypatch.setattr(sweep, "execute", note)
    return ran


def test_identical_machine_code_is_one_task(aiter_kernels: Path) -> None:
    """The two all-reduce norms are one kernel under two names; gfx942 and gfx950 stay apart."""
    names = ("allreduce_layernorm_N8192", "allreduce_rmsnorm_N8192", "allreduce_rmsnorm_qnt_N8192")
    paths = [aiter_kernels / "gfx942" / f"{name}.co" for name in names]
    plan = make_plan(paths, root=aiter_kernels)
    assert [member.file for member in plan.members] == [f"gfx942/{name}.co" for name in names]
    assert plan.members[0].keys == plan.members[1].keys != plan.members[2].keys
    assert len(plan.tasks) == 2
    kernels = [
        next(iter(codeobject.read(aiter_kernels / f"{arch}/bf16gemm/bf16gemm_outf32_tn_32x64_pf3.co").kernels.values()))
        for arch in ("gfx942", "gfx950")
    ]
    assert kernels[0].text == kernels[1].text
    assert sweep.identity(kernels[0]) != sweep.identity(kernels[1])


def test_a_plan_of_some_families(aiter_kernels: Path, softmax: list[Path]) -> None:
    paths = [*softmax, aiter_kernels / "gfx942" / "layer_norm.co"]
    assert {member.family for member in make_plan(paths, families=["layer_norm"]).members} == {"layer_norm"}
    assert len(make_plan(softmax).tasks) == 4
    assert len(make_plan(softmax, every_problem=True).tasks) == 24
    for options in ({"checks": "all"}, {"numerics": "cdna3"}):
        assert not make_plan(softmax).tasks.keys() & make_plan(softmax, **options).tasks.keys()


def test_processes_run_what_is_missing_and_nothing_twice(softmax: list[Path], tmp_path: Path) -> None:
    plan, path = make_plan(softmax), tmp_path / "results.jsonl"
    done: list[str] = []
    run(make_plan(softmax[:1]), Results(path), on_record=lambda record: done.append(record["key"]))
    run(plan, Results(path), jobs=2, on_record=lambda record: done.append(record["key"]))
    assert sorted(done) == sorted(plan.tasks)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record["status"] for record in records] == ["verified"] * 4
    run(plan, Results(path), on_record=lambda record: pytest.fail("ran again"))
    text = corpus.render(plan, Results(path).records)
    assert "| topksoftmax | 4 | 4 | 4 | 4 |" in text
    assert "4 objects, 4 executed, 4 verified." in text
    assert re.search(r"has (\d+) instruction keys .* (\d+) of them were executed", text)
    assert text.rstrip().endswith("None.")


def test_one_machine_code_is_compiled_by_one_process(softmax: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other problems wait: they find it compiled."""
    busy: list[str] = []

    def note(task: sweep.Task) -> sweep.Record:
        assert task.code not in busy
        busy.append(task.code)
        time.sleep(0.002)
        busy.remove(task.code)
        return {"key": task.key, "status": "verified"}

    monkeypatch.setattr(sweep, "execute", note)
    results = Results()
    with ThreadPoolExecutor(6) as pool:
        run(make_plan(softmax, every_problem=True), results, executor=pool, jobs=6)
    assert [record["status"] for record in results.records.values()] == ["verified"] * 24


def test_a_line_cut_off_is_run_again(softmax: list[Path], tmp_path: Path, fake: list[str]) -> None:
    plan, path = make_plan(softmax), tmp_path / "results.jsonl"
    with ThreadPoolExecutor(1) as pool:
        run(plan, Results(path), executor=pool)
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        fake.clear()
        run(plan, Results(path), executor=pool)
    assert len(fake) == 1
    assert path.read_bytes() == whole


def test_results_of_other_sweeps_are_taken_over(softmax: list[Path], tmp_path: Path, fake: list[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        run(make_plan(softmax[:2]), Results(tmp_path / "a"), executor=pool)
        run(make_plan(softmax[1:3]), Results(tmp_path / "b"), executor=pool)
        fake.clear()
        merged = Results(tmp_path / "c", merge=[tmp_path / "a", tmp_path / "b"])
        run(make_plan(softmax), merged, executor=pool)
    assert len(fake) == 1
    assert len((tmp_path / "c").read_text().splitlines()) == 4


def test_a_file_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("hello\n")
    with pytest.raises(LaunchError, match="lines that a sweep wrote"):
        Results(tmp_path / "notes")


def test_a_killed_sweep_goes_on(softmax: list[Path], tmp_path: Path) -> None:
    """SIGKILL after the first result: the next run does the rest, and no process stays behind."""
    path = tmp_path / "results.jsonl"
    command = [sys.executable, "-c", _SWEEP, str(path), *map(str, softmax)]
    process = subprocess.Popen(command, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().endswith(b"\n")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = path.read_bytes().splitlines()
    assert 1 <= len(before) <= 4
    subprocess.run(command, check=True, timeout=120)
    after = path.read_bytes().splitlines()
    assert after[: len(before)] == before
    assert len(after) == len({json.loads(line)["key"] for line in after}) == 4
    assert {json.loads(line)["status"] for line in after} == {"verified"}
    deadline = time.monotonic() + 10
    while _alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(process.pid)


_SWEEP = """
import sys
from pathlib import Path
from asmlaunch.validate.problems import DEFINITIONS
from asmlaunch.validate.problems.topksoftmax import Sizes
from asmlaunch.validate.sweep import Results, make_plan, run
if __name__ == "__main__":
    run(make_plan(map(Path, sys.argv[2:])), Results(Path(sys.argv[1])), jobs=1)
"""


def _alive(group: int) -> bool:
    """Whether a process group has members."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


class Bomb(Sizes):
    """A problem that ends the process it is sent to."""

    def __reduce__(self):
        return os._exit, (1,)


def test_a_task_that_kills_its_process(softmax: list[Path]) -> None:
    """The others finish; the culprit is tried alone, and then named."""
    plan = make_plan(softmax[:3])
    culprit = list(plan.tasks)[1]
    tasks = {
        key: dataclasses.replace(task, case=Bomb(1, 1)) if key == culprit else task for key, task in plan.tasks.items()
    }
    results = Results()
    run(sweep.Plan(tasks, plan.members), results, jobs=2)
    status = {key: record["status"] for key, record in results.records.items()}
    assert status == {key: "error" if key == culprit else "verified" for key in tasks}
    assert results.records[culprit]["error"] == "worker lost 2 times: its process died"


class Flaky(Executor):
    """Loses every task's first run."""

    def __init__(self, losses: int) -> None:
        self.losses, self.tries = losses, {}

    def submit(self, fn, task):
        future = Future()
        self.tries[task.key] = self.tries.get(task.key, 0) + 1
        if self.tries[task.key] <= self.losses:
            future.set_exception(ConnectionError("worker lost"))
        else:
            future.set_result(fn(task))
        return future


def test_an_executor_that_loses_tasks(softmax: list[Path], fake: list[str]) -> None:
    results = Results()
    run(make_plan(softmax), results, executor=Flaky(1))
    assert sorted(fake) == sorted(results.records)
    results = Results()
    run(make_plan(softmax), results, executor=Flaky(9))
    assert all("ConnectionError: worker lost" in record["error"] for record in results.records.values())


def test_what_goes_wrong_is_recorded(aiter_kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = aiter_kernels / "gfx942" / "topksoftmax" / "topksoftmax_4x128x6.co"
    (task,) = make_plan([path]).tasks.values()
    assert execute(task)["status"] == "verified"
    outside = dataclasses.replace(task, case=task.case.changed("batch=0"))
    assert "DomainError" in execute(outside)["error"]
    wrong = execute(dataclasses.replace(task, case=task.case.changed("shift=100")))
    assert wrong["status"] == "failed"
    text = corpus.render(make_plan([path]), {task.key: wrong | {"key": task.key}})
    assert "elements beyond the bound, 0 written outside of it." in text
    with monkeypatch.context() as patch:
        patch.setattr("asmlaunch.module.load", lambda *_, **__: 1 / 0)
        sweep._kernel.cache_clear()
        assert "unexpected ZeroDivisionError" in execute(task)["error"]
    with pytest.raises(LaunchError, match="install the same on all machines"):
        execute(dataclasses.replace(task, version="older"))


def test_the_report_names_what_was_not_run(
    aiter_kernels: Path, softmax: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task without a result, and a family for which nobody has written problems yet."""
    definition_of = sweep.definition_of
    monkeypatch.setattr(sweep, "definition_of", lambda kernel: None if "norm" in kernel.name else definition_of(kernel))
    plan = make_plan([*softmax[:1], aiter_kernels / "gfx942" / "layer_norm.co"], root=aiter_kernels)
    text = corpus.render(plan, {})
    assert f"* `{softmax[0].relative_to(aiter_kernels).as_posix()}`: not run." in text
    assert "1 objects: no problems are defined for this family yet." in text


def test_an_object_that_cannot_be_read(softmax: list[Path], tmp_path: Path) -> None:
    """It is named, and the others go on."""
    broken = tmp_path / "broken.co"
    broken.write_bytes(softmax[0].read_bytes()[:1000])
    plan = make_plan([broken, softmax[0]])
    assert len(plan.tasks) == 1
    rows = corpus.summary(plan, {})
    assert [(row.family, row.not_run) for row in rows] == [("topksoftmax", 1), ("", 1)]
    assert "broken.co`: " in corpus.render(plan, {})


def test_executors_that_are_none() -> None:
    with pytest.raises(LaunchError, match="need dask://host:port"):
        sweep.connect("slurm://here")
    pytest.importorskip("distributed")
    with pytest.raises(DeviceError, match="one that answers"):
        sweep.connect("dask://127.0.0.1:1", timeout=0.5)


def test_a_dask_cluster_that_loses_a_worker(softmax: list[Path], tmp_path: Path) -> None:
    """Two workers in processes of their own, one killed after the first result."""
    distributed = pytest.importorskip("distributed")
    plan, results = make_plan(softmax), Results(tmp_path / "results.jsonl")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )
    with cluster:
        executor = sweep.connect(cluster.scheduler_address.replace("tcp", "dask"))
        pids = list(executor._client.run(os.getpid).values())

        def kill_one(_record: sweep.Record) -> None:
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pids.pop(), signal.SIGKILL)
                pids.clear()

        run(plan, results, executor=executor, jobs=3, on_record=kill_one)
        executor._client.close()
    assert sorted(results.records) == sorted(plan.tasks)
    assert {record["status"] for record in results.records.values()} == {"verified"}


def test_the_command(softmax: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for path in softmax[:2]:
        (folder / path.name).symlink_to(path)
    monkeypatch.setenv(PATH_VARIABLE, str(folder))
    results, report = tmp_path / "results.jsonl", tmp_path / "corpus.md"
    command = ["sweep", "topksoftmax", "--results", str(results), "--report", str(report)]
    runner = CliRunner(env={"COLUMNS": "200"})
    first = runner.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "2 run now, 0 known before" in first.output
    assert "| topksoftmax | 2 | 2 | 2 | 2 |" in report.read_text()
    again = runner.invoke(app, command)
    assert "0 run now, 2 known before" in again.output
    assert runner.invoke(app, ["sweep", "conv"]).exit_code == 2
    everything = runner.invoke(app, ["sweep", "all", "--results", str(results)])
    assert "0 run now, 2 known before" in everything.output


def test_the_page_has_every_kernel_of_the_families_verified(aiter_kernels: Path) -> None:
    """docs/corpus.md, against the objects that the patterns of the definitions find."""
    page = (Path(__file__).parents[2] / "docs" / "corpus.md").read_text()
    for name, definition in DEFINITIONS.items():
        objects = len(definition.objects(aiter_kernels)) if any(aiter_kernels.rglob(definition.files)) else 0
        if objects:
            assert f"| {name} | {objects} | {objects} | {objects} |" in page
