"""matmul and addmm in the interpreter, against float64."""

from __future__ import annotations

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

from asmlaunch.errors import ArgumentError, LaunchError, LayoutError
from asmlaunch.triton_ref import Config, accuracy, addmm, dense, descriptors, flags_left, matmul, tiles, workspace
from asmlaunch.triton_ref.hardware import KNOWN
from asmlaunch.triton_ref.tiles import SCHEDULES

SIZES = [
    (32, 32, 32), (64, 16, 128), (16, 64, 128), (128, 8, 256), (8, 128, 256), (12, 12, 512), (15, 17, 512),
    (19, 13, 512), (128, 64, 12), (16, 16, 4096), (128, 64, 1), (128, 64, 8), (256, 1, 128), (512, 32, 1),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_schedule(size):
    """Both operations, every schedule; the types take turns."""
    m, n, k = size
    for turn, schedule in enumerate(SCHEDULES):
        dtype = (torch.bfloat16, torch.float16)[(m + n + turn) % 2]
        a, b, c = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.randn(n).to(dtype)
        assert accuracy.expected(a, b, dtype).wrong(matmul(a, b, schedule=schedule)) == 0
        want = accuracy.expected(a, b, dtype, c=c, alpha=0.5, beta=-2)
        assert want.wrong(addmm(c, a, b, alpha=0.5, beta=-2, schedule=schedule)) == 0
    assert flags_left() == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("tma", [True, False])
def test_pointers_and_descriptors_agree(schedule, tma):
    a, b = torch.randn(80, 200).bfloat16(), torch.randn(72, 200).bfloat16()
    for left, right in ((a, b.T), (a.T.contiguous().T, b.T.contiguous())):
        out = torch.full((80, 72), 7, dtype=torch.bfloat16)
        dense.launch(left, right, out, schedule=schedule, use_tma=tma, config=Config(32, 32, 64, 4, 2, schedule))
        assert accuracy.expected(left, right, torch.bfloat16).wrong(out) == 0


@hypothesis.settings(max_examples=12, deadline=None, derandomize=True)
@hypothesis.given(st.data())
def test_any_size_and_stride(data):
    m, n, k = (data.draw(st.integers(1, 120)) for _ in "mnk")
    schedule = data.draw(st.sampled_from(SCHEDULES))

    def draw(rows, columns):
        down, across = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
        whole = torch.randn(rows * down, columns * across)[::down, ::across].bfloat16()
        if data.draw(st.booleans()):
            return whole.T.contiguous().T
        stored = torch.zeros(rows * down, columns * across, dtype=torch.bfloat16)[::down, ::across]
        return stored.copy_(whole)

    a, b, out = draw(m, k), draw(k, n), draw(m, n)
    assert matmul(a, b, out=out, schedule=schedule) is out
    assert accuracy.expected(a, b, torch.bfloat16).wrong(out) == 0


def odd(rows, columns, stride, dtype=torch.bfloat16, offset=0):
    """Random elements in rows ``stride`` elements apart, ``offset`` elements into their memory."""
    whole = torch.full((offset + rows * stride,), torch.nan, dtype=dtype)
    return whole.as_strided((rows, columns), (stride, 1), offset).copy_(torch.randn(rows, columns))


LOOSE = {
    "rows of 3 elements more": (lambda: odd(70, 133, 133), lambda: odd(133, 43, 43), "ab"),
    "integers of 8 bytes": (lambda: odd(33, 140, 148), lambda: odd(140, 36, 36), "ab"),
    "one of them": (lambda: odd(33, 72, 75), lambda: odd(72, 40, 40), "a"),
    "columns": (lambda: odd(133, 70, 71).T, lambda: odd(43, 133, 133).T, "ab"),
    "aligned columns stay": (lambda: odd(133, 72, 72).T, lambda: odd(40, 133, 136).T, ""),
    "address": (lambda: odd(40, 64, 64, offset=4), lambda: odd(64, 40, 40), "a"),
    "odd address": (lambda: odd(40, 64, 64, offset=3), lambda: odd(64, 40, 41, offset=1), "ab"),
    "several tiles across": (lambda: odd(17, 600, 601), lambda: odd(600, 20, 21), "ab"),
    "no dimension contiguous": (lambda: odd(80, 200, 208)[::2, ::3], lambda: odd(43, 134, 134).T[::2, :], "ab"),
    "one row": (lambda: odd(1, 133, 133), lambda: odd(133, 40, 40), "a"),
    "repeated rows": (lambda: odd(1, 133, 133).expand(20, 133), lambda: odd(1, 40, 40).expand(133, 40), "ab"),
    "one step of K": (lambda: odd(200, 1, 1), lambda: odd(1, 49, 49), "ab"),
}


@pytest.mark.parametrize("case", LOOSE)
def test_what_no_descriptor_can_address_is_copied(case, monkeypatch):
    """Whatever the memory for copies held before, and into results that no descriptor can address either."""
    make_a, make_b, copied = LOOSE[case]
    monkeypatch.setattr(tiles, "copies_pay", lambda *_: True)
    plan, names = descriptors._plan, []
    monkeypatch.setattr(descriptors, "_plan", lambda t, name, s: names.append(name[-1]) or plan(t, name, s))
    with workspace.use(torch.device("cpu")) as scratch:
        for name in ("copy of a", "copy of b"):
            scratch.get(name, 1 << 15, torch.uint8).fill_(255)
    a, b = make_a(), make_b()
    before = a.clone(), b.clone()
    m, n = a.shape[0], b.shape[1]
    whole = torch.full((m + 2, n + 3), 7, dtype=torch.bfloat16)
    out = whole[1:-1, 1:-2]
    want = accuracy.expected(a, b, torch.bfloat16)
    for schedule in SCHEDULES:
        out.zero_()
        dense.launch(a, b, out, schedule=schedule, config=Config(32, 32, 32, 4, 2, schedule))
        assert want.wrong(out) == 0
        assert want.wrong(matmul(a, b, schedule=schedule)) == 0
    assert sorted(set(names)) == list(copied)
    out.fill_(7)
    assert torch.equal(whole, torch.full_like(whole, 7))
    assert all(torch.equal(*pair) for pair in zip((a, b), before, strict=True))


def test_copies_with_an_addend_and_gradients(monkeypatch):
    monkeypatch.setattr(tiles, "copies_pay", lambda *_: True)
    a, b, c = odd(33, 70, 71, torch.float16), odd(70, 41, 41, torch.float16), torch.randn(41)
    want = accuracy.expected(a, b, torch.float16, c=c, alpha=0.5, beta=2)
    assert want.wrong(addmm(c, a, b, alpha=0.5, beta=2)) == 0
    left, right = (t.clone().requires_grad_() for t in (a, b))
    weights = torch.randn(33, 41).half()
    (matmul(left, right) * weights).sum().backward()
    assert accuracy.expected(weights, b.T, torch.float16).wrong(left.grad) == 0
    assert accuracy.expected(a.T, weights, torch.float16).wrong(right.grad) == 0


# Sizes, and which operands no descriptor can address.
COPIES = {
    ((1500, 2500, 3500), "ab"): True,
    ((1000, 1000, 1001), "a"): True,
    ((4096, 4096, 4095), "ab"): True,
    ((256, 4096, 1001), "ab"): True,
    ((2048, 2048, 129), "a"): True,
    ((512, 512, 511), "ab"): True,
    ((128, 128, 1001), "ab"): True,
    ((32, 4096, 4095), "ab"): True,
    ((32, 4096, 4095), "a"): True,
    ((1, 8192, 8191), "a"): True,
    ((64, 64, 65), "ab"): False,
    ((128, 128, 129), "ab"): False,
}


@pytest.mark.parametrize("case", COPIES, ids=str)
def test_copies_are_made_where_they_pay(case):
    """Times of an H200 with copies and without: docs/triton.md."""
    (m, n, k), loose = case
    nbytes = 2 * k * (m * ("a" in loose) + n * ("b" in loose))
    assert tiles.copies_pay(m, n, k, nbytes, tiles.Kind(2, 2, 1.0, True), KNOWN["sm90"]) == COPIES[case]
    assert not tiles.copies_pay(m, n, k, nbytes, tiles.Kind(4, 4, 0.05, False), KNOWN["sm90"])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_other_types(schedule):
    x, y = torch.randn(33, 100), torch.randn(100, 40)
    assert accuracy.expected(x, y, torch.float32).wrong(matmul(x, y, schedule=schedule)) == 0
    a, b = ((t * 40).clamp(-127, 127).to(torch.int8) for t in (x, y))
    got = matmul(a, b, schedule=schedule)
    assert got.dtype == torch.int32
    assert torch.equal(got.long(), a.long() @ b.long())
    rows, columns = torch.rand(33, 1), torch.rand(1, 40)
    scaled = matmul(a, b, a_scale=rows, b_scale=columns, out_dtype=torch.bfloat16, schedule=schedule)
    want = accuracy.expected(a * rows.double(), b * columns.double(), torch.bfloat16)
    assert want.wrong(scaled) == 0
    for left, right in ((torch.float8_e4m3fn, torch.float8_e5m2), (torch.float8_e4m3fnuz,) * 2):
        p, q = x.to(left), y.to(right)
        assert accuracy.expected(p.float(), q.float(), torch.bfloat16).wrong(matmul(p, q, schedule=schedule)) == 0


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2])
def test_all_256_codes_of_fp8(dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)[None, :]
    eye = torch.ones(1, 1).to(dtype)
    for a, b in ((codes.T, eye), (eye, codes)):
        got = matmul(a, b, out_dtype=torch.float32).flatten()
        assert torch.equal(got.nan_to_num(7), codes.float().flatten().nan_to_num(7))


