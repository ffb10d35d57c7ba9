"""Triton kernels on a GPU: every size of the list checked in several processes at once, then everything timed.

    python3 benchmarks/triton_gpu.py --out triton.json [--skip-checks] [--skip-times] [--workers 10]
    python3 benchmarks/triton_gpu.py --out triton.json --skip-checks --skip-times --choice
    python3 benchmarks/triton_gpu.py --out triton.json --groups a4w4,stability --quick   # some checks, fewer shapes

Needs a CUDA or ROCm GPU, torch, triton and numpy; nothing else of the package's dependencies. Checks compare with
float64 on the GPU against the bound of ``asmlaunch.triton_ref.accuracy``. Times are of calls captured in a graph that
goes round several sets of operands (so that a cache does not hold them), the median of its replays, torch's matmul
beside it in the same way.
"""
# ruff: noqa: B023 - a check runs before the loop that made it goes on

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

SIZES = [
    (128, 256, 512), (256, 256, 256), (512, 1024, 768), (768, 1024, 512), (2048, 1024, 512), (1024, 2048, 512),
    (32, 32, 32), (64, 16, 128), (16, 64, 128), (128, 8, 256), (8, 128, 256), (12, 12, 512), (15, 17, 512),
    (19, 13, 512), (128, 64, 12), (16, 16, 4096), (32, 32, 8192), (128, 64, 1), (128, 64, 8), (256, 1, 128),
    (256, 256, 1), (256, 256, 8), (2048, 32, 1),
]  # fmt: skip
LARGE = (512, 2048, 970132)
SCHEDULES = ("data_parallel", "persistent", "stream_k")
ROWS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1000, 1024, 2048, 4096, 8192)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)

Check = tuple[str, Callable[[], bool]]
_share = [0, 1, 0]


def turn() -> bool:
    """Whether this worker does the next problem."""
    part, parts, index = _share
    _share[2] += 1
    return index % parts == part


def dense_checks() -> Iterator[Check]:
    from asmlaunch.triton_ref import accuracy, addmm, matmul

    def run(size: tuple[int, int, int], dtype: torch.dtype, kind: str, compiled: bool) -> Iterator[Check]:
        m, n, k = size
        a, b = torch.randn(m, k, device="cuda").to(dtype), torch.randn(k, n, device="cuda").to(dtype)
        c = torch.randn(n, device="cuda").to(dtype) if kind == "addmm" else None
        want = accuracy.expected(a, b, dtype, c=c, chunks=1024 if k > 10**5 else 64)

        def call(schedule: str) -> torch.Tensor:
            if c is None:
                return matmul(a, b, schedule=schedule)
            return addmm(c, a, b, schedule=schedule)

        for schedule in SCHEDULES:
            function = call
            if compiled:
                if c is None:
                    graph = torch.compile(matmul, fullgraph=True, dynamic=True)
                    function = lambda s, g=graph: g(a, b, schedule=s)  # noqa: E731
                else:
                    graph = torch.compile(addmm, fullgraph=True, dynamic=True)
                    function = lambda s, g=graph: g(c, a, b, schedule=s)  # noqa: E731
            name = f"{kind} {schedule} {'compiled' if compiled else 'eager'} {dtype} {size}"
            yield name, lambda f=function, s=schedule: want.wrong(f(s)) == 0

    for size in (LARGE, *SIZES):
        for dtype in (torch.bfloat16, torch.float16):
            for kind in ("matmul", "addmm"):
                if (size == LARGE and dtype == torch.float16) or not turn():
                    continue
                yield from run(size, dtype, kind, compiled=False)
                if size != LARGE:
                    yield from run(size, dtype, kind, compiled=True)


