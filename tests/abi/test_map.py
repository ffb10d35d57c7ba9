"""The picture of a segment: well-formed, and every field where its offset says."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

from asmlaunch.abi import Field, KernargSchema, kernarg_map, parse_hexdump
from asmlaunch.abi.families import family_of
from asmlaunch.codeobject import KernelInfo

SVG = "{http://www.w3.org/2000/svg}"
SCHEMA = KernargSchema(
    [
        Field("D", 0, "pointer", role="output", live=True),
        Field("n<1>", 8, "u32"),
        Field("pad", 12, "u32", role="padding"),
        Field("wide", 24, "bytes", 24),
        Field("dead", 48, "u32", live=False),
        Field("hidden_x", 52, "u16", role="hidden"),
    ],
    56,
    "a & b",
)
VALUES = {"D": 4096, "n<1>": 7, "wide": bytes(24), "dead": 1}


def boxes(svg: str) -> dict[str, list[tuple[int, int, int, str]]]:
    found: dict[str, list[tuple[int, int, int, str]]] = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        place = tuple(int(rect.attrib[key]) for key in ("x", "y", "width"))
        found.setdefault(str(title.text).split(":")[0], []).append((*place, rect.attrib["fill"]))  # type: ignore[arg-type]
    return found


def test_fields_are_where_their_offsets_say() -> None:
    found = boxes(kernarg_map(SCHEMA).svg())
    (x0, y0, width, _), *_ = found["D"]
    assert found["n<1>"][0][:3] == (x0 + width, y0, width // 2)
    (a, b) = found["wide"]
    assert (a[0], a[2], b[0], b[2]) == (x0 + width, width, x0, 2 * width)
    assert b[1] - a[1] == a[1] - y0
    assert set(found) == {field.name for field in SCHEMA.fields}


def test_colours_tell_live_from_dead_and_equal_from_different() -> None:
    a, b = SCHEMA.pack(VALUES), SCHEMA.pack({**VALUES, "D": 4097, "dead": 2})
    plain, compared = boxes(kernarg_map(SCHEMA, a).svg()), boxes(kernarg_map(SCHEMA, a, b).svg())
    assert len({plain[name][0][3] for name in ("D", "n<1>", "pad", "dead", "hidden_x")}) == 5
    assert [name for name in plain if plain[name] != compared[name]] == ["D", "dead"]
    stated = boxes(kernarg_map(SCHEMA, a, states={"n<1>": "used", "D": "never loaded"}).svg())
    assert stated["n<1>"][0][3] == plain["D"][0][3]
    assert stated["D"][0][3] == plain["dead"][0][3]


class Cells(HTMLParser):
    """Collects the text of table cells."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() == "<td>":
            self.cells.append(data)


def test_html_escapes_and_shows_values() -> None:
    a, b = SCHEMA.pack(VALUES), SCHEMA.pack({**VALUES, "n<1>": 8})
    page = kernarg_map(SCHEMA, a, b).html()
    assert "<title>a &amp; b</title>" in page
    parser = Cells()
    parser.feed(page)
    assert "n<1>" in parser.cells
    assert "7 / 8" in parser.cells
    assert "0x1000" in parser.cells


def test_the_public_dump(public_dump: str, plain_kernel: KernelInfo) -> None:
    family = family_of(plain_kernel)
    assert family is not None
    page = kernarg_map(family.schema(plain_kernel), parse_hexdump(public_dump)).html()
    assert "0x7fab6d200000" in page
    assert ">128<" in page
