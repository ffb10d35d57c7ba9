"""Memory layouts and number formats of kernel operands.

A tiling is a value (:class:`Layout`) that can be applied, inverted and asked for addresses; the formats are tables.
"""

from asmlaunch.layouts.difference import Difference, compare, convert
from asmlaunch.layouts.e8m0 import ROUNDINGS, decode_e8m0, encode_e8m0
from asmlaunch.layouts.formats import ELEMENT_ROUNDINGS, FORMATS, Format, Integer
from asmlaunch.layouts.fp4 import decode_fp4, encode_fp4, pack_fp4, unpack_fp4
from asmlaunch.layouts.fp6 import pack_fp6, unpack_fp6
from asmlaunch.layouts.identification import Identification, identify
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
from asmlaunch.layouts.quantize import (
    SCHEMES,
    Quantized,
    Scheme,
    dequantize_mxfp4,
    quantize,
    quantize_mxfp4,
    quantize_mxfp4_tiled,
    quantize_mxfp8_tiled,
)
from asmlaunch.layouts.tag import Tag
from asmlaunch.layouts.tiled import Tiled, require, tile, wrap
from asmlaunch.layouts.tiling import (
    Padding,
    check_padding,
    check_scale_columns,
    pad_scales,
    shuffle_weights,
    tile_scales,
    unshuffle_weights,
    untile_scales,
)

__all__ = [
    "ELEMENT_ROUNDINGS",
    "FORMATS",
    "LAYOUTS",
    "ROUNDINGS",
    "SCALES_32X8",
    "SCALES_128X4",
    "SCHEMES",
    "WEIGHTS_16X16",
    "Axis",
    "Difference",
    "Format",
    "Identification",
    "Integer",
    "Layout",
    "Padding",
    "Quantized",
    "Scheme",
    "Tag",
    "Tiled",
    "check_padding",
    "check_scale_columns",
    "compare",
    "convert",
    "decode_e8m0",
    "decode_fp4",
    "dequantize_mxfp4",
    "encode_e8m0",
    "encode_fp4",
    "get",
    "identify",
    "names",
    "pack_fp4",
    "pack_fp6",
    "pad_scales",
    "quantize",
    "quantize_mxfp4",
    "quantize_mxfp4_tiled",
    "quantize_mxfp8_tiled",
    "require",
    "shuffle_weights",
    "tile",
    "tile_scales",
    "unpack_fp4",
    "unpack_fp6",
    "unshuffle_weights",
    "untile_scales",
    "weights_mfma",
    "weights_shuffle",
    "wrap",
]
