"""Buffer instructions: loads to registers or to LDS, stores and atomics through a buffer resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32, U64, Bool
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I32, I64, PTR, given, lanes, splat
from asmlaunch.emulator.native.access import (
    Checked,
    GlobalSpace,
    lane_pointers,
    lds_registers,
    lds_stride,
    move_element,
    move_rows,
    vector_registers,
    vgpr,
)
from asmlaunch.emulator.native.helpers import ROW, helpers
from asmlaunch.emulator.state import LANES, WAVE, Fault


@dataclass(frozen=True)
class BufferForm:
    """The modifiers of a buffer instruction that change what its helper does."""

    offen: bool
    idxen: bool
    lds: bool
    returns: bool = False

    def __str__(self) -> str:
        return "".join(f"_{name}" for name, on in vars(self).items() if on) or "_plain"


#: Arguments of a buffer helper after (wave, number).
BUFFER_ARGS = ["registers", "address", "word0", "word1", "word2", "word3", "soffset", "offset", "mask", "m0"]
BUFFER_TYPES = [PTR, PTR, I32, I32, I32, I32, I32, I32, I64, I32]


class BufferLanes:
    """Addresses and range checks of a buffer access, for all lanes at once or for one lane."""

    def __init__(
        self, code: Checked, form: BufferForm, values: dict[str, ir.Value], lane_number: ir.Value | None
    ) -> None:
        self._low = low = code.lowering()
        address = values["address"]
        word = [given(U32, values[f"word{index}"]) for index in range(4)]
        self._soffset, instruction_offset = given(U32, values["soffset"]), given(U32, values["offset"])
        self._index = vgpr(code, address, lane_number) if form.idxen else U32.const(0)
        self._offset = instruction_offset
        if form.offen:
            self._offset = vgpr(code, code.at(address, ROW * form.idxen), lane_number) + instruction_offset
        stride = memory.buffer_stride(word[1])
        self._structured = (stride != 0) if form.idxen else Bool.const(0)
        self._records = word[2]
        base = memory.buffer_base(word[0], word[1])
        self.start = low(memory.buffer_address, base, self._soffset, self._offset, stride, self._index)

    def valid(self, piece_end: int) -> Any:
        """Whether the piece that ends so many bytes after the start is inside the buffer."""
        return self._low(
            memory.buffer_in_range, self._records, self._soffset, self._offset, self._index, self._structured,
            U64.const(piece_end),
        )  # fmt: skip


def buffer(access: Access, form: BufferForm) -> str:
    """``void (wave, number, *BUFFER_ARGS)``: load to registers or LDS, store, or atomic."""

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Checked.helper(module, name, BUFFER_TYPES)
        values = dict(zip(BUFFER_ARGS, args, strict=True))
        build = code.builder
        low = code.lowering()
        strange = low(memory.buffer_unsupported, given(U32, values["word1"]), given(U32, values["word3"])).ir
        with build.if_then(strange):
            code.record(Fault.DESCRIPTOR, i32(0), i64(0), 0)
            build.ret_void()
        if access.kind != "atomic" and access.element is U32:
            _buffer_fast(code, access, form, values)
        _buffer_lane_by_lane(code, access, form, values)
        build.ret_void()

    return helpers().need(f"{access.mnemonic}{form}", build_it)


def _lds_slot(code: Checked, values: dict[str, ir.Value], lane_number: ir.Value, size: int) -> ir.Value:
    low = code.lowering()
    m0, distance = given(U32, values["m0"]), given(U32, values["offset"])
    return low(memory.buffer_to_lds_address, m0, distance, given(U32, lane_number), U32.const(size)).ir


def _buffer_fast(code: Checked, access: Access, form: BufferForm, values: dict[str, ir.Value]) -> None:
    """All lanes on, each wholly inside the buffer or wholly outside, and those inside all in one array: no check a
    lane. Lanes outside the buffer read zeros and write to nowhere. Returns from the helper when it applies.
    """
    build, size, stride = code.builder, access.nbytes, lds_stride(access)
    everything = BufferLanes(code, form, values, None)
    starts = lanes(build, everything.start)
    inside, partly = (lanes(build, everything.valid(end)) for end in (size, 4))
    lowest = code.reduce("umin", build.select(inside, starts, splat(build, i64(-1))))
    highest = code.reduce("umax", build.select(inside, starts, splat(build, i64(0))))
    one_array = code.in_region(lowest, build.add(highest, i64(size)), access.kind == "store")
    nowhere = build.not_(code.reduce("or", inside))
    conditions = [
        build.icmp_unsigned("==", values["mask"], i64(-1)),
        build.not_(code.reduce("or", build.xor(inside, partly))),
        build.or_(one_array, nowhere),
    ]
    if form.lds:
        first = _lds_slot(code, values, i32(0), stride)
        last = build.add(build.zext(first, I64), i64(LANES * stride))
        conditions.append(build.icmp_unsigned("<=", last, build.zext(code.get(code.wave, WAVE, "lds_size"), I64)))
    with build.if_then(code.all_of(*conditions)):
        elsewhere = code.local(I32, access.count)
        for piece in range(access.count):
            code.store(i32(0), code.at(elsewhere, 4 * piece), 4)
        good = build.select(inside, starts, splat(build, build.ptrtoint(elsewhere, I64)))
        if form.lds:
            pointer_of = lane_pointers(code, good)
            lds = code.get_pointer(code.wave, WAVE, "lds")
            kind = ir.VectorType(I32, access.count)
            with code.loop(LANES) as lane_number:
                target = code.at(lds, build.zext(_lds_slot(code, values, lane_number, stride), I64))
                code.store(code.load(pointer_of(lane_number), kind, 1), target, 1)
        else:
            move_rows(code, access, good, values["registers"])
        build.ret_void()


def _buffer_lane_by_lane(code: Checked, access: Access, form: BufferForm, values: dict[str, ir.Value]) -> None:
    build, size = code.builder, access.element.bits // 8
    with code.active_lanes(values["mask"]) as lane_number:
        one = BufferLanes(code, form, values, lane_number)
        registers = vector_registers(code, values["registers"])
        if form.lds:
            # In LDS an element has a dword, whatever it has in memory.
            place = _lds_slot(code, values, lane_number, lds_stride(access))
            registers = lds_registers(code, place, access.count, lane_number)
        for number in range(access.count):
            address = build.add(one.start.ir, i64(size * number))
            valid = one.valid(access.nbytes if access.kind == "atomic" else size * (number + 1)).ir
            move_element(
                code, access, GlobalSpace(code), lane_number, number, address, valid, registers,
                registers if form.returns else None,
            )  # fmt: skip
