"""What all memory helpers share: the checks of an access, and moving data between lanes' memory and VGPRs.

A helper works on the register file in memory; the addresses and range rules it applies are those of ``isa.memory``.

Every access is checked against the launch's regions. A read outside gives zero and is recorded; a write outside is
dropped, recorded and ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32, Float, Integer
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I1, I16, I32, I64, LANES_I32, PTR, Lowering, call, given, overload
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


def vgpr(code: Checked, row: ir.Value, lane_number: ir.Value | None) -> U32:
    """The VGPR whose row starts at ``row``: of one lane, or of all (None)."""
    if lane_number is None:
        return given(U32, code.load(row, LANES_I32, 64))
    return given(U32, code.load(code.lane_slot(row, lane_number, 4), I32, 4))


def move_rows(code: Checked, access: Access, starts: ir.Value, registers: ir.Value) -> None:
    """All lanes' dwords of a load or store between VGPRs and addresses that are known to be good (64 x i64)."""
    move = rows_from_lanes if access.kind == "load" else lanes_from_rows
    move(code, access.count, lane_pointers(code, starts), registers)


def lane_pointers(code: Checked, starts: ir.Value) -> Callable[[ir.Value], ir.Value]:
    """Lane number -> pointer, of one address a lane (64 x i64)."""
    table = code.local(I64, LANES)
    code.store(starts, table, 8)
    return lambda lane_number: code.builder.inttoptr(code.load(code.lane_slot(table, lane_number, 8), I64, 8), PTR)


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


# ---------------------------------------------------------------- element by element


class Space(Protocol):
    """A memory: which addresses exist, and where they are on the host."""

    read_fault: Fault
    write_fault: Fault

    def allowed(self, address: ir.Value, size: int, write: bool) -> ir.Value:
        """Whether ``size`` bytes at ``address`` exist and may be accessed (i1)."""

    def pointer(self, address: ir.Value) -> ir.Value:
        """The host's address of an allowed ``address``."""


class GlobalSpace:
    """The arrays of the launch; addresses are the host's."""

    read_fault, write_fault = Fault.READ, Fault.WRITE

    def __init__(self, code: Checked) -> None:
        self._code = code

    def allowed(self, address: ir.Value, size: int, write: bool) -> ir.Value:
        """Whether one region holds it all."""
        return self._code.in_region(address, self._code.builder.add(address, i64(size)), write)

    def pointer(self, address: ir.Value) -> ir.Value:
        """The address itself."""
        return self._code.builder.inttoptr(address, PTR)


class LdsSpace:
    """The workgroup's LDS; addresses count from its start."""

    read_fault, write_fault = Fault.LDS_READ, Fault.LDS_WRITE

    def __init__(self, code: Checked) -> None:
        self._code = code
        self._base = code.get_pointer(code.wave, WAVE, "lds")
        self.limit = code.builder.zext(code.get(code.wave, WAVE, "lds_size"), I64)

    def allowed(self, address: ir.Value, size: int, write: bool) -> ir.Value:
        """Whether it lies inside the allocation."""
        return self._code.builder.icmp_unsigned("<=", self._code.builder.add(address, i64(size)), self.limit)

    def pointer(self, address: ir.Value) -> ir.Value:
        """From the allocation's start."""
        return self._code.at(self._base, address)


class ScratchSpace:
    """A lane's scratch memory; addresses count from its start. Lanes lie one after the other."""

    read_fault, write_fault = Fault.SCRATCH_READ, Fault.SCRATCH_WRITE

    def __init__(self, code: Checked, lane_number: ir.Value) -> None:
        build = code.builder
        self._code = code
        self._limit = build.zext(code.get(code.wave, WAVE, "scratch_size"), I64)
        distance = build.mul(build.zext(lane_number, I64), self._limit)
        self._base = code.at(code.get_pointer(code.wave, WAVE, "scratch"), distance)

    def allowed(self, address: ir.Value, size: int, write: bool) -> ir.Value:
        """Whether it lies inside the lane's share."""
        return self._code.builder.icmp_unsigned("<=", self._code.builder.add(address, i64(size)), self._limit)

    def pointer(self, address: ir.Value) -> ir.Value:
        """From the share's start."""
        return self._code.at(self._base, address)


