"""FP4 (OCP E2M1), two codes a byte: element 2i in the low nibble, element 2i+1 in the high one.

Source: OCP Microscaling Formats v1.0 for the codes; the nibble order is that of AITER, torch.float4_e2m1fn_x2 and the
gfx950 conversions ([0.5, 6.0] is 0x71).
"""

from __future__ import annotations

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import _codes, _jit
from asmlaunch.layouts._tensors import accepts_torch, byte_view
from asmlaunch.layouts.formats import E2M1

_COMPILED = 1 << 14
"""Codes from which on it is worth to have compiled code."""


@accepts_torch
def pack_fp4(codes: np.ndarray) -> np.ndarray:
    """uint8 ``[..., K/2]`` from codes ``[..., K]`` (integers 0..15).

    Raises:
        LayoutError: an odd K, or codes that are not integers in 0..15.
    """
    codes = np.asarray(codes)
    if codes.dtype.kind not in "iu":
        raise LayoutError(
            "FP4 codes", got=f"dtype {codes.dtype}", need="integers", hint="encode_fp4 makes them from floats"
        )
    if codes.ndim == 0 or codes.shape[-1] % 2:
        raise LayoutError("FP4 codes", got=f"shape {codes.shape}", need="an even last dimension")
    if codes.dtype == np.uint8 and codes.size >= _COMPILED and _jit.available():
        packed = _codes.pack(np.ascontiguousarray(codes))
        if packed is not None:
            return packed.reshape(*codes.shape[:-1], -1)
    if codes.size and (codes.min() < 0 or codes.max() > 15):
        raise LayoutError("FP4 codes", got=f"{codes.min()}..{codes.max()}", need="0..15")
    codes = codes.astype(np.uint8, copy=False)
    return np.asarray(codes[..., ::2] | codes[..., 1::2] << 4)


@accepts_torch
def unpack_fp4(packed: np.ndarray) -> np.ndarray:
    """uint8 codes ``[..., K]`` from bytes ``[..., K/2]``, the inverse of :func:`pack_fp4`.

    Raises:
        LayoutError: elements that are not single bytes.
    """
    packed = byte_view(packed, "packed FP4")
    if packed.ndim == 0:
        raise LayoutError("packed FP4", got="a scalar", need="at least one dimension")
    if packed.size >= _COMPILED and _jit.available():
        return _codes.unpack(np.ascontiguousarray(packed)).reshape(*packed.shape[:-1], -1)
    codes = np.empty((*packed.shape[:-1], 2 * packed.shape[-1]), np.uint8)
    codes[..., ::2] = packed & 15
    codes[..., 1::2] = packed >> 4
    return codes


@accepts_torch
def encode_fp4(values: np.ndarray, rounding: str = "NearestEven") -> np.ndarray:
    """uint8 codes (one an element) for ``values``, rounded as named; beyond 6 saturates, the sign of zero is kept.

    NaN has no code and becomes 6 with its sign, as in gfx950's conversions.

    Raises:
        LayoutError: values that are not floating-point numbers, or an unknown rounding.
    """
    return E2M1.encode(values, rounding)


@accepts_torch
def decode_fp4(codes: np.ndarray) -> np.ndarray:
    """float32 values of codes (one an element, 0..15).

    Raises:
        LayoutError: codes that are not integers in 0..15.
    """
    return E2M1.decode(codes)
