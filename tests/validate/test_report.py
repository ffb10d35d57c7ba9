"""Reports: right, wrong, unfinished and without a reference; error maps; the page."""

from __future__ import annotations

import dataclasses
import html.parser
import json
from pathlib import Path

import numpy as np
import pytest

import asmlaunch
from asmlaunch import layouts
from asmlaunch.module import Kernel
from asmlaunch.validate.compare import EXACT
from asmlaunch.validate.probe.rig import Rig
from asmlaunch.validate.problems import Output, f4gemm
from asmlaunch.validate.problems.topksoftmax import Sizes
from asmlaunch.validate.reference import Reference
from asmlaunch.validate.report import RIGHT, UNFINISHED, UNKNOWN, WRONG, error_map, examine, reasons, report
from asmlaunch.validate.report_html import html as page


@pytest.fixture(scope="module")
def kernel(f4gemm_folder: Path) -> Kernel:
    return asmlaunch.load(f4gemm_folder / "f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128.co", device="emulator").kernel


class Parser(html.parser.HTMLParser):
    """Collects elements and refuses what is not nested."""

    VOID = ("meta", "rect", "path", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> Parser:
    parser = Parser()
    parser.feed(text)
    assert parser.open == []
    assert not parser.seen & {"script", "img", "link", "iframe", "object", "form", "base"}
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "url(" not in text
    return parser


def test_a_right_run(kernel: Kernel) -> None:
    bundle, found = examine(kernel, f4gemm.Sizes(m=40, n=256, k=256))
    assert found
    assert (found.verdict, found.diagnosis) == (RIGHT, None)
    assert found.sentence == "all 10,240 elements are within the bound of their float64 reference"
    assert found.command.startswith("asmlaunch verify f4gemm --kernel f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128")
    assert found.command.endswith("--problem m=40,n=256,k=256 --no-check")
    assert [layout.name for layout in found.layouts] == ["weights_16x16", "scales_32x8"]
    parser = parsed(page(found))
    assert {"svg", "table", "details"} <= parser.seen
    assert "Right" in parser.text
    answer = json.loads(json.dumps(found.as_dict()))
    assert answer["verdict"] == "right"
    assert answer["outputs"][0]["map"]["tile"] == [32, 128]
    assert report(bundle, path="x.asml").command == "asmlaunch replay x.asml"


def test_a_wrong_run_says_where(kernel: Kernel) -> None:
    """Scales of B in logical order for all but the first 128 columns."""
    case = f4gemm.Sizes(m=40, n=256, k=256)
    scales = Rig(kernel, case).arrays["ptr_ScaleB"]
    plain = scales.copy()
    plain[128:256] = layouts.SCALES_32X8.invert(scales)[128:256]
    _, found = examine(kernel, case, arguments={"ScaleB": plain})
    assert found.verdict == WRONG
    assert not found
    assert "columns 128..25" in found.sentence  # the last column may be right by chance
    assert [one.name for one in found.arguments if one.changed] == ["ptr_ScaleB"]
    errors = found.outputs[0].map.errors
    assert (errors[:, : errors.shape[1] // 2] < 5e-3).all()
    assert (errors[:, errors.shape[1] // 2 :] > 1e-2).all()
    explanation = {
        "mistakes": [{"kind": "layout", "subject": "ScaleB", "text": "ScaleB <is> plain", "fix": "tile it"}],
        "explained": 0.999, "whole": True, "how": "float64",
    }  # fmt: skip
    reason = {"confidence": "high", "explanations": [explanation], "closest": None, "tried": 9, "notes": ["n"]}
    text = parsed(page(dataclasses.replace(found, diagnosis=reason))).text
    assert {"Wrong", "ScaleB <is> plain", "tile it", "high"} <= set(text)
    first, rows = reasons({**reason, "explanations": [], "closest": explanation})
    assert first == "none of 9 hypotheses explains it"
    assert ("closest", "ScaleB <is> plain (99.9% of the wrong elements)") in rows


def test_runs_without_a_verdict(aiter_kernels: Path) -> None:
    kernel = asmlaunch.load(aiter_kernels / "gfx942/topksoftmax/topksoftmax_4x128x6.co", device="emulator").kernel
    bundle, found = examine(kernel, Sizes(batch=3, levels=128), budget=10)
    assert found.verdict == UNFINISHED
    assert "InstructionBudgetError" in found.sentence
    parsed(page(found))
    bundle, found = examine(kernel, Sizes(batch=3, levels=128))
    assert found.verdict == RIGHT
    for changed, why in (
        ({"family": ""}, "no declared problem"),
        ({"case": "batch=0, levels=0"}, "no reference"),
        ({"image": None}, "only the hash of its object"),
        ({"kernarg": b"", "family": ""}, "no declared problem"),
    ):
        other = report(dataclasses.replace(bundle, **changed))
        assert other.verdict == UNKNOWN
        assert why in other.sentence
        parsed(page(other))
        json.dumps(other.as_dict())
    strange = dataclasses.replace(bundle, kernel="<b>x</b>", image=None, file="</pre><script>")
    assert "<script>" not in page(report(strange))


def test_an_error_map_against_numbers_made_by_hand() -> None:
    value = np.full((8, 12), 2.0)
    result = value.astype(np.float32)
    result[4:6, 8:10] = 3.0  # off by half
    result[0, 0] = np.nan
    found = error_map(Output("D", result, lambda: Reference(value, value), EXACT), (4, 4))
    assert found is not None
    assert (found.cell, found.errors.shape) == ((1, 1), (8, 12))
    assert np.isnan(found.errors[0, 0])
    assert np.array_equal(found.errors[4:6, 8:10], np.full((2, 2), 0.5))
    assert np.nansum(found.errors) == 2.0
    large = np.zeros((300, 5), np.float32)
    found = error_map(Output("D", large, lambda: Reference(large.astype(float) + 1, large), EXACT), (64, 8))
    assert found is not None
    assert found.cell == (8, 1)
    assert np.array_equal(found.errors, np.ones((38, 5)))
    assert error_map(Output("D", large[0], lambda: Reference(large, large), EXACT), None) is None
