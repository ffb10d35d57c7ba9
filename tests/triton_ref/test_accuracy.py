"""The bound accepts what is right and rejects what is wrong."""

from __future__ import annotations

import pytest
import torch

from asmlaunch.triton_ref import accuracy


@pytest.fixture
def problem():
    torch.manual_seed(0)
    a, b = torch.randn(64, 1024).bfloat16(), torch.randn(1024, 32).bfloat16()
    return a, b, accuracy.expected(a, b, torch.bfloat16)


def test_right_results_pass(problem):
    a, b, want = problem
    assert want.wrong(want.value.bfloat16()) == 0
    assert want.wrong((a.float() @ b.float()).bfloat16()) == 0


@pytest.mark.parametrize("length", [64, 2048, 20000])
def test_wrong_results_fail(length):
    torch.manual_seed(0)
    a, b = torch.randn(48, length).bfloat16(), torch.randn(length, 16).bfloat16()
    want = accuracy.expected(a, b, torch.bfloat16, chunks=64)
    right = want.value.bfloat16()
    group, stale = right.clone(), right.clone()
    group[32:] = group[:16]
    stale[17] = right[16]
    for wrong in (torch.zeros_like(right), -right, right * 1.05, group, stale):
        assert want.wrong(wrong.bfloat16())


def test_cancellation_is_allowed_for(problem):
    """Sums whose terms are 10,000 times larger than the result, added in float32 from left to right."""
    a, b, _ = problem
    a, b = torch.cat((a, a), 1) * 100, torch.cat((b, -b * (1 + 2.0**-7)), 0).bfloat16()
    want = accuracy.expected(a, b, torch.bfloat16)
    got = torch.zeros(64, 32)
    for start in range(0, a.shape[1], 16):
        got += a[:, start : start + 16].float() @ b[start : start + 16].float()
    assert want.wrong(got.bfloat16()) == 0
    assert want.wrong((got * 1.05).bfloat16())


def test_infinity_and_nan(problem):
    a, b, _ = problem
    a = a.clone()
    a[3, 5] = torch.inf
    a[4, 5] = torch.nan
    want = accuracy.expected(a, b, torch.bfloat16)
    right = want.value.bfloat16()
    assert want.wrong(right) == 0
    assert want.wrong(right.nan_to_num())
