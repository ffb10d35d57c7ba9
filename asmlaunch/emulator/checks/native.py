"""Native helpers of the checks: what happens to the shadow when a wave enters, touches memory or is found at fault."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.checks.state import ENTRIES, FOUND, GROUP_SHADOW, MANY, REGION_SHADOW, SHADOW, Kind
from asmlaunch.emulator.lower import I1, I32, I64, PTR, call, splat
from asmlaunch.emulator.native.helpers import VOID, helpers
from asmlaunch.emulator.state import LANES, WAVE, offset

_GROUP_ID = offset(WAVE, "group_id")


def _get(code: Code, pointer: ir.Value, name: str) -> ir.Value:
    return code.get(pointer, SHADOW, name)


def _entry(code: Code, entries: ir.Value, dword: ir.Value) -> ir.Value:
    """Where the fields of a dword begin; they are 16 bytes apart."""
    build = code.builder
    block, place = build.lshr(dword, i64(2)), build.and_(dword, i64(3))
    return code.at(_step(code, entries, block, ENTRIES.itemsize), build.mul(place, i64(4)))


def _known(code: Code, entry: ir.Value, name: str, kind: ir.Type = I32) -> ir.Value:
    return code.load(code.at(entry, offset(ENTRIES, name)), kind, 4)


def _remember(code: Code, entry: ir.Value, name: str, value: ir.Value) -> None:
    code.store(value, code.at(entry, offset(ENTRIES, name)), 4)


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
        # Only what the workgroup before has touched.
        blocks = build.lshr(build.add(code.get(group, GROUP_SHADOW, "used"), i64(15)), i64(4))
        _copy(code, lds, fresh, build.mul(blocks, i64(ENTRIES.itemsize)))
        code.put(group, GROUP_SHADOW, "used", i64(0))
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
            if watch.lds:
                self._note_use()
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

    # ------------------------------------------------------------ all lanes at once

    def _all_starts(self) -> ir.Value:
        """The lanes' addresses as one vector."""
        return self._code.load(self._starts, ir.VectorType(I64, self._watch.lanes), 8)

    def _everywhere(self, value: int) -> ir.Value:
        return splat(self._code.builder, i64(value), self._watch.lanes)

    def _lanes_where(self, condition: ir.Value) -> ir.Value:
        """A condition a lane as i64."""
        lanes = self._watch.lanes
        bits = self._code.builder.bitcast(condition, ir.IntType(lanes))
        return bits if lanes == LANES else self._code.builder.zext(bits, I64)

    def _ends(self, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The lowest address of the lanes in ``mask`` (i64), and the highest; all ones and 0 where it is empty."""
        build, lanes = self._code.builder, self._watch.lanes
        mask = mask if lanes == LANES else build.trunc(mask, ir.IntType(lanes))
        on, starts = build.bitcast(mask, ir.VectorType(I1, lanes)), self._all_starts()
        low = build.select(on, starts, self._everywhere(-1))
        high = build.select(on, starts, self._everywhere(0))
        return (
            call(build, f"llvm.vector.reduce.umin.v{lanes}i64", I64, [low]),
            call(build, f"llvm.vector.reduce.umax.v{lanes}i64", I64, [high]),
        )

    def _note_use(self) -> None:
        """Remember how much of LDS has been touched."""
        code, build = self._code, self._code.builder
        group = code.get_pointer(self._shadow, SHADOW, "group")
        end = build.add(self._ends(self._mask)[1], i64(self._watch.size * self._watch.count))
        limit = build.zext(code.get(self._wave, WAVE, "lds_size"), I64)
        end = build.select(build.icmp_unsigned("<", end, limit), end, limit)
        before = code.get(group, GROUP_SHADOW, "used")
        code.put(group, GROUP_SHADOW, "used", build.select(build.icmp_unsigned(">", end, before), end, before))

    def _check_alignment(self) -> None:
        code, watch = self._code, self._watch
        build = code.builder
        low = build.and_(self._all_starts(), self._everywhere(watch.align - 1))
        crooked = self._lanes_where(build.icmp_unsigned("!=", low, self._everywhere(0)))
        bad = build.and_(build.and_(crooked, self._mask), code.load(self._valid, I64, 8))
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
        quick = _Quick(self, common) if watch.size == 4 and watch.lanes > 1 and watch.count in (1, 2, 4) else None
        with code.loop(watch.lanes) as lane:
            wide = build.zext(lane, I64)
            start = code.load(_step(code, self._starts, lane, 8), I64, 8)
            with build.if_then(build.trunc(build.lshr(self._mask, wide), I1)):
                if quick is None:
                    self._lane(common, lane, start, undefined)
                else:
                    done = quick.lane(wide, start)
                    with build.if_then(build.not_(done)):
                        self._lane(common, lane, start, undefined)

    def _lane(self, common: ir.Value | None, lane: ir.Value, start: ir.Value, undefined: ir.Value) -> None:
        code, watch = self._code, self._watch
        build = code.builder
        wide = build.zext(lane, I64)
        for piece in range(watch.count):
            valid = code.load(code.at(self._valid, 8 * piece), I64, 8)
            with build.if_then(build.trunc(build.lshr(valid, wide), I1)):
                self._piece(common, lane, build.add(start, i64(piece * watch.size)), undefined, piece)

    def _common_region(self) -> ir.Value:
        """The array that all lanes' accesses lie in, or null. Returns from the observer when it needs no entries."""
        code, watch = self._code, self._watch
        build = code.builder
        whole, partly = self._mask, i64(0)
        for piece in range(watch.count):
            valid = code.load(code.at(self._valid, 8 * piece), I64, 8)
            whole, partly = build.and_(whole, valid), build.or_(partly, valid)
        partly = build.and_(partly, self._mask)
        first, last = self._ends(whole)
        end = build.add(last, i64(watch.size * watch.count))
        null = build.inttoptr(i64(0), PTR)
        same = build.icmp_unsigned("==", whole, partly)
        found = build.select(same, self._find(first, end), null)
        # Lanes that are out of range read zeros, which are defined.
        nowhere = build.icmp_unsigned("==", partly, i64(0))
        there = build.icmp_unsigned("!=", build.ptrtoint(found, I64), i64(0))
        region = build.select(there, found, code.at(self._shadow, 0))  # any memory will do to read the field from
        nothing = build.icmp_unsigned("==", code.get(region, REGION_SHADOW, "entries"), i64(0))
        with build.if_then(build.or_(nowhere, build.and_(there, nothing))):
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
        number = build.lshr(distance, i64(2))
        if self._writes:
            data = code.load(code.at(self._data, 8 * piece), I64, 8)
            good = build.trunc(build.lshr(data, build.zext(lane, I64)), I1)
            bad_data = build.not_(good)
        else:
            bad_data = ir.Constant(I1, 0)

        def touch(entry: ir.Value, part: ir.Value) -> None:
            args = [self._wave, self._shadow, entry, part, self._index, lane, address, self._pending, bad_data]
            mark(build.call(self._touch, args))

        touch(_entry(code, entries, number), build.and_(covered, i32(15)))
        rest = build.lshr(covered, i32(4))
        with build.if_then(build.icmp_unsigned("!=", rest, i32(0))):
            touch(_entry(code, entries, build.add(number, i64(1))), rest)

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
        bits, writer = _known(code, entry, "bits"), _known(code, entry, "write_agent")

        def told(kind: Kind, other_at: str, other_agent: ir.Value) -> None:
            lanes = build.shl(i64(1), build.zext(lane, I64))
            other = _known(code, entry, other_at)
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
                now = build.icmp_unsigned("==", _known(code, entry, "write_epoch"), epoch)
                with build.if_then(build.and_(same, now)):
                    told(Kind.RACE_WAVES, "write_at", writer)
                with build.if_then(build.not_(same)):
                    told(Kind.RACE_GROUPS, "write_at", writer)
        if watch.waits and watch.lds and not self._writes:
            waiting = build.icmp_unsigned("!=", _known(code, entry, "pending"), i32(0))
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
                build.icmp_unsigned("==", _known(code, entry, "write_epoch"), epoch),
            )
            before = build.and_(build.lshr(bits, i32(8)), i32(15))
            mask = build.or_(build.select(keep, before, i32(0)), covered)
            clear = build.and_(bits, build.xor(build.or_(i32(0x1F00), covered), i32(-1)))
            new = build.or_(clear, build.shl(mask, i32(8)))
            new = build.or_(new, build.select(bad_data, covered, i32(0)))
            new = build.or_(new, i32((1 << 12) if watch.kind == "atomic" else 0))
            fields = {"write_agent": agent, "write_epoch": epoch, "write_at": index, "pending": pending, "bits": new}
            for field, value in fields.items():
                _remember(code, entry, field, value)
            result = undefined if watch.kind == "atomic" else ir.Constant(I1, 0)
        else:
            if watch.races:
                self._remember_reader(code, entry, bits, covered, number, epoch, wave_id, index)
            result = build.icmp_unsigned("!=", build.and_(bits, covered), i32(0))
        build.ret(result)
        return function

    def _check_readers(self, code, entry, bits, overlap, number, epoch, wave_id, told) -> None:  # type: ignore[no-untyped-def]
        build = code.builder
        reader = _known(code, entry, "read_group")
        read = build.and_(overlap, build.icmp_unsigned("!=", reader, i32(0)))
        with build.if_then(read):
            same = build.icmp_unsigned("==", reader, build.add(number, i32(1)))
            others = build.and_(build.lshr(bits, i32(16)), build.xor(build.shl(i32(1), wave_id), i32(-1)))
            now = build.icmp_unsigned("==", _known(code, entry, "read_epoch"), epoch)
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
        mark, reader = build.add(number, i32(1)), _known(code, entry, "read_group")
        same_group = build.icmp_unsigned("==", reader, mark)
        unread = build.icmp_unsigned("==", reader, i32(0))
        current = build.and_(same_group, build.icmp_unsigned("==", _known(code, entry, "read_epoch"), epoch))
        mine = build.or_(build.shl(i32(1 << 16), wave_id), build.shl(covered, i32(4)))
        old = build.and_(bits, i32(0xFFFF00F0))
        # What several workgroups have read stays read: the bytes add up.
        bytes_only = build.and_(bits, i32(0xF0))
        fresh = build.select(build.or_(same_group, unread), i32(0), bytes_only)
        base = build.and_(bits, i32(0x0000FF0F))
        new = build.or_(build.or_(base, mine), build.select(current, old, fresh))
        one = build.select(build.or_(same_group, unread), mark, i32(MANY))
        for field, value in (("bits", new), ("read_group", one), ("read_epoch", epoch), ("read_at", index)):
            _remember(code, entry, field, value)

    def _still_pending(self, code, shadow, entry, wave_id, writer, epoch) -> ir.Value:  # type: ignore[no-untyped-def]
        """Whether the load or LDS write behind the dword may still be on its way."""
        build = code.builder
        pending = _known(code, entry, "pending")
        operation = build.zext(build.lshr(pending, i32(1)), I64)
        of_lds = build.trunc(pending, I1)
        writer_wave = build.and_(build.sub(writer, i32(1)), i32(15))
        mine = build.icmp_unsigned("==", writer_wave, wave_id)
        distance = build.sub(build.zext(writer_wave, I64), build.zext(wave_id, I64))
        # Nobody's shadow is read where nothing is on its way: there may be no writer, and no memory where its would be.
        distance = build.select(build.icmp_unsigned("==", pending, i32(0)), i64(0), distance)
        other = code.at(shadow, build.mul(distance, i64(SHADOW.itemsize)))
        # What the writer had done when it came to the last barrier both have passed.
        even = build.trunc(epoch, I1)  # the barrier before an odd epoch has an even number
        vm = build.select(even, _get(code, other, "published0_vm"), _get(code, other, "published1_vm"))
        lds = build.select(even, _get(code, other, "published0_lds"), _get(code, other, "published1_lds"))
        done = build.select(of_lds, lds, vm)
        done = build.select(mine, _get(code, shadow, "done_vm"), done)
        # A wave's own LDS operations are done in order, and what no barrier orders is a race and not early.
        later = build.icmp_unsigned("<", _known(code, entry, "write_epoch"), epoch)
        concerned = build.select(mine, build.not_(of_lds), later)
        return build.and_(concerned, build.icmp_signed("<", done, operation))


