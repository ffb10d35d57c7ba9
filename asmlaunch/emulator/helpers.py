"""Native helpers that compiled kernels call: memory accesses with their checks, and the wave loop.

A helper is built and compiled the first time a kernel needs it and shared by all kernels of the process. It works on the
register file in memory; the addresses and range rules it applies are those of ``isa.memory``.

Every access is checked against the launch's regions. A read outside gives zero and is recorded; a write outside is dropped,
recorded and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir

from asmlaunch.emulator import jit
from asmlaunch.emulator.build import Code, i32, i64, new_module
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32, U64, Bool
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I1, I32, I64, LANES_I32, PTR, Lowering, call, given, lanes, overload, splat
from asmlaunch.emulator.state import GROUP, LANES, RECORD, REGION, WAVE, Fault, Status

VOID = ir.VoidType()
ROW = LANES * 4  # bytes of one VGPR


class Helpers:
    """The helper functions of this process."""

    def __init__(self) -> None:
        self._compiled: dict[str, jit.Compiled] = {}

    def need(self, name: str, build: Callable[[ir.Module, str], None]) -> str:
        """Make sure that the helper ``name`` exists; returns its symbol."""
        symbol = f"asmlaunch_{name}"
        with jit.LOCK:
            if symbol not in self._compiled:
                module = new_module(jit.host().triple, jit.host().layout)
                build(module, symbol)
                self._compiled[symbol] = compiled = jit.Compiled(str(module), 3)
                jit.publish(symbol, compiled.address(symbol))
        return symbol

    def address(self, symbol: str) -> int:
        """Address of a helper that exists."""
        return self._compiled[symbol].address(symbol)


@cache
def helpers() -> Helpers:
    """The one instance."""
    return Helpers()


# ---------------------------------------------------------------- checks


def _region_check(module: ir.Module) -> ir.Function:
    """``i1 find(wave, start, end, write)``: whether [start, end) lies in one region that allows the access."""
    code, (wave, start, end, write) = Code.function(module, "find_region", I1, [PTR, I64, I64, I1])
    module.globals["find_region"].linkage = "internal"
    build = code.builder
    regions, count = code.get_pointer(wave, WAVE, "regions"), code.get(wave, WAVE, "region_count")
    with code.loop(count) as index:
        region = code.at(regions, build.mul(build.zext(index, I64), i64(REGION.itemsize)))
        inside = code.all_of(
            build.icmp_unsigned(">=", start, code.get(region, REGION, "start")),
            build.icmp_unsigned("<=", end, code.get(region, REGION, "end")),
            build.icmp_unsigned("<=", start, end),
            build.or_(build.not_(write), build.icmp_unsigned("!=", code.get(region, REGION, "writable"), i64(0))),
        )
        with build.if_then(inside):
            build.ret(ir.Constant(I1, 1))
    build.ret(ir.Constant(I1, 0))
    return module.globals["find_region"]


def _recorder(module: ir.Module) -> ir.Function:
    """``void record(wave, number, kind, lane, address, size)``: note an access that failed; writes stop the wave."""
    code, (wave, number, kind, lane_number, address, size) = Code.function(
        module, "record_access", VOID, [PTR, I32, I32, I32, I64, I32]
    )
    module.globals["record_access"].linkage = "internal"
    build = code.builder
    records = code.get_pointer(wave, WAVE, "records")
    record = code.at(records, build.mul(build.zext(number, I64), i64(RECORD.itemsize)))
    count = code.get(record, RECORD, "count")
    with build.if_then(build.icmp_unsigned("==", count, i64(0))):
        for name, value in (("kind", kind), ("lane", lane_number), ("address", address), ("size", size)):
            code.put(record, RECORD, name, value)
        code.put(record, RECORD, "wave", code.get(wave, WAVE, "id"))
        for axis, register in zip("xyz", range(3), strict=True):
            source = code.at(wave, WAVE.fields["group_id"][1] + 4 * register)  # type: ignore[index]
            code.put(record, RECORD, f"group_{axis}", code.load(source, I32, 4))
    code.put(record, RECORD, "count", build.add(count, i64(1)))
    fatal = build.or_(
        build.icmp_unsigned("==", kind, i32(Fault.WRITE)), build.icmp_unsigned("==", kind, i32(Fault.DESCRIPTOR))
    )
    with build.if_then(fatal):
        code.put(wave, WAVE, "status", i32(Status.FAULT))
    build.ret_void()
    return module.globals["record_access"]


class _Checked(Code):
    """Code of a helper: its wave and the number of its memory instruction."""

    find: ir.Function
    record_function: ir.Function
    wave: ir.Value
    number: ir.Value

    @classmethod
    def helper(cls, module: ir.Module, name: str, args: list[ir.Type]) -> tuple[_Checked, list[ir.Value]]:
        """A helper ``void name(wave, number, args...)``."""
        find, record = _region_check(module), _recorder(module)
        plain, (wave, number, *rest) = Code.function(module, name, VOID, [PTR, I32, *args])
        code = cls(plain.builder)
        code.find, code.record_function, code.wave, code.number = find, record, wave, number
        return code, rest

    def in_region(self, start: ir.Value, end: ir.Value, write: bool) -> ir.Value:
        return self.builder.call(self.find, [self.wave, start, end, ir.Constant(I1, write)])

    def record(self, kind: Fault, lane_number: ir.Value, address: ir.Value, size: int) -> None:
        args = [self.wave, self.number, i32(kind), lane_number, address, i32(size)]
        self.builder.call(self.record_function, args)

    def lowering(self) -> Lowering:
        return Lowering(self.builder)

    def active(self, mask: ir.Value, lane_number: ir.Value) -> ir.Value:
        bit = self.builder.lshr(mask, self.builder.zext(lane_number, I64))
        return self.builder.trunc(bit, I1)

    def reduce(self, name: str, vector: ir.Value) -> ir.Value:
        return call(
            self.builder, f"llvm.vector.reduce.{name}.{overload(vector.type)}", vector.type.element, [vector]
        )

    @contextmanager
    def active_lanes(self, mask: ir.Value) -> Iterator[ir.Value]:
        """Loop over the lanes of a mask."""
        with self.loop(LANES) as lane_number, self.builder.if_then(self.active(mask, lane_number)):
            yield lane_number

    def lane_slot(self, base: ir.Value, lane_number: ir.Value, stride: int) -> ir.Value:
        return self.at(base, self.builder.mul(self.builder.zext(lane_number, I64), i64(stride)))


# ---------------------------------------------------------------- moving data


def _rows_from_lanes(code: Code, count: int, pointer_of: Callable[[ir.Value], ir.Value], registers: ir.Value) -> None:
    """Load ``count`` dwords a lane, whose lane pointers ``pointer_of`` gives, into ``count`` consecutive VGPRs."""
    build = code.builder
    if count == 1:
        with code.loop(LANES) as lane_number:
            slot = code.at(registers, build.mul(build.zext(lane_number, I64), i64(4)))
            code.store(code.load(pointer_of(lane_number), I32, 1), slot, 4)
        return
    # Sixteen lanes at a time: concatenate their vectors, then take every count-th element.
    with code.loop(LANES // 16) as group:
        parts = []
        for member in range(16):
            lane_number = build.add(build.mul(group, i32(16)), i32(member))
            parts.append(code.load(pointer_of(lane_number), ir.VectorType(I32, count), 1))
        while len(parts) > 1:
            width = parts[0].type.count
            order = ir.Constant(ir.VectorType(I32, 2 * width), list(range(2 * width)))
            parts = [build.shuffle_vector(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        for register in range(count):
            order = ir.Constant(ir.VectorType(I32, 16), [member * count + register for member in range(16)])
            column = build.shuffle_vector(parts[0], parts[0], order)
            place = build.add(build.mul(build.zext(group, I64), i64(64)), i64(register * ROW))
            code.store(column, code.at(registers, place), 64)


def _lanes_from_rows(code: Code, count: int, pointer_of: Callable[[ir.Value], ir.Value], registers: ir.Value) -> None:
    """Store ``count`` consecutive VGPRs as ``count`` dwords at each lane's pointer."""
    build = code.builder
    with code.loop(LANES) as lane_number:
        slot = code.at(registers, build.mul(build.zext(lane_number, I64), i64(4)))
        target = pointer_of(lane_number)
        for register in range(count):
            code.store(code.load(code.at(slot, register * ROW), I32, 4), code.at(target, register * 4), 1)


