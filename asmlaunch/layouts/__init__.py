"""Memory layouts and number formats of kernel operands.

A tiling is a value (:class:`Layout`) that can be applied, inverted and asked for addresses; the formats are tables.
"""

from asmlaunch.layouts.difference import Difference, compare, convert
from asmlaunch.layouts.e8m0 import ROUNDINGS, decode_e8m0, encode_e8m0
from asmlaunch.layouts.formats import FORMATS, Format
from asmlaunch.layouts.fp4 import decode_fp4, encode_fp4, pack_fp4, unpack_fp4
from asmlaunch.layouts.layout import Axis, Layout
from asmlaunch.layouts.named import (
    LAYOUTS,
    SCALES_32X8,
    SCALES_128X4,
    WEIGHTS_16X16,
    get,
    names,
    weights_mfma,
    weights_shuffle,
)
from asmlaunch.layouts.quantize import dequantize_mxfp4, quantize_mxfp4
from asmlaunch.layouts.tiling import (
    check_scale_columns,
    pad_scales,
    shuffle_weights,
    tile_scales,
    unshuffle_weights,
    untile_scales,
)

__all__ = [
    "FORMATS",
    "LAYOUTS",
    "ROUNDINGS",
    "SCALES_32X8",
    "SCALES_128X4",
    "WEIGHTS_16X16",
    "Axis",
    "Difference",
    "Format",
    "Layout",
    "check_scale_columns",
    "compare",
    "convert",
    "decode_e8m0",
    "decode_fp4",
    "dequantize_mxfp4",
    "encode_e8m0",
    "encode_fp4",
    "get",
    "names",
    "pack_fp4",
    "pad_scales",
    "quantize_mxfp4",
    "shuffle_weights",
    "tile_scales",
    "unpack_fp4",
    "unshuffle_weights",
    "untile_scales",
    "weights_mfma",
    "weights_shuffle",
]