def test_bias_orientation():
    a, b = torch.randn(64, 32).bfloat16(), torch.randn(32, 128).bfloat16()
    difference = addmm(torch.arange(128.0), a, b, out_dtype=torch.float32) - matmul(a, b, out_dtype=torch.float32)
    assert torch.allclose(difference, torch.arange(128.0).expand(64, 128), atol=1e-4)
    column = addmm(torch.arange(64.0)[:, None], a, b, out_dtype=torch.float32) - matmul(a, b, out_dtype=torch.float32)
    assert torch.allclose(column, torch.arange(64.0)[:, None].expand(64, 128), atol=1e-4)


def test_empty_dimensions():
    for m, n, k in ((0, 5, 4), (5, 0, 4), (0, 0, 0)):
        assert matmul(torch.empty(m, k), torch.empty(k, n)).shape == (m, n)
    assert torch.equal(matmul(torch.empty(3, 0), torch.empty(0, 2)), torch.zeros(3, 2))
    assert torch.equal(
        addmm(torch.tensor([1.0, 2.0]), torch.empty(3, 0), torch.empty(0, 2), beta=3)[1], torch.tensor([3.0, 6.0])
    )


def test_beta_zero_reads_nothing():
    a = torch.randn(16, 16)
    assert addmm(torch.full((16,), torch.nan), a, a, beta=0).isfinite().all()


