"""What the operators compute without a kernel, on a GPU: through Triton's interpreter, and without Triton."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

PROGRAM = """
import torch
from asmlaunch import layouts
from asmlaunch.ops import reference
random = torch.Generator().manual_seed(1)
a, a_scale = layouts.quantize_mxfp4(torch.randn(24, 96, generator=random))
b, b_scale = layouts.quantize_mxfp4(torch.randn(40, 96, generator=random))
got = reference.on_gpu(a, b, a_scale, b_scale).float()
want = reference.gemm_a4w4(a, b, a_scale, b_scale, prepared=False, shuffled=False).float()
assert (got - want).abs().max() <= 2**-7 * want.abs().max(), (got - want).abs().max()
print("equal")
"""
WITHOUT_TRITON = "import importlib.util\nimportlib.util.find_spec = lambda name, *rest: None\n"


@pytest.mark.parametrize("triton", [True, False])
def test_on_a_gpu(triton: bool) -> None:
    if triton and importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    program = PROGRAM if triton else PROGRAM.replace("got =", f"{WITHOUT_TRITON}got =")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
