"""``asmlaunch inspect``: what is inside a code object."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from asmlaunch import codeobject
from asmlaunch.abi import schema_from_metadata
from asmlaunch.abi.families import family_of
from asmlaunch.cli.output import console, print_json
from asmlaunch.codeobject import CodeObject, KernelInfo

# KernelInfo's attributes in the order people look for them: what limits a launch first.
_FACTS = (
    "symbol",
    "max_workgroup_size",
    "required_workgroup_size",
    "wavefront_size",
    "kernarg_size",
    "kernarg_align",
    "lds_size",
    "scratch_size",
    "vgpr_count",
    "agpr_count",
    "sgpr_count",
)


def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            help="The code object (.co, .hsaco), or a bundle or fat binary that holds it.", show_default=False
        ),
    ],
    target: Annotated[
        str | None, typer.Option("--target", help="Which entry of a bundle or fat binary, e.g. gfx950.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show a code object's target, kernels, arguments and resource needs."""
    code_object = codeobject.read(file, target)
    if as_json:
        print_json(describe(code_object))
        return
    console.print(f"[bold]{file.name}[/]  target {code_object.target}, code object v{code_object.version}")
    for kernel in code_object.kernels.values():
        _print_kernel(kernel)


def describe(code_object: CodeObject) -> dict[str, Any]:
    """Everything known of a code object, as plain JSON types; offsets and sizes are bytes."""
    return {
        "file": str(code_object.path),
        "target": str(code_object.target),
        "version": code_object.version,
        "kernels": [_describe_kernel(kernel) for kernel in code_object.kernels.values()],
    }


def _describe_kernel(kernel: KernelInfo) -> dict[str, Any]:
    family = family_of(kernel)
    return {
        "name": kernel.name,
        "family": family.name if family else None,
        **{fact: getattr(kernel, fact) for fact in _FACTS},
        "code_address": kernel.code_address,
        "code_size": len(kernel.code),
        "arguments": [
            {
                "name": argument.name,
                "offset": argument.offset,
                "size": argument.size,
                "kind": argument.value_kind,
                "pointer": argument.is_pointer,
                "hidden": argument.hidden,
                "address_space": argument.address_space,
                "access": argument.access,
                "type": argument.type_name or argument.value_type,
            }
            for argument in kernel.arguments
        ],
        "preload": {
            "dwords": kernel.descriptor.kernarg_preload_spec_length,
            "first": kernel.descriptor.kernarg_preload_spec_offset,
        },
        "schema": (family.schema(kernel) if family else schema_from_metadata(kernel)).to_json(),
        "descriptor": dict(kernel.descriptor.fields),
    }


def _print_kernel(kernel: KernelInfo) -> None:
    facts = _describe_kernel(kernel)
    console.print(f"\n[bold cyan]{kernel.name}[/]")
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name in ("family", *_FACTS, "code_size"):
        table.add_row(name.replace("_", " "), "-" if facts[name] is None else str(facts[name]))
    console.print(table)
    padding = {field.offset for field in schema_from_metadata(kernel).fields if field.role == "padding"}
    arguments = Table(title="\narguments, padding left out", title_justify="left", title_style="bold")
    for column in ("offset", "size", "name", "kind", "access"):
        arguments.add_column(column, justify="right" if column in ("offset", "size") else "left")
    for argument in facts["arguments"]:
        if argument["offset"] in padding:
            continue
        shown = (argument["offset"], argument["size"], argument["name"], argument["kind"], argument["access"] or "-")
        arguments.add_row(*map(str, shown))
    console.print(arguments)
