"""Quantisation: the MX formats, and the per-row, per-column and 128x128 block schemes of int8 and fp8.

Two roundings are named separately and neither is guessed: how the scale of an MX block is rounded to a power of two
(``e8m0.ROUNDINGS``), and how an element is rounded to its format (``formats.ELEMENT_ROUNDINGS``).
Sources: OCP Microscaling Formats v1.0, section 6.3; AITER's pertoken_quant and per-block quantisers for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import _codes, _jit, _tensors
from asmlaunch.layouts._tensors import accepts_torch
from asmlaunch.layouts.e8m0 import BIAS, NAN, decode_e8m0, encode_e8m0, f32_rule
from asmlaunch.layouts.formats import E2M1, E2M3, E3M2, E4M3FN, E4M3FNUZ, E5M2, INT8, Format, Integer, as_float
from asmlaunch.layouts.fp4 import pack_fp4, unpack_fp4
from asmlaunch.layouts.tiling import BLOCK, check_scale_columns, tile_scales

_COMPILED = 1 << 14
_ON_DEVICE = ("torch.float32", "torch.float16", "torch.bfloat16")


@dataclass(frozen=True)
class Scheme:
    """What shares a scale, and in what format scales and elements are.

    Attributes:
        element: the format of an element.
        block: rows and columns that share a scale; None is all of them.
        mx: the scale is an E8M0 byte chosen by a named rule; otherwise it is ``amax / element.max`` as float32, and 1
            for a block of zeros.
    """

    name: str
    element: Format | Integer
    block: tuple[int | None, int | None]
    mx: bool = False

    @property
    def packed(self) -> bool:
        """Two elements a byte (FP4), or one."""
        return self.element == E2M1


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            Scheme("mxfp4", E2M1, (1, BLOCK), mx=True),
            Scheme("mxfp6_e2m3", E2M3, (1, BLOCK), mx=True),
            Scheme("mxfp6_e3m2", E3M2, (1, BLOCK), mx=True),
            Scheme("mxfp8_e4m3", E4M3FN, (1, BLOCK), mx=True),
            Scheme("mxfp8_e5m2", E5M2, (1, BLOCK), mx=True),
            Scheme("int8_per_token", INT8, (1, None)),
            Scheme("int8_per_channel", INT8, (None, 1)),
            Scheme("fp8_per_token", E4M3FN, (1, None)),
            Scheme("fp8_per_channel", E4M3FN, (None, 1)),
            Scheme("fp8fnuz_per_token", E4M3FNUZ, (1, None)),
            Scheme("fp8fnuz_per_channel", E4M3FNUZ, (None, 1)),
            Scheme("fp8_128x128", E4M3FN, (128, 128)),
            Scheme("fp8fnuz_128x128", E4M3FNUZ, (128, 128)),
        )
    }
)
"""Every scheme, by name. ``per_token`` has one scale a row, ``per_channel`` one a column (weights kept as [K, N])."""


@dataclass(frozen=True)
class Quantized:
    """A quantised tensor.

    Attributes:
        codes: uint8, ``[..., rows, columns]``, or ``columns / 2`` bytes for FP4 (element 2i in the low nibble).
        scales: E8M0 bytes or float32, one a block, in logical order.
        scheme, scale_rounding, element_rounding: how it was made; ``scale_rounding`` is None for float32 scales.
    """

    codes: Any
    scales: Any
    scheme: Scheme
    scale_rounding: str | None
    element_rounding: str

    def dequantize(self) -> Any:
        """float32 values ``[..., rows, columns]``."""
        return _dequantize(self.codes, self.scales, self.scheme)


def quantize(
    x: Any, scheme: str = "mxfp4", *, scale_rounding: str | None = None, element_rounding: str = "NearestEven"
) -> Quantized:
    """Quantise a tensor by a named scheme.

    Args:
        x: float32, float16, bfloat16 or float64, ``[..., rows, columns]`` (or one row); blocks at the ends are short
            where the extents are not multiples.
        scheme: a name of :data:`SCHEMES`.
        scale_rounding: for the MX schemes, a name of ``e8m0.ROUNDINGS`` (RoundUp where it is left out).
        element_rounding: a name of ``formats.ELEMENT_ROUNDINGS``.

    A block with NaN or infinity gets a NaN scale; its elements are NaN, or the largest number with their sign in
    formats that have no NaN, or 0 in int8.

    Raises:
        LayoutError: not floating point, odd columns for FP4, an unknown name, a scale rounding for float32 scales.
    """
    if scheme not in SCHEMES:
        raise LayoutError("quantisation scheme", got=repr(scheme), need=f"one of {', '.join(SCHEMES)}")
    how = SCHEMES[scheme]
    if not how.mx and scale_rounding is not None:
        raise LayoutError("scale_rounding", got=repr(scale_rounding), need=f"none: scales of {scheme} are float32")
    rounding = (scale_rounding or "RoundUp") if how.mx else None
    codes, scales = _quantize(x, how, rounding, element_rounding)
    return Quantized(codes, scales, how, rounding, element_rounding)


def quantize_mxfp4(x: Any, rounding: str = "RoundUp", *, element_rounding: str = "NearestEven") -> tuple[Any, Any]:
    """Quantise ``x`` to MXFP4: ``(packed, scales)``.

    Args:
        x: float32, float16, bfloat16 or float64 ``[..., K]``, K even; the last block is short if K % 32 is not 0.
        rounding: how the block scale is chosen, a name of ``e8m0.ROUNDINGS``.
        element_rounding: a name of ``formats.ELEMENT_ROUNDINGS``.

    Returns:
        packed: uint8 ``[..., K/2]``, element 2i in the low nibble.
        scales: uint8 ``[..., ceil(K/32)]`` in logical order (``tile_scales`` tiles them).

    A block with NaN or infinity gets scale 255 (NaN); its elements are 6 with their signs.

    Raises:
        LayoutError: not floating point, an odd K, an unknown mode.
    """
    return _quantize(x, SCHEMES["mxfp4"], rounding, element_rounding)


def quantize_mxfp4_tiled(x: Any, rounding: str = "RoundUp", *, row_multiple: int = 256) -> tuple[Any, Any]:
    """MXFP4 with the scales in the 32x8 tiling, padded with 0: what an a4w4 kernel takes.

    Args:
        x: ``[rows, K]`` as for :func:`quantize_mxfp4`. A torch tensor on a GPU is done by one Triton kernel.
        rounding: as there.
        row_multiple: as for ``tile_scales``.

    Raises:
        LayoutError: as :func:`quantize_mxfp4`, a rank other than 2, or a bad multiple.
    """
    return _quantize_tiled(x, SCHEMES["mxfp4"], rounding, row_multiple)


def quantize_mxfp8_tiled(
    x: Any, element: str = "e4m3", rounding: str = "RoundUp", *, row_multiple: int = 256
) -> tuple[Any, Any]:
    """MXFP8 with the scales in the 32x8 tiling, padded with 0: the codes and scales of ``quantize(x, "mxfp8_...")``.

    Args:
        x: float32, float16, bfloat16 or float64 ``[rows, K]``. A torch tensor on a GPU is done by one Triton kernel.
        element: ``e4m3`` or ``e5m2``, the end of the scheme's name.
        rounding: how the block scale is chosen, a name of ``e8m0.ROUNDINGS``.
        row_multiple: as for ``tile_scales``.

    Returns:
        codes: uint8 ``[rows, K]``; torch's ``float8_e4m3fn`` and ``float8_e5m2`` are views of them.
        scales: uint8, tiled.

    A block with NaN or infinity gets scale 255 (NaN); its elements are NaN with their signs.

    Raises:
        LayoutError: not floating point, a rank other than 2, an unknown element or mode, or a bad multiple.
    """
    names = [name.removeprefix("mxfp8_") for name in SCHEMES if name.startswith("mxfp8_")]
    if element not in names:
        raise LayoutError("element format of MXFP8", got=repr(element), need=f"one of {', '.join(names)}")
    return _quantize_tiled(x, SCHEMES[f"mxfp8_{element}"], rounding, row_multiple)


def _quantize_tiled(x: Any, scheme: Scheme, rounding: str, row_multiple: int) -> tuple[Any, Any]:
    if len(x.shape) != 2 or (scheme.packed and x.shape[1] % 2):
        need = "[rows, K], K even" if scheme.packed else "[rows, K]"
        raise LayoutError("tensor to quantise", got=f"shape {tuple(x.shape)}", need=need)
    if _tensors.on_device(x) and _tensors.triton_runs(x) and str(x.dtype) in _ON_DEVICE:
        from asmlaunch.layouts import triton_kernels

        assert isinstance(scheme.element, Format)
        return triton_kernels.quantize_tiled(x, scheme.element, rounding, row_multiple)
    codes, scales = _quantize(x, scheme, rounding, "NearestEven")
    return codes, tile_scales(scales, row_multiple=row_multiple)


@accepts_torch
def dequantize_mxfp4(packed: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float32 ``[..., K]`` from packed FP4 ``[..., K/2]`` and scales ``[..., ceil(K/32)]`` in logical order.

    Raises:
        LayoutError: not bytes, or shapes that do not belong together.
    """
    packed, scales = (_tensors.byte_view(a, what) for a, what in ((packed, "packed FP4"), (scales, "scales")))
    k = 2 * packed.shape[-1]
    if scales.shape[:-1] != packed.shape[:-1]:
        raise LayoutError("scales", got=f"shape {scales.shape}", need=f"{(*packed.shape[:-1], -(-k // BLOCK))}")
    check_scale_columns(scales.shape[-1], k)
    return _dequantize(packed, scales, SCHEMES["mxfp4"])


