"""LDS (DS) instructions."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I32, I64, LANES_I32, PTR, given, splat
from asmlaunch.emulator.native.access import (
    Checked,
    LdsSpace,
    Registers,
    lanes_from_rows,
    move_element,
    rows_from_lanes,
    vector_registers,
)
from asmlaunch.emulator.native.helpers import helpers

#: Arguments of a DS helper after (wave, number): data VGPR, second data VGPR (or the data VGPR again), VGPR for the
#: returned value, address VGPR, the two offsets in bytes (or one and 0), EXEC.
LDS_ARGS = ["data", "data2", "returned", "address", "offset0", "offset1", "mask"]
LDS_TYPES = [PTR, PTR, PTR, PTR, I32, I32, I64]


def lds(access: Access) -> str:
    """``void (wave, number, *LDS_ARGS)``: DS reads, writes and atomics."""

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Checked.helper(module, name, LDS_TYPES)
        values = dict(zip(LDS_ARGS, args, strict=True))
        if access.element is U32 and access.kind != "atomic" and not access.pair:
            _fast(code, access, values)
        _lane_by_lane(code, access, values)
        code.builder.ret_void()

    return helpers().need(access.mnemonic, build_it)


def place_of(code: Checked, values: dict[str, ir.Value], lane_number: ir.Value, offset: str) -> ir.Value:
    """A lane's byte address in LDS (i64)."""
    address = given(U32, code.load(code.lane_slot(values["address"], lane_number, 4), I32, 4))
    place = code.lowering()(memory.lds_address, address, given(U32, values[offset])).ir
    return code.builder.zext(place, I64)


def _fast(code: Checked, access: Access, values: dict[str, ir.Value]) -> None:
    """All lanes on and inside the allocation. Returns from the helper when it applies."""
    build, space = code.builder, LdsSpace(code)
    column = code.load(values["address"], LANES_I32, 64)
    highest = code.reduce("umax", build.add(column, splat(build, values["offset0"])))
    fits = space.allowed(build.zext(highest, I64), access.nbytes, access.kind == "store")
    with build.if_then(build.and_(fits, build.icmp_unsigned("==", values["mask"], i64(-1)))):
        move = rows_from_lanes if access.kind == "load" else lanes_from_rows
        move(code, access.count, lambda lane: space.pointer(place_of(code, values, lane, "offset0")), values["data"])
        build.ret_void()


def _lane_by_lane(code: Checked, access: Access, values: dict[str, ir.Value]) -> None:
    build, size = code.builder, access.element.bits // 8
    data, data2 = (vector_registers(code, values[name]) for name in ("data", "data2"))
    returned = vector_registers(code, values["returned"]) if access.returns else None
    dwords = access.element.bits // 32
    half = access.count // 2

    def operands(lane_number: ir.Value, number: int) -> ir.Value:
        """An atomic's second operand has a register of its own."""
        return data2(lane_number, number - dwords) if number >= dwords else data(lane_number, number)

    def stored(lane_number: ir.Value, number: int) -> ir.Value:
        """The second offset's data too."""
        return data2(lane_number, number - half) if number >= half else data(lane_number, number)

    registers: Registers = data
    if access.kind == "atomic" and access.compares:
        registers = operands
    elif access.kind == "store" and access.pair:
        registers = stored
    with code.active_lanes(values["mask"]) as lane_number:
        first = place_of(code, values, lane_number, "offset0")
        second = place_of(code, values, lane_number, "offset1") if access.pair else first
        for number in range(access.count):
            late = bool(access.pair) and number >= half
            address = build.add(second if late else first, i64(size * (number - half if late else number)))
            move_element(code, access, LdsSpace(code), lane_number, number, address, None, registers, returned)


def unit_offsets(access: Access, offsets: tuple[int, int]) -> list[ir.Value]:
    """The two offsets of an instruction in bytes."""
    return [i32(offset * (access.pair or 1)) for offset in offsets]
