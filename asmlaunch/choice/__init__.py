"""Which kernel to use for a problem: those there are, those that are right on it, the one expected to be best."""

from asmlaunch.choice.candidates import Candidate
from asmlaunch.choice.select import SELECTORS, Choice, choose

__all__ = ["SELECTORS", "Candidate", "Choice", "choose"]
