"""First stages of mixture-of-experts layers: executed in each format, compared, and followed by a second stage."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asmlaunch
from asmlaunch.errors import DomainError
from asmlaunch.validate import moe
from asmlaunch.validate.bfloat16 import bfloat16_bits
from asmlaunch.validate.compare import Bound, compare
from asmlaunch.validate.minifloat import decode_e4m3, decode_e4m3fnuz
from asmlaunch.validate.problems import operands
from asmlaunch.validate.problems.base import Problem
from asmlaunch.validate.problems.fmoe_2stages import DEFINITION, Layer, Sizes, build

NAME = "{}/fmoe_2stages/fmoe_stage1_bf16_pertoken{}_g1u1_16x128_4tg_pf{}.co"
FORMS = {
    "int8": {"quant": "Int8", "form": None, "processor": "gfx950"},
    "fp8": {"quant": "Fp8", "form": None, "processor": "gfx942"},
    "doweight": {"quant": "Fp8", "form": "doweight", "processor": "gfx950"},
    "blockscale": {"quant": "Fp8", "form": "blockscale", "processor": "gfx942"},
}
CASES = (
    Sizes(tokens=21, hidden=256, dim=256, pad=128),
    Sizes(tokens=9, hidden=256, dim=128, gelu=1, seed=3),
    Sizes(tokens=18, hidden=128, dim=512, splits=2, pad=16),
)


@pytest.mark.parametrize(
    ("processor", "form", "depth"),
    [("gfx942", "Int8", 3), ("gfx942", "Fp8_blockscale", 2), ("gfx950", "Fp8_doweight", 2)],
)
def test_the_standard_problems(aiter_kernels: Path, processor: str, form: str, depth: int) -> None:
    kernel = asmlaunch.load(aiter_kernels / NAME.format(processor, form, depth), device="emulator").kernel
    for case in DEFINITION.cases(DEFINITION.parameters(kernel.info)):
        outcome = DEFINITION.run(kernel, case)
        assert outcome.passed, (case, {name: str(one) for name, one in outcome.comparisons.items()})


def problem(form: str, case: Sizes) -> tuple[Problem, dict[str, Any]]:
    """A problem of a kernel with 16x128 tiles, not launched, and its arguments."""
    made = build(case, {**FORMS[form], "tile_m": 16, "tile_n": 128})
    return made, dict(made.launches[0])


def elements(form: str, case: Sizes, arguments: dict[str, Any]) -> dict[tuple[int, int, int], tuple[float, float]]:
    """Gate and up of some columns of each row, one product after the other, from what the kernel is given."""
    p, group = FORMS[form], 128
    decode: Callable[[np.ndarray], np.ndarray] = (
        (lambda codes: codes.view(np.int8).astype(float))
        if form == "int8"
        else (decode_e4m3 if p["processor"] == "gfx950" else decode_e4m3fnuz)
    )
    # Blocks of 16 rows by 32 bytes: [row / 16][byte / 32][byte / 16 % 2][row % 16][byte % 16].
    weights = arguments["GU"].reshape(case.experts, -1)

    def sum_of(expert: int, row: int, token: int) -> float:
        total = 0.0
        for k in range(case.dim):
            at = (((row // 16 * (case.dim // 32) + k // 32) * 2 + k // 16 % 2) * 16 + row % 16) * 16 + k % 16
            product = float(decode(weights[expert, at])) * float(decode(arguments["X"][token, k]))
            if p["form"] == "blockscale":
                x_scale = arguments["XQ"][k // group, token]
                scale = float(x_scale) * float(arguments["GUQ"][expert, row // group, k // group])
            else:
                scale = float(arguments["XQ"].reshape(-1)[token]) * float(arguments["GUQ"][expert, row])
            total += product * scale
        return total

    found = {}
    for position in range(arguments["XC"][0]):
        token, slot = int(arguments["STP"][position]) & 0xFFFFFF, int(arguments["STP"][position]) >> 24
        if token == case.tokens:
            continue
        expert = int(arguments["SEP"][position // 16])
        weight = float(arguments["SW"][position]) if p["form"] == "doweight" else 1.0
        for column in (position % 7, case.hidden - 1 - position):
            sums = (sum_of(expert, half * case.hidden + column, token) * weight for half in (0, 1))
            found[token, slot, column] = tuple(sums)
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("gelu", [0, 1])
def test_the_reference_is_what_the_arguments_say(form: str, gelu: int) -> None:
    case = Sizes(tokens=17, hidden=128, dim=256, gelu=gelu)
    made, arguments = problem(form, case)
    layer = Layer(case, FORMS[form])
    count = 0
    for (token, slot, column), (gate, up) in elements(form, case, arguments).items():
        cubic = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
        want = (gate / 2 * (1 + math.tanh(cubic)) if gelu else gate / (1 + math.exp(-gate))) * up
        # The kernels' constants for gelu have five or six digits.
        near = 1e-9 + (9e-7 * (abs(gate) + abs(gate) ** 3) if gelu else 0)
        row = token * case.topk + slot
        assert layer.activated.value[row, column] == pytest.approx(want, rel=near)
        if form != "blockscale":
            assert made.outputs[0].reference().value[token, slot * case.hidden + column] == pytest.approx(
                want, rel=near
            )
        count += 1
    assert count > 2 * case.tokens
    if form == "blockscale":
        codes, scales = (output.reference().value for output in made.outputs)
        rows = layer.activated.value.reshape(case.tokens, -1, 128)
        amax = np.where(layer.missing.reshape(case.tokens, -1), np.nan, np.abs(rows).max(axis=2))
        assert np.allclose(scales * 240, amax, equal_nan=True)
        there = np.isfinite(amax)
        assert np.abs(codes.reshape(rows.shape)[there]).max(axis=1).tolist() == [240] * there.sum()
        # Half a step of four bits, or of the smallest numbers.
        error = np.abs(codes.reshape(rows.shape) * scales[:, :, None] - rows)[there]
        assert (error <= 2.0**-4 * np.abs(rows[there]) + 2.0**-11 * amax[there][:, None]).all()


def test_experts_beyond_4_gib_are_read_elsewhere(aiter_kernels: Path) -> None:
    """Their offsets have 32 bits. Refused, and wrong where it is not; just below it is right."""
    kernel = asmlaunch.load(aiter_kernels / NAME.format("gfx942", "Int8", 3), device="emulator").kernel
    case = Sizes(tokens=5, hidden=128, dim=128)
    for apart, right in ((1 << 20, True), (1 << 21, False)):
        far = dataclasses.replace(case, apart=apart)
        assert DEFINITION.run(kernel, far, check=False).passed == right
    with pytest.raises(DomainError, match="offsets have 32 bits"):
        DEFINITION.run(kernel, far)


def test_every_edge_is_in_the_standard_problem() -> None:
    first = DEFINITION.cases({"tile_m": 48, "tile_n": 64})[0]
    layer = Layer(first, {**FORMS["fp8"], "tile_m": 48})
    rows = moe.sort_rows(layer.routing, 48)
    blocks = rows.experts.tolist()
    assert blocks == [0, 0, 2, -1]
    padding = (rows.ids & 0xFFFFFF == first.tokens).reshape(-1, 48).sum(axis=1)
    assert padding[0] == 0
    assert 0 < padding[1] < 48
    assert 0 < padding[2] < 48
    assert set(rows.ids >> 24) == {0, 1, 2}
    assert 0 < layer.missing.sum() < first.tokens
    assert first.hidden == 2 * 64


def fill(made: Problem, layer: Layer, change: Callable[[np.ndarray], np.ndarray] = lambda x: x) -> None:
    """Write what a kernel would that computes ``change`` of the layer's values."""
    for output in made.outputs:
        source = layer.sums if layer.case.splits else layer.activated
        rows = source.value
        if output.name in ("codes", "scales"):
            rows = getattr(layer, output.name).value
        shape = output.result.shape
        value = change(np.where(layer.missing, 0 if layer.case.splits else np.nan, rows).reshape(shape))
        if output.name == "O":
            output.result[...] = np.where(np.isnan(value), 0xFFFF, bfloat16_bits(np.nan_to_num(value)))
        elif output.name == "codes":
            codes = np.arange(256, dtype=np.uint8)
            values = layer.form.decode(codes)
            order = np.argsort(values)
            at = np.searchsorted(values[order], value).clip(0, 254)
            there = np.repeat(~layer.missing, layer.case.hidden, axis=1).reshape(shape)
            output.result[there] = codes[order][at][there]
        else:
            output.result[...] = value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=["silu", "gelu", "split"])