def test_gradients():
    a, b, c = (torch.randn(s, dtype=torch.float32, requires_grad=True) for s in ((20, 33), (33, 17), (17,)))
    addmm(c, a, b, alpha=0.5, beta=2).square().sum().backward()
    found = [t.grad.clone() for t in (a, b, c)]
    for t in (a, b, c):
        t.grad = None
    torch.addmm(c, a, b, alpha=0.5, beta=2).square().sum().backward()
    for mine, t in zip(found, (a, b, c), strict=True):
        assert torch.allclose(mine, t.grad, rtol=1e-4, atol=1e-4)
    with pytest.raises(ArgumentError, match="out="):
        matmul(a, b, out=torch.empty(20, 17))


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "text"),
    [
        (torch.empty(4, 5), torch.empty(6, 3), {}, LayoutError, "5 and 6"),
        (torch.empty(4), torch.empty(4, 3), {}, LayoutError, "a matrix"),
        (torch.empty(4, 4), torch.empty(4, 4).bfloat16(), {}, LayoutError, "types of a and b"),
        (torch.empty(4, 4).double(), torch.empty(4, 4).double(), {}, LayoutError, "float64"),
        (torch.empty(4, 4), torch.empty(4, 4, device="meta"), {}, LayoutError, "devices cpu and meta"),
        (torch.empty(4, 4), torch.empty(4, 4), {"out": torch.empty(4, 5)}, LayoutError, "out: got"),
        (torch.empty(4, 4), torch.empty(4, 4), {"out": torch.empty(4).expand(4, 4)}, LayoutError, "strides"),
        (torch.empty(4, 4), torch.empty(4, 4), {"out_dtype": torch.int32}, LayoutError, "int32"),
        (torch.empty(4, 4), torch.empty(4, 4), {"schedule": "best"}, ArgumentError, "data_parallel"),
        (torch.empty(4, 4), torch.empty(4, 4), {"a_scale": torch.empty(4)}, ArgumentError, "both or neither"),
        (torch.empty(4, 4), torch.empty(4, 4), {"config": Config(24, 32, 32, 4, 2)}, LaunchError, "powers of two"),
        (torch.empty(4, 4), torch.empty(4, 4), {"config": Config(256, 256, 64, 4, 4)}, LaunchError, "bytes shared"),
        (torch.empty(4, 4), torch.empty(4, 4), {"config": Config(32, 32, 32, 4, 2, parts=2)}, LaunchError, "parts"),
    ],
)  # fmt: skip
def test_refusals(a, b, options, error, text):
    with pytest.raises(error, match=text):
        matmul(a, b, **options)
    if error is LayoutError and not options:
        with pytest.raises(error, match=text):
            addmm(torch.empty(1), a, b)


