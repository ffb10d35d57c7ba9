"""Native helpers of the checks: what happens to the shadow when a wave enters, touches memory or is found at fault."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.checks.state import ENTRY, FOUND, GROUP_SHADOW, MANY, REGION_SHADOW, SHADOW, Kind
from asmlaunch.emulator.lower import I1, I32, I64, PTR, call
from asmlaunch.emulator.native.helpers import VOID, helpers
from asmlaunch.emulator.state import WAVE, offset

_GROUP_ID = offset(WAVE, "group_id")


def _get(code: Code, pointer: ir.Value, name: str) -> ir.Value:
    return code.get(pointer, SHADOW, name)


def _step(code: Code, pointer: ir.Value, index: ir.Value, size: int) -> ir.Value:
    """``pointer + index * size`` for an i32 or i64 index."""
    wide = index if index.type == I64 else code.builder.zext(index, I64)
    return code.at(pointer, code.builder.mul(wide, i64(size)))


# ---------------------------------------------------------------- entry and notes


def enter() -> str:
    """``void (wave)``: the shadow of a wave that starts, and of its workgroup if it is the first."""
    return helpers().need("check_enter", _build_enter)


def _build_enter(module: ir.Module, name: str) -> None:
    code, (wave,) = Code.function(module, name, VOID, [PTR])
    build = code.builder
    shadow = code.get_pointer(wave, WAVE, "shadow")
    _copy(code, shadow, code.get_pointer(shadow, SHADOW, "fresh"), i64(SHADOW.itemsize))
    group = code.get_pointer(shadow, SHADOW, "group")
    x, y, z = (code.load(code.at(wave, _GROUP_ID + 4 * axis), I32, 4) for axis in range(3))
    plane = build.add(y, build.mul(z, code.get(group, GROUP_SHADOW, "grid_y")))
    number = build.add(x, build.mul(plane, code.get(group, GROUP_SHADOW, "grid_x")))
    mark = build.add(number, i32(1))
    with build.if_then(build.icmp_unsigned("!=", code.get(group, GROUP_SHADOW, "entered"), mark)):
        for field, value in (("entered", mark), ("number", number), ("ended", i32(0))):
            code.put(group, GROUP_SHADOW, field, value)
        lds, fresh = (code.get_pointer(group, GROUP_SHADOW, field) for field in ("lds", "fresh"))
        _copy(code, lds, fresh, code.get(group, GROUP_SHADOW, "lds_bytes"))
    build.ret_void()


def _copy(code: Code, target: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
    call(code.builder, "llvm.memcpy.p0.p0.i64", VOID, [target, source, nbytes, ir.Constant(I1, 0)])


def note() -> str:
    """``void (wave, instruction, kind, lanes, address, value, other instruction, other agent)``: count a finding and
    keep the first.
    """
    return helpers().need("check_note", _build_note)


NOTE_ARGS = [PTR, I32, I32, I64, I64, I32, I32, I32]


def _build_note(module: ir.Module, name: str) -> None:
    code, (wave, index, kind, lanes, address, value, other_at, other_agent) = Code.function(
        module, name, VOID, NOTE_ARGS
    )
    build = code.builder
    shadow = code.get_pointer(wave, WAVE, "shadow")
    row = build.add(build.mul(index, i32(len(Kind))), kind)
    found = _step(code, code.get_pointer(shadow, SHADOW, "found"), row, FOUND.itemsize)
    count = code.get(found, FOUND, "count")
    with build.if_then(build.icmp_unsigned("==", count, i64(0))):
        values = {
            "lanes": lanes, "address": address, "value": value, "other_at": other_at, "other_agent": other_agent,
            "wave": code.get(wave, WAVE, "id"),
        }  # fmt: skip
        for axis, field in enumerate(("group_x", "group_y", "group_z")):
            values[field] = code.load(code.at(wave, _GROUP_ID + 4 * axis), I32, 4)
        for field, what in values.items():
            code.put(found, FOUND, field, what)
    code.put(found, FOUND, "count", build.add(count, i64(1)))
    build.ret_void()


def barrier_passed() -> str:
    """``void (wave)``: what the wave's memory operations have done is known to the others from here on."""
    return helpers().need("check_barrier", _build_barrier)


