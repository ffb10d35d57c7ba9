"""Scalar memory: loads, stores and atomics of SGPRs."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U64
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I64, PTR, given
from asmlaunch.emulator.native.access import Checked, GlobalSpace, move_element, scalar_registers
from asmlaunch.emulator.native.helpers import helpers


def scalar(access: Access, returns: bool) -> str:
    """``void (wave, number, first SGPR, base, offset, limit)``: consecutive elements and SGPRs.

    ``limit`` is the size in bytes of a buffer resource: elements beyond it read as 0 and are not written. Accesses
    without a resource give all ones.
    """

    def build_it(module: ir.Module, name: str) -> None:
        code, (first, base, distance, limit) = Checked.helper(module, name, [PTR, I64, I64, I64])
        build, size = code.builder, access.element.bits // 8
        start = code.lowering()(memory.scalar_address, given(U64, base), given(U64, distance)).ir
        registers = scalar_registers(code, first)
        for number in range(access.count):
            address = build.add(start, i64(size * number))
            end = build.add(build.sub(address, base), i64(size))
            valid = build.icmp_unsigned("<=", end, limit) if access.space == "scalar_buffer" else None
            move_element(
                code, access, GlobalSpace(code), i32(0), number, address, valid, registers,
                registers if returns else None,
            )  # fmt: skip
        build.ret_void()

    return helpers().need(f"{access.mnemonic}{'_returns' if returns else ''}", build_it)