class _Quick:
    """The way of most lanes: whole dwords in one array or in LDS, defined, and touched by no other agent since the last
    barrier both have passed. Such a lane is done in a few instructions a dword; all others take the long way.
    """

    def __init__(self, observer: _Observer, common: ir.Value | None) -> None:
        code, watch = observer._code, observer._watch
        self._code, self._watch, self._lds, self._observer = code, watch, common is None, observer
        build = code.builder
        shadow = observer._shadow
        group = code.get_pointer(shadow, SHADOW, "group")
        number, wave = code.get(group, GROUP_SHADOW, "number"), code.get(observer._wave, WAVE, "id")
        self._epoch = _get(code, shadow, "epoch")
        self._number, self._mark = number, build.add(number, i32(1))
        self._agent = build.add(build.add(build.shl(number, i32(4)), wave), i32(1))
        self._wave_id, self._wave_bit = wave, build.shl(i32(1 << 16), wave)
        self._index, self._pending = observer._index, observer._pending
        valid: ir.Value = i64(-1)
        for piece in range(watch.count):
            valid = build.and_(valid, code.load(code.at(observer._valid, 8 * piece), I64, 8))
        if observer._writes:
            # Undefined data take the long way.
            for piece in range(watch.count):
                valid = build.and_(valid, code.load(code.at(observer._data, 8 * piece), I64, 8))
        self._valid = valid
        if common is None:
            self._entries = code.get(group, GROUP_SHADOW, "lds")
            self._first: ir.Value = i64(0)
            limit = build.zext(code.get(observer._wave, WAVE, "lds_size"), I64)
            self._last = build.sub(limit, i64(4 * watch.count))
            self._usable: ir.Value = build.icmp_signed(">=", self._last, i64(0))
        else:
            there = build.icmp_unsigned("!=", build.ptrtoint(common, I64), i64(0))
            # Without an array in common any memory will do to read the (unused) fields from.
            region = build.select(there, common, code.at(shadow, 0))
            self._entries = code.get(region, REGION_SHADOW, "entries")
            self._first = build.and_(code.get(region, REGION_SHADOW, "start"), i64(-4))
            self._last = i64(-1)
            self._usable = there
        self._writes = observer._writes

    def lane(self, number: ir.Value, start: ir.Value) -> ir.Value:
        """Do a lane's dwords if all of them are simple; gives whether they were (i1)."""
        code, build, count = self._code, self._code.builder, self._watch.count
        result = code.local(I1)
        code.store(ir.Constant(I1, 0), result, 1)
        distance = build.sub(start, self._first)
        # Aligned, so that the dwords are next to each other in one block of entries.
        simple = code.all_of(
            self._usable,
            build.trunc(build.lshr(self._valid, number), I1),
            build.icmp_unsigned("==", build.and_(distance, i64(4 * count - 1)), i64(0)),
        )
        if self._lds:
            simple = build.and_(simple, build.icmp_unsigned("<=", start, self._last))
        with build.if_then(simple):
            entry = _entry(code, build.inttoptr(self._entries, PTR), build.lshr(distance, i64(2)))
            bits = self._field(entry, "bits")
            with build.if_then(self._is_simple(entry, bits)):
                self._update(entry, bits)
                code.store(ir.Constant(I1, 1), result, 1)
        return code.load(result, I1, 1)

    def _field(self, entry: ir.Value, name: str) -> ir.Value:
        return _known(self._code, entry, name, ir.VectorType(I32, self._watch.count))

    def _each(self, value: ir.Value | int) -> ir.Value:
        """The same in every dword."""
        return splat(self._code.builder, i32(value) if isinstance(value, int) else value, self._watch.count)

    def _is_simple(self, entry: ir.Value, bits: ir.Value) -> ir.Value:
        build, each = self._code.builder, self._each
        writer, epoch = self._field(entry, "write_agent"), self._field(entry, "write_epoch")
        group = build.lshr(build.sub(writer, each(1)), each(4))
        same_group = build.icmp_unsigned("==", group, each(self._number))
        earlier = build.and_(same_group, build.icmp_unsigned("!=", epoch, each(self._epoch)))
        mine = build.icmp_unsigned("==", writer, each(self._agent))
        simple = build.or_(build.or_(mine, earlier), build.icmp_unsigned("==", writer, each(0)))
        undefined = build.and_(bits, each(15))
        if not self._writes:
            simple = build.and_(simple, build.icmp_unsigned("==", undefined, each(0)))
        else:
            reader, read_epoch = self._field(entry, "read_group"), self._field(entry, "read_epoch")
            others = build.and_(bits, each(build.xor(build.or_(self._wave_bit, i32(0xFFFF)), i32(-1))))
            alone = build.or_(
                build.icmp_unsigned("!=", read_epoch, each(self._epoch)), build.icmp_unsigned("==", others, each(0))
            )
            read_here = build.and_(build.icmp_unsigned("==", reader, each(self._mark)), alone)
            simple = build.and_(simple, build.or_(build.icmp_unsigned("==", reader, each(0)), read_here))
            if self._watch.kind == "atomic":
                simple = build.and_(simple, build.icmp_unsigned("==", undefined, each(0)))
        if self._lds and self._watch.waits and not self._writes:
            return build.and_(self._all(simple), self._has_arrived(entry, writer))
        return self._all(simple)

    def _all(self, condition: ir.Value) -> ir.Value:
        number = ir.IntType(self._watch.count)
        return self._code.builder.icmp_unsigned(
            "==", self._code.builder.bitcast(condition, number), ir.Constant(number, -1)
        )

    def _has_arrived(self, entry: ir.Value, writer: ir.Value) -> ir.Value:
        """Whether the operations that write the dwords are done; one operation for all of them is what is looked at."""
        code, build, watch = self._code, self._code.builder, self._observer
        pending = self._field(entry, "pending")
        first, operation = (build.extract_element(vector, i32(0)) for vector in (writer, pending))
        one = build.and_(
            build.icmp_unsigned("==", writer, self._each(first)),
            build.icmp_unsigned("==", pending, self._each(operation)),
        )
        early = watch._still_pending(code, watch._shadow, entry, self._wave_id, first, self._epoch)
        none = build.icmp_unsigned("==", operation, i32(0))
        return build.and_(self._all(one), build.or_(none, build.not_(early)))

    def _update(self, entry: ir.Value, bits: ir.Value) -> None:
        code, build, each = self._code, self._code.builder, self._each
        if self._writes:
            atomic = 0x1000 if self._watch.kind == "atomic" else 0
            fields = {
                "write_agent": each(self._agent),
                "write_epoch": each(self._epoch),
                "write_at": each(self._index),
                "pending": each(self._pending),
                "bits": build.or_(build.and_(bits, each(0xFFFF00F0)), each(0xF00 | atomic)),
            }
        else:
            reader, read_epoch = self._field(entry, "read_group"), self._field(entry, "read_epoch")
            here = build.icmp_unsigned("==", reader, each(self._mark))
            current = build.and_(here, build.icmp_unsigned("==", read_epoch, each(self._epoch)))
            foreign = build.and_(build.not_(here), build.icmp_unsigned("!=", reader, each(0)))
            kept = build.select(current, build.and_(bits, each(0xFFFF0000)), each(0))
            base = build.or_(build.and_(bits, each(0x1F0F)), each(build.or_(self._wave_bit, i32(0xF0))))
            fields = {
                "read_group": build.select(foreign, each(MANY), each(self._mark)),
                "read_epoch": each(self._epoch),
                "read_at": each(self._index),
                "bits": build.or_(base, kept),
            }
        for name, value in fields.items():
            _remember(code, entry, name, value)


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