def _build_barrier(module: ir.Module, name: str) -> None:
    code, (wave,) = Code.function(module, name, VOID, [PTR])
    build = code.builder
    shadow = code.get_pointer(wave, WAVE, "shadow")
    epoch = _get(code, shadow, "epoch")
    odd = build.trunc(epoch, I1)
    with build.if_else(odd) as (second, first):
        for place, parity in ((first, 0), (second, 1)):
            with place:
                for counter in ("vm", "lds", "scalar"):
                    code.put(shadow, SHADOW, f"published{parity}_{counter}", _get(code, shadow, f"done_{counter}"))
    code.put(shadow, SHADOW, "epoch", build.add(epoch, i32(1)))
    build.ret_void()


def ended() -> str:
    """``void (wave, instruction)``: a wave ends; all waves of a workgroup should have passed as many barriers."""
    return helpers().need("check_ended", _build_ended)


def _build_ended(module: ir.Module, name: str) -> None:
    code, (wave, index) = Code.function(module, name, VOID, [PTR, I32])
    build = code.builder
    shadow = code.get_pointer(wave, WAVE, "shadow")
    group = code.get_pointer(shadow, SHADOW, "group")
    mine, first = build.add(_get(code, shadow, "epoch"), i32(1)), code.get(group, GROUP_SHADOW, "ended")
    with build.if_then(build.icmp_unsigned("==", first, i32(0))):
        code.put(group, GROUP_SHADOW, "ended", mine)
    differs = build.and_(build.icmp_unsigned("!=", first, i32(0)), build.icmp_unsigned("!=", first, mine))
    with build.if_then(differs):
        passed, others = build.sub(mine, i32(1)), build.sub(first, i32(1))
        arguments = [wave, index, i32(Kind.BARRIER), i64(0), i64(0), passed, others, i32(0)]
        call(build, note(), VOID, arguments)
    build.ret_void()


# ---------------------------------------------------------------- memory


@dataclass(frozen=True)
class Watch:
    """What an observer has to know of its memory instruction when it is built.

    Attributes:
        lds: whether the place is in LDS; else in the arrays.
        kind: "load", "store" or "atomic".
        size, count: bytes of a piece and pieces of a lane, one after the other in memory and in registers.
        lanes: 64, or 1 for scalar memory.
        align: bytes that the address must be a multiple of.
        definedness, alignment, waits, races: the checks that are on.
    """

    lds: bool
    kind: str
    size: int
    count: int
    lanes: int
    align: int
    definedness: bool
    alignment: bool
    waits: bool
    races: bool

    def __str__(self) -> str:
        flags = "".join(str(int(flag)) for flag in (
            self.lds, self.definedness, self.alignment, self.waits, self.races
        ))  # fmt: skip
        return f"{self.kind}_{self.size}x{self.count}x{self.lanes}_{self.align}_{flags}"


#: Arguments of an observer: wave, instruction, the lanes' addresses (64 or 1 i64), for each piece the lanes that are in
#: range (i64), shadows of the data registers (i64 a piece), the lanes that take part, and the number in ``pending``.
OBSERVE_ARGS = [PTR, I32, PTR, PTR, PTR, I64, I32]


def observe(watch: Watch) -> str:
    """``void (*OBSERVE_ARGS)``: check a memory instruction against the shadow of memory and bring that up to date.

    A load replaces the data's shadows, for the lanes that take part, by those of what it reads.
    """
    return helpers().need(f"check_observe_{watch}", lambda module, name: _Observer(module, name, watch).build())


