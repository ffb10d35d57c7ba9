"""All seeded mistakes of ``tests/validate/mistakes.py`` diagnosed, and right problems of the same kernels.

    python tests/corpus/diagnose_mistakes.py [right problems] [part of a name]

Prints a line a mistake: the answer, its confidence, and the seconds it took. Exits with 1 when more than one in ten
first answers are wrong, a wrong answer is confident, or a right result is complained about.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from validate.mistakes import FAMILIES, PLAIN, SEEDED, UNKNOWN, Kernels, case_of, diagnosed, named, right, unknown

from asmlaunch.kernels import aiter_folder
from asmlaunch.validate.diagnose import diagnose
from asmlaunch.validate.problems import DEFINITIONS


def mistakes(kernels: Kernels, only: str) -> tuple[Counter[str], float]:
    """How often each outcome came up, and the longest diagnosis in seconds."""
    outcomes: Counter[str] = Counter()
    longest = 0.0
    for seeded in SEEDED:
        if only not in f"{seeded.family} {seeded.name}":
            continue
        start = time.perf_counter()
        diagnosis = diagnosed(kernels, seeded)
        seconds = time.perf_counter() - start
        longest = max(longest, seconds)
        hit = named(diagnosis, seeded.about)
        outcomes[f"{'right' if hit else 'WRONG'}, {diagnosis.confidence}"] += 1
        answer = diagnosis.first.text if diagnosis.first else "nothing explains it"
        mark = "  " if hit else "! "
        print(
            f"{mark}{seeded.family}: {seeded.name}: {answer[:110]} [{diagnosis.confidence}, {seconds:.1f} s]",
            flush=True,
        )
        if not hit:
            print("    " + str(diagnosis).replace("\n", "\n    "))
    return outcomes, longest


def strange(kernels: Kernels) -> int:
    """How many results that nothing explains get a confident answer."""
    confident = 0
    for file, spoil in product(PLAIN, UNKNOWN):
        diagnosis = unknown(kernels, file, spoil, pairs=200)
        confident += diagnosis.confidence == "high"
        said = diagnosis.first.text if diagnosis.first else f"nothing; {diagnosis.comparison.structure}"
        print(f"  {FAMILIES[file]}: {spoil.__name__}: {said[:110]} [{diagnosis.confidence}]", flush=True)
    return confident


def right_problems(kernels: Kernels, count: int) -> int:
    """How many of ``count`` random right problems are complained about."""
    random = np.random.default_rng(1)
    complaints = 0
    for number in range(count):
        file = list(PLAIN)[number % len(PLAIN)]
        seeded, kernel = right(file), kernels[file]
        case = dataclasses.replace(
            case_of(kernel, seeded), m=int(random.integers(1, 70)), seed=int(random.integers(1 << 30))
        )
        diagnosis = diagnose(DEFINITIONS[seeded.family], kernel, case)
        if diagnosis.confidence != "right":
            complaints += 1
            print(f"! {seeded.family} {case}: {diagnosis}")
    return complaints


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    kernels = Kernels(aiter_folder())
    outcomes, longest = mistakes(kernels, sys.argv[2] if len(sys.argv) > 2 else "")
    complaints = right_problems(kernels, count)
    confident = strange(kernels)
    total = sum(outcomes.values())
    hits = sum(number for outcome, number in outcomes.items() if outcome.startswith("right"))
    print(f"{hits} of {total} first answers are right ({dict(outcomes)}), the longest took {longest:.1f} s")
    print(f"{confident} confident answers about {len(PLAIN) * len(UNKNOWN)} results that nothing explains")
    print(f"{complaints} complaints about {count} right results")
    sys.exit(10 * (total - hits) > total or "WRONG, high" in outcomes or confident > 0 or complaints > 0)


if __name__ == "__main__":
    main()
