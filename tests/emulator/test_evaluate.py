"""Lane patterns evaluated when a kernel is prepared."""

from __future__ import annotations

import numpy as np

from asmlaunch.emulator.isa.evaluate import evaluate
from asmlaunch.emulator.isa.language import U32
from asmlaunch.emulator.isa.vector import v_mbcnt_hi_u32_b32, v_mbcnt_lo_u32_b32


def test_counting_the_lanes_below() -> None:
    """``v_mbcnt`` of a constant mask, as compilers write the lane number."""
    ones, zero = U32.const(0xFFFFFFFF), U32.const(0)
    low = v_mbcnt_lo_u32_b32(ones, zero)
    assert evaluate(low).tolist() == [min(lane, 32) for lane in range(64)]
    assert np.array_equal(evaluate(v_mbcnt_hi_u32_b32(ones, low)), np.arange(64))
