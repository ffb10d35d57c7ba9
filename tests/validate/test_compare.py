"""The comparison: each figure it reports, on results whose faults are known."""

from __future__ import annotations

import json
import sys

import ml_dtypes
import numpy as np
import pytest

from asmlaunch.errors import ArgumentError, LayoutError, MismatchError
from asmlaunch.validate import BF16_GEMM, EXACT, Bound, Reference, bfloat16_bits, compare

#: The module: the package's attribute of that name is the function.
comparing = sys.modules[compare.__module__]


@pytest.fixture
def reference():
    value = np.random.default_rng(0).standard_normal((100, 100))
    return Reference(value, np.abs(value))


@pytest.mark.parametrize("as_type", [lambda bits: bits, lambda bits: bits.view(ml_dtypes.bfloat16)])
def test_a_rounded_result_passes(reference, as_type):
    got = compare(as_type(bfloat16_bits(reference.value)), reference)
    assert got.passed
    assert got.equal_fraction == 1.0
    assert got.max_rel_error <= 2**-8
    assert 0 < got.norm_error < 2**-8
    assert got.beyond == got.non_finite == got.unequal_nan == 0
    assert got.require() is got
    assert json.loads(json.dumps(got.as_dict()))["passed"] is True


def test_one_wrong_element_is_found(reference):
    result = bfloat16_bits(reference.value).view(ml_dtypes.bfloat16).copy()
    result[3, 7] += 5
    got = compare(result, reference)
    assert not got.passed
    assert got.equal_fraction == 0.9999
    assert (got.beyond, got.worst) == (1, (3, 7))
    assert got.max_abs_error == pytest.approx(5, abs=0.05)
    assert got.worst_reference == reference.value[3, 7]
    with pytest.raises(MismatchError, match=r"worst at \(3, 7\)"):
        got.require("kernel x")


def test_a_step_here_and_there_fails_only_by_the_fraction(reference):
    bits = bfloat16_bits(reference.value)
    bits[0, :2] += 1
    # A whole step and the half of the first rounding.
    loose = Bound(relative=2**-7 + 2**-8)
    assert compare(bits, reference, loose).passed
    bits[0, 2] += 1
    got = compare(bits, reference, loose)
    assert (got.equal_fraction, got.beyond) == (0.9997, 0)
    assert not got.passed
    # One rounding allows no step that cancellation does not explain.
    assert compare(bits, reference).beyond == 3


def test_cancellation_is_allowed_by_the_products_magnitudes():
    value = np.full((1, 10000), 1e-9)
    result = bfloat16_bits(value)
    result[0, 5] = bfloat16_bits(np.array(3e-7))
    assert not compare(result, Reference(value, np.full_like(value, 1e-9))).passed
    assert compare(result, Reference(value, np.ones_like(value))).passed


def test_a_fraction_of_the_largest_value():
    value = np.array([0.0, 100.0])
    assert compare(np.float32([1.9, 100]), value, Bound(0, 0, 0, of_max=0.02)).passed
    assert not compare(np.float32([2.1, 100]), value, Bound(0, 0, 0, of_max=0.02)).passed


def test_nan_and_infinity():
    value = np.array([1.0, np.nan, np.nan, np.inf, 1.0, 1.0])
    result = np.float32([1.0, np.nan, 2.0, np.inf, np.nan, np.inf])
    got = compare(result, Reference(value, np.ones(6)))
    assert (got.non_finite, got.unequal_nan, got.beyond) == (4, 2, 3)
    assert got.equal_fraction == 0.5
    assert got.max_abs_error == 0
    assert not got.passed
    assert "4 not finite" in str(got)
    assert "2 NaN in only one" in str(got)
    assert compare(result[[0, 1, 3]], value[[0, 1, 3]], EXACT).passed


