"""gemm_a4w4 in the interpreter, against the float64 reference of ``validate``, which shares no code with it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from asmlaunch import layouts, validate
from asmlaunch.errors import ArgumentError, LayoutError
from asmlaunch.triton_ref import accuracy, flags_left, gemm_a4w4
from asmlaunch.validate.bfloat16 import to_float64

RNG = np.random.default_rng(0)
PREPARED = {"b": "weights_16x16", "a_scale": "scales_32x8", "b_scale": "scales_32x8"}
TIGHT = validate.Bound(equal_fraction=0.99, cancellation=2.0**-21)


def draw(m, n, k, low=118, high=131):
    blocks = -(-k // 32)
    codes = [RNG.integers(0, 256, (rows, k // 2), dtype=np.uint8) for rows in (m, n)]
    return (*codes, *(RNG.integers(low, high, (rows, blocks), dtype=np.uint8) for rows in (m, n)))


def torched(arrays):
    return [torch.from_numpy(a) for a in arrays]


def check(result, reference, bound=TIGHT):
    validate.compare(result.view(torch.int16).numpy().view(np.uint16), reference, bound).require()


@pytest.mark.parametrize(("m", "k"), [(1, 32), (17, 64), (1, 128), (17, 384), (1, 640), (17, 1664)])
def test_depths(m, k):
    arrays = draw(m, 24 if k > 640 else 48, k)
    reference = validate.gemm_a4w4(*arrays)
    for options in ({"schedule": "direct"}, {"schedule": "dequantise"}, {"split_k": 3}, {}):
        check(gemm_a4w4(*torched(arrays), **options), reference)
    assert flags_left() == 0


@pytest.mark.parametrize("k", [64, 640])
def test_layouts_are_read_in_the_kernel(k):
    a, b, sa, sb = draw(40, 64, k)
    reference = validate.gemm_a4w4(a, b, sa, sb)
    prepared = torched((a, layouts.shuffle_weights(b), layouts.tile_scales(sa), layouts.tile_scales(sb)))
    for schedule in ("direct", "dequantise"):
        check(gemm_a4w4(*prepared, layouts=PREPARED, schedule=schedule), reference)
    wrong = gemm_a4w4(*prepared, layouts={**PREPARED, "b": "weights_32x16"} if k == 640 else {"b": "weights_16x16",
        "a_scale": "scales_n32k8", "b_scale": "scales_32x8"})  # fmt: skip
    assert not validate.compare(wrong.view(torch.int16).numpy().view(np.uint16), reference, TIGHT).passed


@pytest.mark.parametrize(
    "name", [name for name, layout in layouts.LAYOUTS.items() if name.startswith("scales") and layout.rank == 2]
)
def test_every_scale_layout(name):
    layout = layouts.get(name)
    a, b, sa, sb = draw(max(32, layout.tile[0]), 16, 32 * max(8, layout.tile[1]))
    tagged = layouts.tile(torch.from_numpy(sa), layout)
    got = gemm_a4w4(*torched((a, b)), tagged, torch.from_numpy(sb), schedule="direct")
    check(got, validate.gemm_a4w4(a, b, sa, sb))


def test_operands_with_tags_need_no_mention():
    a, b, sa, sb = draw(20, 32, 320)
    tensors = [
        torch.from_numpy(a),
        layouts.tile(torch.from_numpy(b), "weights_16x16"),
        layouts.tile(torch.from_numpy(sa), "scales_32x8"),
        layouts.tile(torch.from_numpy(sb), "scales_32x8"),
    ]
    check(gemm_a4w4(*tensors), validate.gemm_a4w4(a, b, sa, sb))
    with pytest.raises(LayoutError, match="layout of b"):
        gemm_a4w4(*tensors, layouts={"b": "weights_32x16"})


def test_strided_operands():
    a, b, sa, sb = draw(20, 40, 128)
    views = [torch.from_numpy(np.repeat(np.repeat(x, 2, 0), 3, 1))[::2, ::3] for x in (a, b, sa, sb)]
    for schedule in ("direct", "dequantise"):
        check(gemm_a4w4(*views, schedule=schedule), validate.gemm_a4w4(a, b, sa, sb))


def exact(a, b, sa, sb):
    """bfloat16 bits of the exact sums, rounded once (no NaN scales)."""
    values = (0, 1, 2, 3, 4, 6, 8, 12)

    def decode(codes, scales):
        halves = np.stack((codes & 15, codes >> 4), -1).reshape(len(codes), -1)
        signed = [[values[c & 7] * (-1 if c & 8 else 1) for c in row] for row in halves.tolist()]
        return [
            [Fraction(v) * Fraction(2) ** (s[i // 32] - 128) for i, v in enumerate(r)]
            for r, s in zip(signed, scales.tolist(), strict=True)
        ]

    left, right = decode(a, sa), decode(b, sb)
    return np.array([[bfloat16(sum(map(Fraction.__mul__, r, c))) for c in right] for r in left], np.uint16)


def bfloat16(x):
    """Bits of a fraction rounded to bfloat16, to nearest and ties to even."""
    if not x:
        return 0
    sign, x = (0x8000, -x) if x < 0 else (0, x)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > x
    step = Fraction(2) ** (max(exponent, -126) - 7)
    count = round(x / step)  # Python rounds halves to even
    return sign | (0x7F80 if count * step >= 2**128 else (max(exponent + 126, 0) << 7) + count)


def test_the_oracle_rounds():
    for value in (1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 3.0, 2.0**-126, 2.0**-130, 2.0**-134, 3 * 2.0**-134, 3.3e38, -2.5):
        want = int(torch.tensor(value, dtype=torch.float64).float().bfloat16().view(torch.int16)) & 0xFFFF
        assert bfloat16(Fraction(value)) == want, value


@pytest.mark.parametrize(("low", "high"), [(0, 255), (0, 3), (248, 255), (0, 1), (40, 70)])
def test_extreme_scales(low, high):
    """Every byte from 0 to 254: what float32 would lose or overflow, and Triton's own byte 0.

    Sums whose terms span less than float64's 53 bits are exact. Of others float64 keeps what is above 2^-48 of the
    magnitudes, so an element near a tie may be one step of bfloat16 off, or vanish where all large terms cancel.
    """
    arrays = draw(5, 16, 64, low, high)
    want = exact(*arrays)
    values = to_float64(want)
    allowed = 2.0**-7 * np.abs(values) + 2.0**-48 * validate.gemm_a4w4(*arrays).magnitude
    for options in (*({"schedule": s} for s in ("direct", "dequantise", "exact", "skinny")), {"split_k": 2}):
        got = gemm_a4w4(*torched(arrays), **options).view(torch.int16).numpy().view(np.uint16)
        equal = (got == want) | ((got | want) & 0x7FFF == 0)
        assert equal.mean() > 0.9, options
        if high - low < 8:
            assert equal.all(), options
        assert (equal | (np.abs(to_float64(got) - values) <= allowed)).all(), options


def test_scale_byte_0_is_not_zero():
    """Triton 3.8.0's dot_scaled decodes byte 0 as 0; 2^-127 times 2^127 is 1."""
    one = torch.full((16, 16), 0x22, dtype=torch.uint8)
    low, high = (torch.full((16, 1), byte, dtype=torch.uint8) for byte in (0, 254))
    for schedule in ("direct", "dequantise", "exact", "skinny"):
        assert (gemm_a4w4(one, one, low, high, schedule=schedule) == 32).all()


