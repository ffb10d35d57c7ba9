"""Layouts, MXFP4 and MXFP8 on a GPU: bit-equal to numpy on many shapes, and bandwidth against a device-to-device copy.

    python benchmarks/layouts_gpu.py [--output FILE.json] [--mib 512] [--quick]

Needs torch with a GPU and Triton, and asmlaunch importable (from a checkout: PYTHONPATH=.). Exit status 1 if a result
differs from numpy's. The reference chain is reshape, permute and contiguous in torch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from asmlaunch import layouts
from asmlaunch.layouts import LAYOUTS, ROUNDINGS, Layout

WARM_UP = 0.2
"""Seconds of launches before those that are timed."""
TARGETS = {"apply": 0.8, "invert": 0.8, "quantize": 0.7}
TIMED = ("scales_32x8", "scales_128x4", "scales_n32k4", "weights_16x16", "weights_32x16", "weights_16x16_16bit")


def shapes(layout: Layout, quick: bool) -> Iterator[tuple[int, ...]]:
    """Whole tiles, ragged ends, few rows, batches: the shapes that the tests use and larger ones."""
    open_ = [group[0] not in layout.sizes for group in layout.groups]
    ragged = [max(1, 2 * t - 3) if o else 2 * t for t, o in zip(layout.tile, open_, strict=True)]
    yield tuple(2 * t for t in layout.tile)
    yield tuple(ragged)
    yield (ragged[0], *(3 * t for t in layout.tile[1:]))
    yield (2, *ragged)
    yield (0, *layout.tile[1:])
    yield tuple(16 * t for t in layout.tile)
    yield (3, *(5 * t for t in layout.tile))
    if all(open_) and layout.rank == 2:
        for rows in (1, 31, 64, 65) if quick else range(1, 66):
            yield (rows, 8 * layout.tile[1])
            yield (rows, 52)


def check(quick: bool) -> list[str]:
    """Every layout on every shape, both ways; what differs."""
    rng, wrong = np.random.default_rng(0), []
    for name, layout in LAYOUTS.items():
        for shape in shapes(layout, quick):
            x = rng.integers(0, 256, shape, dtype=f"u{layout.itemsize}")
            expected = layout.apply(x, pad_value=200)
            tensor = torch.from_numpy(x.view(f"i{layout.itemsize}") if layout.itemsize > 1 else x).cuda()
            out = layout.apply(tensor, pad_value=200)
            back = layout.invert(out, shape)
            if not np.array_equal(out.cpu().numpy().view(x.dtype), expected):
                wrong.append(f"{name} {shape} apply")
            if not torch.equal(back, tensor):
                wrong.append(f"{name} {shape} invert")
    return wrong


QUANTISED: dict[str, Callable[..., tuple[Any, Any]]] = {
    "mxfp4": layouts.quantize_mxfp4_tiled,
    "mxfp8_e4m3": partial(layouts.quantize_mxfp8_tiled, element="e4m3"),
    "mxfp8_e5m2": partial(layouts.quantize_mxfp8_tiled, element="e5m2"),
}


def ordinary_and_special() -> Iterator[np.ndarray]:
    """float32 matrices: random ones of all magnitudes with special blocks, few rows, ends that are not whole."""
    rng = np.random.default_rng(1)
    for rows, k in ((70, 340), (1, 32), (33, 2048), (256, 4096)):
        x = rng.standard_normal((rows, k)) * np.exp2(rng.integers(-130, 127, (rows, k)))
        # Blocks whose elements are near each other, so that the codes of most are not 0.
        x[rows // 2 :] = rng.standard_normal((rows - rows // 2, k)) * np.exp2(rng.integers(-140, 120, (1, 1)))
        if rows > 10:
            x[3, 5], x[4, 40 % k], x[5, :32], x[6, :32], x[7, :32] = np.nan, -np.inf, 0, 3.3e38, -0.0
            x[8, :32], x[9, :32] = 1e-40, 1e-45  # subnormal in f32: a flushing multiplication would show here
            x[10, :32] = np.resize([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -5], 32)
            x[11, 3] = -np.nan
        with np.errstate(over="ignore"):
            yield x.astype(np.float32)


def around_codes(scheme: str) -> np.ndarray:
    """A float32 matrix of every number of a format, every tie and their neighbours, of both signs, at several scales.

    A block holds 30 of them, the largest magnitude, which sets the scale, and 0.
    """
    element = layouts.SCHEMES[scheme].element
    numbers = element.table[: element.max_code + 1].astype(np.float64)
    ties = (numbers[1:] + numbers[:-1]) / 2
    near = [ties * (1 + sign * 2.0**-bits) for bits, sign in ((7, 1), (8, -1), (10, 1), (11, -1), (23, 1), (24, -1))]
    values = np.concatenate([numbers, ties, *near])
    blocks = np.resize(values, 30 * -(-len(values) // 30)).reshape(-1, 30)
    tops = np.array([1, 1.5, 1.75, 1.8, 1.8125, 1.85, 1.875, 1.93, 1.9375, 1.99]) * 2.0**element.max_power
    rows = []
    for top in tops:
        row = np.concatenate([blocks, np.full((len(blocks), 1), top), np.zeros((len(blocks), 1))], 1).ravel()
        rows += [sign * row * 2.0**power for sign in (1, -1) for power in (0, -8, -126, -130, 127 - element.max_power)]
    with np.errstate(over="ignore"):
        return np.array(rows).astype(np.float32)


def check_quantisation() -> list[str]:
    """The fused kernel against numpy, for every format, rounding and input type, and on all numbers of 16 bits."""
    wrong = []
    every = torch.arange(1 << 16).to(torch.int16).view(64, 1024)
    for scheme, function in QUANTISED.items():
        matrices = [torch.from_numpy(x) for x in (*ordinary_and_special(), around_codes(scheme))]
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            tensors = [x.to(dtype) for x in matrices]
            if dtype != torch.float32:
                tensors.append(every.view(dtype))
            for number, tensor in enumerate(tensors):
                for rounding in ROUNDINGS:
                    codes, scales = function(tensor.cuda(), rounding=rounding)
                    expected = function(tensor, rounding=rounding)
                    for what, got, want in (("codes", codes, expected[0]), ("scales", scales, expected[1])):
                        bad = int((got.cpu() != want).sum())
                        if bad:
                            where = f"{scheme} {rounding} {dtype} matrix {number} {tuple(tensor.shape)}"
                            wrong.append(f"{where} {what}: {bad} of {want.numel()} differ")
    return wrong


def seconds(function: Callable[[], Any], launches: int = 8, rounds: int = 9, *, graph: bool = True) -> float:
    """Median time of a launch among several between two events, replayed as a CUDA graph or launched one by one.

    In a graph the host's time is not in it. The arrays are several times larger than the L2 cache, which therefore
    holds nothing that a launch reads.
    """
    for _ in range(3):
        function()  # compiles
    torch.cuda.synchronize()

    def several() -> None:
        for _ in range(launches):
            function()

    run = several
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            several()
        run = captured.replay
    start = time.perf_counter()
    while time.perf_counter() - start < WARM_UP:  # an idle GPU has low clocks
        run()
        torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / launches)
    return sorted(times)[rounds // 2]


def host_seconds(function: Callable[[], Any], calls: int = 200) -> float:
    """Time that the host takes to launch: many calls on tensors too small to fill the GPU's queue."""
    function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    taken = time.perf_counter() - start
    torch.cuda.synchronize()
    return taken / calls