def test_wrong_results_are_rejected(form: str, case: Sizes) -> None:
    """Zeros, other signs, 1 % too much, neighbours, other experts, and rows that should be left alone."""
    made, _ = problem(form, case)
    layer = Layer(case, FORMS[form])
    compared = made.outputs[0]
    fill(made, layer)
    assert all(output.compare().passed for output in made.outputs)
    changes: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
        lambda x: x * 0,
        lambda x: -x,
        lambda x: np.roll(x, 1, axis=1),
        lambda x: np.roll(x, 1, axis=0),
    )
    for change in changes:
        fill(made, layer, change)
        assert not compared.compare().passed
    fill(made, layer, lambda x: x * 1.01)
    assert not made.outputs[-1].compare().passed
    routing = layer.routing
    swapped = np.where(routing.experts >= 0, case.experts - 1 - routing.experts, -1)
    other = Layer(case, FORMS[form])
    other.__dict__["routing"] = dataclasses.replace(routing, experts=swapped)
    fill(made, other)
    assert not any(output.compare().passed for output in made.outputs)
    fill(made, layer)
    token, slot = np.argwhere(layer.routing.experts < 0)[0]
    for output in made.outputs:
        output.result.reshape(case.tokens, case.topk, -1)[token, slot] = 1
        assert not output.compare().passed


