"""Many kernels, each on its problems, over many processes: resumable, and nothing runs twice.

A task is one kernel on one problem. Its key is a hash of all that its result depends on: machine code, target, launch
state, problem, and the sources of asmlaunch. Objects with one key are run once. Results are lines of JSON, written as
they come; a sweep that is started again takes up what is missing, and results of several machines merge by key.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import json
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asmlaunch import codeobject
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import AsmlaunchError, CodeObjectError, DeviceError, LaunchError
from asmlaunch.validate.coverage import keys_of
from asmlaunch.validate.problems import DEFINITIONS, Case, Definition, definition_of

if TYPE_CHECKING:
    from asmlaunch.module import Kernel

#: How often a task is tried whose worker process dies.
ATTEMPTS = 2

#: Sources that decide a result, and those among them that do not.
_SOURCES = ("abi", "codeobject", "devices", "emulator", "layouts", "validate")
_NO_SOURCES = ("validate/corpus.py", "validate/coverage.py", "validate/sweep.py")

Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One kernel on one problem, with all that another machine needs to run it.

    Attributes:
        key: hash of what the result depends on.
        code: the kernel's :func:`identity`.
        data: the code object.
        kernel: its kernel.
        family: name of the definition.
        case: the problem.
        file: name of the object, for people.
        version: of the sources that made the task; another version must not run it.
        checks, numerics: the emulator's, as its launches take them.
    """

    key: str
    code: str
    data: bytes = field(repr=False)
    kernel: str
    family: str
    case: Case
    file: str
    version: str
    checks: str
    numerics: str


@dataclass(frozen=True)
class Member:
    """One kernel of one object.

    Attributes:
        file: path below the folder it was found in.
        target: processor.
        kernel: its name.
        family: its family's name, "" for none.
        keys: of its tasks; none where no problems are defined.
        error: why the object could not be read, else "".
    """

    file: str
    target: str
    kernel: str
    family: str
    keys: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Plan:
    """What a sweep has to do.

    Attributes:
        tasks: each once, by key.
        members: every kernel that was found, also those without tasks.
    """

    tasks: Mapping[str, Task]
    members: tuple[Member, ...]


