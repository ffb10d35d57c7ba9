"""``asmlaunch layout``: list, draw, convert, identify and compare memory layouts."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from asmlaunch import layouts
from asmlaunch.cli.output import console, print_json
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import files, identification
from asmlaunch.layouts.layout import Layout

DIFFERENT_STATUS = 1

app = typer.Typer(
    no_args_is_help=True,
    help="""
    List, draw, convert, identify and compare the layouts that kernels want their operands in.

    Tensors are read from .npy files, .safetensors files (FILE.safetensors:NAME), and any other file as raw bytes.
    """,
)

Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Shape = Annotated[
    str | None, typer.Option(help="Logical shape, such as 300x52: without padding.", metavar="ROWSxCOLUMNS")
]


@app.command("list")
def list_layouts(as_json: Json = False) -> None:
    """List every named layout, its tile and where it comes from."""
    if as_json:
        print_json([describe(layouts.get(name)) for name in layouts.names()])
        return
    table = Table("name", "tile", "pad", "source")
    for name in layouts.names():
        layout = layouts.get(name)
        tile = " x ".join(map(str, layout.tile))
        table.add_row(name, tile, "" if layout.pad_value is None else f"0x{layout.pad_value:02x}", layout.source)
    console.print(table)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A layout's name or alias.", show_default=False)],
    picture: Annotated[
        str | None, typer.Option(help="Draw it into this file instead, .svg or .png.", metavar="FILE")
    ] = None,
    shape: Shape = None,
    as_json: Json = False,
) -> None:
    """Show what a layout is: its pattern, its closed form, and where each element of a tile goes."""
    layout = find(name)
    if as_json:
        print_json(describe(layout))
        return
    if picture is not None:
        form = picture.rpartition(".")[2]
        layout.plot(form, shape=parse_shape(shape), path=picture)
        return
    for what, text in describe(layout).items():
        console.print(f"[bold]{what:9}[/] ", end="")
        console.print(str(text), markup=False, highlight=False, soft_wrap=True)
    print(layout.plot(shape=parse_shape(shape)), end="")


@app.command("convert")
def convert(
    source: Annotated[str, typer.Argument(help="The tensor to read.", show_default=False)],
    target: Annotated[str, typer.Argument(help="The file to write.", show_default=False)],
    to: Annotated[str, typer.Option(help="Layout to convert to; row_major for none.")],
    from_: Annotated[str, typer.Option("--from", help="Layout the tensor is in.")] = "row_major",
    shape: Shape = None,
    pad_value: Annotated[
        int | None, typer.Option(min=0, help="Value of every padded element. Default: the layout's own.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Element type of a raw file.")] = "uint8",
) -> None:
    """Convert a tensor from one layout to another.

    A tensor in a tiled layout is read with its padding cut off if --shape says what its logical shape is.
    """
    before, after = find(from_), find(to)
    logical = parse_shape(shape)
    tensor = files.load(source, shape=before.padded_shape(logical) if logical else None, dtype=dtype)
    array = tensor.array
    result = layouts.convert(array, before, after, logical, pad_value=pad_value)
    files.save(target, result, tensor.kind)
    print(f"{target}: {' x '.join(map(str, result.shape))} in {after.label}")


@app.command("identify")
def identify(
    buffer: Annotated[str, typer.Argument(help="Bytes in an unknown layout.", show_default=False)],
    values: Annotated[
        str,
        typer.Argument(
            help="What they should be in logical order: bytes, or the float tensor that was quantised to MXFP4.",
            show_default=False,
        ),
    ],
    shape: Annotated[
        str | None, typer.Option(help="Shape of the values where they are a raw file.", metavar="ROWSxCOLUMNS")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Element type of the values where they are a raw file.")] = "uint8",
    rounding: Annotated[str, typer.Option(help="The scale rounding mode expected.")] = "RoundUp",
    as_json: Json = False,
) -> None:
    """Say which layout, padding, nibble order and rounding made a buffer. Exit status 1 if nothing fits exactly."""
    expected = files.load(values, shape=parse_shape(shape), dtype=dtype).values()
    found = identification.identify(files.load(buffer).array, expected, rounding=rounding)
    if as_json:
        print_json(
            {
                "layout": found.layout.label,
                "exact": bool(found),
                "equal_fraction": found.equal_fraction,
                "rounding": found.rounding,
                "nibble_order": found.nibble_order,
                "pad_values": found.pad_values,
                "departs": found.departs,
                "note": found.note,
                "also": found.also,
            }
        )
    else:
        console.print(str(found), markup=False, highlight=False, soft_wrap=True)
    if not found:
        raise typer.Exit(DIFFERENT_STATUS)


@app.command("compare")
def compare(
    first: Annotated[str, typer.Argument(help="A layout's name.", show_default=False)],
    second: Annotated[str, typer.Argument(help="Another's.", show_default=False)],
) -> None:
    """Say whether two layouts are the same permutation. Exit status 1 if not, with the first element that differs."""
    difference = layouts.compare(find(first), find(second))
    console.print(str(difference), markup=False, highlight=False, soft_wrap=True)
    if not difference:
        raise typer.Exit(DIFFERENT_STATUS)


def find(name: str) -> Layout:
    """A layout by name; row_major is none at all."""
    return identification.PLAIN if name == identification.PLAIN.name else layouts.get(name)


def describe(layout: Layout) -> dict[str, Any]:
    """Everything a layout is, as plain JSON types."""
    return {
        "name": layout.name,
        "aliases": list(layout.aliases),
        "pattern": layout.pattern,
        "sizes": dict(layout.sizes),
        "tile": list(layout.tile),
        "itemsize": layout.itemsize,
        "pad_value": layout.pad_value,
        "address": layout.formula(),
        "source": layout.source,
    }


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """``"300x52"`` as a shape.

    Raises:
        LayoutError: anything else.
    """
    if text is None:
        return None
    parts = text.lower().replace(",", "x").split("x")
    if not all(part.strip().isdigit() for part in parts):
        raise LayoutError("shape", got=repr(text), need="extents with x between them, such as 300x52")
    return tuple(int(part) for part in parts)
