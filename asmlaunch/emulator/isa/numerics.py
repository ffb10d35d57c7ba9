"""How matrix instructions round: the models that a launch chooses from (``numerics=``).

"exact" is stated with each definition (``isa.matrix``). "cdna3" is what MMA-Sim (arXiv 2511.10909) found a CDNA3 matrix
core to do, by comparing every bit with the hardware's on random operands. Nobody has published what CDNA4's does.
"""

from __future__ import annotations

from dataclasses import dataclass

from asmlaunch.emulator.isa.table import Mfma

#: The models, and what each is.
NUMERICS = {
    "exact": "each group of K is summed exactly or in f64, then added to C with one rounding",
    "cdna3": "CDNA3's matrix core bit for bit, as MMA-Sim (arXiv 2511.10909) describes it",
}


@dataclass(frozen=True)
class Fused:
    """A group of K in CDNA3's matrix core: aligned, cut off, added, rounded once.

    An operand is a significand times 2**e with e at least its format's smallest normal exponent; a zero has e = -126.
    A product has the sum of both e, and is not normalised. Products are cut off towards zero ``product_digits`` binary
    digits below the largest product's exponent T and added. With E the larger of T and C's e, the sum is rounded down
    ``sum_digits`` digits below E and C ``addend_digits`` digits below E; both are added, and the result is rounded
    once to nearest even. Zero results are positive.

    NaN and infinity come from the operands as in IEEE arithmetic. Then a product of 2**128 or more is infinite, though
    the group's sum may not be.

    Attributes:
        product_digits, sum_digits, addend_digits: as above.
        parities: products of even and of odd k are added apart, each with its own T; both sums are then rounded down
            ``product_digits`` digits below the larger T (1: all are added together).
        addend_reach: C is left out when its e is more than this below E; None: never.
    """

    product_digits: int = 24
    sum_digits: int = 31
    addend_digits: int = 24
    parities: int = 1
    addend_reach: int | None = None

    def __str__(self) -> str:
        parts = f"products cut off {self.product_digits} binary digits below the largest"
        if self.parities > 1:
            parts += f", {self.parities} interleaved sums"
        parts += f", sum and C rounded down {self.sum_digits} and {self.addend_digits} digits below"
        if self.addend_reach is not None:
            parts += f", C left out more than {self.addend_reach} digits below"
        return f"{parts}, one f32 rounding a group"


_EIGHT_BITS = Fused(parities=2, addend_reach=25)

#: By the format of A; other formats are exact or rounded after every step, in both models.
_CDNA3 = {"f16": Fused(), "bf16": Fused(), "xf32": Fused(), "fp8": _EIGHT_BITS, "bf8": _EIGHT_BITS}


def published(definition: Mfma) -> bool:
    """Whether "cdna3" says how the instruction rounds: CDNA4's additions are known where they are exact."""
    return definition.cdna3 or definition.result == "i32"


def fused(definition: Mfma, numerics: str) -> Fused | None:
    """The arithmetic of a group of K where it differs from the definition's own."""
    return _CDNA3.get(definition.a) if numerics == "cdna3" else None


def described(definition: Mfma, numerics: str, processor: str) -> str:
    """The arithmetic of an instruction, in words, for reports."""
    rules = fused(definition, numerics)
    if rules is None:
        return definition.model
    where = "CDNA3 (MMA-Sim, arXiv 2511.10909)"
    if processor != "gfx942":
        where += f", which nobody has compared with {processor}"
    return f"{where}: groups of {definition.group}, ascending K: {rules}"
