"""The scaled FP4 product against float64, element by element, on every path of the host code.

The model is written from the manual: registers and scales by the layout of "Matrix Arithmetic Instructions", values by
OCP's E2M1 and E8M0 tables, sums by the arithmetic that ``isa.matrix`` states.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from asmlaunch.emulator.isa.table import Mfma, find
from asmlaunch.emulator.native import matrix
from asmlaunch.emulator.native.helpers import helpers
from asmlaunch.emulator.state import aligned

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
MNEMONIC = "v_mfma_scale_f32_16x16x128_f8f6f4"


def native(symbol: str, pointers: int, numbers: int = 0) -> ctypes._CFuncPtr:
    kinds = [ctypes.c_void_p] * pointers + [ctypes.c_uint32] * numbers
    return ctypes.CFUNCTYPE(None, *kinds)(helpers().address(symbol))


def run(registers: np.ndarray, byte_a: int, byte_b: int, vnni: bool) -> np.ndarray:
    """D of the instruction: A in registers 0..3, B in 4..7, C in 8..11, scales in 12 and 13."""
    definition = find(MNEMONIC)
    assert isinstance(definition, Mfma)
    at = [row.ctypes.data for row in registers]
    decoded = [aligned(matrix.OPERAND_BYTES) for _ in "ab"]
    scales = [aligned(matrix.SCALE_BYTES) for _ in "ab"]
    for side, source, target in (("a", at[0], decoded[0]), ("b", at[4], decoded[1])):
        native(matrix.decoded_operand(side, vnni), 2)(target.ctypes.data, source)
    for side, source, target, byte in (("a", at[12], scales[0], byte_a), ("b", at[13], scales[1], byte_b)):
        native(matrix.decoded_scale(side), 2, 1)(target.ctypes.data, source, 8 * byte)
    arguments = [at[16], *(piece.ctypes.data for piece in decoded), at[8], *(piece.ctypes.data for piece in scales)]
    native(matrix.scaled_fp4(definition, vnni), 6)(*arguments)
    return registers[16:20].view(np.float32)


def expected(registers: np.ndarray, byte_a: int, byte_b: int) -> np.ndarray:
    lane = np.arange(64)

    def operand(first: int) -> np.ndarray:
        values = np.empty((16, 128))
        for number in range(4):
            for nibble in range(8):
                codes = (registers[first + number] >> np.uint32(4 * nibble)) & 15
                values[lane % 16, 32 * (lane // 16) + 8 * number + nibble] = E2M1[codes]
        return values

    def scale(register: int, byte: int) -> np.ndarray:
        codes = (registers[register] >> np.uint32(8 * byte)) & 255
        factors = np.where(codes == 255, np.nan, np.ldexp(1.0, codes.astype(int) - 127))
        table = np.empty((16, 4))
        table[lane % 16, lane // 16] = factors
        return table

    a, b, scale_a, scale_b = operand(0), operand(4), scale(12, byte_a), scale(13, byte_b)
    total = np.empty((16, 16), np.float32)
    for register in range(4):
        total[4 * (lane // 16) + register, lane % 16] = registers[8 + register].view(np.float32)
    with np.errstate(all="ignore"):
        for block in range(4):
            part = slice(32 * block, 32 * block + 32)
            products = (a[:, part] @ b[:, part].T) * scale_a[:, [block]] * scale_b[:, block]
            total = (total.astype(np.float64) + products).astype(np.float32)
    result = np.empty((4, 64), np.float32)
    for register in range(4):
        result[register] = total[4 * (lane // 16) + register, lane % 16]
    return result


@pytest.mark.parametrize("vnni", [True, False])
@pytest.mark.parametrize(
    ("low", "high"),
    [(120, 134), (65, 189), (0, 254), (0, 255), (0, 0), (64, 65), (189, 190)],
    ids=["usual", "fast path, all of it", "any", "with NaN", "smallest", "below the fast path", "above the fast path"],
)
def test_product(vnni: bool, low: int, high: int) -> None:
    if vnni and not matrix._use_vnni(None):
        pytest.skip("this CPU has no byte dot product")
    random = np.random.default_rng(low * 1000 + high)
    registers = aligned(20 * 256).view(np.uint32).reshape(20, 64)
    registers[:8] = random.integers(0, 2**32, (8, 64), np.uint32)
    registers[8:12] = random.standard_normal((4, 64)).astype(np.float32).view(np.uint32)
    registers[12:14] = random.integers(low, high + 1, (2, 64)) << np.array([[8], [24]])
    result = run(registers, 1, 3, vnni)
    np.testing.assert_array_equal(result, expected(registers, 1, 3))


def test_every_pair_of_codes() -> None:
    """One product a block: row i of A holds code i, column j of B code j."""
    registers = aligned(20 * 256).view(np.uint32).reshape(20, 64)
    registers[0] = registers[4] = np.arange(64) % 16
    registers[12:14] = 127
    result = run(registers, 0, 0, False)
    lane = np.arange(64)
    for register in range(4):
        want = 4 * E2M1[4 * (lane // 16) + register] * E2M1[lane % 16]  # the same product in four blocks
        np.testing.assert_array_equal(result[register], want)