class FlatSpace:
    """Global memory with LDS and scratch at their apertures: the addresses whose high dword is that of src_shared_base
    or src_private_base.
    """

    read_fault, write_fault = Fault.READ, Fault.WRITE

    def __init__(self, code: Checked, lane_number: ir.Value) -> None:
        self._build, self._global = code.builder, GlobalSpace(code)
        self._apertures: tuple[tuple[int, Space], ...] = (
            (memory.SHARED_BASE, LdsSpace(code)),
            (memory.PRIVATE_BASE, ScratchSpace(code, lane_number)),
        )

    def _choose(self, address: ir.Value, ask: Callable[[Space, ir.Value], ir.Value]) -> ir.Value:
        """What the memory behind the address says."""
        build, answer = self._build, ask(self._global, address)
        place = build.and_(address, i64(0xFFFFFFFF))
        for base, space in self._apertures:
            inside = build.icmp_unsigned("==", build.lshr(address, i64(32)), i64(base >> 32))
            answer = build.select(inside, ask(space, place), answer)
        return answer

    def allowed(self, address: ir.Value, size: int, write: bool) -> ir.Value:
        """Whether the memory behind the address allows it."""
        return self._choose(address, lambda space, place: space.allowed(place, size, write))

    def pointer(self, address: ir.Value) -> ir.Value:
        """Where the memory behind the address has it."""
        return self._choose(address, lambda space, place: space.pointer(place))


class Registers(Protocol):
    """Where a lane's dwords of an access are: VGPR rows, consecutive SGPRs, or a slot of LDS."""

    def __call__(self, lane_number: ir.Value, number: int) -> ir.Value:
        """Pointer to dword ``number``."""


def vector_registers(code: Checked, first: ir.Value) -> Registers:
    """Consecutive VGPRs from the one whose row starts at ``first``."""
    return lambda lane_number, number: code.lane_slot(code.at(first, number * ROW), lane_number, 4)


def scalar_registers(code: Checked, first: ir.Value) -> Registers:
    """Consecutive SGPRs."""
    return lambda lane_number, number: code.at(first, 4 * number)


def lds_stride(access: Access) -> int:
    """Bytes from one lane's place in LDS to the next one's, for loads that go there: the wide ones take 16."""
    return 4 if access.count == 1 else 16


def lds_registers(code: Checked, place: ir.Value, count: int, lane_number: ir.Value) -> Registers:
    """``count`` dwords of LDS from byte ``place``, as the destination of a load; dwords outside the allocation are
    recorded, and go to the scratch dword that follows it (state of a workgroup: ``machine``).
    """
    build, space = code.builder, LdsSpace(code)
    pointers = []
    for number in range(count):
        wide = build.add(build.zext(place, I64), i64(4 * number))
        inside = space.allowed(wide, 4, True)
        with build.if_then(build.not_(inside)):
            code.record(Fault.LDS_WRITE, lane_number, wide, 4)
        pointers.append(space.pointer(build.select(inside, wide, space.limit)))
    return lambda _lane_number, number: pointers[number]


