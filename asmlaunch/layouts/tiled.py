"""Tensors that carry their layout: ``Tiled`` around numpy arrays, ``TiledTensor`` (``tiled_torch``) as a torch tensor.

A mark on a tensor that most operations drop is how bytes in the wrong order reach a kernel. These keep the tag through
what moves or copies whole tensors or whole tiles, and refuse everything that would leave bytes without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asmlaunch.errors import LayoutError
from asmlaunch.layouts import _tensors
from asmlaunch.layouts.layout import Layout
from asmlaunch.layouts.named import get
from asmlaunch.layouts.tag import Tag, make_tag


@dataclass(frozen=True, eq=False)
class Tiled:
    """A numpy buffer in a layout, with its tag.

    It converts to no plain array by itself; :meth:`logical` gives the elements and :meth:`plain` the bytes. Kernels
    take it as an argument.
    """

    buffer: np.ndarray
    tag: Tag

    @property
    def layout(self) -> Layout:
        """The layout of the buffer."""
        return self.tag.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.tag.shape

    def logical(self) -> np.ndarray:
        """The elements in logical order, without padding (a copy)."""
        return self.layout.invert(self.buffer, self.shape)

    def plain(self) -> np.ndarray:
        """The buffer itself, of the padded shape, without the tag."""
        return self.buffer

    def copy(self) -> Tiled:
        """A copy with the same tag."""
        return Tiled(self.buffer.copy(), self.tag)

    def torch(self) -> Any:
        """The same memory as a torch tensor that keeps the tag."""
        import torch

        from asmlaunch.layouts.tiled_torch import TiledTensor

        return TiledTensor(torch.from_numpy(self.buffer), self.tag)

    def __getitem__(self, index: Any) -> Tiled:
        tag = self.tag.sliced(index)
        return Tiled(self.buffer[index], tag)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise LayoutError(
            f"conversion of a tensor in layout {self.layout.label} to a plain array",
            hint="use .logical() for the elements or .plain() for the bytes",
        )

    def __dlpack__(self, **options: Any) -> Any:
        return self.buffer.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.buffer.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<Tiled {self.tag}>"


def tile(
    array: Any,
    layout: Layout | str,
    *,
    pad_value: int | None = None,
    padded: Sequence[int] | None = None,
    element: str = "",
    rounding: str = "",
) -> Any:
    """Put a tensor into a layout and keep the layout with it: ``Tiled`` for numpy, ``TiledTensor`` for torch.

    Args:
        array: the logical tensor.
        layout: a layout or the name of one.
        pad_value, padded: as for :meth:`Layout.apply`.
        element, rounding: what the elements are and which quantisation made them, for checks and for people.

    Raises:
        LayoutError: as :meth:`Layout.apply`.
    """
    layout = get(layout) if isinstance(layout, str) else layout
    buffer = layout.apply(array, pad_value=pad_value, padded=padded)
    return wrap(buffer, layout, array.shape, pad_value=pad_value, element=element, rounding=rounding)


def wrap(
    buffer: Any,
    layout: Layout | str,
    shape: Sequence[int],
    *,
    pad_value: int | None = None,
    element: str = "",
    rounding: str = "",
) -> Any:
    """Say of a buffer that is in a layout already which one, and of what logical shape; nothing is copied.

    Raises:
        LayoutError: a buffer that cannot be it (size, element size), or is not contiguous.
    """
    layout = get(layout) if isinstance(layout, str) else layout
    layout.check_itemsize(buffer)
    tag = make_tag(layout, shape, buffer.shape, pad_value, element, rounding)
    contiguous = buffer.is_contiguous() if _tensors.is_torch(buffer) else buffer.flags.c_contiguous
    if not contiguous:
        raise LayoutError(f"buffer in layout {layout.label}", got="strided memory", need="contiguous memory")
    if _tensors.is_torch(buffer):
        from asmlaunch.layouts.tiled_torch import TiledTensor

        return TiledTensor(buffer.reshape(tag.padded), tag)
    return Tiled(buffer.reshape(tag.padded), tag)


def require(value: Any, layout: Layout | str, what: str = "tensor") -> Any:
    """The plain buffer of a tensor that is in ``layout``.

    Args:
        value: a ``Tiled`` or ``TiledTensor``.
        layout: the layout needed.
        what: the thing it is needed for, for the message.

    Raises:
        LayoutError: another layout, or plain memory of which nobody knows the layout; the message names both.
    """
    layout = get(layout) if isinstance(layout, str) else layout
    tag = getattr(value, "tag", None)
    if not isinstance(tag, Tag):
        raise LayoutError(
            what,
            got=f"plain {type(value).__name__} of shape {tuple(getattr(value, 'shape', ()))}",
            need=f"a tensor in layout {layout.label}",
            hint="layouts.tile puts it there; layouts.wrap says that it is there already",
        )
    if tag.layout != layout:
        raise LayoutError(
            what, got=f"layout {tag.layout.label}", need=f"layout {layout.label}", hint="layouts.convert changes it"
        )
    return value.plain()
