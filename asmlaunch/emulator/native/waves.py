"""The loop that runs waves: block after block, wave after wave, with barriers."""

from __future__ import annotations

from llvmlite import ir

from asmlaunch.emulator.build import Code, i32, i64
from asmlaunch.emulator.lower import I32, I64, PTR
from asmlaunch.emulator.native.helpers import helpers
from asmlaunch.emulator.state import GROUP, WAVE, Status


def run_waves() -> int:
    """Address of ``i32 run(waves, count, blocks, quantum)``.

    Runs the waves in turn, each for at most ``quantum`` blocks or until its next barrier or its end, until all have
    ended. Returns ``Status.ENDED``, or the status of the wave that stopped the run. Waves of several workgroups may
    be given.
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