def move_element(
    code: Checked, access: Access, space: Space, lane_number: ir.Value, number: int, address: ir.Value,
    valid: ir.Value | None, registers: Registers, returned: Registers | None,
) -> None:  # fmt: skip
    """Element ``number`` of one lane's access: load, store or atomic, with its checks.

    Args:
        address: of this element (i64).
        valid: where false, a load gives 0 and anything else is dropped, without a record (i1); None: always true.
        registers: of the data; of an atomic's operands one after the other.
        returned: where an atomic's old value goes, or None.
    """
    build = code.builder
    size, writes = access.element.bits // 8, access.kind != "load"
    loads_into = returned if writes else registers
    # Read before anything is written: the old value may go to the same registers.
    data = [_get(code, access, registers, lane_number, place) for place in _operand_numbers(access, number)]
    if loads_into is not None:
        _put(code, access, loads_into, lane_number, number, ir.Constant(ir.IntType(8 * size), 0))

    def move() -> None:
        with build.if_else(space.allowed(address, size, writes)) as (inside, outside):
            with inside:
                pointer = space.pointer(address)
                if access.kind == "load":
                    value = code.load(pointer, ir.IntType(8 * size), 1)
                    _put(code, access, registers, lane_number, number, value)
                elif access.kind == "store":
                    code.store(data[0], pointer, 1)
                else:
                    _atomic(code, access, pointer, lane_number, data, returned)
            with outside:
                code.record(space.write_fault if writes else space.read_fault, lane_number, address, size)

    if valid is None:
        move()
    else:
        with build.if_then(valid):
            move()


def _operand_numbers(access: Access, number: int) -> Sequence[int]:
    """Which elements of the registers an access reads for its element ``number``."""
    if access.kind == "load":
        return ()
    return range(2 if access.compares else 1) if access.kind == "atomic" else (number,)


def _put(
    code: Checked, access: Access, registers: Registers, lane_number: ir.Value, number: int, value: ir.Value
) -> None:
    """A loaded element into its register."""
    build, width = code.builder, access.element.bits
    if width == 64:
        for half in range(2):
            part = build.trunc(build.lshr(value, i64(32 * half)), I32)
            code.store(part, registers(lane_number, 2 * number + half), 4)
        return
    signed = issubclass(access.element, Integer) and access.element.signed
    slot = registers(lane_number, number)
    if access.half:
        if width < 16:
            value = (build.sext if signed else build.zext)(value, I16)
        code.store(value, code.at(slot, 2 if access.half == "high" else 0), 2)
        return
    if width < 32:
        value = (build.sext if signed else build.zext)(value, I32)
    code.store(value, slot, 4)


def _get(code: Checked, access: Access, registers: Registers, lane_number: ir.Value, number: int) -> ir.Value:
    """An element to store, from its register."""
    build, width = code.builder, access.element.bits
    if width == 64:
        low, high = (build.zext(code.load(registers(lane_number, 2 * number + half), I32, 4), I64) for half in range(2))
        return build.or_(low, build.shl(high, i64(32)))
    value = code.load(registers(lane_number, number), I32, 4)
    if access.half == "high":
        value = build.lshr(value, i32(16))
    return value if width == 32 else build.trunc(value, ir.IntType(width))


def _atomic(
    code: Checked, access: Access, pointer: ir.Value, lane_number: ir.Value, data: Sequence[ir.Value],
    returned: Registers | None,
) -> None:  # fmt: skip
    """Compare and swap until nobody else came between."""
    build = code.builder
    assert access.update is not None
    kind, integer = access.element, ir.IntType(access.element.bits)
    before = code.load(pointer, integer, access.element.bits // 8)
    start, retry, done = build.block, build.append_basic_block("retry"), build.append_basic_block("swapped")
    build.branch(retry)
    build.position_at_end(retry)
    old = build.phi(integer)
    old.add_incoming(before, start)
    new = code.lowering()(access.update, *(_typed(code, kind, value) for value in (old, *data))).ir
    if issubclass(kind, Float):
        new = build.bitcast(new, integer)
    pair = build.cmpxchg(pointer, old, new, "monotonic", "monotonic")
    old.add_incoming(build.extract_value(pair, 0), build.block)
    build.cbranch(build.extract_value(pair, 1), done, retry)
    build.position_at_end(done)
    if returned is not None:
        _put(code, access, returned, lane_number, 0, old)


def _typed(code: Checked, kind: Any, bits: ir.Value) -> Any:
    """Integer bits as a value of an element's type."""
    if issubclass(kind, Float):
        return given(kind, code.builder.bitcast(bits, {32: ir.FloatType(), 64: ir.DoubleType()}[kind.bits]))
    return given(kind, bits)
