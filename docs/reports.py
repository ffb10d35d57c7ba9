"""Make the two example reports of docs/report.md: a right run, and one whose scales of B are in the wrong layout.

python docs/reports.py
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import asmlaunch
from asmlaunch import layouts
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.validate.probe.rig import Rig
from asmlaunch.validate.problems import f4gemm
from asmlaunch.validate.report import examine, report, why
from asmlaunch.validate.report_html import html

FOLDER = Path(__file__).parent


def main() -> None:
    """Run both and write the pages beside this file."""
    kernel = asmlaunch.load(choose_object(find_objects("f4gemm_*.co"), "BpreShuffle_32x128"), device="emulator").kernel
    case = f4gemm.Sizes(m=103, n=416, k=512)
    (FOLDER / "report_right.html").write_text(html(examine(kernel, case)[1]))
    # What a caller does who has not heard of the tiling: scales row after row.
    plain = layouts.SCALES_32X8.invert(Rig(kernel, case).arrays["ptr_ScaleB"])
    bundle, _ = examine(kernel, case, arguments={"ScaleB": plain})
    found = dataclasses.replace(report(bundle, path="wrong.asml"), diagnosis=why(bundle))
    (FOLDER / "report_wrong.html").write_text(html(found))
    print(found.sentence, found.diagnosis and found.diagnosis["confidence"])


if __name__ == "__main__":
    main()
