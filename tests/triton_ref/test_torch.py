"""torch around the kernels: operators, compilation, transforms, threads, processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
import torch

from asmlaunch.errors import ArgumentError
from asmlaunch.triton_ref import Config, addmm, flags_left, gemm_a4w4, matmul, ops, release, workspace

STREAM_K = Config(32, 32, 64, 4, 2, "stream_k")


def dense():
    return torch.randn(24), torch.randn(20, 40), torch.randn(40, 24)


def mxfp4(m=16, n=16, k=64):
    def draw(*shape):
        return torch.randint(118, 130, shape, dtype=torch.uint8)

    return draw(m, k // 2), draw(n, k // 2), draw(m, k // 32), draw(n, k // 32)


def test_operators_are_registered_right():
    c, a, b = dense()
    rest = (None, None, 0.5, 2.0)
    with_gradients = (c.requires_grad_(), a.requires_grad_(), b.requires_grad_())
    torch.library.opcheck(ops.addmm, (*with_gradients, *rest, torch.float32, "", []))
    c, a, b = (t.detach() for t in (c, a, b))
    torch.library.opcheck(ops.addmm_out, (c, a, b, *rest, "", ops.encode(STREAM_K), torch.empty(20, 24)))
    mx = (*mxfp4(), None, None)
    torch.library.opcheck(ops.gemm_a4w4, (*mx, 16, 16, 1.0, 0.0, torch.bfloat16, "|||", "direct", 1))
    torch.library.opcheck(ops.gemm_a4w4_out, (*mx, 1.0, 0.0, "|||", "auto", 1, torch.empty(16, 16)))


@pytest.mark.filterwarnings("ignore")
def test_one_graph_for_all_sizes():
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(addmm, fullgraph=True, dynamic=True, backend=keep)
    for m, n, k in ((20, 40, 24), (17, 16, 33), (33, 8, 12)):
        c, a, b = torch.randn(n), torch.randn(m, k), torch.randn(k, n)
        torch.testing.assert_close(compiled(c, a, b), torch.addmm(c, a, b), rtol=1e-4, atol=1e-4)
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore")
def test_compiled_with_gradients():
    _, a, b = dense()
    results = []
    for function in (torch.compile(matmul, fullgraph=True, backend="aot_eager"), torch.matmul):
        left = a.clone().requires_grad_()
        function(left, b).square().sum().backward()
        results.append(left.grad)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-3)


def test_vmap():
    _, _, b = dense()
    many = torch.randn(3, 20, 40)
    torch.testing.assert_close(torch.vmap(lambda a: matmul(a, b))(many), many @ b, rtol=1e-4, atol=1e-4)
    a, b, sa, sb = mxfp4()
    stacked = torch.stack((a, a.flip(0)))
    got = torch.vmap(lambda x: gemm_a4w4(x, b, sa, sb))(stacked)
    assert torch.equal(got, torch.stack([gemm_a4w4(x, b, sa, sb) for x in stacked]))


def test_fake_tensors_have_the_shape_and_strides_of_results():
    c, a, b = dense()
    mx = mxfp4(20, 32)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [addmm(*map(mode.from_tensor, (c, a, b))), gemm_a4w4(*map(mode.from_tensor, mx))]
    for fake, real in zip(fakes, (addmm(c, a, b), gemm_a4w4(*mx)), strict=True):
        assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


def run(code, **environment):
    """A fresh process, without the interpreter unless asked for."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env={**kept, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_import_in_any_process_touches_no_gpu():
    """CUDA that fails on first use stands for the GPU; the import is repeated in a thread and in a forked child."""
    run(
        "import threading, os, sys, torch\n"
        "def refuse(*_): raise SystemExit('the GPU was touched')\n"
        "torch.cuda._lazy_init = torch._C._cuda_init = refuse\n"
        "thread = threading.Thread(target=__import__, args=('asmlaunch.triton_ref',))\n"
        "thread.start(); thread.join()\n"
        "import asmlaunch.triton_ref.workspace as workspace\n"
        "assert not workspace._workspaces and not torch.cuda.is_initialized()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    import asmlaunch.triton_ref\n"
        "    os._exit(bool(workspace._workspaces))\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )


def test_outside_the_interpreter_the_cpu_is_refused():
    run(
        "import torch, asmlaunch.triton_ref as t\n"
        "try: t.matmul(torch.ones(2, 2), torch.ones(2, 2))\n"
        "except t.api.DeviceError as error: assert 'TRITON_INTERPRET=1' in str(error)\n"
        "else: raise SystemExit('not refused')\n"
    )


def test_a_forked_child_has_workspaces_of_its_own():
    a, b = torch.randn(48, 512).bfloat16(), torch.randn(512, 80).bfloat16()
    want = matmul(a, b, config=STREAM_K)
    assert workspace._workspaces
    child = os.fork()
    if not child:
        status = 1
        try:
            right = torch.equal(matmul(a, b, config=STREAM_K), want)
            status = 0 if right and {pid for pid, _, _ in workspace._workspaces} == {os.getpid()} else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_take_turns_with_a_workspace():
    """Threads of one stream; Triton's interpreter itself is for one thread, so none of them launches a kernel."""
    release()
    inside, most = [], []

    def work():
        with workspace.use(torch.device("cpu")) as scratch:
            inside.append(scratch.flags(8).data_ptr())
            time.sleep(0.01)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4
    assert flags_left() == 0
    assert len(workspace._workspaces) == 1


def test_a_captured_graph_keeps_its_memory(monkeypatch):
    """Stands for a GPU: what is asked of torch there is whether a capture runs."""
    release()

    def addresses(count):
        with workspace.use(torch.device("cpu")) as scratch:
            flags, partials = scratch.flags(count), scratch.get("partials", count, torch.float32)
            assert not flags.any()
            return flags.data_ptr(), partials.data_ptr()

    before = addresses(1 << 12)
    with monkeypatch.context() as patch:
        patch.setattr(workspace, "_capturing", lambda device: True)
        assert addresses(1 << 12) == before
        with workspace.use(torch.device("cpu")) as scratch:
            own = scratch.get("partials", 1 << 16, torch.float32), scratch.flags(1 << 16)
    assert addresses(1 << 12) == before  # memory of the graph is not kept for launches
    assert not own[1].any()
    after = addresses(1 << 16)
    # Neither a launch that needs more nor one that fails frees what the graph uses.
    with pytest.raises(RuntimeError), workspace.use(torch.device("cpu")):
        raise RuntimeError
    (kept,) = (w.captured for w in workspace._workspaces.values())
    assert set(before) == set(kept)
    assert not set(before) & {*after, *addresses(1 << 16)}


def test_conflicting_choices():
    _, a, b = dense()
    with pytest.raises(ArgumentError, match="one of them"):
        matmul(a, b, schedule="persistent", config=STREAM_K)
