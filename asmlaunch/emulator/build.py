"""Small conveniences over llvmlite's IRBuilder: loops, fields of shared structures, typed memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from asmlaunch.emulator.lower import I1, I8, I32, I64, PTR
from asmlaunch.emulator.state import offset

_FIELD_TYPES: dict[str, ir.Type] = {"i4": I32, "u4": I32, "i8": I64, "u8": I64}


def i32(value: int) -> ir.Constant:
    """A 32-bit constant."""
    return ir.Constant(I32, value & 0xFFFFFFFF)


def i64(value: int) -> ir.Constant:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


def new_module(triple: str, layout: str) -> ir.Module:
    """An empty module for the host."""
    module = ir.Module()
    module.triple, module.data_layout = triple, layout
    return module


class Code:
    """A builder inside a function, with what the emulator needs often."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    @classmethod
    def function(
        cls, module: ir.Module, name: str, result: ir.Type, args: list[ir.Type]
    ) -> tuple[Code, list[ir.Value]]:
        """A new function; returns the code at its start and its arguments."""
        function = ir.Function(module, ir.FunctionType(result, args), name)
        return cls(ir.IRBuilder(function.append_basic_block("entry"))), list(function.args)

    def at(self, pointer: ir.Value, distance: ir.Value | int) -> ir.Value:
        """The address ``distance`` bytes after ``pointer``."""
        step = i64(distance) if isinstance(distance, int) else distance
        return self.builder.gep(pointer, [step], source_etype=I8)

    def field(self, pointer: ir.Value, dtype: np.dtype[np.void], name: str) -> tuple[ir.Value, ir.Type]:
        """Address and type of a field of a shared structure."""
        assert dtype.fields is not None
        kind = dtype.fields[name][0].str[1:]
        return self.at(pointer, offset(dtype, name)), _FIELD_TYPES[kind]

    def get(self, pointer: ir.Value, dtype: np.dtype[np.void], name: str) -> ir.Value:
        """Load a field."""
        address, kind = self.field(pointer, dtype, name)
        return self.builder.load(address, typ=kind)

    def get_pointer(self, pointer: ir.Value, dtype: np.dtype[np.void], name: str) -> ir.Value:
        """Load a field that holds an address."""
        return self.builder.inttoptr(self.get(pointer, dtype, name), PTR)

    def put(self, pointer: ir.Value, dtype: np.dtype[np.void], name: str, value: ir.Value) -> None:
        """Store a field."""
        self.builder.store(value, self.field(pointer, dtype, name)[0])

    def load(self, pointer: ir.Value, kind: ir.Type, align: int) -> ir.Value:
        """Load with an alignment."""
        return self.builder.load(pointer, typ=kind, align=align)

    def store(self, value: ir.Value, pointer: ir.Value, align: int) -> None:
        """Store with an alignment."""
        self.builder.store(value, pointer, align=align)

    def local(self, kind: ir.Type, count: int = 1) -> ir.Value:
        """Memory on the stack."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(kind, count)
        slot.type = PTR  # llvmlite still gives a typed pointer here
        return slot

    @contextmanager
    def loop(self, count: int | ir.Value) -> Iterator[ir.Value]:
        """Repeat the body with an i32 counter from 0; ``count`` must be at least 1."""
        build = self.builder
        limit = i32(count) if isinstance(count, int) else count
        before = build.block
        body, after = build.append_basic_block("loop"), build.append_basic_block("done")
        build.branch(body)
        build.position_at_end(body)
        counter = build.phi(I32)
        counter.add_incoming(i32(0), before)
        yield counter
        advanced = build.add(counter, i32(1))
        counter.add_incoming(advanced, build.block)
        build.cbranch(build.icmp_unsigned("<", advanced, limit), body, after)
        build.position_at_end(after)

    def all_of(self, *conditions: ir.Value) -> ir.Value:
        """Conjunction."""
        result: Any = ir.Constant(I1, 1)
        for condition in conditions:
            result = self.builder.and_(result, condition)
        return result