class _Observer:
    def __init__(self, module: ir.Module, name: str, watch: Watch) -> None:
        self._module, self._watch = module, watch
        self._touch = self._build_touch(f"{name}_touch")
        self._code, args = Code.function(module, name, VOID, OBSERVE_ARGS)
        self._wave, self._index, self._starts, self._valid, self._data, self._mask, self._pending = args
        self._shadow = self._code.get_pointer(self._wave, WAVE, "shadow")

    @property
    def _writes(self) -> bool:
        return self._watch.kind != "load"

    def build(self) -> None:
        code, watch = self._code, self._watch
        build = code.builder
        if watch.alignment and watch.align > 1:
            self._check_alignment()
        if watch.definedness and watch.kind != "load" and not watch.lds:
            self._check_data()
        if watch.definedness or watch.races or watch.waits:
            undefined = code.local(I64, watch.count)
            for piece in range(watch.count):
                code.store(i64(0), code.at(undefined, 8 * piece), 8)
            self._each_piece(undefined)
            if watch.definedness and watch.kind == "atomic":
                self._check_updated(undefined)
            if watch.definedness and watch.kind == "load":
                if watch.lanes == 1:
                    self._check_scalar(undefined)
                for piece in range(watch.count):
                    slot = code.at(self._data, 8 * piece)
                    kept = build.and_(code.load(slot, I64, 8), build.xor(self._mask, i64(-1)))
                    defined = build.xor(code.load(code.at(undefined, 8 * piece), I64, 8), i64(-1))
                    code.store(build.or_(kept, build.and_(defined, self._mask)), slot, 8)
        build.ret_void()

    def _check_updated(self, undefined: ir.Value) -> None:
        """An atomic works on what memory holds."""
        bad = self._code.load(undefined, I64, 8)
        for piece in range(1, self._watch.count):
            bad = self._code.builder.or_(bad, self._code.load(self._code.at(undefined, 8 * piece), I64, 8))
        with self._code.builder.if_then(self._code.builder.icmp_unsigned("!=", bad, i64(0))):
            self._note(Kind.UNDEFINED_UPDATE, bad, self._first_start(bad))

    def _note(self, kind: Kind, lanes: ir.Value, address: ir.Value) -> None:
        arguments = [self._wave, self._index, i32(kind), lanes, address, i32(0), i32(0), i32(0)]
        call(self._code.builder, note(), VOID, arguments)

    def _first_start(self, lanes: ir.Value) -> ir.Value:
        first = call(self._code.builder, "llvm.cttz.i64", I64, [lanes, ir.Constant(I1, 0)])
        return self._code.load(_step(self._code, self._starts, first, 8), I64, 8)

    def _check_alignment(self) -> None:
        code, watch = self._code, self._watch
        build = code.builder
        crooked = code.local(I64)
        code.store(i64(0), crooked, 8)
        with code.loop(watch.lanes) as lane:
            low = build.and_(code.load(_step(code, self._starts, lane, 8), I64, 8), i64(watch.align - 1))
            bit = build.shl(build.zext(build.icmp_unsigned("!=", low, i64(0)), I64), build.zext(lane, I64))
            code.store(build.or_(code.load(crooked, I64, 8), bit), crooked, 8)
        bad = build.and_(build.and_(code.load(crooked, I64, 8), self._mask), code.load(self._valid, I64, 8))
        with build.if_then(build.icmp_unsigned("!=", bad, i64(0))):
            self._note(Kind.MISALIGNED, bad, self._first_start(bad))

    def _check_data(self) -> None:
        code = self._code
        build = code.builder
        bad: ir.Value = i64(0)
        for piece in range(self._watch.count):
            data = code.load(code.at(self._data, 8 * piece), I64, 8)
            valid = code.load(code.at(self._valid, 8 * piece), I64, 8)
            bad = build.or_(bad, build.and_(build.xor(data, i64(-1)), valid))
        bad = build.and_(bad, self._mask)
        with build.if_then(build.icmp_unsigned("!=", bad, i64(0))):
            self._note(Kind.UNDEFINED_STORE, bad, self._first_start(bad))

    def _check_scalar(self, undefined: ir.Value) -> None:
        """A scalar load of bytes that nobody has set: of arguments, most likely."""
        code = self._code
        start = code.load(self._starts, I64, 8)
        for piece in range(self._watch.count):
            bad = code.load(code.at(undefined, 8 * piece), I64, 8)
            with code.builder.if_then(code.builder.icmp_unsigned("!=", bad, i64(0))):
                self._note(Kind.KERNARG, i64(1), code.builder.add(start, i64(4 * piece)))

    def _each_piece(self, undefined: ir.Value) -> None:
        """Touch the dwords of every piece of every lane that takes part and is in range."""
        code, watch = self._code, self._watch
        build = code.builder
        # Most accesses lie in one array, and most loads in one that nobody writes: nothing to remember then.
        common = None if watch.lds else self._common_region()
        with code.loop(watch.lanes) as lane:
            wide = build.zext(lane, I64)
            start = code.load(_step(code, self._starts, lane, 8), I64, 8)
            with build.if_then(build.trunc(build.lshr(self._mask, wide), I1)):
                for piece in range(watch.count):
                    valid = code.load(code.at(self._valid, 8 * piece), I64, 8)
                    with build.if_then(build.trunc(build.lshr(valid, wide), I1)):
                        self._piece(common, lane, build.add(start, i64(piece * watch.size)), undefined, piece)

    def _common_region(self) -> ir.Value:
        """The array that all lanes' accesses lie in, or null. Returns from the observer when it needs no entries."""
        code, watch = self._code, self._watch
        build = code.builder
        lowest, highest = code.local(I64), code.local(I64)
        code.store(i64(-1), lowest, 8)
        code.store(i64(0), highest, 8)
        valid = code.load(self._valid, I64, 8)
        for piece in range(1, watch.count):
            valid = build.and_(valid, code.load(code.at(self._valid, 8 * piece), I64, 8))
        with code.loop(watch.lanes) as lane:
            takes_part = build.trunc(build.lshr(self._mask, build.zext(lane, I64)), I1)
            start = code.load(_step(code, self._starts, lane, 8), I64, 8)
            for place, compare in ((lowest, "<"), (highest, ">")):
                best = code.load(place, I64, 8)
                better = build.and_(takes_part, build.icmp_unsigned(compare, start, best))
                code.store(build.select(better, start, best), place, 8)
        everywhere = build.icmp_unsigned("==", build.and_(self._mask, build.xor(valid, i64(-1))), i64(0))
        first = code.load(lowest, I64, 8)
        end = build.add(code.load(highest, I64, 8), i64(watch.size * watch.count))
        null = build.inttoptr(i64(0), PTR)
        found = build.select(everywhere, self._find(first, end), null)
        there = build.icmp_unsigned("!=", build.ptrtoint(found, I64), i64(0))
        with build.if_then(there):
            entries = code.get(found, REGION_SHADOW, "entries")
            with build.if_then(build.icmp_unsigned("==", entries, i64(0))):
                if watch.definedness and watch.kind == "load":
                    for piece in range(watch.count):
                        slot = code.at(self._data, 8 * piece)
                        code.store(build.or_(code.load(slot, I64, 8), self._mask), slot, 8)
                build.ret_void()
        return found

    def _find(self, start: ir.Value, end: ir.Value) -> ir.Value:
        name = "check_find_region"
        if name not in self._module.globals:
            _build_find(self._module, name)
        return self._code.builder.call(self._module.globals[name], [self._shadow, start, end])

    def _piece(
        self, common: ir.Value | None, lane: ir.Value, address: ir.Value, undefined: ir.Value, piece: int
    ) -> None:
        code, watch = self._code, self._watch
        build = code.builder
        slot = code.at(undefined, 8 * piece)

        def mark(condition: ir.Value) -> None:
            bit = build.shl(build.zext(condition, I64), build.zext(lane, I64))
            code.store(build.or_(code.load(slot, I64, 8), bit), slot, 8)

        end = build.add(address, i64(watch.size))
        if common is None:
            limit = build.zext(code.get(self._wave, WAVE, "lds_size"), I64)
            group = code.get_pointer(self._shadow, SHADOW, "group")
            entries = code.get_pointer(group, GROUP_SHADOW, "lds")
            with build.if_then(build.icmp_unsigned("<=", end, limit)):
                self._dwords(entries, address, address, lane, mark, piece)
            return
        known = build.icmp_unsigned("!=", build.ptrtoint(common, I64), i64(0))
        region = build.select(known, common, self._find(address, end))
        there = build.icmp_unsigned("!=", build.ptrtoint(region, I64), i64(0))
        with build.if_else(there) as (inside, outside):
            with inside:
                entries = code.get(region, REGION_SHADOW, "entries")
                with build.if_then(build.icmp_unsigned("!=", entries, i64(0))):
                    first = build.and_(code.get(region, REGION_SHADOW, "start"), i64(-4))
                    distance = build.sub(address, first)
                    self._dwords(build.inttoptr(entries, PTR), distance, address, lane, mark, piece)
            with outside:
                mark(ir.Constant(I1, 1))

    def _dwords(self, entries, distance, address, lane, mark, piece) -> None:  # type: ignore[no-untyped-def]
        """Touch the one or two dwords of a piece ``distance`` bytes into what ``entries`` describes."""
        code, watch = self._code, self._watch
        build = code.builder
        shift = build.and_(build.trunc(distance, I32), i32(3))
        covered = build.shl(i32((1 << watch.size) - 1), shift)
        first = _step(code, entries, build.lshr(distance, i64(2)), ENTRY.itemsize)
        if self._writes:
            data = code.load(code.at(self._data, 8 * piece), I64, 8)
            good = build.trunc(build.lshr(data, build.zext(lane, I64)), I1)
            bad_data = build.not_(good)
        else:
            bad_data = ir.Constant(I1, 0)

        def touch(entry: ir.Value, part: ir.Value) -> None:
            args = [self._wave, self._shadow, entry, part, self._index, lane, address, self._pending, bad_data]
            mark(build.call(self._touch, args))

        touch(first, build.and_(covered, i32(15)))
        rest = build.lshr(covered, i32(4))
        with build.if_then(build.icmp_unsigned("!=", rest, i32(0))):
            touch(code.at(first, ENTRY.itemsize), rest)

    # ------------------------------------------------------------ one dword

    def _build_touch(self, name: str) -> ir.Function:
        """``i1 touch(wave, shadow, entry, bytes, instruction, lane, address, pending, undefined data)``: whether an
        undefined byte was read.
        """
        watch = self._watch
        code, (wave, shadow, entry, covered, index, lane, address, pending, bad_data) = Code.function(
            self._module, name, I1, [PTR, PTR, PTR, I32, I32, I32, I64, I32, I1]
        )
        function = self._module.globals[name]
        function.linkage = "internal"
        function.attributes.add("alwaysinline")
        build = code.builder
        group = code.get_pointer(shadow, SHADOW, "group")
        number, epoch = code.get(group, GROUP_SHADOW, "number"), _get(code, shadow, "epoch")
        wave_id = code.get(wave, WAVE, "id")
        agent = build.add(build.add(build.shl(number, i32(4)), wave_id), i32(1))
        bits, writer = code.get(entry, ENTRY, "bits"), code.get(entry, ENTRY, "write_agent")

        def told(kind: Kind, other_at: str, other_agent: ir.Value) -> None:
            lanes = build.shl(i64(1), build.zext(lane, I64))
            other = code.get(entry, ENTRY, other_at)
            call(build, note(), VOID, [wave, index, i32(kind), lanes, address, i32(0), other, other_agent])

        def overlaps(shift: int) -> ir.Value:
            return build.icmp_unsigned("!=", build.and_(build.lshr(bits, i32(shift)), covered), i32(0))

        written = build.and_(overlaps(8), build.icmp_unsigned("!=", writer, i32(0)))
        writer_group = build.lshr(build.sub(writer, i32(1)), i32(4))
        if watch.races:
            stranger = build.and_(written, build.icmp_unsigned("!=", writer, agent))
            if watch.kind == "atomic":
                plain = build.icmp_unsigned("==", build.and_(bits, i32(1 << 12)), i32(0))
                stranger = build.and_(stranger, plain)
            with build.if_then(stranger):
                same = build.icmp_unsigned("==", writer_group, number)
                now = build.icmp_unsigned("==", code.get(entry, ENTRY, "write_epoch"), epoch)
                with build.if_then(build.and_(same, now)):
                    told(Kind.RACE_WAVES, "write_at", writer)
                with build.if_then(build.not_(same)):
                    told(Kind.RACE_GROUPS, "write_at", writer)
        if watch.waits and watch.lds and not self._writes:
            waiting = build.icmp_unsigned("!=", code.get(entry, ENTRY, "pending"), i32(0))
            with build.if_then(build.and_(written, waiting)):
                early = self._still_pending(code, shadow, entry, wave_id, writer, epoch)
                with build.if_then(early):
                    told(Kind.EARLY_LDS, "write_at", writer)
        if self._writes:
            if watch.races:
                self._check_readers(code, entry, bits, overlaps(4), number, epoch, wave_id, told)
            undefined = build.icmp_unsigned("!=", build.and_(bits, covered), i32(0))
            keep = build.and_(
                build.icmp_unsigned("==", writer, agent),
                build.icmp_unsigned("==", code.get(entry, ENTRY, "write_epoch"), epoch),
            )
            before = build.and_(build.lshr(bits, i32(8)), i32(15))
            mask = build.or_(build.select(keep, before, i32(0)), covered)
            clear = build.and_(bits, build.xor(build.or_(i32(0x1F00), covered), i32(-1)))
            new = build.or_(clear, build.shl(mask, i32(8)))
            new = build.or_(new, build.select(bad_data, covered, i32(0)))
            new = build.or_(new, i32((1 << 12) if watch.kind == "atomic" else 0))
            fields = {"write_agent": agent, "write_epoch": epoch, "write_at": index, "pending": pending, "bits": new}
            for field, value in fields.items():
                code.put(entry, ENTRY, field, value)
            result = undefined if watch.kind == "atomic" else ir.Constant(I1, 0)
        else:
            if watch.races:
                self._remember_reader(code, entry, bits, covered, number, epoch, wave_id, index)
            result = build.icmp_unsigned("!=", build.and_(bits, covered), i32(0))
        build.ret(result)
        return function

    def _check_readers(self, code, entry, bits, overlap, number, epoch, wave_id, told) -> None:  # type: ignore[no-untyped-def]
        build = code.builder
        reader = code.get(entry, ENTRY, "read_group")
        read = build.and_(overlap, build.icmp_unsigned("!=", reader, i32(0)))
        with build.if_then(read):
            same = build.icmp_unsigned("==", reader, build.add(number, i32(1)))
            others = build.and_(build.lshr(bits, i32(16)), build.xor(build.shl(i32(1), wave_id), i32(-1)))
            now = build.icmp_unsigned("==", code.get(entry, ENTRY, "read_epoch"), epoch)
            race = code.all_of(same, now, build.icmp_unsigned("!=", others, i32(0)))
            with build.if_then(race):
                first = call(build, "llvm.cttz.i32", I32, [others, ir.Constant(I1, 0)])
                told(Kind.RACE_WAVES, "read_at", build.add(build.add(build.shl(number, i32(4)), first), i32(1)))
            with build.if_then(build.not_(same)):
                known = build.icmp_unsigned("!=", reader, i32(MANY))
                group = build.shl(build.sub(reader, i32(1)), i32(4))
                told(Kind.RACE_GROUPS, "read_at", build.select(known, build.add(group, i32(1)), i32(0)))

    def _remember_reader(self, code, entry, bits, covered, number, epoch, wave_id, index) -> None:  # type: ignore[no-untyped-def]
        build = code.builder
        mark, reader = build.add(number, i32(1)), code.get(entry, ENTRY, "read_group")
        same_group = build.icmp_unsigned("==", reader, mark)
        unread = build.icmp_unsigned("==", reader, i32(0))
        current = build.and_(same_group, build.icmp_unsigned("==", code.get(entry, ENTRY, "read_epoch"), epoch))
        mine = build.or_(build.shl(i32(1 << 16), wave_id), build.shl(covered, i32(4)))
        old = build.and_(bits, i32(0xFFFF00F0))
        # What several workgroups have read stays read: the bytes add up.
        bytes_only = build.and_(bits, i32(0xF0))
        fresh = build.select(build.or_(same_group, unread), i32(0), bytes_only)
        base = build.and_(bits, i32(0x0000FF0F))
        new = build.or_(build.or_(base, mine), build.select(current, old, fresh))
        one = build.select(build.or_(same_group, unread), mark, i32(MANY))
        for field, value in (("bits", new), ("read_group", one), ("read_epoch", epoch), ("read_at", index)):
            code.put(entry, ENTRY, field, value)

    def _still_pending(self, code, shadow, entry, wave_id, writer, epoch) -> ir.Value:  # type: ignore[no-untyped-def]
        """Whether the load or LDS write behind the dword may still be on its way."""
        build = code.builder
        pending = code.get(entry, ENTRY, "pending")
        operation = build.zext(build.lshr(pending, i32(1)), I64)
        of_lds = build.trunc(pending, I1)
        writer_wave = build.and_(build.sub(writer, i32(1)), i32(15))
        mine = build.icmp_unsigned("==", writer_wave, wave_id)
        distance = build.sub(build.zext(writer_wave, I64), build.zext(wave_id, I64))
        other = code.at(shadow, build.mul(distance, i64(SHADOW.itemsize)))
        # What the writer had done when it came to the last barrier both have passed.
        even = build.trunc(epoch, I1)  # the barrier before an odd epoch has an even number
        vm = build.select(even, _get(code, other, "published0_vm"), _get(code, other, "published1_vm"))
        lds = build.select(even, _get(code, other, "published0_lds"), _get(code, other, "published1_lds"))
        done = build.select(of_lds, lds, vm)
        done = build.select(mine, _get(code, shadow, "done_vm"), done)
        # A wave's own LDS operations are done in order, and what no barrier orders is a race and not early.
        later = build.icmp_unsigned("<", code.get(entry, ENTRY, "write_epoch"), epoch)
        concerned = build.select(mine, build.not_(of_lds), later)
        return build.and_(concerned, build.icmp_signed("<", done, operation))


def _build_find(module: ir.Module, name: str) -> None:
    """``ptr find(shadow, start, end)``: the array that [start, end) lies in, or null."""
    code, (shadow, start, end) = Code.function(module, name, PTR, [PTR, I64, I64])
    module.globals[name].linkage = "internal"
    build = code.builder
    regions = code.get_pointer(shadow, SHADOW, "regions")
    with code.loop(_get(code, shadow, "region_count")) as index:
        region = _step(code, regions, index, REGION_SHADOW.itemsize)
        inside = code.all_of(
            build.icmp_unsigned(">=", start, code.get(region, REGION_SHADOW, "start")),
            build.icmp_unsigned("<=", end, code.get(region, REGION_SHADOW, "end")),
            build.icmp_unsigned("<=", start, end),
        )
        with build.if_then(inside):
            build.ret(region)
    build.ret(build.inttoptr(i64(0), PTR))
