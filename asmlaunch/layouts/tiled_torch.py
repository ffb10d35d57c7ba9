"""A torch tensor that carries its layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from asmlaunch.errors import LayoutError
from asmlaunch.layouts.layout import Layout
from asmlaunch.layouts.tag import Tag

# What yields a whole tensor of the same bytes, elsewhere or again: the result keeps the tag.
_KEEP = frozenset(
    {
        "clone",
        "contiguous",
        "cpu",
        "cuda",
        "detach",
        "detach_",
        "pin_memory",
        "requires_grad_",
        "share_memory_",
        "to",
    }
)
# What reads no elements: done on the plain tensor.
_LOOK = frozenset(
    {
        "__hash__",
        "__len__",
        "__reduce_ex__",
        "_has_compatible_shallow_copy_type",
        "data_ptr",
        "dim",
        "element_size",
        "get_device",
        "is_complex",
        "is_contiguous",
        "is_floating_point",
        "is_pinned",
        "is_shared",
        "nelement",
        "numel",
        "size",
        "storage_offset",
        "stride",
        "untyped_storage",
    }
)


class TiledTensor(torch.Tensor):
    """A torch tensor of bytes in a layout; its torch shape is the padded one.

    Copies, moves between devices, slices of whole tiles, ``nn.Parameter``, pickling and ``torch.save`` keep the tag.
    Any other operation would return bytes without it, or treat bytes in memory order as elements, and is refused.
    """

    _fields: dict[str, Any]

    @staticmethod
    def __new__(cls, data: torch.Tensor, tag: Tag) -> TiledTensor:
        tensor = torch.Tensor._make_subclass(cls, data)
        # Plain types, so that files hold nothing but this class.
        tensor._fields = tag.as_dict()
        return tensor

    def __init__(self, data: torch.Tensor, tag: Tag) -> None:
        super().__init__()

    @property
    def tag(self) -> Tag:
        """What the bytes are."""
        return Tag.from_dict(self._fields)

    @property
    def layout_value(self) -> Layout:
        """The layout (``layout`` is taken: torch's strided or sparse)."""
        return self.tag.layout

    def logical(self) -> torch.Tensor:
        """The elements in logical order, without padding (a copy)."""
        tag = self.tag
        return tag.layout.invert(self.plain(), tag.shape)

    def plain(self) -> torch.Tensor:
        """The same memory as an ordinary tensor of the padded shape."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(torch.Tensor)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override, unused-ignore]
        return f"<TiledTensor {self.tag} on {self.device}>"

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.__name__
        with torch._C.DisableTorchFunctionSubclass():
            if name in ("__get__", "__set__"):
                return _attribute(func, args, name)
            if name in _LOOK:
                return func(*args, **(kwargs or {}))
            if isinstance(args[0], TiledTensor):
                if name in _KEEP:
                    return _kept(name, args[0], func(*args, **(kwargs or {})))
                if name == "__getitem__":
                    return TiledTensor(args[0].plain()[args[1]], args[0].tag.sliced(args[1]))
                if name == "__deepcopy__":
                    return TiledTensor(args[0].plain().clone(), args[0].tag)
                if name == "copy_" and isinstance(args[1], TiledTensor) and args[1].tag == args[0].tag:
                    args[0].plain().copy_(args[1].plain())
                    return args[0]
                if name == "equal" and isinstance(args[1], TiledTensor) and args[1].tag == args[0].tag:
                    return torch.equal(args[0].plain(), args[1].plain())
        raise _refusal(name, args)


def _attribute(func: Any, args: Sequence[Any], name: str) -> Any:
    if name == "__set__":
        return func(*args)
    value = func(*args)
    if not isinstance(value, torch.Tensor):
        return value
    # .data is a plain tensor to torch, but the bytes are still in the layout; .T and its like are views of them.
    if (value.shape, value.stride(), value.dtype) != (args[0].shape, args[0].stride(), args[0].dtype):
        raise _refusal(func.__self__.__name__, args)
    return TiledTensor(value, args[0].tag)


def _kept(name: str, before: TiledTensor, after: torch.Tensor) -> TiledTensor:
    if after.dtype != before.dtype or after.shape != before.shape:
        raise LayoutError(
            f"{name} of a tensor in layout {before.tag.layout.label}",
            got=f"{after.dtype} of shape {tuple(after.shape)}",
            need=f"the same {before.dtype} of shape {tuple(before.shape)}",
            hint="use .logical() or .plain()",
        )
    return after if isinstance(after, TiledTensor) and hasattr(after, "_fields") else TiledTensor(after, before.tag)


def _refusal(name: str, args: Sequence[Any]) -> LayoutError:
    tags = [value.tag for value in args if isinstance(value, TiledTensor)]
    inside = tags or [v.tag for value in args if isinstance(value, (list, tuple)) for v in value if hasattr(v, "tag")]
    label = inside[0].layout.label if inside else "unknown"
    return LayoutError(
        f"operation {name} on a tensor in layout {label}",
        got=", ".join(map(str, inside)) or None,
        need="an operation that keeps whole tiles",
        hint="use .logical() for the elements or .plain() for the bytes",
    )


torch.serialization.add_safe_globals([TiledTensor])
