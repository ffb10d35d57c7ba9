"""Draw docs/triton_schedules.svg, which program computes which tile: ``python docs/triton_schedules.py``.

What is drawn is what the launch code computes (``tiles.programs``) for a processor of four units.
"""

from __future__ import annotations

from pathlib import Path

from asmlaunch.triton_ref.hardware import KNOWN
from asmlaunch.triton_ref.tiles import SCHEDULES, Config, programs

DOWN, ACROSS, STEPS = 2, 5, 8
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1")
NAMES = {"data_parallel": "data-parallel", "persistent": "persistent", "stream_k": "stream-K"}
WIDTH, HEIGHT, LEFT, PANEL = 104, 56, 128, 156


def shares(schedule: str) -> list[list[tuple[int, int, int]]]:
    """By tile, in order of tiles: (program, first step, last step)."""
    config = Config(32, 32, 32, 4, 2, schedule)
    count, whole = programs(config, 32 * DOWN, 32 * ACROSS, 32 * STEPS, KNOWN["interpreter"])
    found: list[list[tuple[int, int, int]]] = [[(tile % count, 0, STEPS)] for tile in range(whole)]
    found += [[] for _ in range(DOWN * ACROSS - whole)]
    total = (DOWN * ACROSS - whole) * STEPS
    for program in range(count if total else 0):
        step, end = program * total // count, (program + 1) * total // count
        while step < end:
            tile = step // STEPS
            last = min(end, (tile + 1) * STEPS)
            found[whole + tile].append((program, step - tile * STEPS, last - tile * STEPS))
            step = last
    return found


def panel(schedule: str, top: int) -> list[str]:
    """One schedule: the tiles of the result, each cut along K into what programs do of it."""
    lines = [f'<text x="12" y="{top + HEIGHT + 6}" class="name">{NAMES[schedule]}</text>']
    for tile, parts in enumerate(shares(schedule)):
        x, y = LEFT + tile // DOWN * (WIDTH + 6), top + tile % DOWN * (HEIGHT + 6)
        for program, first, last in parts:
            left, width = x + first * WIDTH / STEPS, (last - first) * WIDTH / STEPS
            colour = COLOURS[program % len(COLOURS)]
            lines.append(f'<rect x="{left:g}" y="{y}" width="{width:g}" height="{HEIGHT}" fill="{colour}"/>')
            middle = f'x="{left + width / 2:g}" y="{y + HEIGHT / 2 + 6:g}"'
            lines.append(f'<text {middle} class="program">{program}</text>')
        lines.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" class="tile"/>')
    return lines


def picture() -> str:
    """The SVG."""
    width, height = LEFT + ACROSS * (WIDTH + 6) + 6, 44 + PANEL * len(SCHEDULES)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<style>text{font:15px sans-serif;fill:#222}.name{font-weight:bold}.program{fill:#fff;text-anchor:middle}"
        ".tile{fill:none;stroke:#222;stroke-width:1.5}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        '<text x="12" y="26">Ten tiles on four units; tiles are cut along K, the number is the program.</text>',
    ]
    for row, schedule in enumerate(SCHEDULES):
        lines += panel(schedule, 52 + row * PANEL)
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture())
