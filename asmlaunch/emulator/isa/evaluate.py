"""Expressions evaluated with numpy: lane patterns at compile time, and a slow second lowering to test the fast one
against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asmlaunch.emulator.isa.language import Bool, Float, Integer, Value

LANES = 64

_SIMPLE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _bits(values: NDArray[Any]) -> NDArray[np.bool_]:
    """The bits of unsigned integers, lowest first, along a new last axis."""
    width = 8 * values.dtype.itemsize
    bits: NDArray[np.bool_] = (values[..., None] >> np.arange(width, dtype=values.dtype) & 1) != 0
    return bits


def _first_one(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The place of the first one, or the width."""
    return np.where(bits.any(-1), bits.argmax(-1), bits.shape[-1])


#: Operations of one argument.
_ONE: dict[str, Callable[[Any], Any]] = {
    "ctpop": lambda a: _bits(a).sum(-1),
    "cttz": lambda a: _first_one(_bits(a)),
    "ctlz": lambda a: _first_one(_bits(a)[..., ::-1]),
    "bitreverse": lambda a: np.packbits(_bits(a)[..., ::-1], axis=-1, bitorder="little").view(a.dtype)[..., 0],
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
}  # fmt: skip


class NotConstantError(Exception):
    """The value depends on something that is not known when the kernel is prepared."""


def dtype_of(kind: type[Value]) -> np.dtype[Any]:
    """The numpy type that holds a value of this type."""
    if issubclass(kind, Bool):
        return np.dtype(np.bool_)
    if issubclass(kind, Float):
        return np.dtype(f"f{kind.bits // 8}")
    assert issubclass(kind, Integer)
    return np.dtype(f"{'i' if kind.signed else 'u'}{kind.bits // 8}")


def evaluate(value: Value, given: Mapping[str, Any] | None = None) -> NDArray[Any]:
    """The value in each of 64 lanes.

    Args:
        given: operands by name, scalars or arrays of 64 of the operand's type.

    Raises:
        NotConstantError: an operand that is not given.
    """
    with np.errstate(all="ignore"):
        return np.broadcast_to(_evaluate(value, given or {}, {}), (LANES,))


def _evaluate(value: Value, given: Mapping[str, Any], done: dict[int, Any]) -> Any:
    if id(value) not in done:
        done[id(value)] = _one(value, given, done)
    return done[id(value)]


def _one(value: Value, given: Mapping[str, Any], done: dict[int, Any]) -> Any:
    dtype = dtype_of(type(value))
    if value.op == "const":
        return np.asarray(value.attr & ((1 << value.bits) - 1) if isinstance(value, Integer) else value.attr).astype(
            dtype
        )
    if value.op == "lane":
        return np.arange(LANES, dtype=dtype)
    if value.op == "operand":
        if value.attr not in given:
            raise NotConstantError(value.attr)
        return np.asarray(given[value.attr], dtype)
    args = [_evaluate(arg, given, done) for arg in value.args]
    if value.op == "table":
        return np.asarray(value.attr, dtype)[args[0]]
    if value.op in _SIMPLE:
        return _SIMPLE[value.op](*args)
    if value.op in _ONE:
        return np.asarray(_ONE[value.op](args[0])).astype(dtype)
    if value.op == "table":
        return np.asarray(value.attr, dtype)[args[0]]
    if value.op == "select":
        return np.where(args[0], args[1], args[2])
    if value.op == "bitcast":
        return args[0].view(dtype) if dtype != args[0].dtype else args[0]
    if value.op == "convert":
        return args[0].astype(dtype)
    if value.op == "truncate":
        info = np.iinfo(dtype)
        wide = np.where(np.isnan(args[0]), 0, np.trunc(args[0].astype(np.float64)))
        return np.clip(wide, info.min, info.max).astype(dtype)
    if value.op == "ctpop":
        bits = np.unpackbits(np.ascontiguousarray(args[0])[..., None].view(np.uint8), axis=-1)
        return bits.sum(axis=-1, dtype=dtype)
    if value.op in ("shuffle", "read_lane"):
        return np.broadcast_to(args[0], (LANES,))[np.broadcast_to(args[1], (LANES,))]
    raise NotConstantError(value.op)
