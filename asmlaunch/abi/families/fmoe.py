"""fmoe: a mixture-of-experts layer in one kernel: gate/up GEMM, activation, down GEMM, weighted sum (gfx942, gfx950).

Rows come in blocks of 32, sorted by expert; each workgroup takes one block and ``sub`` columns of the intermediate.
The output is accumulated with atomics and has to hold zeros. Weights are shuffled (16, 16).

Source: the objects' metadata; what is live and the domain by executing their machine code.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
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


def _full_name(kernel: KernelInfo) -> str:
    """A name that says what the kernel is: its own, or the one in ``_ANONYMOUS``."""
    name = plain_name(kernel.name)
    return _ANONYMOUS.get(hashlib.sha256(kernel.code).hexdigest()[:16], name) if name == "fmoe_kernel_func" else name


def _where(pattern: str, changes: Mapping[str, Mapping[str, Any]]) -> Variant:
    return Variant("", changes, lambda kernel: re.search(pattern, _full_name(kernel)) is not None)


def _derived(kernel: KernelInfo, _: Mapping[str, Any]) -> dict[str, Any]:
    name, anonymous = _full_name(kernel), plain_name(kernel.name) == "fmoe_kernel_func"
    parts = frozenset(name.split("_"))
    columns = re.search(r"(?:subGU_|32x)(\d+)", name)
    f16_output = bool(parts & {"fp16", "f16"}) and not anonymous
    return {
        "sub": int(columns[1]) if columns else 512,
        "persistent": "ps" in parts,
        "swapped": "smf" in parts,
        "dim_step": _dim_step(name, parts, anonymous),
        # f16 sums of values that were converted to bf16.
        "broken": f16_output and (not parts & {"vs", "novs"}),
    }


def _dim_step(name: str, parts: frozenset[str], anonymous: bool) -> tuple[int, int, bool]:
    """Multiple and minimum of ``dim``, and whether 256 is right although it is no multiple."""
    if "noquant" in name:
        return 256, 512, False
    if {"atm", "opt"} <= parts or (anonymous and "int8" in parts):
        return 512, 1024, False
    if "blockscale" in name or "xfp4" in name.lower():
        return 512, 512, True
    if "vs" in parts and "ps" not in parts and "pertokenFp8" in parts and not parts & {"multix", "tkw1", "smf"}:
        return 512, 512, True
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


def _dim_is_right(p: Any) -> bool:
    step, least, also_256 = p.dim_step
    return (p.dim % step == 0 and p.dim >= least) or (also_256 and p.dim == 256)


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
        ptr("ptr_X", "activations", "rows Xs bytes apart", "X"),
        ptr("ptr_GU", "gate and up weights, shuffled", "[experts, 2 * inter_dim, dim]", "G"),
        ptr("ptr_XC", "rows after padding, and tokens", "i32 [2]", "U", nbytes=lambda _: 8),
        ptr("ptr_D", "down weights, shuffled", "[experts, dim, inter_dim]", "D"),
        ptr("ptr_XQ", "scales of the activations", meta="XQ"),
        ptr("ptr_GUQ", "scales of gate and up", meta="GQ"),
        ptr("ptr_DQ", "scales of down", meta="DQ"),
        ptr("ptr_SMQ", "smoothing of the intermediate", "f32 [experts, inter_dim]", "SMQ", live=False),
        ptr("ptr_STP", "sorted tokens: slot << 24 | token", "i32 [blocks * 32]", "STP", nbytes=_rows_nbytes),
        ptr("ptr_SW", "sorted weights", "f32 [blocks * 32]", "SW", nbytes=_rows_nbytes),
        ptr("ptr_SEP", "expert of each block", "i32 [blocks]", "SEP"),
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
        Require("broken", lambda p: not p.broken, "another object: this one adds bf16 bits as f16"),
        Require("dim", _dim_is_right, "a size the kernel's column loop handles (see the family's docs)"),
        Require(
            "inter_dim", lambda p: p.inter_dim > 0 and p.inter_dim % p.sub == 0, "a multiple of the kernel's columns"
        ),
        Require("ps_deno", lambda p: p.ps_deno > 0, "at least 1", when=lambda p: p.persistent and p.total_tgs),
    ),
)