@cache
def version() -> str:
    """Hash of the sources that decide a result."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for name in _SOURCES for path in (package / name).rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name not in _NO_SOURCES:
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def identity(kernel: KernelInfo) -> str:
    """Hash of a kernel's machine code, target and launch state: kernels that have it in common do the same.

    The processor is part of it: some instructions mean different things on gfx942 and gfx950 (the FP8 formats).
    """
    state = {name: value for name, value in kernel.descriptor.fields.items() if name != "kernel_code_entry_byte_offset"}
    launch = (
        kernel.target.processor, kernel.code_address - kernel.text_address, kernel.kernarg_size, kernel.lds_size,
        kernel.scratch_size, kernel.max_workgroup_size, kernel.required_workgroup_size, kernel.wavefront_size,
    )  # fmt: skip
    return hashlib.sha256(kernel.text + repr((launch, sorted(state.items()))).encode()).hexdigest()


def make_plan(
    files: Iterable[Path],
    *,
    root: Path | None = None,
    families: Collection[str] = (),
    every_problem: bool = False,
    checks: str = "bounds",
    numerics: str = "exact",
) -> Plan:
    """The tasks for the kernels of some code objects.

    Args:
        files: the objects.
        root: folder that paths are given relative to.
        families: names of the families to run; empty for all.
        every_problem: all standard problems of a kernel, not only the first, small one.
        checks: the emulator's: those that cost no time, "all", or names.
        numerics: the emulator's: how matrix instructions round.

    Returns:
        The plan; an object that cannot be read is a member with an error.
    """
    tasks: dict[str, Task] = {}
    members = []
    for path in files:
        name = (path.relative_to(root) if root else path).as_posix()
        try:
            data = path.read_bytes()
            kernels = codeobject.read(path).kernels.values()
        except (OSError, CodeObjectError) as error:
            members.append(Member(name, "", "", "", error=str(error)))
            continue
        for kernel in kernels:
            family, definition = family_of(kernel), definition_of(kernel)
            member = Member(name, kernel.target.processor, kernel.name, family.name if family else "")
            if families and member.family not in families:
                continue
            if definition:
                made = list(_tasks(definition, kernel, data, name, every_problem, checks, numerics))
                for task in made:
                    tasks.setdefault(task.key, task)
                member = dataclasses.replace(member, keys=tuple(task.key for task in made))
            members.append(member)
    return Plan(tasks, tuple(members))


def _tasks(
    definition: Definition, kernel: KernelInfo, data: bytes, name: str, every: bool, checks: str, numerics: str
) -> Iterator[Task]:
    parameters = definition.parameters(kernel)
    cases = definition.cases(parameters)
    told_apart = sorted(definition.told_apart(parameters).items())
    code = identity(kernel)
    for case in cases if every else cases[:1]:
        inputs = (code, definition.name, told_apart, str(case), checks, numerics, version())
        key = hashlib.sha256(repr(inputs).encode()).hexdigest()[:32]
        yield Task(key, code, data, kernel.name, definition.name, case, name, version(), checks, numerics)


def execute(task: Task) -> Record:
    """Run a task; whatever goes wrong is part of the record.

    Returns:
        ``key``, ``family``, ``kernel``, ``file``, ``case``, ``status`` ("verified", "failed": outside its bound,
        "error": did not run to its end), ``error``, and for a finished run what ``Outcome.as_dict`` gives.

    Raises:
        LaunchError: the task was made by another version of asmlaunch.
    """
    if task.version != version():
        raise LaunchError(
            "version of asmlaunch on a worker",
            got=version(),
            need=task.version,
            hint="install the same on all machines",
        )
    record: Record = {
        "key": task.key, "family": task.family, "kernel": task.kernel, "file": task.file, "case": str(task.case),
        "status": "error", "error": "",
    }  # fmt: skip
    start = time.perf_counter()
    try:
        kernel = _kernel(task.data, task.kernel)
        definition = DEFINITIONS[task.family]
        outcome = definition.run(kernel, task.case, threads=1, checks=task.checks, numerics=task.numerics)
    except AsmlaunchError as error:
        record["error"] = f"{type(error).__name__}: {error}"
    except Exception as error:  # one kernel must not end the sweep
        record["error"] = f"unexpected {type(error).__name__}: {error}"
    else:
        record |= outcome.as_dict()
        record["keys"] = keys_of(outcome.launches)
        record["status"] = "verified" if outcome.passed else "failed"
    record["wall_seconds"] = time.perf_counter() - start
    return record


@lru_cache(maxsize=1)
def _kernel(data: bytes, name: str) -> Kernel:
    """A kernel on a device of its own: what was compiled stays for its next problem, and goes with the next kernel."""
    from asmlaunch.devices.emulator import EmulatorDevice
    from asmlaunch.module import load

    return load(data, device=EmulatorDevice())[name]


class Results:
    """Records by key, kept in a file of JSON lines.

    A line that was cut off when a sweep was killed is dropped, and its task runs again. Of two records of one key the
    first counts.
    """

    def __init__(self, path: Path | None = None, merge: Sequence[Path] = ()) -> None:
        """
        Args:
            path: the file; it is made at the first record. None keeps records in memory only.
            merge: files of other sweeps whose records are taken over.

        Raises:
            LaunchError: a file that holds something else.
        """
        self.path = path
        self.records: dict[str, Record] = {}
        whole = self._read(path) if path and path.exists() else 0
        if path and path.exists() and path.stat().st_size > whole:
            os.truncate(path, whole)
        for other in merge:
            known = dict(self.records)
            self._read(other)
            for key, record in self.records.items():
                if key not in known:
                    self._write(record)

    def _read(self, path: Path) -> int:
        """Take over a file's records; gives the bytes of whole lines."""
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            try:
                record = json.loads(line)
                self.records.setdefault(record["key"], record)
            except (ValueError, TypeError, KeyError):
                raise LaunchError(
                    f"results file {path}", got=f"{line[:40]!r}", need="lines that a sweep wrote"
                ) from None
            whole += len(line)
        return whole

    def _write(self, record: Record) -> None:
        if self.path is None:
            return
        with self.path.open("ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def add(self, record: Record) -> None:
        """Keep a record; it is on disk when this returns."""
        if record["key"] not in self.records:
            self.records[record["key"]] = record
            self._write(record)

    def __contains__(self, key: object) -> bool:
        return key in self.records


def run(
    plan: Plan,
    results: Results,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    on_record: Callable[[Record], None] = lambda _: None,
) -> None:
    """Run the tasks that ``results`` lacks.

    Args:
        executor: where; None takes processes of this machine. It is not shut down.
        jobs: tasks in flight at once; None takes the cores of this machine, twice of them for another executor.
        on_record: called after each record was kept.

    Raises:
        LaunchError: workers of another version of asmlaunch.
    """
    todo = deque(task for key, task in plan.tasks.items() if key not in results)

    def keep(record: Record) -> None:
        results.add(record)
        on_record(record)

    if executor is not None:
        _drain(todo, executor.submit, jobs or 2 * _cores(), keep)
        return
    # A process that dies takes the pool with it, and nobody knows whose task it was: those in flight run once more,
    # one at a time.
    suspects: deque[Task] = deque()
    while todo or suspects:
        batch, window = (deque([suspects.popleft()]), 1) if suspects else (todo, jobs or _cores())
        with _pool(window) as pool:
            lost = _drain(batch, pool.submit, window, keep, stop_when_broken=True)
        if len(lost) == 1 and window == 1:
            keep(_died(lost[0]))
        else:
            suspects.extend(lost)


def _drain(
    todo: deque[Task],
    submit: Callable[..., Future[Record]],
    window: int,
    keep: Callable[[Record], None],
    *,
    stop_when_broken: bool = False,
) -> list[Task]:
    """Run tasks until there are none left; gives those that were in flight when the executor broke."""
    running: dict[Future[Record], Task] = {}
    tries: dict[str, int] = {}
    lost: list[Task] = []
    try:
        while (todo and not lost) or running:
            while not lost and len(running) < window:
                task = _next(todo, {other.code for other in running.values()})
                if task is None:
                    break
                try:
                    running[submit(execute, task)] = task
                except BrokenExecutor:
                    lost.append(task)
            done, _ = concurrent.futures.wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                try:
                    record = future.result()
                except AsmlaunchError:
                    raise
                except Exception as error:
                    if stop_when_broken:
                        lost.append(task)
                    elif tries.setdefault(task.key, 1) < ATTEMPTS:
                        tries[task.key] += 1
                        todo.append(task)
                    else:
                        keep(_died(task, f"{type(error).__name__}: {error}"))
                    continue
                keep(record)
    finally:
        for future in running:
            future.cancel()
    return lost


def _next(todo: deque[Task], compiling: Collection[str]) -> Task | None:
    """The first task whose machine code nobody is at: the next one finds it compiled, in the cache on disk."""
    for index, task in enumerate(todo):
        if task.code not in compiling:
            del todo[index]
            return task
    return None


def _died(task: Task, why: str = "its process died") -> Record:
    return {
        "key": task.key, "family": task.family, "kernel": task.kernel, "file": task.file, "case": str(task.case),
        "status": "error", "error": f"worker lost {ATTEMPTS} times: {why}",
    }  # fmt: skip


def _pool(jobs: int) -> ProcessPoolExecutor:
    # Not forked: LLVM's state and other threads' locks would come along.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this process when the sweep's does, however that ends."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def connect(address: str, timeout: float = 10) -> Executor:
    """An executor for an address such as ``dask://host:8786``, which has ``timeout`` seconds to answer.

    Raises:
        DeviceError: the engine is not installed or does not answer. LaunchError: another kind of address.
    """
    scheme, _, place = address.partition("://")
    if scheme != "dask" or not place:
        raise LaunchError("executor", got=repr(address), need="dask://host:port")
    try:
        from distributed import Client
    except ImportError as error:
        raise DeviceError("Dask is not installed", hint="pip install 'asmlaunch[dask]'") from error
    try:
        executor: Executor = Client(f"tcp://{place}", timeout=timeout).get_executor(pure=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise DeviceError(f"Dask scheduler at {place}", got=str(error), need="one that answers") from error
    return executor
