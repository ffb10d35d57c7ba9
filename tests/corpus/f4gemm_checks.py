"""All checks on every f4gemm kernel inside its domain: nothing may be found but the known over-reads.

    python tests/corpus/f4gemm_checks.py [part of a kernel's name]

Three problems a kernel: one tile, two by two tiles, and a partial row tile. Prints a line a kernel and a summary.
"""

from __future__ import annotations

import sys

import asmlaunch
from asmlaunch.kernels import find_objects
from asmlaunch.validate import a4w4

#: The kernel that reads past A and B and throws the values away.
OVER_READS = "noBpreShuffle_256x256"


def main(part: str = "") -> int:
    wrong = 0
    chosen = [path for path in find_objects("f4gemm_*.co", None) if part in path.stem]
    for path in chosen:
        kernel = asmlaunch.load(path, device="emulator").kernel
        rows, columns = a4w4.tile(kernel.info)
        kinds: set[str] = set()
        for case in (
            a4w4.Case(rows, columns, 512),
            a4w4.Case(2 * rows, 2 * columns, 256),
            a4w4.Case(rows + 5, columns, 256),
        ):
            problem = a4w4.build(kernel.info, case)
            result = kernel.launch(problem.arguments, checks="all")
            assert problem.compare().passed, (path, case)
            kinds |= {finding.kind for finding in result.findings}
        allowed = {"over-read", "uninitialised"} if path.stem.endswith(OVER_READS) else set()
        wrong += bool(kinds - allowed)
        print(f"{path.stem}: {', '.join(sorted(kinds)) or 'nothing found'}", flush=True)
    print(f"{len(chosen)} kernels, {wrong} with findings that should not be")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
