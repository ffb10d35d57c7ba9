"""PyTorch operators. Importing this imports torch, and touches no GPU."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("asmlaunch.ops needs torch: pip install 'asmlaunch[torch]'") from error

from asmlaunch.ops.gemm import gemm_a4w4
from asmlaunch.ops.register import register

__all__ = ["gemm_a4w4", "register"]