def test_scale_byte_255_is_nan():
    a, b, sa, sb = draw(5, 16, 64)
    sa[2, 1] = 255
    a[2] = 0
    for schedule in ("direct", "dequantise", "exact", "skinny"):
        got = gemm_a4w4(*torched((a, b, sa, sb)), schedule=schedule)
        assert got[2].isnan().all()
        assert got[[0, 1, 3, 4]].isfinite().all()


def test_blocks_of_zeros_stay_fast_and_right():
    a, b, sa, sb = draw(16, 64, 128)
    a[:, :16], sa[:, 0] = 0, 0
    b[3], sb[3] = 0x80, 0
    reference = validate.gemm_a4w4(a, b, sa, sb)
    for schedule in ("direct", "dequantise", "skinny"):
        check(gemm_a4w4(*torched((a, b, sa, sb)), schedule=schedule), reference)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("right", ["fp4", "fp8"])
def test_mixed_formats(dtype, right):
    torch.manual_seed(1)
    a = (torch.randn(20, 128) * 3).to(dtype)
    _, b, sa, sb = torched(draw(20, 32, 128))
    values = torch.from_numpy(validate.decode_mxfp4(b.numpy(), sb.numpy()))
    if right == "fp8":
        b = torch.randn(32, 128).to(torch.float8_e4m3fn)
        values = b.float().double() * torch.exp2(sb.double() - 127).repeat_interleave(32, 1)
    scale = None if dtype == torch.bfloat16 else sa
    left = a.float().double()
    if scale is not None:
        left = left * torch.exp2(sa.double() - 127).repeat_interleave(32, 1)
    want = accuracy.expected(left, values.T, torch.bfloat16)
    for schedule in ("direct", "dequantise", "exact"):
        assert want.wrong(gemm_a4w4(a, b, scale, sb, schedule=schedule)) == 0


