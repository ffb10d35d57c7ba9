"""torch tensors: taken everywhere as what they are, and with their layout as part of them."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from asmlaunch import layouts
from asmlaunch.errors import LayoutError
from asmlaunch.layouts import LAYOUTS, SCALES_32X8, _tensors, require, tile, wrap
from asmlaunch.layouts.tiled_torch import TiledTensor

GENERATOR = torch.Generator().manual_seed(0)
SCALES = torch.randint(0, 256, (70, 20), dtype=torch.uint8, generator=GENERATOR)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("route", ["host", "device"])
def test_layouts_of_tensors(name, route):
    """Both routes: numpy on the tensor's memory, and the torch operations that devices without Triton get."""
    layout = LAYOUTS[name]
    shape = [
        2,
        *(
            2 * t - (0 if g[0] in layout.sizes or t == 1 else 1)
            for g, t in zip(layout.groups, layout.tile, strict=True)
        ),
    ]
    x = np.random.default_rng(1).integers(0, 256, shape, dtype=f"u{layout.itemsize}")
    tensor = torch.from_numpy(x.view(f"i{layout.itemsize}"))
    expected = layout.apply(x, pad_value=200)
    if route == "host":
        out = layout.apply(tensor, pad_value=200)
        back = layout.invert(out, shape)
    else:
        out = _tensors.apply_on_device(layout, tensor, layout.padded_shape(shape), 200)
        back = _tensors.invert_on_device(layout, out, out.shape, shape)
    memory, result = torch.empty_like(out), torch.empty_like(tensor)
    if route == "host":
        assert layout.apply(tensor, pad_value=200, out=memory) is memory
        assert layout.invert(out, shape, out=result) is result
    else:
        _tensors.apply_on_device(layout, tensor, layout.padded_shape(shape), 200, memory)
        _tensors.invert_on_device(layout, out, out.shape, shape, result)
    assert torch.equal(memory, out)
    assert torch.equal(result, back)
    assert out.dtype == tensor.dtype
    assert np.array_equal(out.numpy().view(x.dtype), expected)
    assert torch.equal(back, tensor)