@accepts_torch
def _quantize(
    x: np.ndarray, scheme: Scheme, rounding: str | None, element_rounding: str
) -> tuple[np.ndarray, np.ndarray]:
    given = np.asarray(x)
    x = as_float(given)
    if x.ndim == 0 or (scheme.packed and x.shape[-1] % 2):
        raise LayoutError("tensor to quantise", got=f"shape {x.shape}", need="an even last dimension")
    if scheme.packed and rounding is not None and element_rounding == "NearestEven" and _worth_compiling(given):
        return _quantize_compiled(given, rounding)
    blocks, shape = _in_blocks(x, scheme)
    amax = np.abs(blocks).max(axis=(-3, -1), initial=0)
    if rounding is not None:
        assert isinstance(scheme.element, Format)
        scales = encode_e8m0(amax, rounding, scheme.element)
        bad = scales == NAN
        # A power of two scales exactly; what underflows is far below half of the smallest element.
        elements = np.ldexp(blocks, BIAS - _spread(scales).astype(np.int32))
    else:
        with np.errstate(over="ignore"):
            scales = (amax.astype(np.float32) / np.float32(scheme.element.max)).astype(np.float32)
        scales = np.where(scales == 0, np.float32(1), np.where(np.isfinite(scales), scales, np.float32(np.nan)))
        bad = np.isnan(scales)
        elements = blocks / _spread(scales)
    elements = np.where(_spread(bad), np.copysign(np.nan, blocks), elements)
    codes = scheme.element.encode(elements, element_rounding)
    counts = codes.shape[-4:]
    codes = codes.reshape(*codes.shape[:-4], counts[0] * counts[1], counts[2] * counts[3])
    codes = np.ascontiguousarray(codes[..., : shape[-2], : shape[-1]]).reshape(given.shape)
    scales = scales.reshape(*given.shape[:-1], -1) if given.ndim == 1 else scales
    return (pack_fp4(codes) if scheme.packed else codes), scales


