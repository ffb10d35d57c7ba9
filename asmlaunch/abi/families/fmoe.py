"""fmoe: a mixture-of-experts layer in one kernel: gate/up GEMM, activation, down GEMM, weighted sum (gfx942, gfx950).

Rows come in blocks of 32, sorted by expert; each workgroup takes one block and ``sub`` columns of the intermediate.
The output is accumulated with atomics and has to hold zeros. Weights are shuffled (16, 16).

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from asmlaunch.abi.families.base import (
    Dim3,
    Family,
    Require,
    Variant,
    ceil_div,
    num,
    plain_name,
    ptr,
    rows_nbytes,
    slots,
)
from asmlaunch.abi.schema import Symbol, extent
from asmlaunch.codeobject import KernelInfo

#: Kernels that share the name fmoe_kernel_func, by the start of their code's sha256.
_ANONYMOUS = {
    "8d783838ffa1baef": "fmoe_bf16_noquant_g1u0_gelu",
    "fe814fffcfb697a6": "fmoe_fp16_noquant_g1u0_gelu",
    "b1282435992743a2": "fmoe_int8_g1u0_gelu",
    "f68c3401fc54a37a": "fmoe_int8_g1u0_smf_gelu",
}


def _is_anonymous(kernel: KernelInfo) -> bool:
    return plain_name(kernel.name) == "fmoe_kernel_func"


def _full_name(kernel: KernelInfo) -> str:
    """A name that says what the kernel is: its own, or the one in ``_ANONYMOUS``."""
    name = plain_name(kernel.name)
    return _ANONYMOUS.get(hashlib.sha256(kernel.code).hexdigest()[:16], name) if _is_anonymous(kernel) else name


def _where(pattern: str, changes: Mapping[str, Mapping[str, Any]]) -> Variant:
    return Variant("", changes, lambda kernel: re.search(pattern, _full_name(kernel)) is not None)


def _derived(kernel: KernelInfo, _: Mapping[str, Any]) -> dict[str, Any]:
    name, anonymous = _full_name(kernel), _is_anonymous(kernel)
    parts = frozenset(name.split("_"))
    columns = re.search(r"(?:subGU_|32x)(\d+)", name)
    f16_output = bool(parts & {"fp16", "f16"})
    # f16 sums of values that were converted to bf16: right where there is nothing to add.
    one_part = f16_output and not anonymous and not parts & {"vs", "novs"}
    smf, gated = "smf" in parts, "g1u1" in parts
    form = _format(name)
    return {
        "sub": int(columns[1]) if columns else 512,
        "format": "f16" if anonymous and f16_output and form == "bf16" else form,
        "activation": "gelu" if "gelu" in parts else "silu",
        "gated": gated,
        # Activations per token and slot, not per token.
        "rows_by_slot": "multix" in parts or (form == "int8" and not gated and not smf),
        "smoothed": bool(parts & {"multix", "smf"}) or (form == "int8" and not gated),
        "quantises": smf,
        "weight_first": "tkw1" in parts,
        "output": "f16" if f16_output else "bf16",
        # Of the parts that are added: f16 is cut off but in fmoe_f16.
        "rounding": "toward_zero" if f16_output and not anonymous and not one_part else "nearest",
        "one_part": one_part,
        "persistent": "ps" in parts,
        "swapped": smf,
        "dim_step": _dim_step(kernel, form),
    }


def _format(name: str) -> str:
    """The number format of weights, and of activations where the kernel does not quantise them itself.

    Kernels that are called Int8 and apply the weights first are fp8 kernels: their matrix instructions are.
    """
    lower = name.lower()
    forms = (
        ("int4fp8", "int4"), ("blockscale", "fp8_blocks"), ("mxfp4", "mxfp4"), ("noquant", "bf16"), ("tkw1", "fp8"),
        ("fp8", "fp8"), ("int8", "int8"),
    )  # fmt: skip
    return next(form for part, form in forms if part in lower)


def _dim_step(kernel: KernelInfo, form: str) -> tuple[int, int, bool]:
    """Multiple (0 for none) and minimum of ``dim``, and whether 256 is right although it is not among them.

    Kernels compute the output's columns in a loop over pairs of tiles; what follows it takes the second tile to be the
    last. Found by executing kernels of each kind with dim = 128, 256, 384, 512, 640, 768, 1024, 1280, 1536.
    """
    name = _full_name(kernel)
    parts, mangled = frozenset(name.split("_")), kernel.name.startswith("_Z")
    smf, gated = "smf" in parts, "g1u1" in parts
    if form in ("bf16", "f16"):
        return 256, 512, False
    if (
        {"atm", "opt"} <= parts
        or (form == "fp8_blocks" and not mangled)
        or (form == "int8" and not gated and not smf and _is_anonymous(kernel))
    ):
        return 512, 1024, False
    if form == "int8" and smf:
        return 512, 512, gated
    if form in ("fp8_blocks", "mxfp4"):
        return 512, 512, True
    if form == "fp8" and "vs" in parts and "pertokenFp8" in parts and not parts & {"ps", "multix", "tkw1", "smf"}:
        # With 128 columns the loop never stores the tiles that it has computed to LDS; all but the last are lost.
        return (0, 0, True) if name.endswith("x128") else (512, 512, True)
    return 256, 256, False


def _grid(p: Any) -> Dim3:
    if p.persistent and p.total_tgs:
        return p.total_tgs, 1, 1
    chunks = ceil_div(p.inter_dim, p.sub)
    return (p.blocks, chunks, 1) if p.swapped else (chunks, p.blocks, 1)


def _output_nbytes(p: Any) -> int:
    return rows_nbytes(p.token_cnt, p.Os, 2 * p.dim) if p.token_cnt else 0


def _rows_nbytes(p: Any) -> int:
    return int(4 * 32 * p.blocks)


def _x_nbytes(p: Any) -> int:
    """Rows of X that are sure to be read: all tokens', in kernels with one a slot those of all slots."""
    bits = 16 if p.quantises else 8 if p.format == "int4" else _BITS.get(p.format, 8)
    return rows_nbytes(p.token_cnt * (p.topk if p.rows_by_slot else 1), p.Xs, p.dim * bits // 8)


def _x_scales_nbytes(p: Any) -> int:
    if p.quantises:
        return int(4 * p.eprt_cnt * p.dim)
    if p.format == "mxfp4":
        return int(32 * p.blocks * p.dim // 32)
    if p.format in _BITS:  # 16-bit formats have none
        return 0
    rows = p.token_cnt * (p.topk if p.rows_by_slot else 1)
    return int(4 * rows * (p.dim // 128 if p.format == "fp8_blocks" else 1))


def _per_expert(size: str) -> Callable[[Any], int]:
    """As many bytes an expert as an argument says; experts are counted only where the caller gives their number."""
    return lambda p: int(p.eprt_cnt * p.get(size))


def _dim_is_right(p: Any) -> bool:
    step, least, also_256 = p.dim_step
    return (step > 0 and p.dim % step == 0 and p.dim >= least) or (also_256 and p.dim == 256)


_BITS = {"mxfp4": 4, "bf16": 16, "f16": 16}

_WHY = "offsets have 32 bits, those of experts too (experts are counted where eprt_cnt is given)"


def _reaches(count: Callable[[Any], int], size: str) -> Callable[[Any], bool]:
    return lambda p: count(p) * p.get(size) < 2**32


_DEAD = {"live": False, "default": 0}
_LIVE = {"live": True, "default": None}
_SCALES = ("ptr_XQ", "ptr_GUQ", "ptr_DQ", "eGUQs", "eDQs")

FAMILY = Family(
    name="fmoe",
    title="mixture-of-experts layer in one kernel",
    pattern=r"fmoe_(?!stage1)\w+",
    derived=_derived,
    fields=slots(
        ptr("ptr_O", "output", "bf16 or f16 [tokens, dim], rows Os bytes apart", "O", nbytes=_output_nbytes),
        ptr("ptr_X", "activations", "rows Xs bytes apart", "X", nbytes=_x_nbytes),
        ptr(
            "ptr_GU", "gate and up weights, shuffled", "[experts, 2 * inter_dim, dim]", "G", nbytes=_per_expert("eGUs")
        ),
        ptr("ptr_XC", "rows after padding, and tokens", "i32 [2]", "U", nbytes=lambda _: 8),
        ptr("ptr_D", "down weights, shuffled", "[experts, dim, inter_dim]", "D", nbytes=_per_expert("eDs")),
        ptr("ptr_XQ", "scales of the activations", meta="XQ", nbytes=_x_scales_nbytes),
        ptr("ptr_GUQ", "scales of gate and up", meta="GQ", nbytes=_per_expert("eGUQs")),
        ptr("ptr_DQ", "scales of down", meta="DQ", nbytes=_per_expert("eDQs")),
        ptr(
            "ptr_SMQ",
            "smoothing of the intermediate",
            "f32 [experts, inter_dim]",
            "SMQ",
            live=False,
            nbytes=_per_expert("eSMQs"),
        ),
        ptr("ptr_STP", "sorted tokens: slot << 24 | token", "i32 [blocks * 32]", "STP", nbytes=_rows_nbytes),
        ptr("ptr_SW", "sorted weights", "f32 [blocks * 32]", "SW", nbytes=_rows_nbytes),
        ptr("ptr_SEP", "expert of each block", "i32 [blocks]", "SEP", nbytes=lambda p: int(4 * p.blocks)),
        num("dim", "model size", "elements"),
        num("inter_dim", "size of the intermediate", "elements", "hdim"),
        num("token_cnt", "tokens", "rows", "batch"),
        num("eprt_cnt", "experts; loaded, not used", "", "eprt", live=False),
        num("Xs", "row stride of X", "bytes"),
        num("GUs", "row stride of gate and up", "bytes"),
        num("Ds", "row stride of down", "bytes"),
        num("Os", "row stride of the output", "bytes"),
        num("eGUs", "bytes of gate and up per expert", "bytes"),
        num("eDs", "bytes of down per expert", "bytes"),
        num("eGUQs", "bytes of their scales per expert", "bytes"),
        num("eDQs", "bytes of down's scales per expert", "bytes"),
        num("eSMQs", "bytes of smoothing per expert", "bytes", live=False),
        num("topk", "experts per token", live=False),
        num("total_tgs", "persistent workgroups; 0 for the plain grid", live=False),
        num("ps_deno", "chunks of a persistent workgroup", live=False),
    ),
    variants=(
        _where("noquant", dict.fromkeys(_SCALES, _DEAD)),
        _where("multix|smf|[iI]nt8_g1u0", dict.fromkeys(("ptr_SMQ", "eSMQs", "topk"), _LIVE)),
        _where("smf", {"topk": _DEAD}),
        _where("g1u0", {"inter_dim": {"live": False}}),
        _where("int4fp8", {"ptr_SMQ": _LIVE, "eSMQs": _LIVE}),
        _where("_ps(_|$)", {"total_tgs": _LIVE, "ps_deno": _LIVE, "token_cnt": _DEAD}),
    ),
    symbols=(Symbol("blocks", "blocks of 32 sorted rows", derive=(extent("SEP", 0),)),),
    grid=_grid,
    zero=lambda _: ("ptr_O",),
    requires=(
        Require(
            "inter_dim",
            lambda p: p.inter_dim <= p.sub,
            "the kernel's columns: it adds bf16 bits as f16, right (in bf16) for one chunk and slot a token only",
            when=lambda p: p.one_part,
        ),
        Require("dim", _dim_is_right, "a size the kernel's column loop handles (see the family's docs)"),
        Require(
            "inter_dim", lambda p: p.inter_dim > 0 and p.inter_dim % p.sub == 0, "a multiple of the kernel's columns"
        ),
        *(
            Require(what, _reaches(count, size), f"less than 4 GiB: {_WHY}")
            for what, count, size in (
                ("X", lambda p: p.token_cnt * (p.topk if p.rows_by_slot else 1), "Xs"),
                ("O", lambda p: p.token_cnt, "Os"),
                ("eGUs", lambda p: p.eprt_cnt - 1, "eGUs"),
                ("eDs", lambda p: p.eprt_cnt - 1, "eDs"),
            )
        ),
        Require("token_cnt", lambda p: p.token_cnt < 2**24, "less than 2^24: the slot is above the token in its id"),
        Require(
            "eDQs", lambda p: p.eDQs == 4 * p.dim, "4 * dim: it is also the pitch of XQ", when=lambda p: p.quantises
        ),
        Require("ps_deno", lambda p: p.ps_deno > 0, "at least 1", when=lambda p: p.persistent and p.total_tgs),
    ),
)
