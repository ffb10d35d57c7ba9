"""The loops that run a grid: workgroup after workgroup, wave after wave, block after block, with barriers."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.lower import I1, I8, I32, I64, PTR, call
from asmlaunch.emulator.native.helpers import ROW, helpers
from asmlaunch.emulator.state import ENTRY_BYTES, GROUP, LANES, VGPRS, WAVE, WORKER, Status, offset


def run_grid() -> int:
    """Address of ``i32 run(worker)``: takes workgroups until there are none left and runs each to its end.

    ``resident`` workgroups are alive at once. Returns ``Status.ENDED``, or the status of the wave that stopped the run.
    """
    loop = helpers().need("run_waves", _build_run)
    return helpers().address(helpers().need("run_grid", lambda module, name: _build_grid(module, name, loop)))


def _build_grid(module: ir.Module, name: str, run_waves: str) -> None:
    code, (worker,) = Code.function(module, name, I32, [PTR])
    build = code.builder

    def get(field: str) -> ir.Value:
        return code.get(worker, WORKER, field)

    entered = code.local(I32)
    batch, over = build.append_basic_block("batch"), build.append_basic_block("over")
    build.branch(batch)
    build.position_at_end(batch)
    code.store(i32(0), entered, 4)
    with code.loop(get("resident")) as slot:
        counter = code.get_pointer(worker, WORKER, "next")
        number = build.atomic_rmw("add", counter, i64(1), "monotonic")
        with build.if_then(build.icmp_signed("<", number, get("total"))):
            ordered = build.add(get("first"), build.mul(get("step"), number))
            _enter_group(code, worker, slot, build.srem(ordered, get("total")))
            code.store(build.add(slot, i32(1)), entered, 4)
    groups = code.load(entered, I32, 4)
    with build.if_then(build.icmp_unsigned("==", groups, i32(0))):
        build.ret(i32(Status.ENDED))
    waves, count = code.get_pointer(worker, WORKER, "waves"), build.mul(groups, get("group_waves"))
    table = code.get_pointer(worker, WORKER, "table")
    random = code.field(worker, WORKER, "random")[0]
    status = call(build, run_waves, I32, [waves, count, table, get("quantum"), random])
    with code.loop(count) as index:
        executed = code.get(_pointer_at(code, waves, index), WAVE, "executed")
        code.put(worker, WORKER, "executed", build.add(get("executed"), executed))
    stopped = code.load(code.get_pointer(worker, WORKER, "stop"), I32, 4)
    ended = build.icmp_signed("==", status, i32(Status.ENDED))
    build.cbranch(build.and_(ended, build.icmp_signed("==", stopped, i32(0))), batch, over)
    build.position_at_end(over)
    build.ret(status)


def _enter_group(code: Code, worker: ir.Value, slot: ir.Value, number: ir.Value) -> None:
    """Put the waves of workgroup ``number`` into their entry state."""
    build = code.builder
    x, y = (build.zext(code.get(worker, WORKER, f"grid_{axis}"), I64) for axis in "xy")
    rows = build.udiv(number, x)
    position = {"x": build.urem(number, x), "y": build.urem(rows, y), "z": build.udiv(rows, y)}
    group_waves = code.get(worker, WORKER, "group_waves")
    group = code.at(code.get_pointer(worker, WORKER, "groups"), _product(code, slot, GROUP.itemsize))
    code.put(group, GROUP, "waiting", i32(0))
    code.put(group, GROUP, "alive", group_waves)
    size = code.get(worker, WORKER, "lds_stride")
    lds = code.at(code.get_pointer(worker, WORKER, "lds"), build.mul(build.zext(slot, I64), size))
    _clear(code, lds, size)
    with code.loop(group_waves) as member:
        index = build.add(build.mul(slot, group_waves), member)
        wave = _pointer_at(code, code.get_pointer(worker, WORKER, "waves"), index)
        entry = code.at(code.get_pointer(worker, WORKER, "entry"), _product(code, index, ENTRY_BYTES))
        _copy(code, wave, entry, i64(ENTRY_BYTES))
        for file, first in (("vgprs", 1), ("agprs", VGPRS // 2)):
            # v0 is part of the entry state.
            count = build.sub(code.get(worker, WORKER, file), i32(first % (VGPRS // 2)))
            _clear(code, code.at(wave, offset(WAVE, "vgpr") + first * ROW), _product(code, count, ROW))
        scratch = code.get_pointer(wave, WAVE, "scratch")
        _clear(code, scratch, _product(code, code.get(wave, WAVE, "scratch_size"), LANES))
        for place, axis in enumerate("xyz"):
            value = build.trunc(position[axis], I32)
            code.store(value, code.at(wave, offset(WAVE, "group_id") + 4 * place), 4)
            register = code.get(worker, WORKER, f"sgpr_{axis}")
            with build.if_then(build.icmp_signed(">=", register, i32(0))):
                code.store(value, code.at(code.at(wave, offset(WAVE, "sgpr")), _product(code, register, 4)), 4)


def _product(code: Code, index: ir.Value, size: int) -> ir.Value:
    """``index * size`` as i64."""
    return code.builder.mul(code.builder.zext(index, I64), i64(size))


def _pointer_at(code: Code, pointers: ir.Value, index: ir.Value) -> ir.Value:
    return code.load(code.at(pointers, _product(code, index, 8)), PTR, 8)


def _clear(code: Code, pointer: ir.Value, nbytes: ir.Value) -> None:
    zero, not_volatile = ir.Constant(I8, 0), ir.Constant(I1, 0)
    call(code.builder, "llvm.memset.p0.i64", ir.VoidType(), [pointer, zero, nbytes, not_volatile])


def _copy(code: Code, target: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
    call(code.builder, "llvm.memcpy.p0.p0.i64", ir.VoidType(), [target, source, nbytes, ir.Constant(I1, 0)])


def _build_run(module: ir.Module, name: str) -> None:
    """``i32 run(waves, count, blocks, quantum, random)``: the waves in turn, each for at most ``quantum`` blocks or
    until its next barrier or its end, until all have ended; ``random`` points to a state that is not 0 where turns are
    random (``emulator.schedule``).
    """
    code, (waves, count, blocks, quantum, random) = Code.function(module, name, I32, [PTR, I32, PTR, I32, PTR])
    build = code.builder

    def wave_at(index: ir.Value) -> ir.Value:
        return _pointer_at(code, waves, index)

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
            missed, length = _turn(code, random, quantum)
            with build.if_then(build.not_(missed)):
                status = _run_one(code, wave, blocks, length)
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


def _turn(code: Code, random: ir.Value, quantum: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Whether a wave misses its turn, and how many blocks the turn takes (``emulator.schedule.turn``)."""
    build, state = code.builder, code.load(random, I64, 8)
    for shift, distance in ((build.shl, 13), (build.lshr, 7), (build.shl, 17)):
        state = build.xor(state, shift(state, i64(distance)))  # 0 stays 0
    code.store(state, random, 8)
    missed = build.trunc(build.lshr(state, i64(33)), I1)
    blocks = build.add(build.trunc(build.and_(build.lshr(state, i64(40)), i64(15)), I32), i32(1))
    return missed, build.select(build.icmp_unsigned("==", state, i64(0)), quantum, blocks)


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
