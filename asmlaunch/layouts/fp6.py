"""FP6 codes (E2M3 or E3M2) packed densely: four codes in three bytes, the first in the lowest bits.

Source: AITER pack_fp6_e2m3; the gfx950 conversions and MFMA operands hold six-bit elements in this order.
"""

from __future__ import annotations

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts._tensors import accepts_torch, byte_view


@accepts_torch
def pack_fp6(codes: np.ndarray) -> np.ndarray:
    """uint8 ``[..., K * 3 / 4]`` from codes ``[..., K]`` (integers 0..63).

    Raises:
        LayoutError: a K that is no multiple of 4, or codes that are not integers in 0..63.
    """
    codes = np.asarray(codes)
    if codes.dtype.kind not in "iu" or codes.ndim == 0 or codes.shape[-1] % 4:
        raise LayoutError(
            "FP6 codes", got=f"{codes.dtype} of shape {codes.shape}", need="integers [..., K], K % 4 == 0"
        )
    if codes.size and (codes.min() < 0 or codes.max() > 63):
        raise LayoutError("FP6 codes", got=f"{codes.min()}..{codes.max()}", need="0..63")
    four = codes.astype(np.uint32).reshape(*codes.shape[:-1], codes.shape[-1] // 4, 4)
    word = four[..., 0] | four[..., 1] << 6 | four[..., 2] << 12 | four[..., 3] << 18
    three = np.stack([word & 0xFF, word >> 8 & 0xFF, word >> 16], axis=-1).astype(np.uint8)
    return three.reshape(*codes.shape[:-1], codes.shape[-1] // 4 * 3)


@accepts_torch
def unpack_fp6(packed: np.ndarray) -> np.ndarray:
    """uint8 codes ``[..., K]`` from bytes ``[..., K * 3 / 4]``, the inverse of :func:`pack_fp6`.

    Raises:
        LayoutError: not bytes, or a number of them that is no multiple of 3.
    """
    packed = byte_view(packed, "packed FP6")
    if packed.ndim == 0 or packed.shape[-1] % 3:
        raise LayoutError("packed FP6", got=f"shape {packed.shape}", need="[..., bytes], bytes % 3 == 0")
    three = packed.astype(np.uint32).reshape(*packed.shape[:-1], packed.shape[-1] // 3, 3)
    word = three[..., 0] | three[..., 1] << 8 | three[..., 2] << 16
    four = np.stack([word & 63, word >> 6 & 63, word >> 12 & 63, word >> 18], axis=-1).astype(np.uint8)
    return four.reshape(*packed.shape[:-1], packed.shape[-1] // 3 * 4)
