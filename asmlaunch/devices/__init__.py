"""Devices that run kernels (the CPU emulator, AMD GPUs through HIP) and the choice between them."""

from asmlaunch.devices.base import Device, Finding, LaunchResult
from asmlaunch.devices.select import open_device, select

__all__ = ["Device", "Finding", "LaunchResult", "open_device", "select"]
