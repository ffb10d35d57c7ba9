"""AMD GPUs through hip-python. Importing this touches no GPU and does not import hip-python."""

from asmlaunch.devices.hip.device import HipDevice, device_count, open_hip_device

__all__ = ["HipDevice", "device_count", "open_hip_device"]
