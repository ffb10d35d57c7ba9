"""``matmul``, ``addmm`` and ``gemm_a4w4``: what users call. Everything is checked here, before anything is launched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton

from asmlaunch.errors import ArgumentError, DeviceError, LayoutError
from asmlaunch.layouts import Layout
from asmlaunch.layouts.tag import Tag
from asmlaunch.triton_ref import hardware, mx, ops, places, tiles
from asmlaunch.triton_ref.dense import FP8
from asmlaunch.triton_ref.tiles import Config

_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_OPERANDS = ("a", "b", "a_scale", "b_scale")
_LARGEST = 2**31 - 512


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    schedule: str | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """``a x b``, added in float32 (int8: in int32) and rounded once; never TF32.

    Args:
        a: ``[M, K]``, any strides: bfloat16, float16, float32, int8, or FP8 (E4M3FN, E5M2, E4M3FNUZ).
        b: ``[K, N]``, any strides, of the same type (FP8: any FP8).
        out: where to write the result, ``[M, N]``, any strides without overlap; refused where a gradient is needed.
        out_dtype: of the result; the operands' own, bfloat16 for FP8, int32 for int8, float32 for scaled int8.
        a_scale: float32, one a row (token) of a; b_scale: float32, one a column (channel) of b. Both or neither; for
            FP8 and int8.
        schedule: one of ``tiles.SCHEDULES``; the analytical model chooses where it is left out.
        config: tile, warps and all, instead of the model's choice.

    Raises:
        LayoutError: shapes, types or devices that do not belong together. ArgumentError: an option that does not fit.
        LaunchError: an unknown schedule, or a configuration that the processor cannot hold. DeviceError: tensors on the
            CPU, outside Triton's interpreter.
    """
    return _dense(None, a, b, out, out_dtype, a_scale, b_scale, 1.0, 0.0, schedule, config)


def addmm(
    c: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    a_scale: torch.Tensor | None = None,
    b_scale: torch.Tensor | None = None,
    schedule: str | None = None,
    config: Config | None = None,
) -> torch.Tensor:
    """``beta * c + alpha * a x b``, computed in float32 and rounded once.

    Args:
        c: what broadcasts to ``[M, N]`` as in torch: ``[N]`` is one number a column.
        a, b, out, out_dtype, a_scale, b_scale, schedule, config: as for :func:`matmul`.

    Raises:
        As :func:`matmul`.
    """
    return _dense(c, a, b, out, out_dtype, a_scale, b_scale, float(alpha), float(beta), schedule, config)


def gemm_a4w4(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
    layouts: Mapping[str, Layout | str] | None = None,
    schedule: str = "auto",
    split_k: int = 1,
) -> torch.Tensor:
    """``alpha * a x b^T + beta * c + bias`` of MX matrices, right for every scale byte.

    Args:
        a: ``[M, K/2]`` FP4 bytes (uint8 or float4_e2m1fn_x2, element 2i of K in the low nibble), ``[M, K]``
            float8_e4m3fn or float8_e5m2, or ``[M, K]`` bfloat16 without scales.
        b: ``[N, K/2]`` FP4 bytes or ``[N, K]`` FP8.
        a_scale, b_scale: E8M0 bytes (uint8 or float8_e8m0fnu) ``[rows, ceil(K/32)]``, or in a layout, then padded.
        bias: ``[N]``. c: broadcasts to ``[M, N]``.
        out: where to write the result, ``[M, N]``, any strides without overlap.
        out_dtype: bfloat16, float16 or float32.
        layouts: of ``a``, ``b``, ``a_scale``, ``b_scale``, by these names; what is not named is in logical order. The
            kernels read each operand through its layout's address formula. Tensors that carry a layout
            (``layouts.tile``) need no mention.
        schedule: ``auto``; ``direct`` (everything through the layouts, one tile a program); ``exact`` (in float64);
            ``dequantise`` (one pass to bfloat16, then the dense kernel); ``skinny`` (at most 16 rows of plain MXFP4);
            ``blocks`` (plain MXFP4 on Hopper, one sum a block of 32).
        split_k: parts of K that the direct schedule adds separately, in float32 and then in order.

    Raises:
        LayoutError: shapes, types, layouts or devices that do not belong together. ArgumentError: an option that does
            not fit. DeviceError: tensors on the CPU, outside Triton's interpreter.
    """
    given = dict(layouts or {})
    unknown = set(given) - set(_OPERANDS)
    if unknown:
        raise ArgumentError("layouts", got=sorted(unknown), need=f"names of {', '.join(_OPERANDS)}")
    tensors: dict[str, torch.Tensor | None] = {}
    logical: dict[str, tuple[int, ...]] = {}
    for name, value in zip(_OPERANDS, (a, b, a_scale, b_scale), strict=True):
        tag = getattr(value, "tag", None)
        if isinstance(tag, Tag):
            given.setdefault(name, tag.layout)
            if places.describe(given[name]) != places.describe(tag.layout):
                raise LayoutError(f"layout of {name}", got=places.describe(given[name]), need=tag.layout.label)
            logical[name] = tag.shape
            tagged: Any = value
            value = tagged.plain()
        tensors[name] = _bytes(name, value)
    described = [places.describe(given.get(name)) for name in _OPERANDS]
    left, right = tensors["a"], tensors["b"]
    assert left is not None
    assert right is not None
    a_op = mx.operand("a", left, tensors["a_scale"], described[0], described[2], rows=logical.get("a", (None,))[0])
    b_op = mx.operand("b", right, tensors["b_scale"], described[1], described[3], rows=logical.get("b", (None,))[0])
    mx.check(a_op, b_op)
    _check_choice(schedule, split_k, a_op, b_op)
    shape = (a_op.rows, b_op.rows)
    if max(*shape, a_op.k) > _LARGEST:
        raise LayoutError("sizes M, N, K", got=(*shape, a_op.k), need=f"at most {_LARGEST} each")
    if bias is not None and (tuple(bias.shape) != (shape[1],) or not bias.is_contiguous()):
        raise LayoutError("bias", got=f"shape {tuple(bias.shape)}", need=f"({shape[1]},), contiguous")
    c = None if beta == 0 else c
    _check_addend("c", c, shape, left.device)
    _check_addend("bias", bias, shape, left.device)
    _check_device(left)
    if any(t is not None and t.requires_grad for t in (a, b, bias, c)) and torch.is_grad_enabled():
        raise ArgumentError(
            "gemm_a4w4", got="a tensor that requires a gradient", need="one that does not", hint="use torch.no_grad()"
        )
    if out is None:
        if out_dtype not in _FLOATS:
            raise LayoutError("out_dtype", got=out_dtype, need="bfloat16, float16 or float32")
        result: torch.Tensor = ops.gemm_a4w4(
            left, right, tensors["a_scale"], tensors["b_scale"], bias, c, *shape, float(alpha), float(beta), out_dtype,
            "|".join(described), schedule, split_k,
        )  # fmt: skip
        return result
    _check_out(out, shape, left.device, _FLOATS)
    ops.gemm_a4w4_out(
        left, right, tensors["a_scale"], tensors["b_scale"], bias, c, float(alpha), float(beta),
        "|".join(described), schedule, split_k, out,
    )  # fmt: skip
    return out


def _check_choice(schedule: str, split_k: int, a: mx.Operand, b: mx.Operand) -> None:
    if schedule not in ("auto", *mx.SCHEDULES):
        raise ArgumentError("schedule of gemm_a4w4", got=repr(schedule), need=f"auto, {', '.join(mx.SCHEDULES)}")
    if schedule == "skinny" and not mx.skinny_fits(a, b):
        need = "at most 16 rows, MXFP4 operands, plain b, K a multiple of 32"
        raise ArgumentError("schedule skinny", got=f"{a.rows} rows of {a.format}, b of {b.format}, K={a.k}", need=need)
    if split_k < 1 or (split_k > 1 and schedule not in ("auto", "direct")):
        got = f"{split_k} with schedule {schedule}"
        raise ArgumentError("split_k", got=got, need="1, or more with direct or auto")


def _bytes(name: str, value: torch.Tensor | None) -> torch.Tensor | None:
    """Packed FP4 and scale types as their bytes: Triton refuses float8_e8m0fnu."""
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        raise LayoutError(f"operand {name}", got=type(value).__name__, need="a torch tensor")
    if value.dtype in (getattr(torch, "float4_e2m1fn_x2", None), getattr(torch, "float8_e8m0fnu", None)):
        return value.view(torch.uint8)
    return value


def _dense(
    c: torch.Tensor | None,
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None,
    out_dtype: torch.dtype | None,
    a_scale: torch.Tensor | None,
    b_scale: torch.Tensor | None,
    alpha: float,
    beta: float,
    schedule: str | None,
    config: Config | None,
) -> torch.Tensor:
    _check_dense(a, b)
    shape = (a.shape[0], b.shape[1])
    if schedule is not None and schedule not in tiles.SCHEDULES:
        raise ArgumentError("schedule", got=repr(schedule), need=f"one of {', '.join(tiles.SCHEDULES)}")
    if config is not None and schedule is not None and config.schedule != schedule:
        got = f"{schedule!r}, and {config.schedule!r} in config"
        raise ArgumentError("schedule", got=got, need="one of them")
    _check_addend("c", c, shape, a.device)
    scales = _scales(a, b, a_scale, b_scale)
    dtype = out.dtype if out is not None else out_dtype or _result_type(a, a_scale)
    exact = a.dtype == torch.int8 and a_scale is None and c is None and alpha == 1
    if dtype not in _FLOATS and not (exact and dtype == torch.int32):
        need = "bfloat16, float16 or float32, or int32 for a plain product of int8"
        raise LayoutError("type of the result", got=dtype, need=need)
    _check_device(a)
    if c is not None and beta == 0:
        c = None  # as torch: what is multiplied by no weight is not even read
    arguments = c, a, b, *scales, alpha, beta
    if out is None:
        result: torch.Tensor = ops.addmm(*arguments, dtype, schedule or "", ops.encode(config))
        return result
    _check_out(out, shape, a.device, (dtype,))
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (a, b, c, out)):
        raise ArgumentError(
            "out=", got="operands that require a gradient", need="none", hint="leave out= away, or use torch.no_grad()"
        )
    ops.addmm_out(*arguments, schedule or "", ops.encode(config), out)
    return out


def _result_type(a: torch.Tensor, a_scale: torch.Tensor | None) -> torch.dtype:
    if a.dtype == torch.int8:
        return torch.int32 if a_scale is None else torch.float32
    return a.dtype if a.dtype in _FLOATS else torch.bfloat16


def _check_dense(a: torch.Tensor, b: torch.Tensor) -> None:
    for name, tensor in (("a", a), ("b", b)):
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 2:
            got = f"shape {tuple(tensor.shape)}" if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise LayoutError(f"operand {name}", got=got, need="a matrix")
        if tensor.dtype not in _FLOATS and tensor.dtype not in FP8 and tensor.dtype != torch.int8:
            need = "bfloat16, float16, float32, int8 or FP8"
            raise LayoutError(f"operand {name}", got=tensor.dtype, need=need)
    if a.shape[1] != b.shape[0]:
        raise LayoutError("inner sizes of a and b", got=f"{a.shape[1]} and {b.shape[0]}", need="the same")
    if a.dtype != b.dtype and not (a.dtype in FP8 and b.dtype in FP8):
        raise LayoutError("types of a and b", got=f"{a.dtype} and {b.dtype}", need="the same, or two of FP8")
    if a.device != b.device:
        raise LayoutError("operands a and b", got=f"devices {a.device} and {b.device}", need="one device")
    if max(*a.shape, b.shape[1]) > _LARGEST:
        raise LayoutError("sizes M, N, K", got=(*a.shape, b.shape[1]), need=f"at most {_LARGEST} each")


def _scales(
    a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor | None, b_scale: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    if a_scale is None and b_scale is None:
        return None, None
    if a_scale is None or b_scale is None:
        raise ArgumentError("a_scale and b_scale", got="one of them", need="both or neither")
    if a.dtype in _FLOATS:
        raise ArgumentError("a_scale and b_scale", got=f"operands of {a.dtype}", need="FP8 or int8")
    found = []
    for name, scale, shapes in (
        ("a_scale", a_scale, ((a.shape[0],), (a.shape[0], 1))),
        ("b_scale", b_scale, ((b.shape[1],), (1, b.shape[1]))),
    ):
        if tuple(scale.shape) not in shapes or scale.dtype != torch.float32 or scale.device != a.device:
            got = f"{scale.dtype} of shape {tuple(scale.shape)} on {scale.device}"
            raise LayoutError(name, got=got, need=f"float32 of shape {shapes[0]} or {shapes[1]} on {a.device}")
        found.append(scale.reshape(-1).contiguous())
    return found[0], found[1]


def _check_addend(name: str, value: torch.Tensor | None, shape: tuple[int, int], device: torch.device) -> None:
    if value is None:
        return
    fits = value.dim() <= 2 and all(
        have in (1, need) for have, need in zip(reversed(value.shape), reversed(shape), strict=False)
    )
    if not fits:
        raise LayoutError(name, got=f"shape {tuple(value.shape)}", need=f"what broadcasts to {shape}")
    if value.dtype not in _FLOATS or value.device != device:
        got = f"{value.dtype} on {value.device}"
        raise LayoutError(name, got=got, need=f"bfloat16, float16 or float32 on {device}")


def _check_out(
    out: torch.Tensor, shape: tuple[int, int], device: torch.device, dtypes: tuple[torch.dtype, ...]
) -> None:
    if tuple(out.shape) != shape or out.dtype not in dtypes or out.device != device:
        got = f"{out.dtype} of shape {tuple(out.shape)} on {out.device}"
        names = " or ".join(str(d) for d in dtypes)
        raise LayoutError("out", got=got, need=f"{names} of shape {shape} on {device}")
    if torch._debug_has_internal_overlap(out) == 1:
        raise LayoutError("out", got=f"strides {out.stride()}", need="memory of its own for each element")


def _check_device(tensor: torch.Tensor) -> None:
    if tensor.device.type == "cuda" or torch.compiler.is_compiling():
        return
    if tensor.device.type == "cpu" and (triton.knobs.runtime.interpret or hardware.pretended.get()):
        return
    if tensor.device.type == "meta" or type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return
    raise DeviceError(
        "Triton reference", got=f"tensors on {tensor.device}", need="a GPU",
        hint="on the CPU, start Python with TRITON_INTERPRET=1",
    )  # fmt: skip
