"""Reference kernels in Triton, for any GPU and, interpreted, for the CPU: ``gemm_a4w4``, ``matmul``, ``addmm``.

``quantize_mxfp4_tiled`` and ``quantize_mxfp8_tiled`` make operands: they are those of ``asmlaunch.layouts``.

Importing this imports torch and Triton, and touches no GPU.
"""

try:
    import torch as _torch  # noqa: F401
    import triton as _triton  # noqa: F401
except ImportError as error:
    raise ImportError("asmlaunch.triton_ref needs torch and Triton: pip install 'asmlaunch[torch,triton]'") from error

from asmlaunch.layouts import quantize_mxfp4_tiled, quantize_mxfp8_tiled
from asmlaunch.triton_ref.api import addmm, gemm_a4w4, matmul
from asmlaunch.triton_ref.offline import Compiled, offline
from asmlaunch.triton_ref.tiles import Config
from asmlaunch.triton_ref.workspace import flags_left, release

__all__ = [
    "Compiled",
    "Config",
    "addmm",
    "flags_left",
    "gemm_a4w4",
    "matmul",
    "offline",
    "quantize_mxfp4_tiled",
    "quantize_mxfp8_tiled",
    "release",
]
