"""A program that launches one kernel through hip-python in every way there is; run by the tests, and captured.

Usage: program.py OBJECT [way ...]; with STANDIN_LIBRARY naming the HIP runtime to load. Prints what it computed.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys

import numpy as np
from hip_runtime import standin

import asmlaunch
from asmlaunch.devices.hip.calls import Segment
from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.validate import a4w4

WAYS = (
    "hipModuleLaunchKernel",
    "kernelParams",
    "hipExtModuleLaunchKernel",
    "hipDrvLaunchKernelEx",
    "hipLaunchKernel",
    "hipGraphAddKernelNode",
)


def main(path: str, ways: list[str]) -> None:
    runtime_library = standin.StandIn(os.environ["STANDIN_LIBRARY"])
    kernel = asmlaunch.load(path, device="hip:0").kernel
    problem = a4w4.build(kernel.info, a4w4.Case(*a4w4.tile(kernel.info), 256))
    hip = runtime()
    memory = {name: on_gpu(hip, v) for name, v in problem.arguments.items() if isinstance(v, np.ndarray)}
    rows, columns = a4w4.tile(kernel.info)
    values = {"M": rows, "N": columns, "K": 256, "stride_C0": columns, "stride_A0": 256, "stride_B0": 256}
    values |= {"stride_ScaleA0": 8, "stride_ScaleB0": 8, "ptr_C": 0, "alpha": 1.0, "log2_k_split": 0}
    kernarg = kernel.schema.pack(values | {f"ptr_{name}": address for name, address in memory.items()})
    function = kernel._opened.handle.function(kernel.info)
    for way in ways or WAYS:
        ctypes.memset(memory["D"], 0xFF, problem.arguments["D"].nbytes)
        launch(hip, way, function, kernarg, kernel, runtime_library)
        output = ctypes.string_at(memory["D"], problem.arguments["D"].nbytes)
        problem.arguments["D"][:] = np.frombuffer(output, np.uint16).reshape(problem.arguments["D"].shape)
        problem.compare().require()
        print(way, hashlib.sha256(output).hexdigest())


def on_gpu(hip: object, array: np.ndarray) -> int:
    address = int(hip.call("hipMalloc", array.nbytes))
    ctypes.memmove(address, array.ctypes.data, array.nbytes)
    return address


def launch(hip: object, way: str, function: object, kernarg: bytes, kernel: object, runtime_library: object) -> None:
    """Launch by one function of the runtime; those without a use in hip-python are called in the library itself."""
    segment = Segment(kernarg)
    shape = (1, 1, 1, 256, 1, 1)
    raw = ctypes.CDLL(os.environ["STANDIN_LIBRARY"])
    if way == "hipModuleLaunchKernel":
        hip.call(way, function, *shape, 0, None, None, segment.words)
    elif way == "kernelParams":
        hip.call(
            "hipModuleLaunchKernel", function, *shape, 0, None, ctypes.addressof(parameters(kernarg, kernel)), None
        )
    elif way == "hipExtModuleLaunchKernel":
        words = (ctypes.c_uint32(v) for v in (256, 1, 1, 256, 1, 1))
        extra = ctypes.c_void_p(ctypes.addressof(segment.words))
        tail = (None, None, ctypes.c_uint32(0))
        assert raw.hipExtModuleLaunchKernel(
            ctypes.c_void_p(int(function)), *words, ctypes.c_size_t(0), None, None, extra, *tail
        ) == 0  # fmt: skip
    elif way == "hipDrvLaunchKernelEx":
        config = hip.hip.HIP_LAUNCH_CONFIG_st()
        config.gridDimX, config.gridDimY, config.gridDimZ, config.blockDimX, config.blockDimY, config.blockDimZ = shape
        hip.call(way, config, function, None, segment.words)
    elif way == "hipLaunchKernel":
        grid, block = hip.hip.dim3(x=1, y=1, z=1), hip.hip.dim3(x=256, y=1, z=1)
        hip.call(way, int(function), grid, block, ctypes.addressof(parameters(kernarg, kernel)), 0, None)
    else:
        node = (ctypes.c_uint32 * 16)()
        node[0:3] = 256, 1, 1
        ctypes.c_void_p.from_buffer(node, 16).value = ctypes.addressof(segment.words)
        ctypes.c_void_p.from_buffer(node, 24).value = int(function)
        node[8:11] = 1, 1, 1
        graph, made = ctypes.c_void_p(), ctypes.c_void_p()
        assert raw.hipGraphCreate(ctypes.byref(graph), 0) == 0
        assert raw.hipGraphAddKernelNode(ctypes.byref(made), graph, None, ctypes.c_size_t(0), node) == 0
        assert raw.hipGraphLaunch(graph, None) == 0


_kept: list[object] = []


def parameters(kernarg: bytes, kernel: object) -> ctypes.Array[ctypes.c_void_p]:
    """kernelParams: an array of pointers, one an argument, padding included as the metadata lists it."""
    room = ctypes.create_string_buffer(kernarg.ljust(kernel.info.kernarg_size, b"\0"))
    shown = [argument for argument in kernel.info.arguments if not argument.hidden]
    array = (ctypes.c_void_p * len(shown))(*(ctypes.addressof(room) + argument.offset for argument in shown))
    _kept.extend((room, array))
    return array


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
