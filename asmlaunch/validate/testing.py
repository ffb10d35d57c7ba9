"""For users' own test suites: compare a kernel's result with a reference in one line.

from asmlaunch.validate.testing import assert_kernel_close

def test_my_kernel():
    assert_kernel_close(run(a, b), a.double() @ b.double().T, terms=a.shape[1])
"""

from __future__ import annotations

from typing import Any

from asmlaunch.errors import ArgumentError, MismatchError
from asmlaunch.validate.compare import Bound, Comparison, Rows, compare
from asmlaunch.validate.matrix import F32_STEP, sum_bound
from asmlaunch.validate.reference import Reference


class KernelMismatch(MismatchError, AssertionError):
    """A result beyond its bound; test runners show it as a failed assertion."""


def assert_kernel_close(
    result: Any,
    reference: Reference | Rows | Any,
    *,
    terms: int = 1,
    bound: Bound | None = None,
    before: Any = None,
    tile: tuple[int, int] | None = None,
    what: str = "result",
) -> Comparison:
    """Require that ``result`` is ``reference`` but for the roundings of its number format and of f32 sums.

    Args:
        result, reference, before, tile: as ``validate.compare`` takes them; numpy, or torch on any device.
        terms: products that each element is the sum of, which f32 accumulation errors grow with.
        bound: what the result must keep, in place of the one that follows from its type and ``terms``.
        what: what the message calls the result.

    Returns:
        The comparison, which passed.

    Raises:
        KernelMismatch: it did not; an AssertionError that says where the errors are and how large.
        ArgumentError: terms below 1, or a bound that zeros would keep too. MismatchError, LayoutError: what
            ``validate.compare`` refuses.
    """
    if terms < 1:
        raise ArgumentError("terms of a sum", got=terms, need="at least 1")
    chosen = bound or _bound(result, reference, terms)
    comparison = compare(result, reference, chosen, before=before, tile=tile)
    if not comparison:
        raise KernelMismatch(f"{what} against its reference", got=str(comparison), need=str(chosen))
    return comparison


def _bound(result: Any, reference: Any, terms: int) -> Bound:
    """What a sum of ``terms`` products, added in f32 and rounded once to the result's type, keeps."""
    name = str(getattr(result, "dtype", "float64")).removeprefix("torch.")
    kind = {"uint16": "bfloat16", "float64": "float32"}.get(name, name)
    if kind not in ("bfloat16", "float16", "float32"):
        raise ArgumentError("bound", got=f"none, for a result of {name}", need="one for results that are no floats")
    found = sum_bound(terms, kind)
    if isinstance(reference, Reference):
        return found
    # Without the products' magnitudes: a partial sum is about as large as the largest result, and errors of as many
    # additions as there are terms grow like their root.
    return Bound(found.equal_fraction, found.relative, 0.0, terms * F32_STEP, found.absolute)
