"""Matrix-core instructions (AMD CDNA3 and CDNA4 ISA manuals, "Matrix Arithmetic Instructions").

Layouts (section 7.1.4), the same rule for every instruction. With g = 64 / (m * blocks) lane groups and KL = k / g
consecutive K values a lane, A[block][i][k] is item k % KL of lane i + m * (block + blocks * (k / KL)), items packed
from bit 0 of the first register upwards; B[block][k][j] likewise. Exception: 8-bit operands of the F8F6F4 instructions,
whose lanes hold two chunks of 16 (``place``). C and D: ``result_place``.
"""

from __future__ import annotations

from dataclasses import dataclass

from asmlaunch.emulator.isa.table import Mfma, register

#: The 4-bit format's number in CBSZ (A) and BLGP (B).
FP4 = 4

#: The formats that CBSZ and BLGP number in the F8F6F4 instructions.
MX_FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")

#: Bits of an element of each operand format.
FORMAT_BITS = {
    "f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "i8": 8, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4,
}  # fmt: skip

#: Twice the value of each 4-bit code 0..7 (OCP E2M1); codes 8..15 are their negatives. Doubled, all are integers.
FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12)

#: AMD publishes no arithmetic of CDNA4's matrix core. In this model the products of a 32-element K-block are added
#: exactly, and the blocks are added to C one after the other, lowest K first, each sum rounded to nearest even;
#: denormals are kept.
BLOCK32 = "exact inside a K-block of 32, one f32 rounding a block, ascending K"

#: The group sizes are those that MMA-Sim (arXiv 2511.10909) found for CDNA3; what it found beyond them is another model
#: (``isa.numerics``).
GROUPS = "products of a group of {group} summed in f64, then added to C with one f32 rounding, ascending K"
SEQUENTIAL = "one fused multiply-add an element, ascending K"
INTEGER = "exact, modulo 2**32"


@dataclass(frozen=True)
class _Shape:
    m: int
    n: int
    k: int
    blocks: int = 1

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}" + (f"_{self.blocks}b" if self.blocks > 1 else "")


#: Shapes of 8- and 16-bit operands that CDNA4 added: a lane holds 16 bytes of each, twice as many as CDNA3's.
_ADDED_BYTES = 16


def _declare(shape: _Shape, result: str, a: str, b: str, group: int, suffix: str = "") -> None:
    sums = SEQUENTIAL if group == 1 else GROUPS.format(group=group)
    model = INTEGER if result == "i32" else sums
    name = f"v_mfma_{result}_{shape}_{suffix or a}"
    nbytes = shape.m * shape.k * shape.blocks * FORMAT_BITS[a] // 8 // 64
    added = FORMAT_BITS[a] <= 16 and nbytes >= _ADDED_BYTES
    register(Mfma(name, shape.m, shape.n, shape.k, False, model, shape.blocks, a, b, result, group, not added))


def _declare_all() -> None:
    for k in (1, 2, 4):
        if k == 1:
            shapes = [_Shape(32, 32, 1, 2), _Shape(16, 16, 1, 4), _Shape(4, 4, 1, 16)]
        else:
            shapes = [_Shape(32, 32, 2)] if k == 2 else [_Shape(16, 16, 4)]
        for shape in shapes:
            _declare(shape, "f32", "f32", "f32", 1)
    for kind in ("f16", "bf16"):
        for shape in (
            _Shape(32, 32, 4, 2), _Shape(16, 16, 4, 4), _Shape(4, 4, 4, 16), _Shape(32, 32, 8), _Shape(16, 16, 16),
            _Shape(32, 32, 16), _Shape(16, 16, 32),
        ):  # fmt: skip
            _declare(shape, "f32", kind, kind, min(8, shape.k))
    for shape in (
        _Shape(32, 32, 4, 2), _Shape(16, 16, 4, 4), _Shape(4, 4, 4, 16), _Shape(32, 32, 16), _Shape(16, 16, 32),
        _Shape(32, 32, 32), _Shape(16, 16, 64),
    ):  # fmt: skip
        _declare(shape, "i32", "i8", "i8", shape.k)
    for shape in (_Shape(32, 32, 16), _Shape(16, 16, 32)):
        for a in ("fp8", "bf8"):
            for b in ("fp8", "bf8"):
                _declare(shape, "f32", a, b, 16, f"{a}_{b}")
    for shape in (_Shape(32, 32, 4), _Shape(16, 16, 8)):
        _declare(shape, "f32", "xf32", "xf32", 4)
    for shape in (_Shape(16, 16, 4), _Shape(4, 4, 4, 4)):
        _declare(shape, "f64", "f64", "f64", 1)
    for shape in (_Shape(16, 16, 128), _Shape(32, 32, 64)):
        for scaled in (False, True):
            name = f"v_mfma_{'scale_' if scaled else ''}f32_{shape}_f8f6f4"
            register(Mfma(name, shape.m, shape.n, shape.k, scaled, BLOCK32, cdna3=False))


_declare_all()


def place(definition: Mfma, size: int, kind: str, k: int) -> tuple[int, int]:
    """Lane group and item of an operand's element ``k``; ``size`` is m for A and n for B, ``kind`` its format.

    The lane is row (or column) + size * (block + blocks * group).
    """
    groups = 64 // (size * definition.blocks)
    if definition.a == "mx" and FORMAT_BITS[kind] == 8:
        return k // 16 % groups, 16 * (k // (16 * groups)) + k % 16
    run = definition.k // groups
    return k // run, k % run


def result_place(definition: Mfma, block: int, i: int) -> tuple[int, int]:
    """Register (of an f64 result: register pair) and first lane of row ``i`` of C and D; column j is j lanes on."""
    m, n, blocks = definition.m, definition.n, definition.blocks
    if definition.result == "f64":
        if blocks == 1:
            return i // 4, 16 * (i % 4)
        return 0, 16 * i + 4 * block
    together = -(-64 // (m * n // 4))  # blocks that share a register
    rows = 64 // (together * n)  # groups of four rows in a register
    register_number = i % 4 + 4 * (i // (4 * rows) + m // (4 * rows) * (block // together))
    return register_number, n * (i // 4 % rows + rows * (block % together))


def source_block(block: int, cbsz: int, abid: int) -> int:
    """The block whose A a block uses: CBSZ broadcasts one of each 2**CBSZ blocks, ABID says which."""
    return (block & ~((1 << cbsz) - 1)) + abid


def broadcast_lane(lane: int, blgp: int) -> int:
    """The lane whose B a lane uses (BLGP)."""
    if blgp == 0:
        return lane
    if blgp in (1, 2):
        return lane % 32 + 32 * (blgp - 1)
    return (lane + 16) % 64 if blgp == 3 else lane % 16 + 16 * (blgp - 4)