def other_dense_checks() -> Iterator[Check]:
    from asmlaunch.triton_ref import accuracy, matmul

    for size in ((128, 256, 512), (15, 17, 512), (33, 130, 1000), (256, 256, 8)):
        m, n, k = size
        if not turn():
            continue
        x, y = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        for schedule in SCHEDULES:
            want = accuracy.expected(x, y, torch.float32)
            yield f"float32 {schedule} {size}", lambda: want.wrong(matmul(x, y, schedule=schedule)) == 0
            a, b = (t.mul(20).clamp(-127, 127).to(torch.int8) for t in (x, y))
            want = accuracy.expected(a, b, torch.int32)
            yield f"int8 {schedule} {size}", lambda: want.wrong(matmul(a, b, schedule=schedule)) == 0
            for left, right in ((torch.float8_e4m3fn,) * 2, (torch.float8_e5m2, torch.float8_e4m3fn)):
                a, b = x.to(left), y.to(right)
                want = accuracy.expected(a.float(), b.float(), torch.bfloat16)
                yield f"{left} x {right} {schedule} {size}", lambda: want.wrong(matmul(a, b, schedule=schedule)) == 0
            turned, view = x.T.contiguous().T.bfloat16(), torch.randn(2 * k, 2 * n, device="cuda").bfloat16()[::2, ::2]
            want = accuracy.expected(turned, view, torch.bfloat16)
            yield f"strides {schedule} {size}", lambda: want.wrong(matmul(turned, view, schedule=schedule)) == 0
    for m, n, k in ((1500, 2500, 3500), (700, 650, 1001), (1000, 1000, 1002)):
        if not turn():
            continue
        for schedule in SCHEDULES:
            a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()
            turned = b.T.contiguous().T
            want = accuracy.expected(a, b, torch.bfloat16)
            yield f"rows of any length {schedule} {(m, n, k)}", lambda: want.wrong(matmul(a, b, schedule=schedule)) == 0
            yield f"columns of any length {schedule}", lambda: want.wrong(matmul(a, turned, schedule=schedule)) == 0