# ---------------------------------------------------------------- scalar loads


def scalar_load(access: Access) -> str:
    """``void (wave, number, first SGPR, base, offset)``: consecutive dwords into consecutive SGPRs."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (registers, base, distance) = _Checked.helper(module, name, [PTR, I64, I64])
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


# ---------------------------------------------------------------- buffers


@dataclass(frozen=True)
class BufferForm:
    """The modifiers of a buffer instruction that change what its helper does."""

    offen: bool
    idxen: bool
    lds: bool

    def __str__(self) -> str:
        return "".join(f"_{name}" for name, on in vars(self).items() if on) or "_plain"


#: Arguments of a buffer helper after (wave, number).
BUFFER_ARGS = ["registers", "address", "word0", "word1", "word2", "word3", "soffset", "offset", "mask", "m0"]
_BUFFER_TYPES = [PTR, PTR, I32, I32, I32, I32, I32, I32, I64, I32]


class _BufferLanes:
    """Addresses and range checks of a buffer access, for all lanes at once or for one lane."""

    def __init__(self, code: _Checked, form: BufferForm, values: dict[str, ir.Value], lane_number: ir.Value | None) -> None:
        self._low = low = code.lowering()
        column = lane_number is None

        def vgpr(index: int) -> Any:
            place = code.at(values["address"], index * ROW)
            if column:
                return given(U32, code.load(place, LANES_I32, 64))
            return given(U32, code.load(code.lane_slot(place, lane_number, 4), I32, 4))

        word = [given(U32, values[f"word{index}"]) for index in range(4)]
        self._soffset, instruction_offset = given(U32, values["soffset"]), given(U32, values["offset"])
        self._index = vgpr(0) if form.idxen else U32.const(0)
        self._offset = vgpr(1 if form.idxen else 0) + instruction_offset if form.offen else instruction_offset
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
        code, args = _Checked.helper(module, name, _BUFFER_TYPES)
        values = dict(zip(BUFFER_ARGS, args, strict=True))
        build = code.builder
        low = code.lowering()
        strange = low(memory.buffer_unsupported, given(U32, values["word1"]), given(U32, values["word3"])).ir
        with build.if_then(strange):
            code.record(Fault.DESCRIPTOR, i32(0), i64(0), 0)
            build.ret_void()
        if access.kind != "atomic":
            _buffer_fast(code, access, form, values)
        _buffer_lane_by_lane(code, access, form, values)
        build.ret_void()

    return helpers().need(f"{access.mnemonic}{form}", build_it)


def _lds_slot(code: _Checked, values: dict[str, ir.Value], lane_number: ir.Value, size: int) -> ir.Value:
    low = code.lowering()
    m0, distance = given(U32, values["m0"]), given(U32, values["offset"])
    return low(memory.buffer_to_lds_address, m0, distance, given(U32, lane_number), U32.const(size)).ir


def _buffer_fast(code: _Checked, access: Access, form: BufferForm, values: dict[str, ir.Value]) -> None:
    """All lanes on, all inside the buffer, all inside one array: no check a lane. Returns from the helper when it applies."""
    build, size = code.builder, 4 * access.count
    everything = _BufferLanes(code, form, values, None)
    starts = lanes(build, everything.start)
    inside = lanes(build, everything.valid(size))
    full = build.icmp_unsigned("==", values["mask"], i64(-1))
    lowest, highest = code.reduce("umin", starts), code.reduce("umax", starts)
    one_array = code.in_region(lowest, build.add(highest, i64(size)), access.kind == "store")
    conditions = [full, code.reduce("and", inside), one_array]
    if form.lds:
        first = _lds_slot(code, values, i32(0), size)
        last = build.add(build.zext(first, I64), i64(LANES * size))
        conditions.append(build.icmp_unsigned("<=", last, build.zext(code.get(code.wave, WAVE, "lds_size"), I64)))
    with build.if_then(code.all_of(*conditions)):
        table = code.local(I64, LANES)
        code.store(starts, table, 8)

        def pointer_of(lane_number: ir.Value) -> ir.Value:
            return build.inttoptr(code.load(code.lane_slot(table, lane_number, 8), I64, 8), PTR)

        if form.lds:
            lds = code.get_pointer(code.wave, WAVE, "lds")
            kind = ir.VectorType(I32, access.count)
            with code.loop(LANES) as lane_number:
                target = code.at(lds, build.zext(_lds_slot(code, values, lane_number, size), I64))
                code.store(code.load(pointer_of(lane_number), kind, 1), target, 1)
        elif access.kind == "load":
            _rows_from_lanes(code, access.count, pointer_of, values["registers"])
        else:
            _lanes_from_rows(code, access.count, pointer_of, values["registers"])
        build.ret_void()


def _buffer_lane_by_lane(code: _Checked, access: Access, form: BufferForm, values: dict[str, ir.Value]) -> None:
    build = code.builder
    writes = access.kind != "load"
    with code.active_lanes(values["mask"]) as lane_number:
        one = _BufferLanes(code, form, values, lane_number)
        for piece in range(access.count):
            address = build.add(one.start.ir, i64(4 * piece))
            pointer = build.inttoptr(address, PTR)
            if form.lds:
                place = build.add(_lds_slot(code, values, lane_number, 4 * access.count), i32(4 * piece))
                slot = _lds_pointer(code, place, lane_number)
            else:
                slot = code.lane_slot(code.at(values["registers"], piece * ROW), lane_number, 4)
            if not writes:
                code.store(i32(0), slot, 1)
            with build.if_then(one.valid(4 * (piece + 1)).ir):
                allowed = code.in_region(address, build.add(address, i64(4)), writes)
                with build.if_else(allowed) as (inside, outside):
                    with inside:
                        if access.kind == "load":
                            code.store(code.load(pointer, I32, 1), slot, 1)
                        elif access.kind == "store":
                            code.store(code.load(slot, I32, 4), pointer, 1)
                        else:
                            _atomic(code, access, pointer, code.load(slot, I32, 4))
                    with outside:
                        code.record(Fault.WRITE if writes else Fault.READ, lane_number, address, 4)


def _lds_pointer(code: _Checked, place: ir.Value, lane_number: ir.Value) -> ir.Value:
    """Pointer to a dword of LDS for an LDS-direct load; one outside goes to a scratch dword and is recorded."""
    build = code.builder
    size = build.zext(code.get(code.wave, WAVE, "lds_size"), I64)
    wide = build.zext(place, I64)
    inside = build.icmp_unsigned("<=", build.add(wide, i64(4)), size)
    with build.if_then(build.not_(inside)):
        code.record(Fault.LDS_WRITE, lane_number, wide, 4)
    # The dword after the allocation exists for this (state of a workgroup: `machine`).
    return code.at(code.get_pointer(code.wave, WAVE, "lds"), build.select(inside, wide, size))


def _atomic(code: _Checked, access: Access, pointer: ir.Value, data: ir.Value) -> None:
    """Compare and swap until nobody else came between."""
    build = code.builder
    assert access.update is not None
    before = code.load(pointer, I32, 4)
    start, retry, done = build.block, build.append_basic_block("retry"), build.append_basic_block("swapped")
    build.branch(retry)
    build.position_at_end(retry)
    old = build.phi(I32)
    old.add_incoming(before, start)
    new = code.lowering()(access.update, given(U32, old), given(U32, data)).ir
    pair = build.cmpxchg(pointer, old, new, "monotonic", "monotonic")
    old.add_incoming(build.extract_value(pair, 0), build.block)
    build.cbranch(build.extract_value(pair, 1), done, retry)
    build.position_at_end(done)


# ---------------------------------------------------------------- LDS


def lds(access: Access) -> str:
    """``void (wave, number, first data VGPR, address VGPR, offset, mask)``: DS reads and writes."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (registers, addresses, distance, mask) = _Checked.helper(module, name, [PTR, PTR, I32, I64])
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
            move = _rows_from_lanes if access.kind == "load" else _lanes_from_rows
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


