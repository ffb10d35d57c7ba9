"""Dump formats, written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asmlaunch.abi import Dump, hexdump, parse_hexdump
from asmlaunch.abi.hexdump import WRITERS, find_dumps, read_dumps
from asmlaunch.errors import DumpError


@given(st.binary(min_size=1, max_size=100))
def test_written_dumps_read_back(data: bytes) -> None:
    assert parse_hexdump(hexdump(data)) == Dump(data, ((0, len(data)),))


@pytest.mark.parametrize("format", list(WRITERS))
@given(data=st.binary(min_size=1, max_size=100))
def test_every_format_reads_back(format: str, data: bytes) -> None:
    if format == "c" and len(data) < 4:
        data = data * 4
    dump = parse_hexdump("a log line\n" + hexdump(data, format) + "\nanother 17 | one\n")
    assert dump == Dump(data, ((0, len(data)),))
    assert dump.format == format


#: What the tools themselves print for bytes(range(5)) + 40 zeros + b"AB".
HEXDUMP_C = """00000000  00 01 02 03 04 00 00 00  00 00 00 00 00 00 00 00  |................|
00000010  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|
00000020  00 00 00 00 00 00 00 00  00 00 00 00 00 41 42     |.............AB|
0000002f
"""
XXD = """00000000: 0001 0203 0400 0000 0000 0000 0000 0000  ................
00000010: 0000 0000 0000 0000 0000 0000 0000 0000  ................
00000020: 0000 0000 0000 0000 0000 0000 0041 42    .............AB
"""


@pytest.mark.parametrize(("text", "format"), [(HEXDUMP_C, "hexdump"), (XXD, "xxd")])
def test_formats_are_the_tools_own(text: str, format: str) -> None:
    data = bytes(range(5)) + bytes(40) + b"AB"
    assert parse_hexdump(text) == Dump(data, ((0, 47),))
    assert hexdump(data, format).strip() == text.strip()


def test_a_star_repeats_the_line_before_it() -> None:
    text = "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|\n*\n"
    row = "00000030  01 02                                             |..|\n"
    assert parse_hexdump(text + row + "00000032\n") == Dump(bytes(48) + b"\1\2", ((0, 50),))
    assert parse_hexdump(text + "00000028\n") == Dump(bytes(40), ((0, 40),))
    with pytest.raises(DumpError, match="at most"):
        parse_hexdump(text + "0fffffff\n")


def test_several_dumps_in_one_log(public_dump: str) -> None:
    log = "launch 1\n" + "\n".join(f"[rank 0] {line}" for line in public_dump.splitlines()) + "\nlaunch 2\n"
    log += hexdump(b"second dump " * 3) + "\nand xxd:\n" + hexdump(b"third dump", "xxd")
    dumps = find_dumps(log)
    assert [dump.format for dump in dumps] == ["aiter", "aiter", "xxd"]
    assert dumps[0] == parse_hexdump(public_dump)
    assert dumps[1].data == b"second dump " * 3
    assert dumps[2].data == b"third dump"
    with pytest.raises(DumpError, match="3 hexdumps found in the text: need one"):
        parse_hexdump(log)


def test_files() -> None:
    assert read_dumps(b"\0\1\2") == (Dump(b"\0\1\2", ((0, 3),)),)
    assert read_dumps(b"\xff\xfe") == (Dump(b"\xff\xfe", ((0, 2),)),)
    assert read_dumps(hexdump(b"abc").encode()) == (Dump(b"abc", ((0, 3),)),)
    assert read_dumps(b"x = b'\\x01\\x02'; y = b'bad \\xZZ'") == (Dump(b"\1\2", ((0, 2),)),)
    assert find_dumps("b'\u00e9'") == find_dumps("b'a\rb'") == ()
    assert find_dumps("b'" + "\\111" * 50) == ()  # not closed: takes no time to see
    with pytest.raises(DumpError, match="no hexdump found"):
        read_dumps(b"just text")
    with pytest.raises(DumpError, match="dump format: got 'pdf', need aiter or hexdump or xxd"):
        hexdump(b"", "pdf")


def test_written_lines_are_the_published_ones(public_dump: str) -> None:
    dump = parse_hexdump(public_dump)
    written = hexdump(dump.data).splitlines()
    assert [line for line in public_dump.splitlines() if line != "[...]" and line not in written] == []


def test_public_dump(public_dump: str) -> None:
    dump = parse_hexdump(public_dump)
    assert len(dump) == 372
    assert dump.known == ((0, 32), (336, 372))
    assert dump.is_known(336, 340)
    assert not dump.is_known(28, 36)
    assert dump.data[336] == 0x80


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no hexdump found"),
        ("nothing here", "no hexdump found"),
        ("0000   | 00 01\n0001   | 02", "offset 1 twice"),
        ("99999999   | 00", "at most 1048576 bytes"),
    ],
)
def test_dumps_that_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(DumpError, match=says):
        parse_hexdump(text)