def test_addend_that_does_not_broadcast():
    with pytest.raises(LayoutError, match="broadcasts to"):
        addmm(torch.empty(5), torch.empty(4, 4), torch.empty(4, 4))


def test_offsets_beyond_31_bits():
    """An operand whose last element is 2^31 elements away from its first."""
    whole = torch.empty(2**31 + 64, dtype=torch.int8)  # never touched but for two rows
    a = whole.as_strided((2, 16), (2**31, 1))
    a.copy_(torch.randint(-9, 9, (2, 16)))
    b = torch.randint(-9, 9, (16, 16), dtype=torch.int8)
    assert torch.equal(matmul(a, b).long(), a.long() @ b.long())


def abort():
    with workspace.use(torch.device("cpu")) as scratch:
        scratch.flags(4).fill_(1)
        raise RuntimeError("stopped")


def test_stream_k_survives_an_aborted_run():
    a, b = torch.randn(48, 512).bfloat16(), torch.randn(512, 80).bfloat16()
    config = Config(32, 32, 64, 4, 2, "stream_k")
    want = matmul(a, b, config=config)
    with pytest.raises(RuntimeError, match="stopped"):
        abort()
    assert torch.equal(matmul(a, b, config=config), want)
    assert flags_left() == 0


@pytest.mark.parametrize("parts", [1, 5, 300])
def test_parts_of_k_that_programs_of_their_own_add(parts):
    """Whatever the memory for sums held before; the same bits each time, and no flag is used."""
    for m, n, k, block in (
        (70, 90, 700, (32, 64)),
        (20, 33, 40, (32, 64)),
        (9, 170, 90, (16, 256)),
        (9, 9, 90, (16, 32)),
    ):
        config = Config(*block, 64, 4, 2, "stream_k", parts=parts)
        a, b, c = torch.randn(m, k).half(), torch.randn(k, n).half(), torch.randn(n)
        with workspace.use(torch.device("cpu")) as scratch:
            scratch.get("partials", 1 << 18, torch.float32).fill_(torch.nan)
        got = matmul(a, b, config=config)
        assert accuracy.expected(a, b, torch.float16).wrong(got) == 0
        assert torch.equal(matmul(a, b, config=config), got)
        want = accuracy.expected(a, b, torch.float16, c=c, alpha=0.5, beta=-2)
        assert want.wrong(addmm(c, a, b, alpha=0.5, beta=-2, config=config)) == 0
        x, y = torch.randint(-99, 99, (m, k), dtype=torch.int8), torch.randint(-99, 99, (k, n), dtype=torch.int8)
        assert torch.equal(matmul(x, y, config=config).long(), x.long() @ y.long())
    assert flags_left() == 0