# ---------------------------------------------------------------- running waves


def run_waves() -> int:
    """Address of ``i32 run(waves, count, blocks, quantum)``.

    Runs the waves in turn, each for at most ``quantum`` blocks or until its next barrier or its end, until all have ended.
    Returns ``Status.ENDED``, or the status of the wave that stopped the run. Waves of several workgroups may be given.
    """
    return helpers().address(helpers().need("run_waves", _build_run))


def _build_run(module: ir.Module, name: str) -> None:
    code, (waves, count, blocks, quantum) = Code.function(module, name, I32, [PTR, I32, PTR, I32])
    build = code.builder

    def wave_at(index: ir.Value) -> ir.Value:
        return code.load(code.at(waves, build.mul(build.zext(index, I64), i64(8))), PTR, 8)

    def release_if_complete(wave: ir.Value) -> None:
        """When every wave of the group that is alive waits, all go on."""
        group = code.get_pointer(wave, WAVE, "group")
        waiting, alive = code.get(group, GROUP, "waiting"), code.get(group, GROUP, "alive")
        complete = build.icmp_signed("==", waiting, alive)
        with build.if_then(complete):
            code.put(group, GROUP, "waiting", i32(0))
            with code.loop(count) as index:
                other = wave_at(index)
                same = build.icmp_unsigned("==", code.get(other, WAVE, "group"), code.get(wave, WAVE, "group"))
                waits = build.icmp_signed("==", code.get(other, WAVE, "status"), i32(Status.BARRIER))
                with build.if_then(build.and_(same, waits)):
                    code.put(other, WAVE, "status", i32(Status.READY))

    ready = code.local(I32)
    sweep, over = build.append_basic_block("sweep"), build.append_basic_block("over")
    build.branch(sweep)
    build.position_at_end(sweep)
    code.store(i32(0), ready, 4)
    with code.loop(count) as index:
        wave = wave_at(index)
        with build.if_then(build.icmp_signed("==", code.get(wave, WAVE, "status"), i32(Status.READY))):
            code.store(i32(1), ready, 4)
            status = _run_one(code, wave, blocks, quantum)
            group = code.get_pointer(wave, WAVE, "group")
            with build.if_then(build.icmp_signed("==", status, i32(Status.BARRIER))):
                code.put(group, GROUP, "waiting", build.add(code.get(group, GROUP, "waiting"), i32(1)))
                release_if_complete(wave)
            with build.if_then(build.icmp_signed("==", status, i32(Status.ENDED))):
                code.put(group, GROUP, "alive", build.sub(code.get(group, GROUP, "alive"), i32(1)))
                release_if_complete(wave)
            with build.if_then(build.icmp_signed(">=", status, i32(Status.FAULT))):
                build.ret(status)
    build.cbranch(build.icmp_unsigned("!=", code.load(ready, I32, 4), i32(0)), sweep, over)
    build.position_at_end(over)
    build.ret(i32(Status.ENDED))


