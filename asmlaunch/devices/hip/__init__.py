"""AMD GPUs through hip-python. Importing this touches no GPU and does not import hip-python."""

from asmlaunch.devices.hip.device import HipDevice, device_count, open_hip_device
from asmlaunch.devices.hip.library import NoGpuError

__all__ = ["HipDevice", "NoGpuError", "device_count", "open_hip_device"]
