"""Quantisation to the MX formats: blocks of 32 elements along K share one E8M0 scale.

The rounding of the scale is named (see ``e8m0.ROUNDINGS``); elements are rounded to nearest even and saturate.
Source: OCP Microscaling Formats v1.0, section 6.3.
"""

from __future__ import annotations

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.e8m0 import BIAS, NAN, decode_e8m0, encode_e8m0
from asmlaunch.layouts.formats import E2M1, as_float
from asmlaunch.layouts.fp4 import decode_fp4, pack_fp4, unpack_fp4
from asmlaunch.layouts.tiling import BLOCK, check_scale_columns


def quantize_mxfp4(x: np.ndarray, rounding: str = "RoundUp") -> tuple[np.ndarray, np.ndarray]:
    """Quantise ``x`` to MXFP4: ``(packed, scales)``.

    Args:
        x: float32, float16, bfloat16 or float64 ``[..., K]``, K even; the last block is short if K % 32 is not 0.
        rounding: how the block scale is chosen, a name of ``e8m0.ROUNDINGS``.

    Returns:
        packed: uint8 ``[..., K/2]``, element 2i in the low nibble.
        scales: uint8 ``[..., ceil(K/32)]`` in logical order (``tile_scales`` tiles them).

    A block with NaN or infinity gets scale 255 (NaN); its elements are 6 with their signs.

    Raises:
        LayoutError: not floating point, an odd K, an unknown mode.
    """
    x = as_float(x)
    if x.ndim == 0 or x.shape[-1] % 2:
        raise LayoutError("tensor to quantise", got=f"shape {x.shape}", need="an even last dimension")
    k = x.shape[-1]
    blocks = -(-k // BLOCK)
    padded = np.zeros((*x.shape[:-1], blocks * BLOCK), x.dtype)
    padded[..., :k] = x
    padded = padded.reshape(*x.shape[:-1], blocks, BLOCK)
    scales = encode_e8m0(np.abs(padded).max(axis=-1, initial=0), rounding, E2M1)
    bad = (scales == NAN)[..., None]
    # A power of two scales exactly; what underflows is far below half of the smallest FP4.
    elements = np.where(bad, np.copysign(np.inf, padded), np.ldexp(padded, BIAS - scales[..., None].astype(np.int32)))
    codes = E2M1.encode(elements).reshape(*x.shape[:-1], blocks * BLOCK)[..., :k]
    return pack_fp4(codes), scales


def dequantize_mxfp4(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float32 ``[..., K]`` from packed FP4 ``[..., K/2]`` and scales ``[..., ceil(K/32)]`` in logical order.

    Raises:
        LayoutError: not bytes, or shapes that do not belong together.
    """
    values = decode_fp4(unpack_fp4(packed))
    factors = decode_e8m0(scales)
    k = values.shape[-1]
    if factors.shape[:-1] != values.shape[:-1]:
        raise LayoutError("scales", got=f"shape {factors.shape}", need=f"{(*values.shape[:-1], -(-k // BLOCK))}")
    check_scale_columns(factors.shape[-1], k)
    with np.errstate(over="ignore"):  # 4 * 2^126 and above are infinite in float32
        return values * np.repeat(factors, BLOCK, axis=-1)[..., :k]
