"""What a tensor in a layout is: the tag that travels with its bytes, and the rules for what may be done to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.layout import Layout
from asmlaunch.layouts.named import LAYOUTS


@dataclass(frozen=True)
class Tag:
    """How the bytes of a buffer are to be read.

    Attributes:
        layout: where each element is.
        shape: the logical shape, without padding.
        padded: the shape of the buffer, whole tiles.
        pad_value: the element in every padded position, None if nothing is padded or nothing is known.
        element: the format of the elements, such as "e8m0" or "e2m1"; "" if not stated.
        rounding: the quantisation mode that made them; "" if not stated.
    """

    layout: Layout
    shape: tuple[int, ...]
    padded: tuple[int, ...]
    pad_value: int | None = None
    element: str = ""
    rounding: str = ""

    def __str__(self) -> str:
        details = [f"padded to {self.padded}"] if self.padded != self.shape else []
        details += [f"pad 0x{self.pad_value:02x}"] if self.pad_value is not None and details else []
        details += [text for text in (self.element, self.rounding) if text]
        return f"{self.layout.label} of {self.shape}" + (f" ({', '.join(details)})" if details else "")

    def sliced(self, index: Any) -> Tag:
        """The tag of ``buffer[index]``.

        Batch dimensions take integers and slices. The first dimension of the layout takes slices of whole tiles, if its
        tiles follow one another in memory. All else would cut tiles up.

        Raises:
            LayoutError: an index that is none of those.
        """
        batch = len(self.padded) - self.layout.rank
        items = list(index) if isinstance(index, tuple) else [index]
        items += [slice(None)] * (len(self.padded) - len(items))
        shape, padded = [], []
        for position, item in enumerate(items):
            if position >= len(self.padded) or not isinstance(item, (int, slice)):
                raise self._lost(index)
            if isinstance(item, int):
                if position >= batch:
                    raise self._lost(index)
                continue
            start, stop, step = item.indices(self.padded[position])
            whole = (start, stop) == (0, self.padded[position])
            if step != 1 or not (whole or position < batch or self._cuts_tiles_whole(position - batch, start, stop)):
                raise self._lost(index)
            padded.append(max(stop - start, 0))
            shape.append(min(padded[-1], max(self.shape[position] - start, 0)))
        return replace(self, shape=tuple(shape), padded=tuple(padded))

    def _cuts_tiles_whole(self, dimension: int, start: int, stop: int) -> bool:
        tile = self.layout.tile[dimension]
        first = self.layout.groups[0][0]
        # Only where the first dimension's free axis is the slowest of all is a run of its tiles a run of memory.
        in_order = dimension == 0 and first not in self.layout.sizes and self.layout.order[0] == first
        return in_order and start % tile == 0 and stop % tile == 0

    def _lost(self, index: Any) -> LayoutError:
        return LayoutError(
            f"index {index} into a tensor in layout {self.layout.label}",
            got=f"buffer {self.padded}",
            need=f"batch indices, or whole tiles of {self.layout.tile[0]} rows",
            hint="use .logical() for the elements or .plain() for the bytes",
        )

    def as_dict(self) -> dict[str, Any]:
        """The tag in plain types, for files."""
        layout = self.layout
        return {
            "pattern": layout.pattern,
            "sizes": dict(layout.sizes),
            "name": layout.name,
            "layout_pad_value": layout.pad_value,
            "itemsize": layout.itemsize,
            "shape": list(self.shape),
            "padded": list(self.padded),
            "pad_value": self.pad_value,
            "element": self.element,
            "rounding": self.rounding,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tag:
        """The inverse of :meth:`as_dict`."""
        layout = Layout(
            data["pattern"],
            data["sizes"],
            name=data["name"],
            pad_value=data["layout_pad_value"],
            itemsize=data["itemsize"],
        )
        known = LAYOUTS.get(layout.name)
        return cls(
            known if known == layout else layout,
            tuple(data["shape"]),
            tuple(data["padded"]),
            data["pad_value"],
            data["element"],
            data["rounding"],
        )


def make_tag(
    layout: Layout, shape: Sequence[int], given: Sequence[int], pad_value: int | None, element: str, rounding: str
) -> Tag:
    """The tag of a buffer of shape ``given`` that holds a tensor of logical ``shape``.

    Raises:
        LayoutError: a buffer that does not hold exactly whole tiles of it.
    """
    padded = layout.buffer_shape(tuple(given), tuple(shape))
    if math.prod(padded) != math.prod(given):
        raise LayoutError(f"buffer in layout {layout.label}", got=f"shape {tuple(given)}", need=f"{padded}")
    if pad_value is None and padded != tuple(shape):
        pad_value = layout.pad_value
    return Tag(layout, tuple(shape), padded, pad_value, element, rounding)