def test_both_stages(aiter_kernels: Path) -> None:
    """A layer of two kernels: the first stage's codes and scales are what a block-scaled GEMM takes as the second's.

    The wheel has no second stage of its own for them. The result is close to float64 with the codes' rounding in
    between, and as close to float64 without it as FP8 allows.
    """
    first = asmlaunch.load(aiter_kernels / NAME.format("gfx942", "Fp8_blockscale", 2), device="emulator").kernel
    file = "gfx942/flatmm_uk_gfx9_f16f8_128x256x128_1x4x1_16x16x32.co"
    second = asmlaunch.load(aiter_kernels / file, device="emulator").kernel
    case = Sizes(tokens=19, hidden=256, dim=256)
    p = DEFINITION.parameters(first.info)
    layer = Layer(case, p)
    made = DEFINITION.problem(first.info, case)
    first.launch(made.launches[0], **made.options)
    codes, scales = (output.result for output in made.outputs)

    random = np.random.default_rng(7)
    down = operands.e4m3(random, case.experts * case.dim, case.hidden, form="e4m3fnuz")
    down = down.reshape(case.experts, case.dim, case.hidden)
    blocks = operands.positive(random, case.experts, case.dim // 128, case.hidden // 128) / np.float32(16)
    result = np.zeros((case.tokens, case.dim))
    for expert in (0, 2):
        token, slot = np.nonzero(layer.routing.experts == expert)
        a = codes.reshape(case.tokens, case.topk, -1)[token, slot]
        scale = scales.reshape(case.tokens, case.topk, -1)[token, slot]
        d = np.zeros((len(token), case.dim), np.float16)
        arguments = {
            "D": d, "A": a, "B": operands.shuffle_16(down[expert]), "ScaleA": np.ascontiguousarray(scale.T),
            "ScaleB": np.ascontiguousarray(blocks[expert].T), "M": len(token), "N": case.dim, "K": case.hidden,
        }  # fmt: skip
        second.launch(arguments)
        np.add.at(result, token, layer.routing.weights[token, slot, None] * d.astype(np.float64))

    values = decode_e4m3fnuz(down) * np.repeat(np.repeat(blocks, 128, axis=1), 128, axis=2)
    weights = layer.routing.weights.reshape(-1)
    with_codes, without = (
        moe.combine(one, values, layer.routing, chunk=case.hidden, row_weights=weights)
        for one in (layer.rounded.estimate, layer.activated)
    )
    # Each slot's part is rounded to f16.
    assert compare(result, with_codes, Bound(0.0, 0.0, 2.0**-11, absolute=2.0**-24)).passed
    assert 0.001 < np.linalg.norm(result - without.value) / np.linalg.norm(without.value) < 2.0**-4
    assert not compare(result, without, Bound(0.0, 0.0, 2.0**-11, absolute=2.0**-24)).passed
