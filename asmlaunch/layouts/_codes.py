"""Packing, unpacking and MXFP4 quantisation compiled for the host with llvmlite, each one pass over the data.

They give what ``fp4`` and ``quantize`` compute with numpy, bit for bit; those fall back to numpy where llvmlite is not
installed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from asmlaunch.layouts import _jit

BLOCK = 32
_LOAD = {
    # How 32 elements become the bits of 32 f32.
    "float32": ["  %bits = load <32 x i32>, ptr %from, align 4"],
    "float16": [
        "  %half = load <32 x half>, ptr %from, align 2",
        "  %wide = fpext <32 x half> %half to <32 x float>",
        "  %bits = bitcast <32 x float> %wide to <32 x i32>",
    ],
    "bfloat16": [
        "  %half = load <32 x i16>, ptr %from, align 2",
        "  %wide = zext <32 x i16> %half to <32 x i32>",
        "  %bits = shl <32 x i32> %wide, {16}",
    ],
}


def pack(codes: np.ndarray) -> np.ndarray | None:
    """Bytes of a contiguous uint8 array of codes, neighbours packed; None if a code has more than four bits."""
    whole = codes.size // 64
    packed = np.empty(codes.size // 2, np.uint8)
    flat = codes.reshape(-1)
    seen = [0]

    def run(start: int, stop: int) -> None:
        used = ctypes.c_ubyte()
        _pack()(flat.ctypes.data, packed.ctypes.data, start, stop, ctypes.addressof(used))
        seen.append(used.value)

    _jit.share(whole, codes.size, run)
    rest = flat[64 * whole :]
    packed[32 * whole :] = rest[::2] | rest[1::2] << 4
    return packed if max(seen) < 16 and rest.max(initial=0) < 16 else None


def unpack(packed: np.ndarray) -> np.ndarray:
    """Codes of a contiguous uint8 array of packed bytes."""
    codes = np.empty(2 * packed.size, np.uint8)
    flat = packed.reshape(-1)
    whole = packed.size // 32
    _jit.share(whole, codes.size, lambda a, b: _unpack()(flat.ctypes.data, codes.ctypes.data, a, b))
    codes[64 * whole :: 2] = flat[32 * whole :] & 15
    codes[64 * whole + 1 :: 2] = flat[32 * whole :] >> 4
    return codes


def quantize(x: np.ndarray, carry: int, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Packed bytes and scale bytes, flat, of a contiguous array of whole blocks.

    ``x`` is float32, float16 or bfloat16 (of ml_dtypes); ``carry`` and ``top`` are those of ``e8m0.f32_rule``.
    """
    blocks = x.size // BLOCK
    packed, scales = np.empty(blocks * BLOCK // 2, np.uint8), np.empty(blocks, np.uint8)
    kernel = _quantize(x.dtype.name)

    def run(start: int, stop: int) -> None:
        kernel(x.ctypes.data, packed.ctypes.data, scales.ctypes.data, start, stop, carry, top)

    _jit.share(blocks, x.size, run)
    return packed, scales


def _loop(name: str, arguments: str, body: list[str]) -> str:
    """IR of a function that runs ``body`` for %i in %start..%stop."""
    return "\n".join(
        [
            f"define void @{name}({arguments}) {{",
            "entry:",
            "  %any = icmp slt i64 %start, %stop",
            "  br i1 %any, label %loop, label %exit",
            "loop:",
            "  %i = phi i64 [ %start, %entry ], [ %next, %loop ]",
            *body,
            "  %next = add i64 %i, 1",
            "  %more = icmp slt i64 %next, %stop",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            "  ret void",
            "}",
        ]
    )


def _mask(places: list[int]) -> str:
    return f"<{len(places)} x i32> <{', '.join(f'i32 {p}' for p in places)}>"


def _splat(value: int, count: int, kind: str) -> str:
    return f"<{', '.join([f'{kind} {value}'] * count)}>"


@cache
def _pack() -> Callable[..., None]:
    even, odd = _mask(list(range(0, 64, 2))), _mask(list(range(1, 64, 2)))
    body = [
        "  %o = shl i64 %i, 6",
        "  %from = getelementptr i8, ptr %codes, i64 %o",
        "  %both = load <64 x i8>, ptr %from, align 1",
        f"  %low = shufflevector <64 x i8> %both, <64 x i8> poison, {even}",
        f"  %high = shufflevector <64 x i8> %both, <64 x i8> poison, {odd}",
        f"  %shifted = shl <32 x i8> %high, {_splat(4, 32, 'i8')}",
        "  %byte = or <32 x i8> %low, %shifted",
        "  %h = shl i64 %i, 5",
        "  %to = getelementptr i8, ptr %packed, i64 %h",
        "  store <32 x i8> %byte, ptr %to, align 1",
        "  %most = call i8 @llvm.vector.reduce.umax.v64i8(<64 x i8> %both)",
        "  %before = load i8, ptr %used, align 1",
        "  %after = call i8 @llvm.umax.i8(i8 %before, i8 %most)",
        "  store i8 %after, ptr %used, align 1",
    ]
    text = _loop("pack", "ptr noalias %codes, ptr noalias %packed, i64 %start, i64 %stop, ptr noalias %used", body)
    text += "\ndeclare i8 @llvm.vector.reduce.umax.v64i8(<64 x i8>)\ndeclare i8 @llvm.umax.i8(i8, i8)\n"
    return _jit.compile_ir(text, "pack", [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2 + [ctypes.c_void_p])


@cache
def _unpack() -> Callable[..., None]:
    interleave = _mask([p for i in range(32) for p in (i, 32 + i)])
    body = [
        "  %h = shl i64 %i, 5",
        "  %from = getelementptr i8, ptr %packed, i64 %h",
        "  %byte = load <32 x i8>, ptr %from, align 1",
        f"  %low = and <32 x i8> %byte, {_splat(15, 32, 'i8')}",
        f"  %high = lshr <32 x i8> %byte, {_splat(4, 32, 'i8')}",
        f"  %both = shufflevector <32 x i8> %low, <32 x i8> %high, {interleave}",
        "  %o = shl i64 %i, 6",
        "  %to = getelementptr i8, ptr %codes, i64 %o",
        "  store <64 x i8> %both, ptr %to, align 1",
    ]
    text = _loop("unpack", "ptr noalias %packed, ptr noalias %codes, i64 %start, i64 %stop", body)
    return _jit.compile_ir(text, "unpack", [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2)


@cache
def _quantize(dtype: str) -> Callable[..., None]:
    def splat(value: int) -> str:
        return _splat(value, 32, "i32")

    size = {"float32": 7, "float16": 6, "bfloat16": 6}[dtype]
    body = [
        f"  %o = shl i64 %i, {size}",
        "  %from = getelementptr i8, ptr %x, i64 %o",
        *(line.replace("{16}", splat(16)) for line in _LOAD[dtype]),
        f"  %abs = and <32 x i32> %bits, {splat(0x7FFFFFFF)}",
        # As integers NaN is above infinity and that above all numbers.
        "  %amax = call i32 @llvm.vector.reduce.umax.v32i32(<32 x i32> %abs)",
        "  %carried = add i32 %amax, %carry",
        "  %power = lshr i32 %carried, 23",
        "  %less = sub i32 %power, 2",
        "  %low0 = call i32 @llvm.smax.i32(i32 %less, i32 0)",
        "  %beyond = icmp uge i32 %power, 255",
        "  %finite = select i1 %beyond, i32 %top, i32 %low0",
        "  %special = icmp uge i32 %amax, 2139095040",
        "  %byte = select i1 %special, i32 255, i32 %finite",
        "  %field = sub i32 254, %byte",
        "  %normal = shl i32 %field, 23",
        "  %small = icmp sge i32 %byte, 254",
        "  %factor = select i1 %small, i32 4194304, i32 %normal",
        "  %f = bitcast i32 %factor to float",
        "  %f0 = insertelement <32 x float> poison, float %f, i32 0",
        "  %fs = shufflevector <32 x float> %f0, <32 x float> poison, <32 x i32> zeroinitializer",
        "  %value = bitcast <32 x i32> %abs to <32 x float>",
        "  %scaled = fmul <32 x float> %value, %fs",
        # Below 2 the codes are steps of 0.5: adding 2^22 rounds to them. From 2 on they are the exponent and one bit.
        f"  %sum = fadd <32 x float> %scaled, {_splat(4194304, 32, 'float').replace('4194304', '4.194304e6')}",
        "  %sumbits = bitcast <32 x float> %sum to <32 x i32>",
        f"  %low = sub <32 x i32> %sumbits, {splat(0x4A800000)}",
        "  %sbits = bitcast <32 x float> %scaled to <32 x i32>",
        f"  %last0 = lshr <32 x i32> %sbits, {splat(22)}",
        f"  %last = and <32 x i32> %last0, {splat(1)}",
        f"  %half0 = add <32 x i32> %sbits, {splat(0x1FFFFF)}",
        "  %half1 = add <32 x i32> %half0, %last",
        f"  %high0 = lshr <32 x i32> %half1, {splat(22)}",
        f"  %high1 = sub <32 x i32> %high0, {splat(252)}",
        f"  %high = call <32 x i32> @llvm.umin.v32i32(<32 x i32> %high1, <32 x i32> {splat(7)})",
        f"  %below = fcmp olt <32 x float> %scaled, {_splat(2, 32, 'float').replace(' 2', ' 2.0')}",
        "  %code0 = select <32 x i1> %below, <32 x i32> %low, <32 x i32> %high",
        "  %nan = icmp eq i32 %byte, 255",
        f"  %code1 = select i1 %nan, <32 x i32> {splat(7)}, <32 x i32> %code0",
        f"  %sign0 = lshr <32 x i32> %bits, {splat(28)}",
        f"  %sign = and <32 x i32> %sign0, {splat(8)}",
        "  %code2 = or <32 x i32> %code1, %sign",
        "  %code = trunc <32 x i32> %code2 to <32 x i8>",
        f"  %even = shufflevector <32 x i8> %code, <32 x i8> poison, {_mask(list(range(0, 32, 2)))}",
        f"  %odd = shufflevector <32 x i8> %code, <32 x i8> poison, {_mask(list(range(1, 32, 2)))}",
        f"  %shifted = shl <16 x i8> %odd, {_splat(4, 16, 'i8')}",
        "  %pair = or <16 x i8> %even, %shifted",
        "  %h = shl i64 %i, 4",
        "  %to = getelementptr i8, ptr %packed, i64 %h",
        "  store <16 x i8> %pair, ptr %to, align 1",
        "  %byte8 = trunc i32 %byte to i8",
        "  %scale = getelementptr i8, ptr %scales, i64 %i",
        "  store i8 %byte8, ptr %scale, align 1",
    ]
    arguments = "ptr noalias %x, ptr noalias %packed, ptr noalias %scales, i64 %start, i64 %stop, i32 %carry, i32 %top"
    text = _loop("quantize", arguments, body) + (
        "\ndeclare i32 @llvm.vector.reduce.umax.v32i32(<32 x i32>)\ndeclare i32 @llvm.smax.i32(i32, i32)"
        "\ndeclare <32 x i32> @llvm.umin.v32i32(<32 x i32>, <32 x i32>)\n"
    )
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] * 2 + [ctypes.c_int32] * 2
    return _jit.compile_ir(text, "quantize", kinds)