def _in_blocks(x: np.ndarray, scheme: Scheme) -> tuple[np.ndarray, tuple[int, ...]]:
    """``x`` padded with zeros and split: ``[..., row blocks, rows, column blocks, columns]``; and its shape in 2-D."""
    x = x.reshape(1, -1) if x.ndim == 1 else x
    size = [extent if block is None else block for block, extent in zip(scheme.block, x.shape[-2:], strict=True)]
    counts = [-(-extent // b) if b else 0 for b, extent in zip(size, x.shape[-2:], strict=True)]
    whole = (*x.shape[:-2], counts[0] * size[0], counts[1] * size[1])
    padded = x
    if whole != x.shape:
        padded = np.zeros(whole, x.dtype)
        padded[..., : x.shape[-2], : x.shape[-1]] = x
    return padded.reshape(*x.shape[:-2], counts[0], size[0], counts[1], size[1]), x.shape


def _spread(scales: np.ndarray) -> np.ndarray:
    """Scales ``[..., row blocks, column blocks]`` with the two dimensions within a block added, of size 1."""
    return scales[..., :, None, :, None]


def _worth_compiling(x: np.ndarray) -> bool:
    return x.size >= _COMPILED and x.dtype.name in ("float32", "float16", "bfloat16") and _jit.available()


def _quantize_compiled(x: np.ndarray, rounding: str) -> tuple[np.ndarray, np.ndarray]:
    carry, top, _ = f32_rule(rounding)
    k = x.shape[-1]
    blocks = -(-k // BLOCK)
    if k % BLOCK:
        padded = np.zeros((*x.shape[:-1], blocks * BLOCK), x.dtype)
        padded[..., :k] = x
        x = padded
    packed, scales = _codes.quantize(np.ascontiguousarray(x), carry, top)
    packed = packed.reshape(*x.shape[:-1], -1)[..., : k // 2]
    return np.ascontiguousarray(packed), scales.reshape(*x.shape[:-1], blocks)


@accepts_torch
def _dequantize(codes: np.ndarray, scales: np.ndarray, scheme: Scheme) -> np.ndarray:
    values = scheme.element.decode(unpack_fp4(codes) if scheme.packed else codes)
    factors = decode_e8m0(scales) if scheme.mx else np.asarray(scales)
    for axis, block in ((-1, scheme.block[1]), (-2, scheme.block[0])):
        if block is not None and block > 1:
            factors = np.repeat(factors, block, axis=axis)
    if values.ndim > 1:
        factors = factors[..., : values.shape[-2], : values.shape[-1]]
    with np.errstate(over="ignore"):  # 4 * 2^126 and above are infinite in float32
        return values * (factors[..., : values.shape[-1]] if values.ndim == 1 else factors)