def test_zeros_of_either_sign_are_equal_and_an_empty_result_proves_nothing():
    assert compare(np.float32([-0.0]), np.zeros(1), EXACT).passed
    empty = compare(np.empty((0, 4), np.float32), np.empty((0, 4)), EXACT)
    assert not empty.passed
    assert empty.worst is None
    zero = compare(np.float32([1.0]), np.zeros(1), EXACT)
    assert (zero.norm_error, zero.max_rel_error) == (1.0, 0.0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounding_is_to_the_type_of_the_result(dtype):
    value = np.array([1 / 3, 1e5, 1e-9])
    with np.errstate(over="ignore"):
        result = value.astype(dtype)
    assert compare(result, value, EXACT).passed


def test_bad_input(reference):
    with pytest.raises(MismatchError, match=r"\(100, 100\)"):
        compare(np.zeros((100, 99), np.uint16), reference)
    with pytest.raises(MismatchError, match="magnitudes"):
        compare(np.zeros(2, np.uint16), np.zeros(2))
    with pytest.raises(LayoutError, match="uint32"):
        compare(np.zeros(2, np.uint32), np.zeros(2), EXACT)
    assert "99.98%" in str(BF16_GEMM)
    assert str(EXACT) == "at least 100.00% equal, error at most 0"


def test_conversions_that_round_in_other_ways():
    """The values next to and between two bf16 neighbours, 1 and 1 + 2^-7, by the definition of each rounding."""
    value = np.array([1 + 2**-9, 1 + 2**-8, 1 + 2**-8 + 2**-30, 1 + 2**-7 - 2**-30, -1 - 2**-8])
    up, down = 0x3F81, 0x3F80
    expected = {
        "nearest": [down, down, up, up, down | 0x8000],
        "half_away": [down, up, up, up, up | 0x8000],
        "toward_zero": [down, down, down, down, down | 0x8000],
    }
    for rounding, bits in expected.items():
        got = compare(np.array(bits, np.uint16), value, Bound(1.0, 0.0, 0.0, rounding=rounding))
        assert got.passed, rounding
        others = [name for name in expected if expected[name] != bits]
        assert not any(
            compare(np.array(bits, np.uint16), value, Bound(1.0, 0.0, 0.0, rounding=name)).passed for name in others
        )


def test_integers():
    value = np.array([2.5, -2.5, 3.5, 126.999, -0.4])
    for rounding, right in (
        ("nearest", [2, -2, 4, 127, 0]),
        ("half_away", [3, -3, 4, 127, 0]),
        ("toward_zero", [2, -2, 3, 126, 0]),
    ):
        result = np.array(right, np.int8)
        assert compare(result, value, Bound(1.0, 0.0, 0.0, rounding=rounding)).passed
    loose = Bound(0.0, 0.0, 0.0, absolute=1.0)
    assert compare(np.array([3, -3, 4, 126, 0], np.int8), value, loose).passed
    assert not compare(np.array([4, -3, 4, 126, 0], np.int8), value, loose).passed
    assert str(loose).endswith("error at most 1")


def test_floats_round_to_nearest_only():
    with pytest.raises(MismatchError, match="toward_zero, need nearest for float32"):
        compare(np.zeros(1, np.float32), np.zeros(1), Bound(cancellation=0.0, rounding="toward_zero"))


def test_truth_is_whether_it_passed(reference):
    right = compare(bfloat16_bits(reference.value), reference)
    assert right
    assert right.structure is None
    assert not compare(bfloat16_bits(reference.value + 1), reference)


def test_elements_are_sorted_by_what_they_hold(reference):
    """Canary, what was there before, NaN, zero: each counted once, and only where it is wrong."""
    bits = bfloat16_bits(reference.value)
    before = np.full(bits.shape, 0xFFFF, np.uint16)
    before[50:] = 0x4242
    bits[0, :5] = 0xFFFF
    bits[50, :4] = 0x4242
    bits[1, :3] = 0x7FC0
    bits[2, :2] = 0
    bits[3, 0] += 99
    got = compare(bits, reference, before=before)
    assert (got.unwritten, got.stale, got.nan, got.zero, got.beyond) == (5, 4, 3, 2, 15)
    assert got.kinds == {"unwritten": 5, "stale": 4, "NaN": 3, "zero": 2}
    assert "15 beyond the bound (5 unwritten, 4 stale, 3 NaN, 2 zero)" in str(got)
    # Without knowing what was there, all bits set is unwritten and the rest is a value.
    blind = compare(bits, reference)
    assert (blind.unwritten, blind.stale) == (5, 0)
    # A canary that something wrote over and that came back is a NaN.
    assert compare(bits, reference, before=np.zeros_like(before)).nan == 8


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64", "int8"])
def test_steps_of_the_output_type(dtype):
    """Against the type's own neighbours, of either sign and across zero."""
    if dtype == "int8":
        value = np.array([-3.0, 0.0, 5.0, 100.0])
        got = compare(np.array([-3, 1, 3, 108], np.int8), value, EXACT)
    else:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        step = np.finfo(np.float16).smallest_subnormal if dtype == "float16" else None
        value = np.array([1.0, 1.0, -1.0, 1.0]).astype(kind)
        steps, bits = np.array([0, 1, 2, 8]), value.view(f"i{kind.itemsize}")
        got = compare((bits + steps).astype(bits.dtype).view(kind), value.astype(np.float64), EXACT)
        if step is not None:
            across = compare(np.array([step], np.float16), np.array([-float(step)]), EXACT)
            assert across.ulps == ((2, 1),)
    assert got.ulps == ((0, 1), (1, 1), (2, 1), (8, 1))


def test_a_bound_that_says_nothing_is_refused():
    value = np.linspace(1, 2, 100)
    with pytest.raises(ArgumentError, match="a result of zeros keeps too"):
        compare(np.float32(value), value, Bound(0.0, 1.0, 0.0))
    with pytest.raises(ArgumentError, match="keeps too"):
        compare(np.float32(value), value, Bound(0.0, 0.0, 0.0, of_max=2.0))
    # Most elements are zeros of either sign, the others change theirs within the bound; equality is what zeros lack.
    signs = np.r_[np.full(60, 1e-6), np.zeros(40)]
    with pytest.raises(ArgumentError, match="a result of zeros keeps too"):
        compare(np.float32(signs), signs, Bound(0.3, 0.0, 0.0, absolute=1e-3))
    # Zeros are right here, and here they fail by the fraction alone.
    assert compare(np.zeros(9, np.float32), np.zeros(9), Bound(0.0, 1.0, 0.0))
    assert compare(bfloat16_bits(value), Reference(value, value), Bound(cancellation=1.0))


def test_a_reference_of_nans_alone_is_refused():
    with pytest.raises(MismatchError, match="nothing but 4 NaNs"):
        compare(np.full(4, np.nan, np.float32), np.full(4, np.nan), EXACT)


def test_chunks_change_nothing(reference, monkeypatch):
    bits = bfloat16_bits(reference.value)
    bits[7:9, 3] += 70
    bits[50, 50] = 0x7FC0
    bound = Bound(of_max=1e-6)
    before = np.zeros_like(bits)
    whole = compare(bits, reference, bound, before=before, tile=(32, 32))
    line = compare(bits.ravel(), Reference(reference.value.ravel(), reference.magnitude.ravel()), bound)
    monkeypatch.setattr(comparing, "_CHUNK", 800)
    again = compare(bits, reference, bound, before=before, tile=(32, 32))
    # Sums are added up in another order; NaN is not equal to itself.
    inexact = {"norm_error": pytest.approx(whole.norm_error), "worst_result": pytest.approx(np.nan, nan_ok=True)}
    assert again.as_dict() == whole.as_dict() | inexact
    in_chunks = compare(bits.ravel(), Reference(reference.value.ravel(), reference.magnitude.ravel()), bound)
    assert (in_chunks.worst, in_chunks.structure, in_chunks.ulps) == (line.worst, line.structure, line.ulps)


def test_a_reference_that_is_computed_for_some_rows_at_a_time(reference, monkeypatch, tmp_path):
    """As for outputs larger than memory: the result in a file, no more than a chunk of the reference at once."""
    monkeypatch.setattr(comparing, "_CHUNK", 1000)
    file = np.memmap(tmp_path / "result", np.uint16, "w+", shape=(100, 100))
    file[...] = bfloat16_bits(reference.value)
    asked = []

    def rows(part):
        asked.append(part.stop - part.start)
        return Reference(reference.value[part], reference.magnitude[part])

    assert compare(file, rows)
    assert asked == [10] * 10
    with pytest.raises(MismatchError, match="shape"):
        compare(file, lambda part: Reference(reference.value[part, :9], reference.magnitude[part, :9]))


def test_a_bar_for_long_comparisons(reference, monkeypatch, capsys):
    monkeypatch.setattr(comparing, "_CHUNK", 100)
    monkeypatch.setattr(comparing.sys.stderr, "isatty", lambda: True, raising=False)
    assert compare(bfloat16_bits(reference.value), reference)
    assert "comparing" in capsys.readouterr().err


def test_torch_tensors(reference):
    torch = pytest.importorskip("torch")
    value = torch.from_numpy(reference.value)
    wrong = value.to(torch.bfloat16)
    assert compare(wrong, reference)
    wrong[3] = 0
    got = compare(wrong, value, Bound(0.0, 2**-8, 0.0), before=torch.zeros_like(wrong))
    assert (got.zero, str(got.structure).split(":")[0]) == (100, "row 3")


def test_a_scalar(reference):
    got = compare(np.float32(2.0), np.float64(1.0), EXACT)
    assert (got.worst, got.worst_result, got.beyond) == ((), 2.0, 1)
    assert compare(np.float32(1.0), Reference(np.float64(1.0), np.float64(1.0)))
