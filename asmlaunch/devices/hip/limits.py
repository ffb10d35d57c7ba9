"""What a GPU can take, checked before a call: the runtime's own answer would be a bare error 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asmlaunch.devices.hip.runtime import runtime
from asmlaunch.errors import LaunchError

if TYPE_CHECKING:
    from asmlaunch.codeobject import KernelInfo
    from asmlaunch.devices.base import Dim3

_MAX_EXTENT = 1 << 32  # work-items a dimension: HIP's documentation of hipModuleLaunchKernel


@dataclass(frozen=True)
class Limits:
    """Limits of a device.

    Attributes:
        arch: ``gcnArchName``, e.g. ``"gfx950:sramecc+:xnack-"``.
        threads: work-items a block.
        lds: bytes of LDS a workgroup.
        units: compute units.
    """

    arch: str
    threads: int
    lds: int
    units: int

    @classmethod
    def of(cls, ordinal: int) -> Limits:
        """Ask the runtime for the limits of GPU ``ordinal``."""
        properties = runtime().read("hipGetDeviceProperties", "hipDeviceProp_t", ordinal)
        arch = properties.gcnArchName
        return cls(
            arch=arch.decode() if isinstance(arch, bytes) else arch,
            threads=properties.maxThreadsPerBlock,
            lds=properties.sharedMemPerBlock,
            units=properties.multiProcessorCount,
        )

    def check(self, kernel: KernelInfo, grid: Dim3, block: Dim3, dynamic_lds: int) -> None:
        """Refuse a launch that the kernel or the device cannot take.

        Raises:
            LaunchError: naming the number found and the limit.
        """
        threads = math.prod(block)
        allowed = min(self.threads, kernel.max_workgroup_size)
        if not 0 < threads <= allowed:
            raise LaunchError(f"block of {kernel.name}", got=f"{block}, {threads} work-items", need=f"1 to {allowed}")
        for axis, workgroups, size in zip("xyz", grid, block, strict=True):
            if workgroups * size >= _MAX_EXTENT:
                raise LaunchError(
                    f"grid {axis} of {kernel.name}",
                    got=f"{workgroups} workgroups of {size} = {workgroups * size} work-items",
                    need="fewer than 2^32",
                )
        lds = kernel.lds_size + dynamic_lds
        if lds > self.lds:
            raise LaunchError(
                f"LDS of {kernel.name}",
                got=f"{kernel.lds_size} static + {dynamic_lds} dynamic = {lds} bytes",
                need=f"at most {self.lds} ({self.arch})",
            )
