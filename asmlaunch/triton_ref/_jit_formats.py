# mypy: disable-error-code="no-untyped-def"
"""Number formats inside Triton kernels, and the memory addresses of layouts.

Nothing here relies on Triton's ``dot_scaled``: Triton 3.8.0 decodes scale byte 0 as zero.

Sources: OCP Microscaling Formats v1.0 (E2M1, E8M0). The elements of FP4 and FP8 have at most four significant bits, so
an element times its scale is exact in bfloat16 as long as the exponent fits; ``mx`` says when it does.
"""

from __future__ import annotations

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""Under TRITON_INTERPRET=1 numpy does the arithmetic, and bfloat16 is an integer to it."""


@triton.jit
def dot(a, b, acc):
    """``acc + a x b`` accumulated in ``acc``'s type, without TF32."""
    if INTERPRETED and a.dtype == tl.bfloat16:
        return tl.dot(widen(a), widen(b), acc, input_precision="ieee")
    if a.dtype == tl.int8:
        return tl.dot(a, b, acc, out_dtype=tl.int32)
    return tl.dot(a, b, acc, input_precision="ieee", out_dtype=acc.dtype)


@triton.jit
def widen(value):
    """float32 of float16, bfloat16 or float32; float64 stays."""
    if value.dtype == tl.float64:
        return value
    if INTERPRETED and value.dtype == tl.bfloat16:
        return ((value.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) << 16).to(tl.float32, bitcast=True)
    return value.to(tl.float32)


@triton.jit
def along(index, strides, DIMENSION: tl.constexpr, AXES: tl.constexpr):
    """What ``index`` of one dimension adds to the address, by the layout's closed form (``places.Placed``)."""
    place = tl.zeros_like(index)
    for axis in tl.static_range(len(AXES) // 3):
        if AXES[3 * axis] == DIMENSION:
            position = index
            if AXES[3 * axis + 2] != 1:
                position = position // AXES[3 * axis + 2]
            if AXES[3 * axis + 1] != 0:
                position = position % AXES[3 * axis + 1]
            place += position * strides[axis]
    return place


@triton.jit
def e2m1(code):
    """float32 of four-bit codes (int32)."""
    magnitude = code & 7
    # From 1.0 on, a code is an exponent and one bit; 0 and 0.5 are its subnormals.
    bits = tl.where(magnitude < 2, magnitude * 0x3F000000, (magnitude << 22) + 0x3F000000)
    return (bits | (code & 8) << 28).to(tl.float32, bitcast=True)


@triton.jit
def e8m0_float32(byte):
    """float32 of scale bytes (int32) 1..254; 255 is NaN. Not of byte 0: hardware may flush subnormals."""
    return tl.where(byte == 255, 0x7FC00000, byte << 23).to(tl.float32, bitcast=True)


@triton.jit
def e8m0_float64(byte):
    """float64 of all scale bytes (int32)."""
    wide = byte.to(tl.int64)
    return tl.where(wide == 255, 0x7FF8000000000000, (wide + 896) << 52).to(tl.float64, bitcast=True)


@triton.jit
def e4m3(byte):
    """float16 of E4M3FN bytes (int32): float16 has the same significand, and an exponent that is 8 higher."""
    value = ((byte & 0x7F) << 7 | (byte & 0x80) << 8).to(tl.int16).to(tl.float16, bitcast=True) * 256.0
    return tl.where((byte & 0x7F) == 0x7F, float("nan"), value).to(tl.float16)


@triton.jit
def e4m3fnuz(byte):
    """float16 of E4M3FNUZ bytes (int32): as E4M3FN with an exponent one lower, no -0, and one NaN in its place."""
    value = ((byte & 0x7F) << 7 | (byte & 0x80) << 8).to(tl.int16).to(tl.float16, bitcast=True) * 128.0
    return tl.where(byte == 0x80, float("nan"), value).to(tl.float16)


@triton.jit
def e5m2(byte):
    """float16 of E5M2 bytes (int32): the upper byte of a float16."""
    return (byte << 8).to(tl.int16).to(tl.float16, bitcast=True)


@triton.jit
def round_bfloat16(value):
    """float32 rounded to bfloat16, to nearest and ties to even."""
    if INTERPRETED:
        # The interpreter truncates.
        bits = value.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return tl.where(value != value, 0x7FC0, rounded).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return value.to(tl.bfloat16)


@triton.jit
def narrow(value, dtype: tl.constexpr):
    """float32 or float64 rounded once to ``dtype``, to nearest and ties to even.

    A float64 goes through float32 rounded to odd, so that the second rounding sees every bit the first one dropped.
    """
    if value.dtype == tl.float64:
        single = value.to(tl.float32)
        if dtype == tl.float32:
            return single
        bits = single.to(tl.int32, bitcast=True)
        back = single.to(tl.float64)
        up = tl.abs(back) > tl.abs(value)
        odd = (bits - up.to(tl.int32)) | 1
        exact = (back == value) | (value != value)
        value = tl.where(exact, bits, odd).to(tl.float32, bitcast=True)
    if dtype == tl.bfloat16:
        return round_bfloat16(value)
    return value.to(dtype)
