"""Pictures of a layout: a grid of the tensor's elements, in each cell the address it goes to."""

from __future__ import annotations

import colorsys
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.layout import Layout

FORMS = ("text", "svg", "png")
CELL_WIDTH, CELL_HEIGHT, MARGIN = 34, 18, 30  # pixels
TITLE_HEIGHT = 24

# Digits and the few letters of a title, three pixels by five, one string a row of pixels.
_FONT = {
    "0": "###|#.#|#.#|#.#|###",
    "1": ".#.|##.|.#.|.#.|###",
    "2": "###|..#|###|#..|###",
    "3": "###|..#|###|..#|###",
    "4": "#.#|#.#|###|..#|..#",
    "5": "###|#..|###|..#|###",
    "6": "###|#..|###|#.#|###",
    "7": "###|..#|..#|..#|..#",
    "8": "###|#.#|###|#.#|###",
    "9": "###|#.#|###|..#|###",
}


def plot(
    layout: Layout, form: str = "text", *, shape: Sequence[int] | None = None, path: str | Path | None = None
) -> str | bytes:
    """Draw ``layout``; see :meth:`Layout.plot`."""
    picture = draw(addresses(layout, shape), _title(layout), form)
    if path is not None:
        Path(path).write_bytes(picture.encode() if isinstance(picture, str) else picture)
    return picture


def draw(grid: np.ndarray, title: str, form: str = "text") -> str | bytes:
    """Draw a grid of addresses, one a cell, ``[rows, columns]``.

    Args:
        form: ``"text"`` for a terminal, ``"svg"``, or ``"png"`` (bytes, without the title).

    Raises:
        LayoutError: an unknown form.
    """
    if form not in FORMS:
        raise LayoutError("form of a layout's picture", got=repr(form), need=f"one of {', '.join(FORMS)}")
    return _png(grid) if form == "png" else (_svg if form == "svg" else _text)(title, grid)


def addresses(layout: Layout, shape: Sequence[int] | None = None) -> np.ndarray:
    """The address of every element of a tensor of padded ``shape`` (one tile, at least 4 a dimension, if left out).

    Raises:
        LayoutError: a layout of rank above 2.
    """
    if layout.rank > 2:
        raise LayoutError(f"picture of layout {layout.label}", got=f"rank {layout.rank}", need="rank 1 or 2")
    if shape is None:
        shape = [-(-4 // tile) * tile for tile in layout.tile]
    padded = layout.padded_shape(shape)
    grid = np.asarray(layout.address(tuple(np.indices(padded)), padded))
    return grid if grid.ndim == 2 else grid[None]


def _text(title: str, grid: np.ndarray) -> str:
    width = len(str(grid.max())) + 1
    header = " " * 6 + "".join(f"{column:>{width}}" for column in range(grid.shape[1]))
    rows = [f"{row:>4} |" + "".join(f"{address:>{width}}" for address in line) for row, line in enumerate(grid)]
    return "\n".join([title, "address of element (row, column)", header, *rows]) + "\n"


def _svg(title: str, grid: np.ndarray) -> str:
    width, height = _size(grid)
    cells = []
    for (row, column), address in np.ndenumerate(grid):
        x, y = MARGIN + column * CELL_WIDTH, MARGIN + TITLE_HEIGHT + row * CELL_HEIGHT
        red, green, blue = _color(int(address), grid.size)
        cells.append(
            f'<rect x="{x}" y="{y}" width="{CELL_WIDTH}" height="{CELL_HEIGHT}" fill="rgb({red},{green},{blue})"/>'
            f'<text x="{x + CELL_WIDTH / 2}" y="{y + CELL_HEIGHT - 5}">{address}</text>'
        )
    labels = [
        f'<text x="{MARGIN + (column + 0.5) * CELL_WIDTH}" y="{MARGIN + TITLE_HEIGHT - 6}">{column}</text>'
        for column in range(grid.shape[1])
    ] + [
        f'<text x="{MARGIN / 2}" y="{MARGIN + TITLE_HEIGHT + (row + 1) * CELL_HEIGHT - 5}">{row}</text>'
        for row in range(grid.shape[0])
    ]
    title = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="monospace" font-size="11" text-anchor="middle" stroke="none">'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{MARGIN}" y="16" text-anchor="start" font-size="12">{title}</text>'
        f"{''.join(labels)}<g>{''.join(cells)}</g></svg>\n"
    )


def _png(grid: np.ndarray) -> bytes:
    """The same grid with numbers from a tiny built-in font: no drawing library is needed."""
    scale = 2
    cell_height, cell_width = 5 * scale + 8, (4 * len(str(grid.max())) + 3) * scale
    top, left = cell_height, (4 * len(str(grid.shape[0])) + 3) * scale
    image = np.full((top + grid.shape[0] * cell_height + 2, left + grid.shape[1] * cell_width + 2, 3), 255, np.uint8)
    for (row, column), address in np.ndenumerate(grid):
        y, x = top + row * cell_height, left + column * cell_width
        image[y : y + cell_height - 1, x : x + cell_width - 1] = _color(int(address), grid.size)
        _write(image, y + 4, x + cell_width - 3, str(address), scale)
    for column in range(grid.shape[1]):
        _write(image, 4, left + (column + 1) * cell_width - 3, str(column), scale)
    for row in range(grid.shape[0]):
        _write(image, top + row * cell_height + 4, left - 4, str(row), scale)
    return _encode_png(image)


def _write(image: np.ndarray, y: int, right: int, text: str, scale: int) -> None:
    """Draw digits that end at column ``right``."""
    x = right - 4 * scale * len(text)
    for digit in text:
        bitmap = np.array([[pixel == "#" for pixel in line] for line in _FONT[digit].split("|")])
        mask = np.kron(bitmap, np.ones((scale, scale), bool))
        image[y : y + mask.shape[0], x : x + mask.shape[1]][mask] = (20, 20, 20)
        x += 4 * scale


def _encode_png(image: np.ndarray) -> bytes:
    height, width, _ = image.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _color(address: int, count: int) -> tuple[int, int, int]:
    """Light colours that run through the hues once over the addresses."""
    red, green, blue = colorsys.hls_to_rgb(0.85 * address / max(count - 1, 1), 0.82, 0.75)
    return round(255 * red), round(255 * green), round(255 * blue)


def _title(layout: Layout) -> str:
    sizes = " ".join(f"{axis}={size}" for axis, size in layout.sizes.items())
    return f"{layout.name}: {layout.pattern}  [{sizes}]" if layout.name else f"{layout.pattern}  [{sizes}]"


def _size(grid: np.ndarray) -> tuple[int, int]:
    return 2 * MARGIN + grid.shape[1] * CELL_WIDTH, MARGIN + TITLE_HEIGHT + grid.shape[0] * CELL_HEIGHT + 8
