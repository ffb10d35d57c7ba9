"""Run as a program, without Triton's interpreter: compile calls for processors that are not here, and print JSON.

One entry a kernel: target, name, grid, warps, shared memory, registers, spills, bound of shared memory and registers of
the model (for configurations of dense products), arguments (names of tensors, "out", "out 2", ... for others; integers
that are 1 are constants of the kernel and left out) and the code object, in base64.
"""

from __future__ import annotations

import base64
import json
from functools import partial
from typing import Any

import torch

from asmlaunch.layouts import SCHEMES, triton_kernels
from asmlaunch.triton_ref import Config, addmm, gemm_a4w4, matmul, offline
from asmlaunch.triton_ref.hardware import KNOWN
from asmlaunch.triton_ref.tiles import Kind, candidates, registers, shared_bytes

LARGE = {"gfx942": "data_parallel", "gfx950": "stream_k", "sm90": "stream_k"}
BF16 = Kind(2, 2, 1.0, True)
SMALL = Config(32, 32, 32, 2, 2)
QUANTISED = {"mxfp4": torch.float16, "mxfp8_e4m3": torch.bfloat16, "mxfp8_e5m2": torch.float32}


def flat(values: Any, names: dict[int, str]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            found += flat(value, names)
        elif isinstance(value, torch.Tensor):
            others = sum(name.startswith("out") for name in names.values())
            found.append(names.setdefault(value.data_ptr(), f"out {others + 1}" if others else "out"))
        elif isinstance(value, float) or (isinstance(value, int) and value != 1):
            found.append(value)
    return found


def entries(target: str, case: str, call: Any, tensors: dict[str, torch.Tensor], config: Config | None) -> list[Any]:
    names = {t.data_ptr(): name for name, t in tensors.items()}
    with offline(target) as compiled:
        call(**tensors)
    return [
        {
            "target": target, "case": case, "name": c.name, "grid": c.grid, "warps": c.warps, "shared": c.shared,
            "registers": c.registers, "spills": c.spills, "arguments": flat(c.arguments, names),
            "binary": base64.b64encode(c.binary).decode(),
            "bound": None if config is None else (
                shared_bytes(config, BF16, KNOWN[target]), KNOWN[target].shared, registers(config, KNOWN[target])
            ),
        }
        for c in compiled
    ]  # fmt: skip


def main() -> None:
    result = []
    for target in LARGE:
        a, b = torch.empty(64, 96, dtype=torch.bfloat16), torch.empty(96, 64, dtype=torch.bfloat16)
        dense = {"a": a, "b": b, "c": torch.empty(64)}
        result += entries(target, "dense", lambda c, a, b: addmm(c, a, b, config=SMALL), dense, SMALL)
        mx = {
            name: torch.empty(shape, dtype=torch.uint8)
            for name, shape in (("a", (16, 32)), ("b", (32, 32)), ("a_scale", (16, 2)), ("b_scale", (32, 2)))
        }
        result += entries(target, "a4w4", lambda **t: gemm_a4w4(**t, schedule="direct"), mx, None)
        # The largest tile, which is the one that could exceed something.
        large = {"a": torch.empty(512, 512, dtype=torch.bfloat16), "b": torch.empty(512, 512, dtype=torch.bfloat16)}
        config = next(c for c in candidates(BF16, KNOWN[target], LARGE[target]) if not c.parts)
        result += entries(target, "large", lambda a, b, c=config: matmul(a, b, config=c), large, config)
        rounding = "RoundUp" if target == "sm90" else "RoundDown"  # without and with a limit to the codes
        for scheme, dtype in QUANTISED.items():
            element = SCHEMES[scheme].element
            x = {"x": torch.empty(40, 288, dtype=dtype)}
            call = partial(triton_kernels.quantize_tiled, element=element, rounding=rounding, row_multiple=32)
            result += entries(target, scheme, call, x, None)
        config = next(c for c in candidates(BF16, KNOWN[target], "stream_k") if c.parts)
        result += entries(target, "parts", lambda a, b, c=config: matmul(a, b, config=c), large, config)
    for case, rows in (("few rows", 16), ("one row", 1)):
        shapes = {"a": (rows, 128), "b": (128, 128), "a_scale": (rows, 8), "b_scale": (128, 8)}
        blocks = {name: torch.empty(shape, dtype=torch.uint8) for name, shape in shapes.items()}
        result += entries("sm90", case, gemm_a4w4, blocks, None)
    print(json.dumps(result))


main()
