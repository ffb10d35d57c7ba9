"""Capturing what a process launches on an AMD GPU, showing it, and running it again in the emulator."""

from asmlaunch.capture.model import Capture, CapturedLaunch, Memory
from asmlaunch.capture.record import record
from asmlaunch.capture.replay import Replay, replay

__all__ = ["Capture", "CapturedLaunch", "Memory", "Replay", "record", "replay"]
