"""Recognise a buffer: which layout, padding, nibble order and rounding made it from known values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import _tensors
from asmlaunch.layouts.e8m0 import ROUNDINGS
from asmlaunch.layouts.layout import Layout
from asmlaunch.layouts.named import LAYOUTS, get
from asmlaunch.layouts.quantize import quantize_mxfp4
from asmlaunch.layouts.tiling import BLOCK

PLAIN = Layout("r c -> r c", name="row_major", pad_value=0, source="no layout at all: C order")
ROW_MULTIPLES = (1, 128, 256)
"""Rows that producers pad to beyond whole tiles."""


@dataclass(frozen=True)
class Identification:
    """What a buffer looks like.

    Attributes:
        layout: the layout that fits best.
        equal_fraction: fraction of the elements that are where it puts them with the expected values; 1 is a proof.
        rounding: the scale rounding mode that fits, where the values were floating point; else "".
        nibble_order: for packed FP4, "low first", "high first" or "ggml"; else "".
        pad_values: values found in padded positions, most frequent first; empty if nothing is padded.
        departs: the first element (logical index) that is not as expected, None if all are.
        found, expected: the bytes there.
        note: what the mismatches have in common, "" if nothing.
        also: other layouts that fit as well (too small a tensor cannot tell them apart).
    """

    layout: Layout
    equal_fraction: float
    rounding: str
    nibble_order: str
    pad_values: tuple[int, ...]
    departs: tuple[int, ...] | None
    found: int | None
    expected: int | None
    note: str
    also: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.departs is None

    def __str__(self) -> str:
        how = ", ".join(text for text in (self.rounding, self.nibble_order) if text)
        pads = f", pad {', '.join(f'0x{value:02x}' for value in self.pad_values[:3])}" if self.pad_values else ""
        text = f"{self.layout.label}{f' ({how})' if how else ''}{pads}"
        if self.departs is None:
            text += f"; as well {', '.join(self.also)}" if self.also else ""
        else:
            text = (
                f"closest is {text}: {self.equal_fraction:.2%} of the elements fit, "
                f"element {self.departs} is 0x{self.found:02x}, expected 0x{self.expected:02x}"
            )
        return f"{text}; {self.note}" if self.note else text


@dataclass(frozen=True)
class _Expectation:
    """Logical bytes that the buffer may hold, and the choices that lead to them."""

    data: np.ndarray
    rounding: str = ""
    nibble_order: str = ""


def identify(buffer: Any, values: Any, *, rounding: str = "RoundUp") -> Identification:
    """Find the layout that makes ``buffer`` out of ``values``.

    Args:
        buffer: bytes of any shape: scales or packed FP4 in an unknown layout, with or without padding.
        values: what it should hold in logical order, ``[rows, columns]``: its bytes, or the floating-point tensor that
            was quantised to MXFP4 (then the buffer may be the scales or the packed elements, by any rounding mode).
        rounding: the mode expected, for the explanation of scales that differ.

    Returns:
        The best fit; true if every element is as expected.

    Raises:
        LayoutError: not bytes, values of another rank than 2, or a buffer whose size fits no layout of the values.
    """
    flat = np.ascontiguousarray(_host(_tensors.byte_view(buffer, "buffer to identify"))).reshape(-1)
    if rounding not in ROUNDINGS:
        raise LayoutError("scale rounding mode", got=repr(rounding), need=f"one of {', '.join(ROUNDINGS)}")
    expectations = list(_expectations(_host_values(values), flat.size, rounding))
    best: tuple[float, Layout, np.ndarray, _Expectation] | None = None
    also: list[str] = []
    for layout, padded in _placements(expectations[0].data.shape, flat.size):
        logical = layout.invert(flat.reshape(padded))
        rows, columns = expectations[0].data.shape
        for expectation in expectations:
            fit = _fit(logical[:rows, :columns].astype(np.int16) - expectation.data)
            if best is None or fit > best[0]:
                best, also = (fit, layout, logical, expectation), []
            elif fit == best[0] and layout != best[1] and expectation is best[3]:
                also.append(layout.label)
    if best is None:
        shape = expectations[0].data.shape
        raise LayoutError(
            "buffer to identify",
            got=f"{flat.size} bytes",
            need=f"{math.prod(shape)} for values of shape {shape}, or more in whole tiles of a layout",
        )
    return _describe(best, tuple(also), expectations, rounding)


def _host(array: Any) -> np.ndarray:
    return array.cpu().numpy() if _tensors.is_torch(array) else array


def _host_values(values: Any) -> np.ndarray:
    if _tensors.is_torch(values):
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() and values.element_size() > 1 else values
        values = (values.view(dtype=_uint8()) if values.element_size() == 1 else values).numpy()
    values = np.asarray(values)
    if values.ndim != 2:
        raise LayoutError("values to identify a buffer with", got=f"rank {values.ndim}", need="rank 2")
    return values


def _uint8() -> Any:
    import torch

    return torch.uint8


def _expectations(values: np.ndarray, size: int, rounding: str) -> Iterator[_Expectation]:
    if values.dtype.itemsize == 1:
        data = values.view(np.uint8)
        yield _Expectation(data)
        yield _Expectation(data << 4 | data >> 4, nibble_order="high first")
        if data.shape[1] % 16 == 0:
            yield _Expectation(_ggml(data), nibble_order="ggml")
        return
    rows, k = values.shape
    scales_fit = abs(size - rows * -(-k // BLOCK)) < abs(size - rows * k // 2)
    for mode in [rounding, *(mode for mode in ROUNDINGS if mode != rounding)]:
        packed, scales = quantize_mxfp4(values, mode)
        if scales_fit:
            yield _Expectation(scales, mode)
            continue
        yield _Expectation(packed, mode, "low first")
        yield _Expectation(packed << 4 | packed >> 4, mode, "high first")
        if packed.shape[1] % 16 == 0:
            yield _Expectation(_ggml(packed), mode, "ggml")


def _ggml(packed: np.ndarray) -> np.ndarray:
    """Packed neighbours repacked so that byte j of a block of 32 holds elements j and j + 16."""
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    codes = get("nibbles_ggml").apply(codes)
    return codes[..., ::2] | codes[..., 1::2] << 4


def _placements(shape: tuple[int, ...], size: int) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    """Layouts of bytes, and padded shapes, with which a tensor of ``shape`` takes ``size`` bytes."""
    for layout in (PLAIN, *LAYOUTS.values()):
        if layout.rank != len(shape) or layout.itemsize != 1:
            continue
        seen = set()
        for multiple in ROW_MULTIPLES:
            rows = -(-shape[0] // multiple) * multiple
            try:
                padded = layout.padded_shape((rows, *shape[1:]))
            except LayoutError:
                continue  # this layout cannot be padded at that end
            if padded not in seen and math.prod(padded) == size:
                seen.add(padded)
                yield layout, padded


def _fit(difference: np.ndarray) -> float:
    """How well bytes fit: the fraction that is equal, and, almost as good, what is one low or one high throughout (as
    scales of another rounding mode are)."""
    if not difference.size:
        return 1.0
    low, equal, high = (float(np.mean(difference == step)) for step in (-1, 0, 1))
    return equal + 0.99 * max(low, high)


def _describe(
    best: tuple[float, Layout, np.ndarray, _Expectation],
    also: tuple[str, ...],
    expectations: list[_Expectation],
    rounding: str,
) -> Identification:
    _, layout, logical, expectation = best
    rows, columns = expectation.data.shape
    inside = np.zeros(logical.shape, bool)
    inside[:rows, :columns] = True
    values, counts = np.unique(logical[~inside], return_counts=True)
    wrong = logical[:rows, :columns] != expectation.data
    where = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else None
    note = ""
    if where is not None:
        note = _pattern(logical[:rows, :columns].astype(int) - expectation.data, "another scale rounding mode")
    elif expectation.rounding and expectation.rounding != rounding and not expectation.nibble_order:
        asked = next(e for e in expectations if e.rounding == rounding)
        modes = f"rounding mode {expectation.rounding}, expected {rounding}"
        note = _pattern(expectation.data.astype(int) - asked.data, modes) or modes
    return Identification(
        layout,
        1.0 - float(wrong.mean()) if wrong.size else 1.0,
        expectation.rounding,
        expectation.nibble_order,
        tuple(int(values[i]) for i in np.argsort(-counts, kind="stable")),
        where,
        int(logical[where]) if where is not None else None,
        int(expectation.data[where]) if where is not None else None,
        note,
        also,
    )


def _pattern(difference: np.ndarray, cause: str) -> str:
    """What the bytes that differ have in common, and what causes that, in words."""
    wrong = difference != 0
    steps = np.unique(difference[wrong])
    # A few bytes that are off by one are damage, not another rounding.
    if len(steps) != 1 or abs(steps[0]) != 1 or wrong.mean() < 0.01:
        return ""
    which = "scale bytes are all" if wrong.all() else f"{wrong.mean():.1%} of the scale bytes differ and are all"
    return f"{which} one {'low' if steps[0] < 0 else 'high'}: {cause}"
