"""Write the tables of docs/layouts.md anew, between its markers: ``python docs/layouts.py``."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from asmlaunch import layouts

PAGE = Path(__file__).with_suffix(".md")
MAGNITUDES = np.float32([1, 1.5, 1.75, 3.5, 6, 6.5, 7, 448, 3.0e38, np.inf, 0])


def named() -> str:
    """Every named layout."""
    lines = ["| name | pattern | sizes | pad | source |", "|---|---|---|---|---|"]
    for name in layouts.names():
        layout = layouts.get(name)
        sizes = " ".join(f"{axis}={size}" for axis, size in layout.sizes.items())
        pad = "" if layout.pad_value is None else f"0x{layout.pad_value:02x}"
        lines.append(f"| `{name}` | `{layout.pattern}` | {sizes} | {pad} | {layout.source} |")
    return "\n".join(lines)


def roundings() -> str:
    """The scale byte of MXFP4 blocks by largest magnitude and mode."""
    lines = ["| mode | " + " | ".join(f"{value:g}" for value in MAGNITUDES) + " | rule |"]
    lines.append("|---" * (len(MAGNITUDES) + 2) + "|")
    for mode, rule in layouts.ROUNDINGS.items():
        codes = " | ".join(map(str, layouts.encode_e8m0(MAGNITUDES, mode)))
        lines.append(f"| {mode} | {codes} | {rule} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables as they are now."""
    for name, table in (("named", named()), ("roundings", roundings())):
        block = f"<!-- {name} -->\n{table}\n<!-- end -->"
        text = re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
