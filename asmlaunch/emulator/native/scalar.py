"""Scalar memory: s_load."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U64
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I32, I64, PTR, given
from asmlaunch.emulator.native.access import Checked
from asmlaunch.emulator.native.helpers import helpers
from asmlaunch.emulator.state import Fault


def scalar_load(access: Access) -> str:
    """``void (wave, number, first SGPR, base, offset)``: consecutive dwords into consecutive SGPRs."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (registers, base, distance) = Checked.helper(module, name, [PTR, I64, I64])
        build = code.builder
        start = code.lowering()(memory.scalar_address, given(U64, base), given(U64, distance)).ir
        with code.loop(access.count) as index:
            address = build.add(start, build.mul(build.zext(index, I64), i64(4)))
            slot = code.at(registers, build.mul(build.zext(index, I64), i64(4)))
            with build.if_else(code.in_region(address, build.add(address, i64(4)), False)) as (inside, outside):
                with inside:
                    code.store(code.load(build.inttoptr(address, PTR), I32, 4), slot, 4)
                with outside:
                    code.record(Fault.READ, i32(0), address, 4)
                    code.store(i32(0), slot, 4)
        build.ret_void()

    return helpers().need(access.mnemonic, build_it)
