"""Pictures: the numbers in them are the addresses, and the files are what they say."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import SCALES_32X8, WEIGHTS_16X16, Layout, get


def test_text_holds_the_addresses():
    lines = SCALES_32X8.plot().splitlines()
    grid = [[int(n) for n in line.split("|")[1].split()] for line in lines if "|" in line]
    assert np.array_equal(grid, SCALES_32X8.address(tuple(np.indices((32, 8))), (32, 8)))
    assert "rh=2" in lines[0]


def test_svg_is_a_grid(tmp_path):
    path = tmp_path / "tile.svg"
    root = ET.fromstring(WEIGHTS_16X16.plot("svg", shape=(16, 64), path=path))
    assert path.read_text().startswith("<svg")
    cells = root.find("{http://www.w3.org/2000/svg}g")
    texts = [int(cell.text) for cell in cells if cell.tag.endswith("text")]
    assert texts == WEIGHTS_16X16.address(tuple(np.indices((16, 64))), (16, 64)).ravel().tolist()


def test_png_is_an_image():
    data = SCALES_32X8.plot("png")
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT") + 4
    pixels = zlib.decompressobj().decompress(data[start:])
    assert len(pixels) == height * (3 * width + 1)


def test_notebook_and_one_dimension():
    assert re.search(r"<svg.*</svg>", SCALES_32X8._repr_html_(), re.DOTALL)
    assert "-&gt;" in SCALES_32X8._repr_html_()
    assert get("nibbles_ggml").plot().splitlines()[-1].split("|")[1].split()[16] == "1"
    assert len(get("scales_gfx1250_mx32").plot().splitlines()) == 7


def test_bad_pictures():
    with pytest.raises(LayoutError, match="text, svg, png"):
        SCALES_32X8.plot("jpeg")
    with pytest.raises(LayoutError, match="rank 3"):
        Layout("a b c -> c b a").plot()
