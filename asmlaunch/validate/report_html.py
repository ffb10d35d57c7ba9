"""A report as one HTML page: no other file, no script, no network; light and dark, wide and narrow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np

from asmlaunch.validate.compare import Comparison
from asmlaunch.validate.report import RIGHT, UNFINISHED, UNKNOWN, WRONG, ErrorMap, OutputReport, Report, reasons

#: Error of a cell up to which it has a class; the first is what rounding alone gives.
STEPS = (
    ("e0", 5e-3, "to 0.5 %"),
    ("e1", 5e-2, "to 5 %"),
    ("e2", 0.25, "to 25 %"),
    ("e3", 1.0, "to 100 %"),
    ("e4", math.inf, "more"),
)
NAN = ("en", "NaN or unwritten")

_CELL = 10  # pixels

_STYLE = """
:root{--bg:#f6f7f9;--card:#fff;--ink:#1b2027;--soft:#5b6572;--line:#dde1e7;--code:#eef0f4;
--good:#1a7f45;--goodbg:#e3f4ea;--bad:#b3261e;--badbg:#fbe6e4;--warn:#8a5a00;--warnbg:#fdf1d8;
--e0:#e4efe8;--e1:#b9dcc6;--e2:#f6d98a;--e3:#ee9a55;--e4:#c8372d;--en:#5d3b8e}
@media (prefers-color-scheme:dark){:root{--bg:#14171c;--card:#1d2128;--ink:#e6e9ee;--soft:#9aa4b2;--line:#333a45;
--code:#282e37;--good:#6fd694;--goodbg:#16301f;--bad:#ff8a80;--badbg:#3a1b19;--warn:#f0c05a;--warnbg:#352a12;
--e0:#22342a;--e1:#2f6b46;--e2:#a98a2c;--e3:#d07a32;--e4:#f0564a;--en:#a983e6}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
main{max-width:64rem;margin:0 auto;padding:1.25rem 1rem 3rem}
h1{font-size:1.1rem;margin:0 0 .75rem;color:var(--soft);font-weight:600}
h2{font-size:1.1rem;margin:0 0 .75rem}
h3{font-size:1rem;margin:1rem 0 .5rem}
section{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1rem 1.1rem;margin:0 0 1rem}
.verdict{border-left:.5rem solid var(--warn);background:var(--warnbg)}
.verdict b{display:block;font-size:1.7rem;line-height:1.2;color:var(--warn)}
.verdict.right{border-left-color:var(--good);background:var(--goodbg)}.verdict.right b{color:var(--good)}
.verdict.wrong{border-left-color:var(--bad);background:var(--badbg)}.verdict.wrong b{color:var(--bad)}
.verdict p{margin:.4rem 0 0}
.why{font-size:1.15rem;margin:0 0 .6rem}
code,pre{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:.85em}
pre{background:var(--code);border-radius:.4rem;padding:.7rem .8rem;margin:.5rem 0 0;white-space:pre-wrap}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .7rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--soft);font-weight:600;overflow-wrap:normal}
td.n,th.n{text-align:right;width:1%;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.off{color:var(--soft)}tr.on td:nth-child(2){font-weight:700;color:var(--warn)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5rem,1fr));gap:.7rem 1rem;margin:0}
dt{color:var(--soft);font-size:.85rem}dd{margin:0;font-size:1.1rem;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}
.paper{background:#fff;border-radius:.4rem;padding:.4rem;overflow-x:auto}.paper svg{display:block}
.fit svg{max-width:100%;height:auto;display:block}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1rem;font-size:.85rem;color:var(--soft);margin-top:.6rem}
.legend i{display:inline-block;width:.9rem;height:.9rem;border-radius:.2rem;margin-right:.35rem;vertical-align:-.1rem}
.bar{display:block;height:.55rem;background:var(--soft);border-radius:.2rem;min-width:1px}
.e0{fill:var(--e0);background:var(--e0)}.e1{fill:var(--e1);background:var(--e1)}.e2{fill:var(--e2);background:var(--e2)}
.e3{fill:var(--e3);background:var(--e3)}.e4{fill:var(--e4);background:var(--e4)}.en{fill:var(--en);background:var(--en)}
.grid{stroke:var(--ink);stroke-opacity:.35;stroke-width:1;fill:none}.label{fill:var(--soft);font-size:8px}
summary{cursor:pointer;font-weight:600}details{margin-top:.6rem}
ul{margin:0;padding-left:1.2rem}footer{color:var(--soft);font-size:.85rem}
@media (max-width:40rem){main{padding:.75rem .6rem 2rem}section{padding:.8rem}.narrow-off{display:none}
.verdict b{font-size:1.4rem}}
"""


def html(report: Report) -> str:
    """The page."""
    parts = [
        _verdict(report),
        _diagnosis(report.diagnosis),
        *map(_output, report.outputs),
        _arguments(report),
        _operands(report),
        _fidelity(report),
        _facts(report),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Nothing is loaded from anywhere, whatever a stranger's bundle says.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(report.verdict)}: {escape(report.kernel)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{escape(report.kernel)}</h1>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def _verdict(report: Report) -> str:
    kind = {RIGHT: "right", WRONG: "wrong"}.get(report.verdict, "")
    word = {RIGHT: "Right", WRONG: "Wrong", UNFINISHED: "Did not finish", UNKNOWN: "Not compared"}[report.verdict]
    return (
        f'<section class="verdict {kind}"><b>{word}</b><p>{escape(report.sentence)}</p>'
        f"<pre>{escape(report.command)}</pre></section>\n"
    )


def _diagnosis(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    first, rows = reasons(found)
    listed = "".join(f"<tr><th>{escape(what)}</th><td>{escape(text)}</td></tr>" for what, text in rows)
    return f'<section><h2>Why</h2><p class="why">{escape(first)}</p><table>{listed}</table></section>\n'


def _plain(value: Any) -> str:
    """Nested plain values as nested tables."""
    if isinstance(value, Mapping):
        rows = "".join(
            f"<tr><th>{escape(str(name).replace('_', ' '))}</th><td>{_plain(one)}</td></tr>"
            for name, one in value.items()
            if one not in (None, "", [], {})
        )
        return f"<table>{rows}</table>"
    if isinstance(value, (list, tuple)):
        if all(not isinstance(one, (Mapping, list, tuple)) for one in value):
            return escape(", ".join(map(_number, value)))
        return "".join(f"<div>{_plain(one)}</div>" for one in value)
    return escape(_number(value))


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _output(output: OutputReport) -> str:
    c = output.comparison
    figures = [
        ("equal to the rounded reference", f"{c.equal_fraction:.4%}"),
        ("beyond the bound", f"{c.beyond:,} of {c.elements:,}"),
        ("largest error", f"{c.max_abs_error:.4g}"),
        ("largest relative error", f"{c.max_rel_error:.4g}"),
        ("norm of the error", f"{c.norm_error:.4g}"),
        *((f"{kind} elements", f"{count:,}") for kind, count in c.kinds.items()),
    ]
    shown = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(text)}</dd></div>" for what, text in figures)
    worst = ""
    if c.worst is not None:
        worst = f"<p>Worst at {c.worst}: {c.worst_result:.6g}, the reference has {c.worst_reference:.6g}.</p>"
    structure = f"<p>Where: {escape(str(c.structure))}</p>" if c.structure is not None else ""
    picture = _map(output.map) if output.map is not None else ""
    return (
        f"<section><h2>Output {escape(output.name)}</h2><dl>{shown}</dl>{worst}{structure}"
        f"<p>Bound: {escape(str(c.bound))}</p>{picture}{_steps(c)}</section>\n"
    )


def _steps(c: Comparison) -> str:
    """The histogram of distances from the rounded reference."""
    if not c.ulps:
        return ""
    most = max(math.log10(count + 1) for _, count in c.ulps)
    rows = "".join(
        f'<tr><td class="n">{"0" if not steps else f"to {steps:,}"}</td><td class="n">{count:,}</td>'
        f'<td><span class="bar" style="width:{100 * math.log10(count + 1) / most:.0f}%"></span></td></tr>'
        for steps, count in c.ulps
    )
    return (
        "<details><summary>Distances from the rounded reference</summary><table><tr>"
        f'<th class="n">steps of the type</th><th class="n">elements</th><th>logarithmic</th></tr>{rows}'
        "</table></details>"
    )


def _map(found: ErrorMap) -> str:
    """The error map: a square a cell, equal neighbours joined, lines between tiles."""
    rows, columns = found.errors.shape
    left, top = 46, 20
    width, height = left + columns * _CELL + 12, top + rows * _CELL + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{round(1.6 * width)}" role="img" shape-rendering="crispEdges" '
        'aria-label="error of each part of the output">'
    ]
    for row, line in enumerate(found.errors):
        classes = [cell_class(value) for value in line]
        start = 0
        for column in range(1, columns + 1):
            if column == columns or classes[column] != classes[start]:
                parts.append(
                    f'<rect class="{classes[start]}" x="{left + start * _CELL}" y="{top + row * _CELL}" '
                    f'width="{(column - start) * _CELL}" height="{_CELL}"/>'
                )
                start = column
    parts += _lines(found, left, top)
    used = {cell_class(value) for value in found.errors.reshape(-1)}
    legend = [(name, text) for name, _, text in STEPS if name in used] + ([NAN] if NAN[0] in used else [])
    keys = "".join(f'<span><i class="{name}"></i>{escape(text)}</span>' for name, text in legend)
    tile = f", a tile of {found.tile[0]}x{found.tile[1]} is framed" if found.tile else ""
    cell = f"{found.cell[0]}x{found.cell[1]}"
    return (
        f'<h3>Error map</h3><div class="fit">{"".join(parts)}</svg></div>'
        f'<div class="legend"><span>norm of the error of {cell} elements{tile}:</span>{keys}</div>'
    )


def _lines(found: ErrorMap, left: int, top: int) -> Iterable[str]:
    """Frames of the tiles, and where rows and columns of the output are."""
    rows, columns = found.errors.shape
    size = (rows * _CELL, columns * _CELL)
    yield f'<rect class="grid" x="{left}" y="{top}" width="{size[1]}" height="{size[0]}"/>'
    if found.tile:
        for at in range(found.tile[1], found.shape[1], found.tile[1]):
            x = left + at * _CELL / found.cell[1]
            yield f'<path class="grid" d="M{x:g} {top}V{top + size[0]}"/>'
        for at in range(found.tile[0], found.shape[0], found.tile[0]):
            y = top + at * _CELL / found.cell[0]
            yield f'<path class="grid" d="M{left} {y:g}H{left + size[1]}"/>'
    yield f'<text class="label" x="{left}" y="{top - 6}">0</text>'
    yield f'<text class="label" x="{left + size[1]}" y="{top - 6}" text-anchor="end">column {found.shape[1] - 1}</text>'
    yield f'<text class="label" x="{left - 6}" y="{top + 10}" text-anchor="end">row 0</text>'
    if rows > 2:
        yield f'<text class="label" x="{left - 6}" y="{top + size[0]}" text-anchor="end">{found.shape[0] - 1}</text>'


def cell_class(error: float) -> str:
    """The name of an error's class: one of ``STEPS``, or ``NAN``'s."""
    if np.isnan(error):
        return NAN[0]
    return next(name for name, most, _ in STEPS if error <= most)


def _arguments(report: Report) -> str:
    if not report.arguments:
        return ""
    rows = "".join(
        f'<tr class="{"on" if one.changed else "off" if one.live is False else ""}"><td class="n">{one.offset}</td>'
        f"<td><code>{escape(one.name)}</code></td><td><code>{escape(one.value)}</code></td>"
        f'<td class="narrow-off">{escape(one.meaning)}{" (changed)" if one.changed else ""}</td></tr>'
        for one in report.arguments
    )
    picture = ""
    if report.map is not None:
        picture = f'<details><summary>Map of the bytes</summary><div class="paper">{report.map.svg()}</div></details>'
    return (
        '<section><h2>Arguments</h2><div class="wide"><table><tr><th class="n">offset</th><th>name</th><th>value</th>'
        f'<th class="narrow-off">meaning</th></tr>{rows}</table></div>{picture}</section>\n'
    )


def _operands(report: Report) -> str:
    if not report.operands:
        return ""
    rows = "".join(
        f'<tr class="{"on" if one.changed else ""}"><td class="n">{one.size:,}</td>'
        f"<td><code>{escape(one.name)}</code></td>"
        f"<td>{escape(one.layout or 'not declared')}{' (changed)' if one.changed else ''}</td></tr>"
        for one in report.operands
    )
    pictures = "".join(
        f"<details open><summary>{escape(layout.name)}</summary><p><code>{escape(layout.formula())}</code></p>"
        f'<div class="paper">{layout.plot("svg")!s}</div></details>'
        for layout in report.layouts
        if layout.rank <= 2
    )
    return (
        '<section><h2>Operands and their layouts</h2><div class="wide"><table><tr><th class="n">bytes</th>'
        f"<th>argument</th><th>layout it should be in</th></tr>{rows}</table></div>{pictures}</section>\n"
    )


def _fidelity(report: Report) -> str:
    listed = "".join(f"<li>{escape(text)}</li>" for text in report.findings)
    findings = f"<h3>Findings</h3><ul>{listed}</ul>" if listed else "<p>The device noticed nothing else.</p>"
    found = report.fidelity
    if not found:
        return f"<section><h2>What the device noticed</h2>{findings}</section>\n"
    counts, approximate = found.get("instructions"), found.get("approximate")
    total = sum(n for n in counts.values() if isinstance(n, int)) if isinstance(counts, dict) else 0
    figures = [
        ("wave-instructions", f"{total:,}"),
        ("exact as the manual states", _count(found.get("exact"))),
        ("kinds that are approximate", str(len(approximate)) if isinstance(approximate, list) else "0"),
        ("checks that were on", str(len(found["checks"])) if isinstance(found.get("checks"), list) else "0"),
    ]
    shown = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(text)}</dd></div>" for what, text in figures)
    return (
        f"<section><h2>What the emulation is worth</h2><dl>{shown}</dl>{findings}"
        f"<details><summary>Fidelity in full</summary>{_plain(found)}</details></section>\n"
    )


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _facts(report: Report) -> str:
    rows = "".join(
        f"<tr><th>{escape(what)}</th><td><code>{escape(text)}</code></td></tr>" for what, text in report.facts
    )
    return f"<section><h2>What ran</h2><table>{rows}</table></section>\n"