def _run_one(code: Code, wave: ir.Value, blocks: ir.Value, quantum: ir.Value) -> ir.Value:
    """Run one wave for ``quantum`` blocks or until its status changes; gives the status."""
    build = code.builder
    before, body, after = build.block, build.append_basic_block("step"), build.append_basic_block("stepped")
    build.branch(body)
    build.position_at_end(body)
    left = build.phi(I32)
    left.add_incoming(quantum, before)
    number = build.zext(code.get(wave, WAVE, "block"), I64)
    kind = ir.FunctionType(I32, [PTR]).as_pointer()
    function = code.load(code.at(blocks, build.mul(number, i64(8))), kind, 8)
    following = build.call(function, [wave])
    code.put(wave, WAVE, "block", following)
    exhausted = build.icmp_signed("<", code.get(wave, WAVE, "budget"), i64(0))
    stopped = build.icmp_signed("!=", code.load(code.get_pointer(wave, WAVE, "stop"), I32, 4), i32(0))
    status = code.get(wave, WAVE, "status")
    ready = build.icmp_signed("==", status, i32(Status.READY))
    status = build.select(build.and_(ready, stopped), i32(Status.STOPPED), status)
    status = build.select(build.and_(ready, exhausted), i32(Status.BUDGET), status)
    code.put(wave, WAVE, "status", status)
    fewer = build.sub(left, i32(1))
    left.add_incoming(fewer, build.block)
    goes_on = build.icmp_signed("==", status, i32(Status.READY))
    build.cbranch(build.and_(goes_on, build.icmp_signed(">", fewer, i32(0))), body, after)
    build.position_at_end(after)
    return status
