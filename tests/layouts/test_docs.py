"""docs/layouts.md: its examples run as printed, and its tables are those of the code."""

from __future__ import annotations

import doctest
import runpy
import zlib
from pathlib import Path

from asmlaunch import layouts

DOCS = Path(__file__).parents[2] / "docs"


def test_examples():
    results = doctest.testfile(str(DOCS / "layouts.md"), module_relative=False, optionflags=doctest.REPORT_NDIFF)
    assert results.attempted > 10
    assert results.failed == 0


def test_tables():
    page = runpy.run_path(str(DOCS / "layouts.py"))["page"]
    text = (DOCS / "layouts.md").read_text()
    assert page(text) == text


def pixels(png: bytes) -> bytes:
    """Header and uncompressed pixels: how well zlib compresses depends on its version."""
    start = png.index(b"IDAT") + 4
    return png[16:29] + zlib.decompressobj().decompress(png[start:])


def test_pictures():
    for name in ("scales_32x8", "weights_16x16"):
        assert pixels((DOCS / f"{name}.png").read_bytes()) == pixels(layouts.get(name).plot("png"))