def test_eight_bit_and_four_bit_types_are_their_bytes():
    tiled = SCALES_32X8.apply(SCALES)
    e8m0 = SCALES_32X8.apply(SCALES.view(torch.float8_e8m0fnu))
    assert e8m0.dtype == torch.float8_e8m0fnu
    assert torch.equal(e8m0.view(torch.uint8), tiled)
    assert torch.equal(layouts.tile_scales(SCALES.view(torch.float8_e8m0fnu), row_multiple=32), tiled)
    assert torch.equal(layouts.untile_scales(tiled, (70, 20)), SCALES)
    weights = torch.randint(0, 256, (32, 64), dtype=torch.uint8, generator=GENERATOR)
    fp4 = weights.view(torch.float4_e2m1fn_x2)
    assert layouts.WEIGHTS_16X16.apply(fp4).dtype == torch.float4_e2m1fn_x2
    assert torch.equal(layouts.shuffle_weights(fp4), layouts.shuffle_weights(weights))
    assert torch.equal(layouts.unshuffle_weights(layouts.shuffle_weights(weights)), weights)
    assert torch.equal(layouts.unpack_fp4(fp4), torch.from_numpy(layouts.unpack_fp4(weights.numpy())))
    decoded = layouts.decode_e8m0(SCALES.view(torch.float8_e8m0fnu))
    assert np.array_equal(decoded.numpy(), layouts.decode_e8m0(SCALES.numpy()), equal_nan=True)
    bf16 = torch.randn(32, 64, dtype=torch.bfloat16, generator=GENERATOR)
    layout = layouts.get("weights_16x16_16bit")
    assert torch.equal(layout.invert(layout.apply(bf16)), bf16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_quantisation(dtype, monkeypatch):
    x = torch.randn(40, 1024, generator=GENERATOR).to(dtype)
    expected = layouts.quantize_mxfp4(x.float().numpy())
    packed, scales = layouts.quantize_mxfp4(x)
    assert np.array_equal(packed.numpy(), expected[0])
    assert np.array_equal(scales.numpy(), expected[1])
    assert torch.equal(layouts.quantize_mxfp4_tiled(x)[1], layouts.tile_scales(scales))
    back = layouts.dequantize_mxfp4(packed.view(torch.float4_e2m1fn_x2), scales.view(torch.float8_e8m0fnu))
    assert np.array_equal(back.numpy(), layouts.dequantize_mxfp4(*expected))
    q = layouts.quantize(x, "fp8_128x128")
    assert isinstance(q.dequantize(), torch.Tensor)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    assert torch.equal(layouts.quantize_mxfp4(x)[0], packed)


def test_identify_and_check_padding():
    packed, scales = layouts.quantize_mxfp4(torch.randn(64, 512, generator=GENERATOR, dtype=torch.bfloat16))
    tiled = layouts.tile_scales(scales)
    assert layouts.identify(tiled.view(torch.float8_e8m0fnu), scales.view(torch.float8_e8m0fnu))
    assert layouts.identify(packed, layouts.dequantize_mxfp4(packed, scales)).nibble_order == "low first"
    assert layouts.check_padding(tiled, (64, 16))


def test_given_memory_must_fit():
    for bad in (
        np.zeros((96, 24), np.uint8),
        torch.zeros(96, 24),
        torch.zeros(96, 24, dtype=torch.uint8, device="meta"),
    ):
        with pytest.raises(LayoutError, match="out: got"):
            SCALES_32X8.apply(SCALES, out=bad)


def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def module(tensor):
    made = nn.Module()
    made.scale = nn.Parameter(tensor, requires_grad=False)
    return made


@pytest.fixture
def tiled():
    return tile(SCALES, "scales_32x8", element="e8m0", rounding="RoundUp")


@pytest.mark.parametrize(
    "again",
    [
        lambda t: t.clone(),
        lambda t: t.detach(),
        lambda t: t.to("cpu"),
        lambda t: t.to("cpu", copy=True),
        lambda t: t.contiguous(),
        lambda t: t.data,
        lambda t: t[:],
        copy.copy,
        copy.deepcopy,
        lambda t: nn.Parameter(t, requires_grad=False),
        lambda t: copy.deepcopy(nn.Parameter(t, requires_grad=False)),
        lambda t: pickle.loads(pickle.dumps(t)),
        saved,
        lambda t: saved({"a": t})["a"],
        lambda t: saved(nn.Parameter(t, requires_grad=False)),
        lambda t: module(t).state_dict()["scale"],
        lambda t: saved(module(t).state_dict())["scale"],
        lambda t: module(t).to("cpu").scale,
        lambda t: module(t).half().scale,
    ],
)
def test_the_tag_survives(tiled, again):
    other = again(tiled)
    assert isinstance(other, TiledTensor)
    assert other.tag == tiled.tag
    assert torch.equal(other.logical(), SCALES)
    assert require(other, SCALES_32X8).data_ptr() == other.data_ptr()


def test_parameters_stay_parameters(tiled):
    assert isinstance(nn.Parameter(tiled, requires_grad=False), nn.Parameter)
    target = module(tile(torch.zeros_like(SCALES), "scales_32x8", element="e8m0", rounding="RoundUp"))
    target.load_state_dict(module(tiled).state_dict())
    assert torch.equal(target.scale, tiled)
    with pytest.raises(RuntimeError, match="copy_"):
        target.load_state_dict({"scale": tiled.plain()})


@pytest.mark.parametrize(
    "operation",
    [
        lambda t: t + 1,
        lambda t: t.float(),
        lambda t: t.to(torch.int32),
        lambda t: t.view(torch.int8),
        lambda t: t.reshape(-1),
        lambda t: t.unsqueeze(0),
        lambda t: t.T,
        lambda t: t.mT,
        lambda t: t.expand(2, 96, 24),
        lambda t: torch.cat([t, t]),
        lambda t: torch.stack([t]),
        lambda t: t.add_(1),
        lambda t: t.zero_(),
        lambda t: t.copy_(SCALES),
        lambda t: t.__setitem__(0, 1),
        lambda t: list(t),
        lambda t: t.numpy(),
        lambda t: t.tolist(),
        np.asarray,
        lambda t: t == t,
        lambda t: torch.empty_like(t),
        lambda t: t[:5],
        lambda t: t[:, :8],
        lambda t: t[3],
    ],
)
def test_what_would_lose_it_is_refused(tiled, operation):
    with pytest.raises(LayoutError, match="scales_32x8"):
        operation(tiled)
    assert torch.equal(tiled.logical(), SCALES)


def test_slices_of_whole_tiles(tiled):
    part = tiled[32:64]
    assert torch.equal(part.logical(), SCALES[32:64])
    assert torch.equal(tiled[64:].logical(), SCALES[64:])
    assert part.tag.padded == (32, 24)


def test_facts_can_be_asked(tiled):
    assert tiled.shape == (96, 24)
    assert tiled.layout_value is SCALES_32X8
    assert (tiled.dtype, tiled.device.type, tiled.grad, len(tiled)) == (torch.uint8, "cpu", None, 96)
    assert "scales_32x8 of (70, 20)" in repr(tiled)


def test_wrapping_and_the_way_from_numpy():
    buffer = SCALES_32X8.apply(SCALES)
    assert wrap(buffer, "scales_32x8", (70, 20)).data_ptr() == buffer.data_ptr()
    other = tile(SCALES.numpy(), "scales_32x8").torch()
    assert torch.equal(other.logical(), SCALES)
    with pytest.raises(LayoutError, match="contiguous"):
        wrap(torch.zeros(24, 96, dtype=torch.uint8).T, "scales_32x8", (70, 20))
    with pytest.raises(LayoutError, match="need layout scales_128x4"):
        require(other, "scales_128x4")
    with pytest.raises(LayoutError, match="plain Tensor"):
        require(SCALES, "scales_128x4")
