"""What all memory helpers share: the checks of an access, and moving data between lanes' memory and VGPRs.

A helper works on the register file in memory; the addresses and range rules it applies are those of ``isa.memory``.

Every access is checked against the launch's regions. A read outside gives zero and is recorded; a write outside is
dropped, recorded and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.lower import I1, I32, I64, PTR, Lowering, call, overload
from asmlaunch.emulator.native.helpers import ROW, VOID
from asmlaunch.emulator.state import LANES, RECORD, REGION, WAVE, Fault, Status


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


class Checked(Code):
    """Code of a helper: its wave and the number of its memory instruction."""

    find: ir.Function
    record_function: ir.Function
    wave: ir.Value
    number: ir.Value

    @classmethod
    def helper(cls, module: ir.Module, name: str, args: list[ir.Type]) -> tuple[Checked, list[ir.Value]]:
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
        return call(self.builder, f"llvm.vector.reduce.{name}.{overload(vector.type)}", vector.type.element, [vector])

    @contextmanager
    def active_lanes(self, mask: ir.Value) -> Iterator[ir.Value]:
        """Loop over the lanes of a mask."""
        with self.loop(LANES) as lane_number, self.builder.if_then(self.active(mask, lane_number)):
            yield lane_number

    def lane_slot(self, base: ir.Value, lane_number: ir.Value, stride: int) -> ir.Value:
        return self.at(base, self.builder.mul(self.builder.zext(lane_number, I64), i64(stride)))


def rows_from_lanes(code: Code, count: int, pointer_of: Callable[[ir.Value], ir.Value], registers: ir.Value) -> None:
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


def lanes_from_rows(code: Code, count: int, pointer_of: Callable[[ir.Value], ir.Value], registers: ir.Value) -> None:
    """Store ``count`` consecutive VGPRs as ``count`` dwords at each lane's pointer."""
    build = code.builder
    with code.loop(LANES) as lane_number:
        slot = code.at(registers, build.mul(build.zext(lane_number, I64), i64(4)))
        target = pointer_of(lane_number)
        for register in range(count):
            code.store(code.load(code.at(slot, register * ROW), I32, 4), code.at(target, register * 4), 1)