@pytest.mark.parametrize("schedule", ["direct", "dequantise", "exact", "skinny"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_epilogue(schedule, dtype):
    arrays = draw(10, 32, 96)
    a, b = (torch.from_numpy(validate.decode_mxfp4(*pair)) for pair in (arrays[::2], arrays[1::2]))
    bias, c = torch.randn(32), torch.randn(10, 1)
    want = accuracy.expected(a, b.T, dtype, c=bias.double() + 0.5 * c.double(), alpha=2, beta=1)
    out = torch.full((32, 10), 9, dtype=dtype).T
    got = gemm_a4w4(*torched(arrays), bias=bias, c=c, alpha=2, beta=0.5, out=out, schedule=schedule)
    assert got is out
    assert want.wrong(got) == 0


def test_wrong_results_are_told_from_right_ones():
    arrays = draw(64, 32, 256)
    reference = validate.gemm_a4w4(*arrays)
    right = gemm_a4w4(*torched(arrays), schedule="direct")
    check(right, reference)
    moved = torched(
        (*arrays[:2], np.ascontiguousarray(arrays[2].reshape(-1)[::-1].reshape(arrays[2].shape)), arrays[3])
    )
    stale, group = right.clone(), right.clone()
    stale[40], group[32:] = right[39], right[:32]
    for wrong in (torch.zeros_like(right), -right, right * 1.05, stale, group, gemm_a4w4(*moved, schedule="direct")):
        assert not validate.compare(wrong.view(torch.int16).numpy().view(np.uint16), reference, TIGHT).passed


def test_empty():
    u8 = torch.empty((0, 16), dtype=torch.uint8)
    one, none = torch.zeros((4, 16), dtype=torch.uint8), torch.zeros((4, 0), dtype=torch.uint8)
    assert gemm_a4w4(u8, one, u8[:, :1], one[:, :1]).shape == (0, 4)
    assert gemm_a4w4(one, u8, one[:, :1], u8[:, :1]).shape == (4, 0)
    assert torch.equal(gemm_a4w4(none, none, none, none), torch.zeros(4, 4, dtype=torch.bfloat16))


def test_bad_input():
    a, b, sa, sb = torched(draw(16, 32, 128))
    cases = [
        ((a[:, :32], b, sa[:, :2], sb), {}, LayoutError, "K of operands"),
        ((a, b, sa[:, :2], sb), {}, LayoutError, r"two an FP4 byte"),
        ((a, b, sa[:8], sb), {}, LayoutError, r"scales of a: got \(8, 4\)"),
        ((a, b, None, sb), {}, LayoutError, "scales of a: got None"),
        ((a.int(), b, sa, sb), {}, LayoutError, "operand a: got torch.int32"),
        ((a, b, sa.int(), sb), {}, LayoutError, "E8M0 bytes"),
        ((a.numpy(), b, sa, sb), {}, LayoutError, "ndarray"),
        ((a, b, sa, sb), {"schedule": "fast"}, ArgumentError, "direct"),
        ((a, b, sa, sb), {"split_k": 0}, ArgumentError, "split_k"),
        ((a, b, sa, sb), {"schedule": "exact", "split_k": 2}, ArgumentError, "split_k"),
        ((a, b, sa, sb), {"layouts": {"w": "scales_32x8"}}, ArgumentError, "names of a, b"),
        ((a, b, sa, sb), {"layouts": {"a_scale": "scales_32x8"}}, LayoutError, "whole tiles"),
        ((a, b, sa, sb), {"layouts": {"b": "weights_16x16_16bit"}}, LayoutError, "2 bytes"),
        ((a, b, sa, sb), {"bias": torch.empty(16)}, LayoutError, "bias"),
        ((a, b, sa, sb), {"c": torch.empty(3, 32), "beta": 1}, LayoutError, "broadcasts"),
        ((a, b, sa, sb), {"out": torch.empty(16, 31)}, LayoutError, "out"),
        ((a, b, sa, sb), {"out_dtype": torch.int32}, LayoutError, "out_dtype"),
        ((a, b, sa.to("meta"), sb), {}, LayoutError, "devices cpu, meta"),
        ((a.bfloat16(), b.bfloat16(), None, None), {}, LayoutError, "use matmul"),
        ((a, b.bfloat16(), sa, None), {}, LayoutError, "K of operands|swap"),
        ((a.bfloat16().requires_grad_(), b[:, :32], None, sb[:, :2]), {}, ArgumentError, "gradient"),
    ]  # fmt: skip
    for operands, options, error, text in cases:
        with pytest.raises(error, match=text):
            gemm_a4w4(*operands, **options)
    strided = torch.zeros((64, 16), dtype=torch.uint8)[::2]
    with pytest.raises(LayoutError, match="contiguous"):
        gemm_a4w4(a, b, strided, sb, layouts={"a_scale": "scales_32x8"})
    many = torched(draw(17, 32, 128))
    with pytest.raises(ArgumentError, match="at most 16 rows"):
        gemm_a4w4(*many, schedule="skinny")
