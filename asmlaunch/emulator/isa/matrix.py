"""Matrix-core instructions (AMD CDNA4 ISA manual, "Matrix Arithmetic Instructions").

Layouts (section 7.1.4): with g = 64 / m lane groups and KL = k / g consecutive K values a lane, A[i, k] is in lane
i + m * (k / KL) at item k % KL, packed from bit 0 of the first register upwards; B[k, j] likewise. D and C hold row
4 * (lane / 16) + register and column lane % 16 for the 16x16 shapes.
"""

from asmlaunch.emulator.isa.table import Mfma, register

#: The 4-bit format's number in CBSZ (A) and BLGP (B): FP8 0, BF8 1, FP6 2, BF6 3, FP4 4.
FP4 = 4

#: AMD publishes no arithmetic of CDNA4's matrix core. In this model the products of a 32-element K-block are added
#: exactly, and the blocks are added to C one after the other, lowest K first, each sum rounded to nearest even;
#: denormals are kept.
BLOCK32 = "exact inside a K-block of 32, one f32 rounding a block, ascending K"

register(Mfma("v_mfma_scale_f32_16x16x128_f8f6f4", 16, 16, 128, scaled=True, model=BLOCK32))

#: Twice the value of each 4-bit code 0..7 (OCP E2M1); codes 8..15 are their negatives. Doubled, all are integers.
FP4_DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12)