# Of those that were timed, the fastest schedule, and others within 5 % of it (docs/triton.md).
FASTEST = {
    (4096, 4096, 4096): {"persistent", "data_parallel"},
    (2048, 1024, 16384): {"persistent", "data_parallel"},
    (4000, 4000, 4000): {"persistent", "data_parallel"},
    (1000, 3000, 5000): {"persistent", "data_parallel"},
    (1536, 2048, 8192): {"persistent", "data_parallel", "stream_k"},
    (3584, 2048, 8192): {"persistent", "data_parallel", "stream_k"},
    (1024, 4096, 1024): {"persistent", "data_parallel"},
    (1024, 1024, 1024): {"persistent", "data_parallel"},
    (256, 2048, 8192): {"persistent", "data_parallel"},
    (512, 1024, 8192): {"persistent", "data_parallel"},
    (1024, 1024, 8192): {"persistent", "data_parallel"},
    (1280, 2048, 8192): {"stream_k"},
    (1152, 4096, 8192): {"stream_k"},
    (2176, 2048, 8192): {"stream_k"},
    (2200, 2200, 8192): {"stream_k"},
    (4480, 2048, 4096): {"stream_k"},
    (512, 512, 16384): {"stream_k"},
    (256, 256, 16384): {"stream_k"},
    (128, 128, 32768): {"stream_k"},
}


@pytest.mark.parametrize("size", FASTEST, ids=str)
def test_the_choice_on_an_h200_is_a_schedule_that_was_fastest_there(size):
    """Measured times, of contiguous rows of K."""
    kind = tiles.Kind(2, 2, 1.0, True, lined=size[2] % 64 == 0)
    assert tiles.choose(*size, kind, KNOWN["sm90"]).schedule in FASTEST[size]


# Microseconds that products took on an H200, of contiguous rows of K.
TIMES = {
    ((1024, 1024, 8192), Config(128, 128, 64, 4, 4)): 44.3,
    ((768, 768, 8192), Config(64, 64, 64, 4, 6)): 26.9,
    ((640, 640, 8192), Config(64, 64, 128, 4, 4, "persistent")): 22.6,
    ((2048, 1024, 16384), Config(64, 256, 64, 4, 4)): 92.9,
    ((1280, 2048, 8192), Config(128, 256, 64, 8, 3)): 83.5,
    ((1280, 2048, 8192), Config(128, 256, 64, 8, 3, "stream_k")): 71.1,
    ((2176, 2048, 8192), Config(128, 256, 64, 8, 3, "stream_k")): 105.9,
    ((4608, 2048, 8192), Config(128, 256, 64, 8, 3, "stream_k")): 225.7,
    ((1000, 3000, 5000), Config(128, 256, 64, 8, 3)): 61.0,
    ((2048, 2048, 2048), Config(128, 128, 64, 4, 3)): 25.0,
    ((1024, 2048, 8192), Config(64, 128, 64, 4, 4)): 54.8,
    ((4096, 4096, 4096), Config(128, 256, 64, 8, 3, "persistent")): 196.0,
    ((4096, 4096, 4096), Config(128, 128, 64, 4, 4, "persistent")): 206.5,
}


@pytest.mark.parametrize("case", TIMES, ids=str)
def test_the_model_is_near_the_times_of_an_h200(case):
    size, config = case
    kind = tiles.Kind(2, 2, 1.0, True, lined=size[2] % 64 == 0)
    assert 1e6 * tiles.seconds(config, *size, kind, KNOWN["sm90"]) == pytest.approx(TIMES[case], rel=0.2)


@pytest.mark.parametrize("size", [(512, 512, 16384), (256, 256, 16384), (384, 640, 16384)], ids=str)
def test_few_tiles_of_many_steps_are_shared(size):
    """Enough programs for most of the processor, and none that has to wait for many others."""
    kind, hardware = tiles.Kind(2, 2, 1.0, True), KNOWN["sm90"]
    config = tiles.choose(*size, kind, hardware)
    count, whole = tiles.programs(config, *size, hardware)
    assert config.parts
    assert not whole
    assert 0.4 * hardware.units < count <= 2 * hardware.units


@pytest.mark.parametrize("name", ["sm90", "sm80", "gfx942", "gfx950", "interpreter"])
def test_every_kind_of_product_has_a_configuration_that_fits(name):
    for kind in (tiles.Kind(2, 2, 1.0, True), tiles.Kind(4, 4, 0.05, False), tiles.Kind(1, 2, 0.7, False)):
        for size in ((1, 1, 1), (8192, 8192, 8192), (16, 8192, 8192)):
            for schedule in (None, *SCHEDULES):
                tiles.require(tiles.choose(*size, kind, KNOWN[name], schedule), kind, KNOWN[name])
