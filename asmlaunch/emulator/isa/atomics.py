"""What memory atomics do to an element, and the names they have in each space (AMD CDNA4 ISA manual, opcodes and
section "Float Memory Atomics").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from asmlaunch.emulator.isa.floats import bf16_bits, bf16_value
from asmlaunch.emulator.isa.language import F16, F32, F64, I32, I64, U16, U32, U64, Float, Integer, Value, select

Update = Callable[..., Any]
Form = tuple[str, type[Value], Update]


@dataclass(frozen=True)
class Atomic:
    """One operation: its forms (name, element, update) in each space.

    Attributes:
        vector: names after ``buffer_atomic_`` and ``global_atomic_``.
        scalar: names after ``s_atomic_``.
        lds: names after ``ds_``, operation and type; the returning form has ``_rtn`` between them.
        plain_lds: whether LDS has the form that returns nothing.
    """

    vector: tuple[Form, ...] = ()
    scalar: tuple[Form, ...] = ()
    lds: tuple[Form, ...] = ()
    plain_lds: bool = True


def _integer(
    update: Callable[[Any, Any], Any], name: str, lds: str, kinds: tuple[type[Integer], type[Integer]], suffix: str,
    plain_lds: bool = True,
) -> Atomic:  # fmt: skip
    """An operation on dwords and pairs of dwords: ``name`` and ``name_x2``, in LDS ``lds_<suffix>32`` and ``64``."""
    narrow, wide = kinds
    forms: tuple[Form, ...] = ((name, narrow, update), (f"{name}_x2", wide, update))
    in_lds: tuple[Form, ...] = ((f"{lds}_{suffix}32", narrow, update), (f"{lds}_{suffix}64", wide, update))
    return Atomic(forms, forms, in_lds, plain_lds)


def _smaller(old: Any, data: Any) -> Any:
    return select(data < old, data, old)


def _larger(old: Any, data: Any) -> Any:
    return select(data >= old, data, old)


def _increment(old: Any, data: Any) -> Any:
    return select(old >= data, type(old).const(0), old + 1)


def _decrement(old: Any, data: Any) -> Any:
    return select((old == 0) | (old > data), data, old - 1)


def _compare_swap(old: Any, data: Any, compare: Any) -> Any:
    return select(old == compare, data, old)


def _reverse_compare_swap(old: Any, compare: Any, data: Any) -> Any:
    return select(old == compare, data, old)


_UNSIGNED, _SIGNED = (U32, U64), (I32, I64)


def _compare_swap_forms() -> Atomic:
    forms: tuple[Form, ...] = (("cmpswap", U32, _compare_swap), ("cmpswap_x2", U64, _compare_swap))
    in_lds: tuple[Form, ...] = (("cmpst_b32", U32, _reverse_compare_swap), ("cmpst_b64", U64, _reverse_compare_swap))
    return Atomic(forms, forms, in_lds)


ATOMICS = (
    _integer(lambda old, data: old + data, "add", "add", _UNSIGNED, "u"),
    _integer(lambda old, data: old - data, "sub", "sub", _UNSIGNED, "u"),
    _integer(_smaller, "smin", "min", _SIGNED, "i"),
    _integer(_smaller, "umin", "min", _UNSIGNED, "u"),
    _integer(_larger, "smax", "max", _SIGNED, "i"),
    _integer(_larger, "umax", "max", _UNSIGNED, "u"),
    _integer(lambda old, data: old & data, "and", "and", _UNSIGNED, "b"),
    _integer(lambda old, data: old | data, "or", "or", _UNSIGNED, "b"),
    _integer(lambda old, data: old ^ data, "xor", "xor", _UNSIGNED, "b"),
    _integer(_increment, "inc", "inc", _UNSIGNED, "u"),
    _integer(_decrement, "dec", "dec", _UNSIGNED, "u"),
    _integer(lambda old, data: data, "swap", "wrxchg", _UNSIGNED, "b", plain_lds=False),
    Atomic(lds=(("rsub_u32", U32, lambda old, data: data - old), ("rsub_u64", U64, lambda old, data: data - old))),
    Atomic(lds=(("mskor_b32", U32, lambda old, mask, data: (old & ~mask) | data),)),
    _compare_swap_forms(),
)


def _flushed(value: F32) -> F32:
    """A denormal becomes a zero of its sign."""
    bits = value.bits_as(U32)
    return select((bits & 0x7F800000) == 0, bits & 0x80000000, bits).bits_as(F32)


def add_f32(old: F32, data: F32) -> F32:
    """In L2, input denormals are flushed whatever MODE says."""
    return _flushed(old) + _flushed(data)


def add(old: Float, data: Float) -> Float:
    """One addition, rounded to nearest even; denormals are kept."""
    return old + data


def _float_larger(old: Any, data: Any) -> Any:
    return select(data > old, data, old)


def _halves(old: U32, data: U32, one: Callable[[U32, U32], U32]) -> U32:
    """The same operation on both 16-bit halves, each on its own."""
    return one(old & 0xFFFF, data & 0xFFFF) | (one(old >> 16, data >> 16) << 16)


def pk_add_bf16(old: U32, data: U32) -> U32:
    """Two independent bfloat16 additions, each rounded to nearest even; denormals are kept."""
    return _halves(old, data, lambda a, b: bf16_bits(bf16_value(a) + bf16_value(b)))


def pk_add_f16(old: U32, data: U32) -> U32:
    """Two independent f16 additions, each rounded to nearest even; denormals are kept."""

    def one(a: U32, b: U32) -> U32:
        total = _half(a) + _half(b)
        return total.bits_as(U16).to(U32)

    return _halves(old, data, one)


def _half(bits: U32) -> F16:
    return bits.to(U16).bits_as(F16)


PACKED = (
    Atomic((("add_f32", F32, add_f32),), (), (("add_f32", F32, add),)),
    Atomic((("add_f64", F64, add),), (), (("add_f64", F64, add),)),
    Atomic((("min_f64", F64, _smaller),), (), (("min_f32", F32, _smaller), ("min_f64", F64, _smaller))),
    Atomic((("max_f64", F64, _float_larger),), (), (("max_f32", F32, _float_larger), ("max_f64", F64, _float_larger))),
    Atomic((("pk_add_bf16", U32, pk_add_bf16),), (), (("pk_add_bf16", U32, pk_add_bf16),)),
    Atomic((("pk_add_f16", U32, pk_add_f16),), (), (("pk_add_f16", U32, pk_add_f16),)),
)
