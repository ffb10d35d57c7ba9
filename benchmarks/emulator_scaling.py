"""How the emulator's time grows: with cores, with K and with M x N; and its speed with each set of checks.

    python benchmarks/emulator_scaling.py [--kernel NAME] [--svg FILE]

Shortest of several launches of an f4gemm kernel; the growth with K and M x N is of one thread's CPU time, so that it
can be measured beside other work. With ``--svg`` the three curves are drawn.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import asmlaunch
from asmlaunch.codeobject import read
from asmlaunch.emulator.decode import Disassembler
from asmlaunch.kernels import choose_object, find_objects
from asmlaunch.validate import a4w4

#: Sizes of the axis that grows, and what stays.
K_SIZES, K_AT = (256, 512, 1024, 2048, 4096, 8192), 512
MN_SIZES, MN_AT = (128, 256, 512, 1024, 2048), 1024
CUBE = 1024

NOP = bytes.fromhex("000080bf")  # s_nop 0


def shortest(launch: Callable[[], object], clock: Callable[[], float], seconds: float = 0.3) -> float:
    """Seconds of the fastest of the launches that fit into ``seconds``, three at least."""
    launch()
    best, count, end = math.inf, 0, time.perf_counter() + seconds
    while count < 3 or time.perf_counter() < end:
        start = clock()
        launch()
        best, count = min(best, clock() - start), count + 1
    return best


def seconds_of(
    kernel: asmlaunch.Kernel, m: int, n: int, k: int, clock: Callable[[], float], **options: object
) -> float:
    """Seconds of one launch."""
    arguments = a4w4.build(kernel.info, a4w4.Case(m, n, k)).arguments
    return shortest(lambda: kernel.launch(arguments, **options), clock)


def measure(kernel: asmlaunch.Kernel) -> dict[str, list[tuple[float, float]]]:
    """The three curves: (size, milliseconds)."""
    cores = sorted({1, *(2**power for power in range(10) if 2**power <= len(os.sched_getaffinity(0)))})
    one = {"clock": time.process_time, "threads": 1}
    return {
        f"cores, {CUBE}x{CUBE}x{CUBE}": [
            (count, 1e3 * seconds_of(kernel, CUBE, CUBE, CUBE, time.perf_counter, threads=count)) for count in cores
        ],
        f"K, M = N = {K_AT}": [(k, 1e3 * seconds_of(kernel, K_AT, K_AT, k, **one)) for k in K_SIZES],
        f"M x N, K = {MN_AT}": [(size * size, 1e3 * seconds_of(kernel, size, size, MN_AT, **one)) for size in MN_SIZES],
    }


def without_matrix(path: Path) -> asmlaunch.Kernel:
    """The kernel with ``s_nop`` in place of every matrix instruction: what else it does takes as long as before."""
    data = bytearray(path.read_bytes())
    (info,) = read(path).kernels.values()
    start = data.index(info.text) - info.text_address
    for address, size, text in Disassembler(info.target.processor).text(info.code, info.code_address):
        if text.startswith("v_mfma"):
            data[start + address : start + address + size] = NOP * (size // len(NOP))
    return asmlaunch.load(bytes(data), device="emulator").kernel


def speeds(kernel: asmlaunch.Kernel) -> dict[str, float]:
    """Million wave-instructions a second of one core, by checks; ``s_nop`` does not count."""
    arguments = a4w4.build(kernel.info, a4w4.Case(CUBE, CUBE, CUBE)).arguments
    found = {}
    for checks in ("off", "bounds", "all"):
        profile = kernel.launch(arguments, checks=checks, threads=1).profile
        instructions = sum(count for name, count in profile.by_mnemonic() if name != "s_nop")
        best = shortest(lambda chosen=checks: kernel.launch(arguments, checks=chosen, threads=1), time.process_time)
        found[checks] = instructions / best / 1e6
    return found


# ---------------------------------------------------------------- the picture

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 240, 56, 44, 40


def _ticks(low: float, high: float) -> list[int]:
    """Powers of ten that lie in a range."""
    return list(range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1))


def _size(value: float) -> str:
    if value >= 1 << 20:
        return f"{value / (1 << 20):g}Mi"
    return f"{value / 1024:g}Ki" if value >= 1024 else f"{value:g}"


def panel(title: str, curve: Sequence[tuple[float, float]], left: int) -> list[str]:
    """One curve, both axes logarithmic, with the line of proportional (or ideal) time."""
    xs, ys = [x for x, _ in curve], [y for _, y in curve]
    ideal = [ys[0] * xs[0] / x if title.startswith("cores") else ys[-1] * x / xs[-1] for x in xs]
    low, high = 0.8 * min(*ys, *ideal), 1.25 * max(*ys, *ideal)
    high = max(high, 10 * low)

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / xs[0]) / (math.log(xs[-1] / xs[0]) or 1)
        up = math.log(y / low) / math.log(high / low)
        return left + LEFT + 10 + across * (WIDTH - LEFT - 34), TOP + (1 - up) * (HEIGHT - TOP - BOTTOM)

    lines = [f'<text x="{left + LEFT}" y="26" class="title">{title}</text>']
    bottom = HEIGHT - BOTTOM
    lines.append(f'<path d="M{left + LEFT} {TOP}V{bottom}H{left + WIDTH - 12}" class="axis"/>')
    for power in _ticks(low, high):
        _, y = place(xs[0], 10.0**power)
        lines.append(f'<path d="M{left + LEFT - 4} {y:.1f}H{left + WIDTH - 12}" class="grid"/>')
        lines.append(f'<text x="{left + LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    for x, _ in curve:
        at, _ = place(x, low)
        lines.append(f'<text x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{_size(x)}</text>')
    for name, values in (("ideal", ideal), ("time", ys)):
        points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in zip(xs, values, strict=True))
        lines.append(f'<polyline points="{points}" class="{name}"/>')
    lines += ['<circle cx="{:.1f}" cy="{:.1f}" r="3.5"/>'.format(*place(x, y)) for x, y in curve]
    return lines


def picture(kernel: str, curves: dict[str, list[tuple[float, float]]]) -> str:
    """The SVG."""
    width = WIDTH * len(curves)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}">',
        "<style>text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.axis{fill:none;stroke:#222}"
        ".grid{stroke:#ddd}.time{fill:none;stroke:#4e79a7;stroke-width:2}circle{fill:#4e79a7}"
        ".ideal{fill:none;stroke:#999;stroke-dasharray:4 4}</style>",
        f'<rect width="{width}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for number, (title, curve) in enumerate(curves.items()):
        lines += panel(title, curve, number * WIDTH)
    lines.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">{kernel}: milliseconds a launch; dashed: in proportion</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="BpreShuffle_32x128")
    parser.add_argument("--svg", type=Path)
    options = parser.parse_args()
    path = choose_object(find_objects("f4gemm_*.co", None), options.kernel)
    kernel = asmlaunch.load(path, device="emulator").kernel
    curves = measure(kernel)
    for title, curve in curves.items():
        print(f"{title}: " + ", ".join(f"{_size(x)} {y:.2f} ms" for x, y in curve), flush=True)
    for what, one in (("", kernel), (", without its matrix instructions", without_matrix(path))):
        for checks, speed in speeds(one).items():
            print(f"checks {checks}{what}: {speed:.1f} million wave-instructions a second of one core", flush=True)
    if options.svg:
        options.svg.write_text(picture(options.kernel, curves))


if __name__ == "__main__":
    main()
