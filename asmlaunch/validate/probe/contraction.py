"""What a probe has to know of a GEMM to write its operands: which index belongs to which operand, and a few codes.

Nothing of a memory layout is stated here, and no tile size is used to find one: that is what probes are for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from asmlaunch.errors import KernelNotFoundError
from asmlaunch.module import Kernel


@dataclass(frozen=True)
class Codes:
    """Some codes of a number format.

    Attributes:
        dtype: of an entry in memory; two FP4 elements are one entry.
        zero: what contributes nothing.
        one: 1 (in both elements of a pair).
        weights: 1, 2, 4 and 8 times ``unit``, in the first element of a pair only.
        unit: the value of ``weights[0]``.
        more: 1.5 in the first element.
        power: the code of ``2^e`` (a number, for experiments with sums), None where powers of two are few.
        minus: what turns a code into that of the negative number, by exclusive or; 0 where there is no sign.
    """

    dtype: Any
    zero: int
    one: int
    weights: tuple[int, ...] = ()
    unit: float = 1.0
    more: int = 0
    power: Callable[[int], int] | None = None
    minus: int = 0


def _f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


FP4 = Codes(np.uint8, 0, 0x22, (0x01, 0x02, 0x04, 0x06), 0.5, more=0x03, minus=0x88)
INT8 = Codes(np.uint8, 0, 1, (1, 2, 4, 8))
E4M3 = Codes(np.uint8, 0, 0x38, (0x38, 0x40, 0x48, 0x50), more=0x3C, minus=0x80)
E4M3_FNUZ = Codes(np.uint8, 0, 0x40, (0x40, 0x48, 0x50, 0x58), more=0x44, minus=0x80)
BF16 = Codes(
    np.uint16, 0, 0x3F80, (0x3F80, 0x4000, 0x4080, 0x4100), more=0x3FC0, power=lambda e: (e + 127) << 7, minus=0x8000
)
E8M0 = Codes(np.uint8, 0, 127, power=lambda e: e + 127)
F32 = Codes(np.uint32, 0, _f32(1), power=lambda e: (e + 127) << 23, minus=1 << 31)


@dataclass(frozen=True)
class Operand:
    """One operand of ``D[m, n] = sum over k``.

    Attributes:
        rows: the result's index that it has: 0 for m, 1 for n.
        depth: elements of K that one entry covers; 0 for a factor of the whole sum.
        codes: what its entries are.
    """

    rows: int
    depth: int
    codes: Codes


@dataclass(frozen=True)
class Contraction:
    """A family of GEMMs.

    Attributes:
        operands: by argument.
        sizes: sizes (m, n, k) on which a kernel of these parameters is probed; the second is for confirmation.
        zeroed: arguments whose arrays are set to zero.
    """

    operands: Mapping[str, Operand]
    sizes: Callable[[Mapping[str, Any]], tuple[tuple[int, int, int], tuple[int, int, int]]]
    zeroed: tuple[str, ...] = ()

    @property
    def factors(self) -> tuple[str, str]:
        """The two operands that are multiplied, the left one first."""
        return tuple(name for name, one in self.operands.items() if one.codes.weights)  # type: ignore[return-value]


def _two(columns: int, k: int = 512, rows: int = 64) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    return (rows, columns, k), (2 * rows, 2 * columns, k + k // 2)


_F4 = Contraction(
    {
        "A": Operand(0, 2, FP4),
        "B": Operand(1, 2, FP4),
        "ScaleA": Operand(0, 32, E8M0),
        "ScaleB": Operand(1, 32, E8M0),
    },
    lambda p: _two(p["tile_n"]),
)
_I8 = Contraction(
    {"A": Operand(0, 1, INT8), "B": Operand(1, 1, INT8), "ScaleA": Operand(0, 0, F32), "ScaleB": Operand(1, 0, F32)},
    lambda p: _two(p.get("tile_n", 128)),
    zeroed=("bias",),
)
_BF16 = Contraction({"A": Operand(0, 1, BF16), "B": Operand(1, 1, BF16)}, lambda p: _two(p["tile_n"]))
_BLOCK_SCALE = Contraction(
    {
        "A": Operand(0, 1, E4M3),
        "B": Operand(1, 1, E4M3),
        "ScaleA": Operand(0, 128, F32),
        "ScaleB": Operand(1, 128, F32),
    },
    lambda p: _two(256),
)

#: By the name of the family.
CONTRACTIONS: dict[str, Contraction] = {
    "f4gemm": _F4,
    "i8gemm": _I8,
    "gemm_a8w8_m128": _I8,
    "bf16gemm": _BF16,
    "fp8_block_scale": _BLOCK_SCALE,
    "flatmm": replace(
        _BLOCK_SCALE,
        operands={
            name: replace(one, codes=E4M3_FNUZ) if one.codes is E4M3 else one
            for name, one in _BLOCK_SCALE.operands.items()
        },
    ),
}


def contraction_of(kernel: Kernel) -> Contraction:
    """The contraction that a kernel computes.

    Raises:
        KernelNotFoundError: it is of no family that computes one.
    """
    name = kernel.family.name if kernel.family else ""
    if name not in CONTRACTIONS:
        raise KernelNotFoundError(
            f"kernel {kernel.name}",
            got=f"family {name}" if name else "no known family",
            need=f"a matrix product: {', '.join(CONTRACTIONS)}",
        )
    return CONTRACTIONS[name]