def decode(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """float64 of MXFP4, by table and without any code that is checked here."""
    table = torch.tensor([*E2M1, *(-v for v in E2M1)], dtype=torch.float64, device=codes.device)
    values = torch.stack((table[(codes & 15).long()], table[(codes >> 4).long()]), -1).flatten(1)
    powers = torch.ldexp(torch.ones(256, dtype=torch.float64), torch.arange(256) - 127)
    powers[255] = float("nan")
    return values * powers.to(codes.device)[scales.long()].repeat_interleave(32, 1)[:, : values.shape[1]]


def mx_problem(m: int, n: int, k: int, low: int = 118, high: int = 130) -> tuple[torch.Tensor, ...]:
    def draw(rows: int, columns: int, first: int, last: int) -> torch.Tensor:
        return torch.randint(first, last, (rows, columns), dtype=torch.uint8, device="cuda")

    blocks = -(-k // 32)
    return draw(m, k // 2, 0, 256), draw(n, k // 2, 0, 256), draw(m, blocks, low, high), draw(n, blocks, low, high)


def blocks(k: int) -> tuple[str, ...]:
    """The schedule ``blocks`` where it goes."""
    return ("blocks",) if torch.cuda.get_device_capability()[0] == 9 and k % 128 == 0 else ()


def mx_checks() -> Iterator[Check]:
    from asmlaunch import layouts
    from asmlaunch.triton_ref import accuracy, gemm_a4w4

    shapes = [(m, 1280, 8192) for m in ROWS] + [(m, 8192, 1024) for m in ROWS]
    shapes += [(256, 2048, 8192), (2048, 8192, 8192)]
    shapes += [(m, n, k) for m, n in ((48, 96), (130, 272), (5, 64)) for k in (32, 64, 128, 384, 640, 1664)]
    for size in shapes:
        if not turn():
            continue
        a, b, sa, sb = mx_problem(*size)
        want = accuracy.expected(decode(a, sa), decode(b, sb).T, torch.bfloat16)
        for schedule in ("auto", "direct", "dequantise", *blocks(size[2]), *(("skinny",) if size[0] <= 16 else ())):
            yield f"a4w4 {schedule} {size}", lambda: want.wrong(gemm_a4w4(a, b, sa, sb, schedule=schedule)) == 0
        if size[0] * size[1] * size[2] <= 2**22:
            yield f"a4w4 exact {size}", lambda: want.wrong(gemm_a4w4(a, b, sa, sb, schedule="exact")) == 0
            yield f"a4w4 split {size}", lambda: want.wrong(gemm_a4w4(a, b, sa, sb, split_k=3)) == 0
        if size[1] % 16 == 0 and size[2] % 64 == 0:
            tiled_a, tiled_b, shuffled = layouts.tile_scales(sa), layouts.tile_scales(sb), layouts.shuffle_weights(b)
            names = {"b": "weights_16x16", "a_scale": "scales_32x8", "b_scale": "scales_32x8"}
            for schedule in ("direct", "dequantise"):
                yield (
                    f"a4w4 layouts {schedule} {size}",
                    lambda: want.wrong(
                        gemm_a4w4(a, shuffled, tiled_a, tiled_b, layouts=names, schedule=schedule)
                    ) == 0,
                )  # fmt: skip


def extreme_checks() -> Iterator[Check]:
    """All scale bytes: where float64 keeps what float32 loses. Few terms do not cancel, so bfloat16 must be equal."""
    from asmlaunch.triton_ref import gemm_a4w4

    shapes = ((16, 64, 64), (5, 128, 32), (48, 96, 128), (130, 272, 64), (1, 200, 128), (7, 136, 256), (70, 264, 128))
    for m, n, k in shapes:
        for low, high in ((0, 256), (0, 3), (250, 256), (1, 60), (0, 1)):
            if not turn():
                continue
            a, b, sa, sb = mx_problem(m, n, k, low, high)
            want = decode(a, sa) @ decode(b, sb).T
            size = decode(a, sa).abs() @ decode(b, sb).abs().T
            for schedule in ("auto", "direct", "dequantise", "exact", "split", *blocks(k)):

                def right(schedule: str = schedule) -> bool:
                    option = {"split_k": 3} if schedule == "split" else {"schedule": schedule}
                    got = gemm_a4w4(a, b, sa, sb, **option).double()
                    equal = (got == want.bfloat16().double()) | (got.isnan() & want.isnan())
                    allowed = want.abs() * 2**-8 + size * 2**-48 + 2.0**-134
                    near = ((got - want).abs() <= allowed) | (allowed > torch.finfo(torch.bfloat16).max)
                    return bool((equal | near).all())

                yield f"a4w4 scales {low}..{high} {schedule} {(m, n, k)}", right
    if not turn():
        return
    # Blocks of zeros have scale byte 0 and must not send everything the exact way, or be wrong.
    a, b, sa, sb = mx_problem(16, 256, 1024)
    a[:, 16:32] = 0
    sa[:, 1] = 0
    want = decode(a, sa) @ decode(b, sb).T
    for schedule in ("auto", "direct", "dequantise", *blocks(1024)):
        yield (
            f"a4w4 zero blocks {schedule}",
            lambda: bool(
                ((gemm_a4w4(a, b, sa, sb, schedule=schedule).double() - want).abs() <= want.abs() * 2**-8 + 1e-3).all()
            ),
        )
    # Sums of a block as large as they get, with a smallest product in them: what inexact tensor cores would lose.
    for m in (1, 16, 64):
        a, b, sa, sb = mx_problem(m, 256, 1024, 127, 128)
        a[:], b[:] = 0x77, torch.where(torch.rand_like(b, dtype=torch.float32) < 0.02, 0x17, 0x77)
        a[:, ::3] = 0x71
        want = decode(a, sa) @ decode(b, sb).T
        out = torch.empty(m, 256, device="cuda")
        for schedule in ("auto", *blocks(1024)):
            yield (
                f"a4w4 largest sums {schedule}",
                lambda: bool((gemm_a4w4(a, b, sa, sb, schedule=schedule, out=out).double() == want).all()),
            )


def mixed_checks() -> Iterator[Check]:
    from asmlaunch.triton_ref import accuracy, gemm_a4w4

    for m, n, k in ((48, 96, 384), (130, 272, 640), (512, 1024, 1024)):
        fp4, _, s4, _ = mx_problem(n, n, k)
        b4 = decode(fp4, s4)
        blocks = -(-k // 32)
        for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            if not turn():
                continue
            a = torch.randn(m, k, device="cuda").to(dtype)
            sa = None
            a64 = a.double() if dtype == torch.bfloat16 else a.float().double()
            if dtype != torch.bfloat16:
                sa = torch.randint(120, 130, (m, blocks), dtype=torch.uint8, device="cuda")
                a64 = a64 * torch.exp2(sa.double() - 127).repeat_interleave(32, 1)[:, :k]
            for schedule in ("direct", "dequantise"):
                want = accuracy.expected(a64, b4.T, torch.bfloat16)
                yield (
                    f"{dtype} x fp4 {schedule} {(m, n, k)}",
                    lambda: want.wrong(gemm_a4w4(a, fp4, sa, s4, schedule=schedule)) == 0,
                )


def stability_checks() -> Iterator[Check]:
    """Stream-K: the same bits 1,000 times, on two streams at once, and from a graph; flags zero afterwards."""
    from asmlaunch.triton_ref import Config, flags_left, gemm_a4w4, matmul

    if not turn():
        return
    a = torch.randn(512, 4096, device="cuda").bfloat16()
    b = torch.randn(4096, 1280, device="cuda").bfloat16()
    first = matmul(a, b, schedule="stream_k")
    deep = torch.randn(300, 16384, device="cuda").bfloat16()
    split = Config(128, 128, 64, 4, 4, "stream_k", parts=11)
    sums = matmul(deep, deep.T, config=split)

    def repeated() -> bool:
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(1000):
            wrong += (matmul(a, b, schedule="stream_k") != first).sum()
        return int(wrong) == 0

    def streams() -> bool:
        results = []
        pool = [torch.cuda.Stream() for _ in range(2)]
        for _ in range(200):
            for stream in pool:
                with torch.cuda.stream(stream):
                    results.append((matmul(a, b, schedule="stream_k") != first).sum())
        torch.cuda.synchronize()
        return all(int(r) == 0 for r in results)

    def captured() -> bool:
        stream, graph, out = torch.cuda.Stream(), torch.cuda.CUDAGraph(), torch.empty_like(first)
        with torch.cuda.stream(stream):
            matmul(a, b, schedule="stream_k", out=out)
            with torch.cuda.graph(graph, stream=stream):
                matmul(a, b, schedule="stream_k", out=out)
        wrong = 0
        for _ in range(50):
            out.zero_()
            torch.cuda.synchronize()
            graph.replay()
            torch.cuda.synchronize()
            wrong += int((out != first).sum())
        return wrong == 0

    yield "stream-K 1,000 times", repeated
    yield (
        "parts of K 200 times",
        lambda: all(torch.equal(matmul(deep, deep.T, config=split), sums) for _ in range(200)),
    )
    yield "stream-K on two streams", streams
    yield "stream-K in a graph", captured
    x, w, sx, sw = mx_problem(16, 1280, 8192)
    once = gemm_a4w4(x, w, sx, sw)
    yield "few rows 200 times", lambda: all(torch.equal(gemm_a4w4(x, w, sx, sw), once) for _ in range(200))
    thin = gemm_a4w4(x, w, sx, sw, schedule="skinny")
    yield (
        "skinny 200 times",
        lambda: all(torch.equal(gemm_a4w4(x, w, sx, sw, schedule="skinny"), thin) for _ in range(200)),
    )
    yield "flags zero", lambda: flags_left() == 0


def fork_checks() -> Iterator[Check]:
    if not turn():
        return
    code = (
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import torch, asmlaunch.triton_ref as t\n"
        "assert not torch.cuda.is_initialized()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    a = torch.randn(64, 64, device='cuda', dtype=torch.bfloat16)\n"
        "    ok = torch.allclose(t.matmul(a, a, schedule='stream_k'), a @ a, atol=0.1)\n"
        "    os._exit(0 if ok else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    yield "GPU in a forked child", lambda: subprocess.run([sys.executable, "-c", code]).returncode == 0


GROUPS: dict[str, Callable[[], Iterator[Check]]] = {
    "dense": dense_checks, "dense other": other_dense_checks, "a4w4": mx_checks, "a4w4 extremes": extreme_checks,
    "a4w4 mixed": mixed_checks, "stability": stability_checks, "fork": fork_checks,
}  # fmt: skip


def run_part(part: int, parts: int, path: str, groups: list[str]) -> None:
    """The checks of one worker: whole problems, round robin."""
    torch.manual_seed(part)
    torch._dynamo.config.recompile_limit = 256
    _share[:] = part, parts, 0
    counts: dict[str, list[int]] = {}
    failures: list[str] = []
    for group in groups:
        for name, check in GROUPS[group]():
            label = f"{group}: {name.split(' (')[0].split(' torch.')[0]}"
            try:
                passed, why = check(), "wrong"
            except Exception as error:
                passed, why = False, f"{type(error).__name__}: {error}"[:300]
            entry = counts.setdefault(label, [0, 0])
            entry[0] += 1
            if not passed:
                entry[1] += 1
                failures.append(f"{group}: {name}: {why}")
            Path(path).write_text(json.dumps({"counts": counts, "failures": failures}))


def run_checks(workers: int, limit: float, groups: str) -> dict[str, Any]:
    start = time.time()
    counts: dict[str, list[int]] = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for i in range(workers):
            with open(f"{folder}/{i}.log", "w") as log:
                command = [sys.executable, __file__, "--part", f"{i}/{workers}", "--out", f"{folder}/{i}.json"]
                command += ["--groups", groups]
                parts.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, cwd=ROOT))
        for i, process in enumerate(parts):
            try:
                process.wait(max(5.0, limit - (time.time() - start)))
            except subprocess.TimeoutExpired:
                process.kill()
                failures.append(f"worker {i} ran out of time")
            if process.returncode:
                log_end = Path(f"{folder}/{i}.log").read_text()[-500:]
                failures.append(f"worker {i} ended with {process.returncode}: {log_end}")
            if Path(f"{folder}/{i}.json").exists():
                data = json.loads(Path(f"{folder}/{i}.json").read_text())
                failures += data["failures"]
                for name, (total, wrong) in data["counts"].items():
                    entry = counts.setdefault(name, [0, 0])
                    entry[0] += total
                    entry[1] += wrong
    for name in sorted(counts):
        print(f"{name:60s} {counts[name][0]:5d} checks, {counts[name][1]} failures")
    for failure in failures[:60]:
        print("FAILED", failure)
    total, wrong = (sum(c[i] for c in counts.values()) for i in (0, 1))
    print(f"{total} checks, {wrong} failures, {time.time() - start:.0f} s", flush=True)
    return {"counts": counts, "failures": failures, "seconds": time.time() - start}


def graph_times(*variants: list[Callable[[], Any]], replays: int = 30) -> list[float]:
    """Seconds of one call of each variant: its calls captured one after the other, the median of the replays.

    Replays take turns: the GPU's clock falls with the power it has drawn, and what runs later would look slower.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graphs = []
    with torch.cuda.stream(stream):
        for calls in variants:
            for call in calls:
                call()
            stream.synchronize()
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], stream=stream):
                for call in calls:
                    call()
            graphs[-1].replay()
        times: list[list[Any]] = [[] for _ in graphs]
        for turn_number in range(replays):
            for i in range(len(graphs)) if turn_number % 2 else reversed(range(len(graphs))):
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                graphs[i].replay()
                end.record()
                times[i].append((begin, end))
        torch.cuda.synchronize()
    medians = (statistics.median(b.elapsed_time(e) for b, e in found) for found in times)
    return [median / 1e3 / len(calls) for median, calls in zip(medians, variants, strict=True)]


SQUARES = ((4096, 4096, 4096), (8192, 8192, 8192), (2048, 2048, 2048), (1024, 1024, 1024))
# One round of tiles and a few, less than a round, deep and narrow, ragged, several rounds and a bit.
MANY = (
    (2176, 2048, 8192), (1152, 4096, 8192), (4480, 2048, 4096), (2048, 1024, 16384), (512, 512, 16384),
    (4000, 4000, 4000), (1000, 3000, 5000), (256, 2048, 8192), (768, 2048, 8192), (1024, 2048, 8192),
    (1280, 2048, 8192), (1536, 2048, 8192), (1792, 2048, 4096), (2304, 2048, 8192), (2560, 2048, 8192),
    (3072, 2048, 8192), (3584, 2048, 8192), (4608, 2048, 8192), (5120, 2048, 4096), (1664, 4096, 4096),
    (1024, 1024, 8192), (256, 256, 16384), (640, 640, 8192), (3000, 1000, 6000), (2200, 2200, 8192),
    (4352, 4096, 4096), (1024, 4096, 1024), (2176, 2048, 2048), (2176, 2048, 4096), (1500, 2500, 3500),
)  # fmt: skip


def timed_dense(report: Callable[..., None], quick: bool) -> None:
    from asmlaunch.triton_ref import hardware, matmul, tiles

    processor = hardware.hardware_of(torch.device("cuda", 0))

    def compare(name: str, m: int, n: int, k: int, options: dict[str, dict[str, Any]]) -> dict[str, float]:
        size = 2 * (m * k + k * n)
        sets = max(1, min(8, -(-(200 << 20) // size))) if m * n * k < 2**36 else 1
        data = [
            (torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16().T)
            for _ in range(sets)
        ]
        outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in data]
        repeat = max(1, 4 // sets)
        variants = [[lambda x=x, o=o: torch.mm(*x, out=o) for x, o in zip(data, outs, strict=True)] * repeat]
        for option in options.values():
            variants.append(
                [lambda x=x, o=o, v=option: matmul(*x, out=o, **v) for x, o in zip(data, outs, strict=True)] * repeat
            )
        base, *spent = graph_times(*variants)
        report(f"dense {name} {m}x{n}x{k} torch", base, 2 * m * n * k, 1.0)
        for label, seconds in zip(options, spent, strict=True):
            report(f"dense {name} {m}x{n}x{k} {label}", seconds, 2 * m * n * k, base / seconds)
        return dict(zip(options, spent, strict=True))

    for size in SQUARES:
        compare("square", *size, {"auto": {}})
    lost, won = [], []
    for m, n, k in MANY[:7] if quick else MANY:
        chosen = tiles.choose(m, n, k, tiles.Kind(2, 2, 1.0, True, lined=k % 64 == 0), processor).schedule
        every: dict[str, dict[str, Any]] = {schedule: {"schedule": schedule} for schedule in SCHEDULES}
        spent = compare("schedules", m, n, k, {f"auto ({chosen})": {}, **every})
        ratio = spent["data_parallel"] / spent[f"auto ({chosen})"]
        (won if chosen == "stream_k" else lost).append((round(ratio, 3), (m, n, k)))
    print("data-parallel over chosen, where stream-K is chosen:", sorted(won))
    print("data-parallel over chosen, elsewhere:", sorted(lost), flush=True)


TRIED = (*SQUARES, *MANY[:7], (1536, 2048, 8192), (1024, 1024, 8192), (640, 640, 8192), (2200, 2200, 8192))


def timed_choice(report: Callable[..., None]) -> None:
    """What the model's choice loses to the best of all its configurations, each tried: ``best / chosen``."""
    from asmlaunch.triton_ref import dense, hardware, matmul, tiles

    processor = hardware.hardware_of(torch.device("cuda", 0))
    ratios = []
    for m, n, k in TRIED:
        a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16().T
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        kind = dense.kind_of(a, b, processor)
        chosen = tiles.choose(m, n, k, kind, processor)
        # Without those that cannot win: a program whose tile is far larger or smaller than its share of the result.
        near = [c for c in tiles.candidates(kind, processor) if tiles.seconds(c, m, n, k, kind, processor) < 2.5 * (
            tiles.seconds(chosen, m, n, k, kind, processor))]  # fmt: skip
        spent = graph_times(*([lambda c=c: matmul(a, b, out=out, config=c)] * 4 for c in near), replays=12)
        times = dict(zip(near, spent, strict=True))
        best = min(times, key=times.__getitem__)
        ratios.append(times[best] / times[chosen])
        report(f"choice {m}x{n}x{k} of {len(near)}: best {best}", times[best], 2 * m * n * k, 1.0)
        report(f"choice {m}x{n}x{k} of {len(near)}: chosen", times[chosen], 2 * m * n * k, ratios[-1])
    print(f"best over chosen: mean {statistics.geometric_mean(ratios):.3f}, least {min(ratios):.3f}", flush=True)


def timed_mx(report: Callable[..., None]) -> None:
    from asmlaunch.triton_ref import gemm_a4w4, mx

    shapes = (
        (1, 8192, 8192), (2, 8192, 8192), (8, 8192, 8192), (16, 8192, 8192), (16, 1280, 8192), (16, 8192, 1024),
        (32, 8192, 8192), (64, 8192, 8192), (128, 8192, 8192), (256, 2048, 8192), (2048, 8192, 8192),
        (4096, 4096, 4096), (8192, 8192, 8192),
    )  # fmt: skip
    for m, n, k in shapes:
        sets = max(1, min(8, -(-(300 << 20) // ((m + n) * k // 2)))) if m <= 256 else 1
        data = [mx_problem(m, n, k) for _ in range(sets)]
        outs = [torch.empty(m, n, device="cuda", dtype=torch.bfloat16) for _ in data]
        plain = [
            (torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16().T)
            for _ in range(min(sets, 3))
        ]
        flops = 2 * m * n * k
        schedules = ["auto", *(["skinny"] if m <= 16 else ["dequantise"] if m <= 256 else [])]
        base, *spent = graph_times(
            [lambda x=x: torch.mm(*x, out=outs[0]) for x in plain] * 2,
            *(
                [lambda x=x, o=o, s=s: gemm_a4w4(*x, out=o, schedule=s) for x, o in zip(data, outs, strict=True)] * 2
                for s in schedules
            ),
        )
        report(f"a4w4 {m}x{n}x{k} torch bf16", base, flops, 1.0)
        for schedule, seconds in zip(schedules, spent, strict=True):
            report(f"a4w4 {m}x{n}x{k} {schedule}", seconds, flops, base / seconds)
        if (m, n, k) == (4096, 4096, 4096):
            a, b, sa, sb = data[0]
            problem = mx.Problem(
                mx.operand("a", a, sa, "", ""), mx.operand("b", b, sb, "", ""), outs[0], None, 1.0, 0.0, None
            )
            # Without the look at the ranges: that one reads what the pass before it left.
            names = ("dequantise", "product")
            alone = graph_times(*([lambda n=n: mx.dequantised(problem, only=n)] * 4 for n in names))
            for name, seconds in zip(names, alone, strict=True):
                report(f"a4w4 {m}x{n}x{k} {name} alone", seconds, flops, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--part")
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--check-seconds", type=float, default=260)
    parser.add_argument("--skip-checks", action="store_true")
    parser.add_argument("--skip-times", action="store_true")
    parser.add_argument("--choice", action="store_true", help="try all configurations of dense products as well")
    parser.add_argument("--groups", default=",".join(GROUPS), help="which checks, by name, with commas between")
    parser.add_argument("--quick", action="store_true", help="time fewer shapes")
    options = parser.parse_args()
    if options.part:
        part, parts = map(int, options.part.split("/"))
        run_part(part, parts, options.out, options.groups.split(","))
        return
    import triton

    result: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__, "times": [],
    }  # fmt: skip
    print(result, flush=True)

    def report(name: str, seconds: float, flops: float, ratio: float) -> None:
        row = {"name": name, "us": seconds * 1e6, "tflops": flops / seconds / 1e12, "torch_over_this": ratio}
        result["times"].append(row)
        print(f"{name:110s} {row['us']:10.1f} us {row['tflops']:7.1f} TFLOP/s {ratio:6.3f}", flush=True)
        Path(options.out).write_text(json.dumps(result, indent=1))

    if not options.skip_checks:
        result["checks"] = run_checks(options.workers, options.check_seconds, options.groups)
        Path(options.out).write_text(json.dumps(result, indent=1))
    if not options.skip_times:
        timed_mx(report)
        timed_dense(report, options.quick)
    if options.choice:
        timed_choice(report)


if __name__ == "__main__":
    os.environ.pop("TRITON_INTERPRET", None)
    main()
