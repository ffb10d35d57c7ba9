"""Black-box experiments on kernels: what they read where, which arguments matter, on which sizes they are right."""

from asmlaunch.validate.probe.args import ArgsProbe, probe_args
from asmlaunch.validate.probe.domain import DomainProbe, probe_domain
from asmlaunch.validate.probe.layout import LayoutProbe, probe_layout
from asmlaunch.validate.probe.numerics import NumericsProbe, probe_numerics

__all__ = [
    "ArgsProbe",
    "DomainProbe",
    "LayoutProbe",
    "NumericsProbe",
    "probe_args",
    "probe_domain",
    "probe_layout",
    "probe_numerics",
]