def record(operation: str, moved: int, taken: float, copy_rate: float, target: float | None = None) -> dict[str, Any]:
    """Bytes read and written over time, and its ratio to that of a copy."""
    entry = {"operation": operation, "gb_per_s": round(moved / taken / 1e9, 1), "seconds": taken}
    entry["ratio_to_copy"] = round(moved / taken / copy_rate, 3)
    return entry if target is None else {**entry, "target": target, "met": entry["ratio_to_copy"] >= target}


def bandwidths(mib: int) -> list[dict[str, Any]]:
    """Copy, torch's chain, the layouts both ways, and fused quantisation."""
    size = mib << 20
    x = torch.randint(0, 256, (size // 8192, 8192), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(x)
    copies = {
        "copy_ in a graph": seconds(lambda: target.copy_(x)),
        "copy_ launched one after the other": seconds(lambda: target.copy_(x), graph=False),
        "bitwise_not, a kernel that reads and writes as much": seconds(lambda: torch.bitwise_not(x, out=target)),
    }
    # The fastest counts: a copy node of a graph need not be the fastest copy there is.
    rate = 2 * size / min(copies.values())
    records = [record(f"device-to-device copy: {how}", 2 * size, taken, rate) for how, taken in copies.items()]
    for name in TIMED:
        layout = LAYOUTS[name]
        source = x.view(torch.int16) if layout.itemsize == 2 else x
        memory = torch.empty_like(source)
        sizes, order = layout.split(source.shape)
        chain = seconds(lambda s=source, z=sizes, o=order: s.reshape(z).permute(o).contiguous())
        records.append(record(f"{name}: torch reshape-permute-contiguous", 2 * size, chain, rate))
        forward = seconds(lambda lay=layout, s=source, m=memory: lay.apply(s, out=m))
        records.append(record(f"{name}: apply", 2 * size, forward, rate, TARGETS["apply"]))
        result = torch.empty_like(source)
        backward = seconds(lambda lay=layout, m=memory, r=result: lay.invert(m, out=r))
        records.append(record(f"{name}: invert", 2 * size, backward, rate, TARGETS["invert"]))
        assert torch.equal(result, source)
    values = torch.randn(size // 8192 // 2, 8192, device="cuda", dtype=torch.bfloat16)
    for scheme, function in QUANTISED.items():
        moved = values.numel() * 2 + values.numel() * layouts.SCHEMES[scheme].element.bits // 8 + values.numel() // 32
        fused = seconds(lambda f=function: f(values))
        operation = f"bf16 -> {scheme} and tiled scales, fused"
        records.append(record(operation, moved, fused, rate, TARGETS["quantize"]))
    return records


def host_times() -> dict[str, float]:
    """Microseconds of the host to launch each operation."""
    x = torch.zeros(32, 256, dtype=torch.uint8, device="cuda")
    values = torch.zeros(32, 256, dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(x)
    calls = {
        "copy": lambda: out.copy_(x),
        "scales_32x8: apply": lambda: layouts.SCALES_32X8.apply(x, out=out),
        "scales_32x8: invert": lambda: layouts.SCALES_32X8.invert(x, out=out),
        "weights_16x16: apply": lambda: layouts.WEIGHTS_16X16.apply(x, out=out),
        "bf16 -> mxfp4 and tiled scales": lambda: layouts.quantize_mxfp4_tiled(values),
        "bf16 -> mxfp8_e4m3 and tiled scales": lambda: layouts.quantize_mxfp8_tiled(values),
    }
    return {name: round(1e6 * host_seconds(call), 1) for name, call in calls.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", help="write the JSON here too")
    parser.add_argument("--mib", type=int, default=512, help="size of the arrays that are timed")
    parser.add_argument("--quick", action="store_true", help="fewer shapes")
    options = parser.parse_args()
    wrong = check(options.quick) + check_quantisation()
    report = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "equal_to_numpy": not wrong,
        "differences": wrong,
        "bandwidths": bandwidths(options.mib),
        "host_microseconds": host_times(),
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.output:
        with open(options.output, "w") as file:
            file.write(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
