"""From a wrong result to the mistake that gives it: hypotheses evaluated in float64 or executed on the emulator."""

from asmlaunch.validate.diagnose.diagnosis import PAIRS, Diagnosis, diagnose, explain
from asmlaunch.validate.diagnose.hypothesis import Hypothesis, State
from asmlaunch.validate.diagnose.search import Explanation

__all__ = ["PAIRS", "Diagnosis", "Explanation", "Hypothesis", "State", "diagnose", "explain"]
