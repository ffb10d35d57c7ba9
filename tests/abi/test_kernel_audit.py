"""The audit and the hidden arguments as ``asmlaunch.load`` gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asmlaunch
from asmlaunch.abi import schema_from_metadata
from asmlaunch.errors import ArgumentError

TWO = Path(__file__).parents[2] / "fixtures" / "codeobject" / "two_kernels_v5.co"


def test_machine_code_is_looked_at(f4gemm_folder: Path) -> None:
    kernel = asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel
    states = kernel.audit().states
    assert (states["ptr_D"], states["alpha"], states["stride_D0"]) == ("used", "loaded, unused", "never loaded")
    args: dict[str, Any] = {name: 4096 * (i + 1) for i, name in enumerate(("D", "A", "B", "ScaleA", "ScaleB"))}
    args |= {"M": 32, "N": 128, "K": 512, "stride_C0": 128, "stride_A0": 512, "stride_B0": 512}
    args |= {"stride_ScaleA0": 16, "stride_ScaleB0": 16}
    assert kernel.audit(args).ok
    result = kernel.audit({**args, "A": None, "stride_D0": 7})
    assert not result.ok
    text = str(result)
    assert "ptr_A is null and the kernel uses it" in text
    assert "stride_D0 = 7 has no effect in this kernel" in text
    with pytest.raises(ArgumentError, match=r"did you mean stride_A\d"):
        kernel.audit({**args, "stride_A": 1})


def test_hidden_arguments_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = asmlaunch.load(TWO, device="emulator")["scale"]
    packed: list[bytes] = []
    monkeypatch.setattr(kernel.device, "launch", lambda _kernel, _object, kernarg, **_: packed.append(kernarg))
    array = np.zeros(4, np.float32)
    kernel.launch({"out": array, "in": array, "n": 4, "factor": 2.0}, grid=(5, 2), block=(64, 2))
    values = schema_from_metadata(kernel.info).unpack(packed[0])
    assert [values[f"hidden_block_count_{axis}"] for axis in "xyz"] == [5, 2, 1]
    assert [values[f"hidden_group_size_{axis}"] for axis in "xyz"] == [64, 2, 1]
    assert (values["n"], values["factor"], values["hidden_grid_dims"]) == (4, 0x40000000, 3)
