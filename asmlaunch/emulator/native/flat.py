"""Global, flat and scratch instructions: loads to registers or to LDS, stores and atomics at an address a lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from asmlaunch.emulator.build import i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32, U64, concat
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I32, I64, PTR, given, lanes
from asmlaunch.emulator.native.access import (
    Checked,
    FlatSpace,
    GlobalSpace,
    ScratchSpace,
    Space,
    lds_registers,
    lds_stride,
    move_element,
    move_rows,
    vector_registers,
    vgpr,
)
from asmlaunch.emulator.native.helpers import ROW, helpers


@dataclass(frozen=True)
class FlatForm:
    """What changes a helper: whether the VGPR holds an offset from an SGPR base, whether an atomic returns, and whether
    no VGPR takes part in the address (scratch).
    """

    based: bool
    returns: bool = False
    bare: bool = False

    def __str__(self) -> str:
        return "".join(f"_{name}" for name, on in vars(self).items() if on) or "_plain"


#: Arguments of a helper after (wave, number).
FLAT_ARGS = ["registers", "returned", "address", "base", "offset", "mask", "m0"]
FLAT_TYPES = [PTR, PTR, PTR, I64, I32, I64, I32]


def flat(access: Access, form: FlatForm) -> str:
    """``void (wave, number, *FLAT_ARGS)``; ``base`` is of SGPRs or 0, ``offset`` the signed instruction offset."""

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Checked.helper(module, name, FLAT_TYPES)
        values = dict(zip(FLAT_ARGS, args, strict=True))
        if access.kind != "atomic" and access.element is U32 and not access.to_lds and access.space == "global":
            _fast(code, access, form, values)
        _lane_by_lane(code, access, form, values)
        code.builder.ret_void()

    return helpers().need(f"{access.mnemonic}{form}", build_it)


def start(code: Checked, form: FlatForm, values: dict[str, ir.Value], lane_number: ir.Value | None) -> Any:
    """Byte address of one lane, or of all."""

    build, low = code.builder, code.lowering()
    base = given(U64, build.add(values["base"], build.sext(values["offset"], I64)))
    first = vgpr(code, values["address"], lane_number)
    second = None if form.based else vgpr(code, code.at(values["address"], ROW), lane_number)
    offset = first.to(U64) if second is None else concat(first, second)
    return low(memory.global_address, base, offset)


def _fast(code: Checked, access: Access, form: FlatForm, values: dict[str, ir.Value]) -> None:
    """All lanes on and inside one array. Returns from the helper when it applies."""
    build = code.builder
    starts = lanes(build, start(code, form, values, None))
    full = build.icmp_unsigned("==", values["mask"], i64(-1))
    end = build.add(code.reduce("umax", starts), i64(access.nbytes))
    one_array = code.in_region(code.reduce("umin", starts), end, access.kind == "store")
    with build.if_then(build.and_(full, one_array)):
        move_rows(code, access, starts, values["registers"])
        build.ret_void()


_SPACES: dict[str, Callable[[Checked, ir.Value], Space]] = {
    "global": lambda code, _: GlobalSpace(code), "flat": FlatSpace, "scratch": ScratchSpace,
}  # fmt: skip


def _scratch_start(code: Checked, form: FlatForm, values: dict[str, ir.Value], lane_number: ir.Value) -> ir.Value:
    """Where in its scratch memory a lane's access begins."""
    build = code.builder
    base = build.add(build.trunc(values["base"], I32), values["offset"])
    offset = U32.const(0) if form.bare else vgpr(code, values["address"], lane_number)
    return build.zext(code.lowering()(memory.scratch_address, given(U32, base), offset).ir, I64)


def _lane_by_lane(code: Checked, access: Access, form: FlatForm, values: dict[str, ir.Value]) -> None:
    build, size = code.builder, access.element.bits // 8
    returned = vector_registers(code, values["returned"]) if form.returns else None
    with code.active_lanes(values["mask"]) as lane_number:
        if access.space == "scratch":
            first = _scratch_start(code, form, values, lane_number)
        else:
            first = start(code, form, values, lane_number).ir
        space = _SPACES[access.space](code, lane_number)
        registers = vector_registers(code, values["registers"])
        if access.to_lds:
            m0, distance = given(U32, values["m0"]), given(U32, values["offset"])
            stride = U32.const(lds_stride(access))
            place = code.lowering()(memory.global_to_lds_address, m0, distance, given(U32, lane_number), stride).ir
            registers = lds_registers(code, place, access.count, lane_number)
        for number in range(access.count):
            address = build.add(first, i64(size * number))
            move_element(code, access, space, lane_number, number, address, None, registers, returned)
