"""Large expressions as functions of their own.

The same few definitions make most of a kernel's vector code. Written out at every instruction they would be most of
what LLVM has to compile; as functions they are compiled once, and well, while the blocks that call them are compiled
fast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from asmlaunch.emulator import jit
from asmlaunch.emulator.build import Code, new_module
from asmlaunch.emulator.isa.language import Value
from asmlaunch.emulator.lower import I64, LANES_I1, Cell, Lowering, call, scalar_type

#: Operations from which on an expression becomes a function.
LARGE = 6

#: Conversions that cost nothing do not count.
_FREE = ("given", "const", "bitcast", "lane")


class Functions:
    """The functions of one kernel, in a module of their own."""

    def __init__(self) -> None:
        self._module = new_module(jit.host().triple, jit.host().layout)

    @property
    def names(self) -> list[str]:
        """The functions, named by what they compute: equal names, equal functions."""
        return [name for name, function in self._module.globals.items() if not function.is_declaration]

    def text(self) -> str:
        """LLVM IR of the module."""
        return str(self._module)

    def need(self, nodes: list[Value], leaves: list[Value]) -> str:
        """The name of the function that computes the last of ``nodes`` from the leaves; made if it is new."""
        tree, description = nodes[-1], _description(nodes, leaves)
        name = f"asmlaunch_op_{hashlib.sha256(description.encode()).hexdigest()[:24]}"
        if name not in self._module.globals:
            kinds = [_passed(leaf.attr.ir.type) for leaf in leaves]
            code, parameters = Code.function(self._module, name, _result(tree), kinds)
            low = Lowering(code.builder)
            cells = {
                id(leaf.attr.ir): Cell(_unpacked(code.builder, parameter, leaf.attr.ir.type))
                for leaf, parameter in zip(leaves, parameters, strict=True)
            }
            for node in nodes:
                if node.op == "given":
                    low.know(node, cells[id(node.attr.ir)])
            code.builder.ret(low.cell(tree).ir)
        return name


_collecting: list[Functions] = []


@contextmanager
def functions() -> Iterator[Functions]:
    """Inside the ``with``, ``evaluate`` makes functions of large expressions. The caller holds ``jit.LOCK``."""
    _collecting.append(Functions())
    try:
        yield _collecting[-1]
    finally:
        _collecting.pop()


def evaluate(build: ir.IRBuilder, value: Value) -> Cell:
    """The value of a 32- or 64-bit expression: in place where it is small, else by a call."""
    nodes = _in_order(value)
    leaves = [node for node in nodes if node.op == "given"]
    operations = sum(node.op not in _FREE for node in nodes)
    varies = any(not leaf.attr.uniform for leaf in leaves)
    if not _collecting or operations < LARGE or not varies:
        return Lowering(build).cell(value)
    leaves = list({id(leaf.attr.ir): leaf for leaf in leaves}.values())
    name = _collecting[-1].need(nodes, leaves)
    return Cell(call(build, name, _result(value), [_packed(build, leaf.attr.ir) for leaf in leaves]))


def _in_order(tree: Value) -> list[Value]:
    """The nodes of a tree, each once, arguments before what uses them."""
    done: dict[int, Value] = {}

    def visit(node: Value) -> None:
        if id(node) not in done:
            for argument in node.args:
                visit(argument)
            done[id(node)] = node

    visit(tree)
    return list(done.values())


def _description(nodes: list[Value], leaves: list[Value]) -> str:
    """The tree as text: equal for equal computations of equally typed leaves."""
    argument = {id(leaf.attr.ir): number for number, leaf in enumerate(leaves)}
    number_of = {id(node): number for number, node in enumerate(nodes)}
    lines = []
    for node in nodes:
        detail = f"{argument[id(node.attr.ir)]} {node.attr.ir.type}" if node.op == "given" else repr(node.attr)
        lines.append(f"{type(node).__name__} {node.op} {detail} {[number_of[id(one)] for one in node.args]}")
    return "\n".join(lines)


def _result(tree: Value) -> ir.Type:
    return ir.VectorType(scalar_type(type(tree)), 64)


def _passed(kind: ir.Type) -> ir.Type:
    """How a leaf of this type is passed: masks as numbers, since LLVM's convention for them varies."""
    return I64 if kind == LANES_I1 else kind


def _packed(build: ir.IRBuilder, value: ir.Value) -> ir.Value:
    return build.bitcast(value, I64) if value.type == LANES_I1 else value


def _unpacked(build: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> ir.Value:
    return build.bitcast(value, LANES_I1) if kind == LANES_I1 else value
