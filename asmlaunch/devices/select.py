"""Which device runs a code object: the one asked for, else a HIP device that can, else the emulator."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import TYPE_CHECKING

from asmlaunch.devices.base import Device
from asmlaunch.errors import DeviceError, TargetError

if TYPE_CHECKING:
    from asmlaunch.codeobject import CodeObject

log = logging.getLogger("asmlaunch")


def open_device(name: str) -> Device:
    """The device of that name: ``"emulator"``, ``"hip"`` (device 0) or ``"hip:N"``.

    Raises:
        DeviceError: an unknown name, no HIP runtime, or no such device.
    """
    if name == "emulator":
        return _emulator()
    match = re.fullmatch(r"hip(?::(\d+))?", name)
    if match is None:
        raise DeviceError("device", got=repr(name), need="'emulator', 'hip' or 'hip:N'")
    from asmlaunch.devices import hip

    return hip.open_hip_device(int(match.group(1) or 0))


@cache
def _emulator() -> Device:
    """The one emulator of the process: what it compiled serves every module."""
    from asmlaunch.devices.emulator import EmulatorDevice

    return EmulatorDevice()


def select(code_object: CodeObject, device: str | Device | None = None) -> Device:
    """The device that will run ``code_object``.

    Args:
        device: a device or its name to insist on; None takes the first HIP device that can run the object,
            else the emulator.

    Raises:
        DeviceError: the device asked for is not there. TargetError: it cannot run an object of this target.
    """
    if device is None:
        chosen = _first_hip_device(code_object) or open_device("emulator")
    else:
        chosen = open_device(device) if isinstance(device, str) else device
    if not chosen.supports(code_object):
        raise TargetError(
            f"{code_object.path or 'code object'} on {chosen.name}",
            got=f"an object for {code_object.target}",
            need=chosen.describe(),
            hint="load the object built for this device, or choose another device",
        )
    log.info("%s runs on %s", code_object.path or "code object", chosen.name)
    return chosen


def _first_hip_device(code_object: CodeObject) -> Device | None:
    """The first HIP device that can run the object; None without hip-python, runtime or such a device.

    Raises:
        DeviceError: there is a runtime that cannot be used (a second one, a fork); the emulator would hide that.
    """
    from asmlaunch.devices import hip

    try:
        count = hip.device_count()
    except hip.NoGpuError as error:
        log.debug("no HIP device: %s", error)
        return None
    candidates = (hip.open_hip_device(ordinal) for ordinal in range(count))
    return next((device for device in candidates if device.supports(code_object)), None)
