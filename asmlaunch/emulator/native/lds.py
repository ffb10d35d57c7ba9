"""LDS (DS) instructions."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I32, I64, LANES_I32, PTR, given, splat
from asmlaunch.emulator.native.access import Checked, lanes_from_rows, rows_from_lanes
from asmlaunch.emulator.native.helpers import ROW, helpers
from asmlaunch.emulator.state import WAVE, Fault


def lds(access: Access) -> str:
    """``void (wave, number, first data VGPR, address VGPR, offset, mask)``: DS reads and writes."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (registers, addresses, distance, mask) = Checked.helper(module, name, [PTR, PTR, I32, I64])
        build, size = code.builder, 4 * access.count
        base = code.get_pointer(code.wave, WAVE, "lds")
        limit = build.zext(code.get(code.wave, WAVE, "lds_size"), I64)

        def place_of(lane_number: ir.Value) -> ir.Value:
            address = given(U32, code.load(code.lane_slot(addresses, lane_number, 4), I32, 4))
            return build.zext(code.lowering()(memory.lds_address, address, given(U32, distance)).ir, I64)

        column = code.load(addresses, LANES_I32, 64)
        highest = code.reduce("umax", build.add(column, splat(build, distance)))
        fits = build.icmp_unsigned("<=", build.add(build.zext(highest, I64), i64(size)), limit)
        with build.if_then(build.and_(fits, build.icmp_unsigned("==", mask, i64(-1)))):
            move = rows_from_lanes if access.kind == "load" else lanes_from_rows
            move(code, access.count, lambda lane_number: code.at(base, place_of(lane_number)), registers)
            build.ret_void()
        kind = Fault.LDS_READ if access.kind == "load" else Fault.LDS_WRITE
        with code.active_lanes(mask) as lane_number:
            place = place_of(lane_number)
            inside = build.icmp_unsigned("<=", build.add(place, i64(size)), limit)
            with build.if_then(build.not_(inside)):
                code.record(kind, lane_number, place, size)
            for piece in range(access.count):
                slot = code.lane_slot(code.at(registers, piece * ROW), lane_number, 4)
                target = code.at(base, build.add(place, i64(4 * piece)))
                if access.kind == "load":
                    code.store(i32(0), slot, 4)
                    with build.if_then(inside):
                        code.store(code.load(target, I32, 1), slot, 4)
                else:
                    with build.if_then(inside):
                        code.store(code.load(slot, I32, 4), target, 1)
        build.ret_void()

    return helpers().need(access.mnemonic, build_it)
