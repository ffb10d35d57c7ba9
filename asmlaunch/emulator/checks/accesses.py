"""Memory instructions as the checks see them: for each, a helper that works out the lanes' addresses by the rules of
``isa.memory`` and lets the observers look at them.

A helper takes the arguments of the instruction's own helper (``native.buffer``, ``.flat``, ``.lds``, ``.scalar``), then
the shadows of its data registers and the number of the operation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from asmlaunch.emulator.build import i32, i64
from asmlaunch.emulator.checks.native import OBSERVE_ARGS, Watch, observe
from asmlaunch.emulator.isa import memory
from asmlaunch.emulator.isa.language import U32, U64
from asmlaunch.emulator.isa.table import Access
from asmlaunch.emulator.lower import I1, I32, I64, LANES_I32, PTR, Cell, call, given, lanes, splat
from asmlaunch.emulator.native import buffer, flat, lds
from asmlaunch.emulator.native.access import Checked, lds_stride
from asmlaunch.emulator.native.helpers import VOID, helpers
from asmlaunch.emulator.state import LANES

_LANES_I64 = ir.VectorType(I64, LANES)
_BITS = ir.VectorType(I1, LANES)


@dataclass(frozen=True)
class On:
    """The checks that watch memory."""

    definedness: bool
    alignment: bool
    waits: bool
    races: bool

    def __str__(self) -> str:
        return "".join(str(int(flag)) for flag in vars(self).values())


def pieces(access: Access) -> tuple[int, int]:
    """Bytes of a piece and pieces a lane: dwords, or one element that is smaller."""
    size = access.element.bits // 8
    return (size, access.count) if size < 4 else (4, access.count * size // 4)


def alignment(access: Access) -> int:
    """Bytes an address must be a multiple of.

    LDS: the size of the access, 16 for 96 and 128 bits. Memory: an element, at most a dword (CDNA3 ISA manual, "Memory
    alignment"); atomics their whole element.
    """
    size = access.element.bits // 8
    if access.kind == "atomic":
        return size
    if access.space == "lds" and not access.pair and not access.tile:
        return 16 if access.nbytes > 8 else access.nbytes
    if access.tile:
        return 8
    return min(size, 4)


def _watch(access: Access, on: On, *, in_lds: bool, kind: str, lanes: int, count: int, align: int) -> Watch:
    size, _ = pieces(access)
    return Watch(in_lds, kind, size, count, lanes, align, on.definedness, on.alignment, on.waits, on.races)


class _Helper:
    """A helper under construction: tables of addresses and ranges for the observers."""

    def __init__(self, code: Checked, shadows: ir.Value, pending: ir.Value) -> None:
        self.code, self.shadows, self.pending = code, shadows, pending

    def table(self, starts: ir.Value) -> ir.Value:
        """The addresses of the lanes, in memory."""
        place = self.code.local(I64, LANES)
        self.code.store(starts, place, 8)
        return place

    def masks(self, valid: list[ir.Value]) -> ir.Value:
        """One i64 of lanes a piece, in memory."""
        place = self.code.local(I64, len(valid))
        for number, mask in enumerate(valid):
            self.code.store(mask, self.code.at(place, 8 * number), 8)
        return place

    def observe(
        self, watch: Watch, starts: ir.Value, valid: ir.Value, shadows: ir.Value, mask: ir.Value, pending: ir.Value
    ) -> None:
        arguments = [self.code.wave, self.code.number, starts, valid, shadows, mask, pending]
        assert [argument.type for argument in arguments] == OBSERVE_ARGS
        call(self.code.builder, observe(watch), VOID, arguments)


def _lane_mask(code: Checked, condition: Cell) -> ir.Value:
    """A condition a lane as i64."""
    return code.builder.bitcast(lanes(code.builder, condition), I64)


def _to_lds(
    helper: _Helper, access: Access, on: On, starts: ir.Value, valid: ir.Value, places: ir.Value, mask: ir.Value
) -> None:
    """A load to LDS: it reads memory, and later writes LDS."""
    _, count = pieces(access)
    moved = helper.masks([i64(-1)] * count)
    reading = _watch(access, on, in_lds=False, kind="load", lanes=LANES, count=count, align=alignment(access))
    helper.observe(reading, starts, valid, moved, mask, i32(0))
    # In LDS an element has a dword, whatever it has in memory.
    writing = Watch(True, "store", 4, count, LANES, 4, on.definedness, on.alignment, on.waits, on.races)
    everywhere = helper.masks([i64(-1)] * count)
    helper.observe(writing, helper.table(places), everywhere, moved, mask, helper.pending)


def _places(code: Checked, rule: Callable[..., U32], m0: ir.Value, offset: ir.Value, stride: int) -> ir.Value:
    """LDS addresses of a load to LDS, a lane each (64 x i64)."""
    numbers = given(U32, ir.Constant(LANES_I32, list(range(LANES))))
    place = code.lowering()(rule, given(U32, m0), given(U32, offset), numbers, U32.const(stride))
    return code.builder.zext(lanes(code.builder, place), _LANES_I64)


def buffer_access(access: Access, form: buffer.BufferForm, on: On) -> str:
    """``void (wave, instruction, *BUFFER_ARGS, shadows, pending)``."""

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Checked.helper(module, name, [*buffer.BUFFER_TYPES, PTR, I32])
        values = dict(zip(buffer.BUFFER_ARGS, args, strict=False))
        helper = _Helper(code, *args[-2:])
        everything = buffer.BufferLanes(code, form, values, None)
        starts = helper.table(lanes(code.builder, everything.start))
        size, count = pieces(access)
        whole = access.kind == "atomic"
        ends = [access.nbytes if whole else size * (number + 1) for number in range(count)]
        valid = helper.masks([_lane_mask(code, everything.valid(end)) for end in ends])
        if form.lds:
            stride = lds_stride(access)
            places = _places(code, memory.buffer_to_lds_address, values["m0"], values["offset"], stride)
            _to_lds(helper, access, on, starts, valid, places, values["mask"])
        else:
            watch = _watch(
                access, on, in_lds=False, kind=access.kind, lanes=LANES, count=count, align=alignment(access)
            )
            helper.observe(watch, starts, valid, helper.shadows, values["mask"], i32(0))
        code.builder.ret_void()

    return helpers().need(f"check_{access.mnemonic}{form}_{on}", build_it)


def flat_access(access: Access, form: flat.FlatForm, on: On) -> str:
    """``void (wave, instruction, *FLAT_ARGS, shadows, pending)``."""

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Checked.helper(module, name, [*flat.FLAT_TYPES, PTR, I32])
        build = code.builder
        values = dict(zip(flat.FLAT_ARGS, args, strict=False))
        helper = _Helper(code, *args[-2:])
        starts = lanes(build, flat.start(code, form, values, None))
        mask = values["mask"]
        if access.space == "flat":
            # What lies in the apertures of LDS and scratch memory is not followed.
            high = build.lshr(starts, splat(build, i64(32)))
            for base in (memory.SHARED_BASE, memory.PRIVATE_BASE):
                elsewhere = build.icmp_unsigned("!=", high, splat(build, i64(base >> 32)))
                mask = build.and_(mask, build.bitcast(elsewhere, I64))
        _, count = pieces(access)
        if access.space == "flat" and access.kind == "load" and on.definedness:
            # What comes from there counts as written.
            hidden = build.and_(values["mask"], build.not_(mask))
            for number in range(count):
                place = code.at(helper.shadows, 8 * number)
                code.store(build.or_(code.load(place, I64, 8), hidden), place, 8)
        table, valid = helper.table(starts), helper.masks([i64(-1)] * count)
        if access.to_lds:
            stride = lds_stride(access)
            places = _places(code, memory.global_to_lds_address, values["m0"], values["offset"], stride)
            _to_lds(helper, access, on, table, valid, places, mask)
        else:
            watch = _watch(
                access, on, in_lds=False, kind=access.kind, lanes=LANES, count=count, align=alignment(access)
            )
            helper.observe(watch, table, valid, helper.shadows, mask, i32(0))
        build.ret_void()

    return helpers().need(f"check_{access.mnemonic}{form}_{on}", build_it)


def lds_access(access: Access, on: On) -> str:
    """``void (wave, instruction, *LDS_ARGS, shadows, pending)``; with two offsets, the second data register's shadows
    come after the first's (a load's are consecutive anyway).
    """

    def build_it(module: ir.Module, name: str) -> None:
        code, args = Checked.helper(module, name, [*lds.LDS_TYPES, PTR, PTR, I32])
        values = dict(zip(lds.LDS_ARGS, args, strict=False))
        shadows, shadows2, pending = args[-3:]
        helper = _Helper(code, shadows, pending)
        _, count = pieces(access)
        parts = [("offset0", shadows), ("offset1", shadows2)] if access.pair else [("offset0", shadows)]
        share = count // len(parts)
        align = min(alignment(access), 4 * share) if access.pair else alignment(access)
        watch = _watch(access, on, in_lds=True, kind=access.kind, lanes=LANES, count=share, align=align)
        everywhere = helper.masks([i64(-1)] * share)
        column = given(U32, code.load(values["address"], LANES_I32, 64))
        for offset, data in parts:
            place = code.lowering()(memory.lds_address, column, given(U32, values[offset]))
            starts = code.builder.zext(lanes(code.builder, place), _LANES_I64)
            helper.observe(watch, helper.table(starts), everywhere, data, values["mask"], pending)
        code.builder.ret_void()

    return helpers().need(f"check_{access.mnemonic}_{on}", build_it)


def scalar_access(access: Access, on: On) -> str:
    """``void (wave, instruction, first SGPR, base, offset, limit, shadows, pending)``."""

    def build_it(module: ir.Module, name: str) -> None:
        code, (_, base, distance, limit, shadows, pending) = Checked.helper(
            module, name, [PTR, I64, I64, I64, PTR, I32]
        )
        build = code.builder
        helper = _Helper(code, shadows, pending)
        _, count = pieces(access)
        start = code.lowering()(memory.scalar_address, given(U64, base), given(U64, distance)).ir
        if on.alignment:
            # The hardware ignores the two lowest bits; what they say is most likely meant.
            crooked = build.add(base, distance)
            aligned = helper.masks([crooked])
            only = Watch(False, access.kind, 4, 1, 1, 4, False, True, False, False)
            helper.observe(only, aligned, helper.masks([i64(1)]), shadows, i64(1), pending)
        table = helper.masks([start])
        valid = []
        for number in range(count):
            end = build.add(build.sub(start, base), i64(4 * (number + 1)))
            inside = build.icmp_unsigned("<=", end, limit)
            valid.append(build.zext(inside, I64) if access.space == "scalar_buffer" else i64(1))
        watch = _watch(access, on, in_lds=False, kind=access.kind, lanes=1, count=count, align=1)
        helper.observe(watch, table, helper.masks(valid), shadows, i64(1), pending)
        build.ret_void()

    return helpers().need(f"check_{access.mnemonic}_{on}", build_it)
