"""Target ids: which processor a code object is for, and its xnack and sramecc settings.

Source: LLVM's "User Guide for AMDGPU Backend", sections "ELF Code Object" (e_flags) and "Target ID".
"""

from __future__ import annotations

from dataclasses import dataclass

EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64

#: ELF ABI version -> code object version.
CODE_OBJECT_VERSIONS = {1: 3, 2: 4, 3: 5, 4: 6}

_X = ("xnack",)
_XS = ("xnack", "sramecc")

#: EF_AMDGPU_MACH -> (processor, features its target id may set).
MACHINES: dict[int, tuple[str, tuple[str, ...]]] = {
    0x20: ("gfx600", ()),
    0x21: ("gfx601", ()),
    0x22: ("gfx700", ()),
    0x23: ("gfx701", ()),
    0x24: ("gfx702", ()),
    0x25: ("gfx703", ()),
    0x26: ("gfx704", ()),
    0x28: ("gfx801", _X),
    0x29: ("gfx802", ()),
    0x2A: ("gfx803", ()),
    0x2B: ("gfx810", _X),
    0x2C: ("gfx900", _X),
    0x2D: ("gfx902", _X),
    0x2E: ("gfx904", _X),
    0x2F: ("gfx906", _XS),
    0x30: ("gfx908", _XS),
    0x31: ("gfx909", _X),
    0x32: ("gfx90c", _X),
    0x33: ("gfx1010", _X),
    0x34: ("gfx1011", _X),
    0x35: ("gfx1012", _X),
    0x36: ("gfx1030", ()),
    0x37: ("gfx1031", ()),
    0x38: ("gfx1032", ()),
    0x39: ("gfx1033", ()),
    0x3A: ("gfx602", ()),
    0x3B: ("gfx705", ()),
    0x3C: ("gfx805", ()),
    0x3D: ("gfx1035", ()),
    0x3E: ("gfx1034", ()),
    0x3F: ("gfx90a", _XS),
    0x40: ("gfx940", _XS),
    0x41: ("gfx1100", ()),
    0x42: ("gfx1013", _X),
    0x43: ("gfx1150", ()),
    0x44: ("gfx1103", ()),
    0x45: ("gfx1036", ()),
    0x46: ("gfx1101", ()),
    0x47: ("gfx1102", ()),
    0x48: ("gfx1200", ()),
    0x49: ("gfx1250", _XS),
    0x4A: ("gfx1151", ()),
    0x4B: ("gfx941", _XS),
    0x4C: ("gfx942", _XS),
    0x4E: ("gfx1201", ()),
    0x4F: ("gfx950", _XS),
    0x51: ("gfx9-generic", _X),
    0x52: ("gfx10-1-generic", _X),
    0x53: ("gfx10-3-generic", ()),
    0x54: ("gfx11-generic", ()),
    0x55: ("gfx1152", ()),
    0x58: ("gfx1153", ()),
    0x59: ("gfx12-generic", ()),
    0x5A: ("gfx1251", _XS),
    0x5F: ("gfx9-4-generic", _XS),
}

_V4_SETTINGS = ("unsupported", "any", "off", "on")
_SUFFIX = {"on": "+", "off": "-"}


@dataclass(frozen=True)
class TargetId:
    """A processor and its feature settings; ``str()`` gives the usual spelling, ``gfx950:sramecc+:xnack-``.

    Attributes:
        processor: such as ``"gfx950"`` or ``"gfx9-4-generic"``; ``"machine 0x5d"`` when the number is unknown.
        sramecc, xnack: ``"any"``, ``"on"``, ``"off"`` or ``"unsupported"``.
    """

    processor: str
    sramecc: str = "unsupported"
    xnack: str = "unsupported"

    def __str__(self) -> str:
        settings = (("sramecc", self.sramecc), ("xnack", self.xnack))
        return ":".join([self.processor, *(name + _SUFFIX[value] for name, value in settings if value in _SUFFIX)])


def target_from_flags(e_flags: int, version: int, metadata_target: str | None = None) -> TargetId:
    """Decode ``e_flags`` of a code object of ``version`` 3 to 6.

    Version 3 has one bit a feature (0x100 xnack, 0x200 sramecc); later versions have two bits with four values each.
    A machine number that is not in ``MACHINES`` takes its name from ``metadata_target`` (``amdhsa.target``) if given.
    """
    machine = e_flags & 0xFF
    processor, features = MACHINES.get(machine, (f"machine {machine:#04x}", _XS))
    if machine not in MACHINES and metadata_target:
        processor = parse_target(metadata_target).processor
    if version == 3:
        bits = {"xnack": bool(e_flags & 0x100), "sramecc": bool(e_flags & 0x200)}
        settings = {name: ("on" if on else "off") if name in features else "unsupported" for name, on in bits.items()}
    else:
        settings = {"xnack": _V4_SETTINGS[e_flags >> 8 & 3], "sramecc": _V4_SETTINGS[e_flags >> 10 & 3]}
    return TargetId(processor, settings["sramecc"], settings["xnack"])


def parse_target(text: str) -> TargetId:
    """Read ``gfx942:sramecc+:xnack-``, with or without a triple (``amdgcn-amd-amdhsa--``) before it.

    A feature that the processor has and the text does not name is ``"any"``.
    """
    name, *flags = text.split("--")[-1].split(":")
    supported = next((features for known, features in MACHINES.values() if known == name), _XS)
    settings = dict.fromkeys(supported, "any")
    settings |= {flag[:-1]: "on" if flag.endswith("+") else "off" for flag in flags}
    return TargetId(name, settings.get("sramecc", "unsupported"), settings.get("xnack", "unsupported"))


#: Generic target -> the processors that run its code.
GENERIC: dict[str, tuple[str, ...]] = {
    "gfx9-generic": ("gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"),
    "gfx9-4-generic": ("gfx940", "gfx941", "gfx942", "gfx950"),
    "gfx10-1-generic": ("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    "gfx10-3-generic": ("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    "gfx11-generic": ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    "gfx12-generic": ("gfx1200", "gfx1201"),
}

_FIXED = ("on", "off")


def compatible(code: TargetId, device: TargetId) -> bool:
    """Whether code built for one target runs on another.

    The processors have to be the same, or the code's a generic target that covers the device's; a feature has to be
    equal where both sides fix it (a side that says "any" takes both).
    """
    if code.processor != device.processor and device.processor not in GENERIC.get(code.processor, ()):
        return False
    settings = ((code.sramecc, device.sramecc), (code.xnack, device.xnack))
    return all(a == b or a not in _FIXED or b not in _FIXED for a, b in settings)
