"""Bandwidth of the layouts on the CPU, as ratios to numpy.copyto in the same run; JSON on standard output.

    python benchmarks/layouts_cpu.py [--mib 64]

Bytes of the larger side are counted once. Layouts are timed into memory that is there already, as copyto is, and into
new memory, against numpy's copy(); the difference is the system's, which hands out zeroed pages. Where torch is
installed, MXFP4 quantisation of bf16 is also timed against the same rule written in torch operations.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from asmlaunch import layouts

TARGETS = {"tile": 0.4, "untile": 0.4, "shuffle": 0.4, "unshuffle": 0.4, "pack": 0.25, "unpack": 0.25}


def seconds(function: Callable[[], Any], rounds: int = 7) -> float:
    """The best of some runs, after one that is not counted."""
    function()
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def bandwidths(mib: int) -> list[dict[str, Any]]:
    """One record an operation."""
    size = mib << 20
    columns = 8192
    x = np.random.default_rng(0).integers(0, 256, (size // columns, columns), dtype=np.uint8)
    codes = x & 15
    out = np.empty_like(x)
    scales, weights = layouts.SCALES_32X8, layouts.WEIGHTS_16X16
    tiled, shuffled, packed = scales.apply(x), weights.apply(x), layouts.pack_fp4(codes)
    operations: dict[str, Callable[..., Any]] = {
        "tile": lambda **to: scales.apply(x, **to),
        "untile": lambda **to: scales.invert(tiled, **to),
        "shuffle": lambda **to: weights.apply(x, **to),
        "unshuffle": lambda **to: weights.invert(shuffled, **to),
    }
    copy, new = seconds(lambda: np.copyto(out, x)), seconds(x.copy)
    records = [record("numpy.copyto", size, copy, copy), record("ndarray.copy", size, new, new)]
    for name, run in operations.items():
        records.append(record(name, size, seconds(lambda run=run: run(out=out)), copy, TARGETS[name]))
    for name, run in operations.items():
        records.append(record(f"{name}, new memory", size, seconds(run), new))
    for name, run in (("pack", lambda: layouts.pack_fp4(codes)), ("unpack", lambda: layouts.unpack_fp4(packed))):
        records.append(record(name, size, seconds(run), copy, TARGETS[name]))
    return records


def record(name: str, size: int, taken: float, base: float, target: float | None = None) -> dict[str, Any]:
    """What is printed of one operation; the ratio is to the copy that took ``base`` seconds."""
    entry = {"operation": name, "gb_per_s": round(size / taken / 1e9, 2), "ratio": round(base / taken, 3)}
    return entry if target is None else {**entry, "target": target}


def quantisation(mib: int) -> dict[str, Any]:
    """MXFP4 (RoundUp) of a bf16 tensor: this package against torch operations, which must agree."""
    import torch

    x = torch.randn(mib * 512, 1024, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    ours, theirs = layouts.quantize_mxfp4(x), torch_operations(x)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    fast, slow = seconds(lambda: layouts.quantize_mxfp4(x), 5), seconds(lambda: torch_operations(x), 3)
    return {
        "operation": "quantize bf16 to mxfp4",
        "gb_per_s": round(x.numel() * 2 / fast / 1e9, 2),
        "torch_gb_per_s": round(x.numel() * 2 / slow / 1e9, 3),
        "torch_threads": torch.get_num_threads(),
        "ratio": round(slow / fast, 1),
        "target": 5.0,
    }


def torch_operations(x: Any) -> tuple[Any, Any]:
    """The rule as a sequence of torch operations, as quantisers in Python write it."""
    import torch

    blocks = x.float().reshape(x.shape[0], -1, 32)
    bits = (blocks.abs().amax(dim=-1) / 6).view(torch.int32)
    byte = ((bits >> 23) + ((bits & 0x7FFFFF) > 0)).clamp(0, 254)
    scaled = torch.ldexp(blocks, (127 - byte).unsqueeze(-1))
    magnitude = scaled.abs()
    code = torch.zeros_like(magnitude, dtype=torch.uint8)
    # Ties go to the even code: alternately above a middle and at it.
    for middle, inclusive in ((0.25, 0), (0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)):
        code += (magnitude >= middle) if inclusive else (magnitude > middle)
    code |= torch.signbit(scaled).to(torch.uint8) << 3
    code = code.reshape(x.shape)
    return code[:, ::2] | code[:, 1::2] << 4, byte.to(torch.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="size of the arrays")
    mib = parser.parse_args().mib
    records = bandwidths(mib)
    try:
        records.append(quantisation(mib))
    except ImportError:
        records.append({"operation": "quantize bf16 to mxfp4", "note": "torch is not installed: no comparison"})
    print(json.dumps(records, indent=2))


if __name__ == "__main__":
    main()
