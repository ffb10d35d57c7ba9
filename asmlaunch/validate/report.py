"""What came of one launch, from a bundle: verdict, errors and where they are, arguments, layouts, what it is worth.

:class:`Report` is the content, once; ``as_dict`` is its JSON, ``report_html`` its page, ``cli/report.py`` the terminal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asmlaunch import codeobject, layouts
from asmlaunch.abi import KernargMap, kernarg_map, schema_from_metadata
from asmlaunch.abi.diff import show
from asmlaunch.abi.families import family_of
from asmlaunch.abi.families.base import plain_name
from asmlaunch.codeobject import KernelInfo
from asmlaunch.errors import AsmlaunchError
from asmlaunch.layouts.layout import Layout
from asmlaunch.module import Kernel
from asmlaunch.validate.bfloat16 import to_float64
from asmlaunch.validate.bundle import Bundle, bundle, plain_json, restored
from asmlaunch.validate.compare import Comparison
from asmlaunch.validate.probe.rig import Rig
from asmlaunch.validate.problems import Case, Output, get
from asmlaunch.validate.problems.base import tile_of

RIGHT, WRONG, UNFINISHED, UNKNOWN = "right", "wrong", "did not finish", "not compared"

#: Cells of an error map, at most, in each direction.
_CELLS = 48

#: Other explanations of a wrong result that are shown.
_OTHERS = 4

#: Wave-instructions a wave may take in a reported run.
_BUDGET = 1_000_000_000


@dataclass(frozen=True)
class ErrorMap:
    """Errors of an output, cell by cell.

    Attributes:
        cell: rows and columns of the output in a cell.
        tile: rows and columns of a workgroup's tile, a multiple of ``cell``; None where it is not known.
        errors: ``[rows, columns]``: norm of the differences in the cell over that of the reference, NaN where the
            result has NaN that the reference has not.
        shape: of the output.
    """

    cell: tuple[int, int]
    tile: tuple[int, int] | None
    errors: np.ndarray
    shape: tuple[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rounded = [[float(f"{value:.3g}") for value in row] for row in self.errors.tolist()]
        return {"cell": list(self.cell), "tile": self.tile and list(self.tile), "errors": rounded}


@dataclass(frozen=True)
class OutputReport:
    """One output: its comparison and where its errors are."""

    name: str
    comparison: Comparison
    map: ErrorMap | None


@dataclass(frozen=True)
class ArgumentReport:
    """One argument: where it is, its value, what it is for."""

    offset: int
    name: str
    value: str
    meaning: str
    live: bool | None
    changed: bool


@dataclass(frozen=True)
class OperandReport:
    """The memory of one argument and the layout it should be in."""

    name: str
    size: int
    layout: str
    changed: bool


@dataclass(frozen=True)
class Report:
    """What came of a launch.

    Attributes:
        kernel: name without C++ mangling.
        verdict: ``RIGHT``, ``WRONG``, ``UNFINISHED`` or ``UNKNOWN``.
        sentence: the verdict's reason.
        outputs: comparisons.
        arguments: the argument segment.
        operands: the buffers.
        layouts: the named layouts among the operands', for pictures.
        map: the segment, to be drawn; None where the object is not at hand.
        facts: what ran where, as (what, text).
        fidelity: the emulator's, as ``Fidelity.to_json`` gives it; None on a GPU.
        findings: what the device noticed.
        diagnosis: why it is wrong, where somebody asked (plain values).
        command: what does it again.
    """

    kernel: str
    verdict: str
    sentence: str
    outputs: tuple[OutputReport, ...]
    arguments: tuple[ArgumentReport, ...]
    operands: tuple[OperandReport, ...]
    layouts: tuple[Layout, ...]
    map: KernargMap | None
    facts: tuple[tuple[str, str], ...]
    fidelity: Mapping[str, Any] | None
    findings: tuple[str, ...]
    command: str
    diagnosis: Mapping[str, Any] | None = field(default=None)

    def __bool__(self) -> bool:
        """Whether the result was compared and is right."""
        return self.verdict == RIGHT

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found = {
            "kernel": self.kernel,
            "verdict": self.verdict,
            "sentence": self.sentence,
            "outputs": [
                {"name": one.name, **one.comparison.as_dict(), "map": one.map and one.map.as_dict()}
                for one in self.outputs
            ],
            "arguments": [vars(one) for one in self.arguments],
            "operands": [vars(one) for one in self.operands],
            "facts": dict(self.facts),
            "fidelity": self.fidelity,
            "findings": list(self.findings),
            "diagnosis": self.diagnosis,
            "command": self.command,
        }
        plain: dict[str, Any] = plain_json(found)
        return plain


def examine(
    kernel: Kernel, case: Case, *, arguments: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Bundle, Report]:
    """Run a declared problem and report on it.

    Args:
        arguments: arguments to replace, by name: numbers, or arrays of the operand's size.
        options: launch options of the device; in the emulator all checks are on unless they say otherwise.

    Raises:
        What ``probe.rig.Rig`` raises; not what the launch does wrong.
    """
    usual = {"checks": "all", "budget": _BUDGET} if kernel.device.name == "emulator" else {}
    rig = Rig(kernel, case, **{**usual, **options})
    made = bundle(rig, changed=arguments)
    return made, report(made)


def report(
    bundle: Bundle, *, diagnosis: Mapping[str, Any] | None = None, path: str = "", comparing: bool = True
) -> Report:
    """The report on a bundle.

    Args:
        diagnosis: what ``diagnose`` found, as plain values.
        path: of the bundle's file, for the command that replays it.
        comparing: compute the reference, which takes the kernel's problem and time.
    """
    kernel = None if bundle.image is None else codeobject.read(bundle.image).kernels[bundle.kernel]
    error = bundle.result.get("error")
    compared: tuple[OutputReport, ...] = ()
    spilled = 0
    why = "the bundle names no declared problem, so there is no reference"
    if error is None and comparing and bundle.family:
        try:
            compared, spilled = _compared(bundle, kernel)
        except (AsmlaunchError, ZeroDivisionError, ValueError) as missing:  # a stranger's sizes
            why = f"no reference: {missing}"
    verdict, sentence = _verdict(bundle, compared, spilled, why)
    arguments, picture = _arguments(bundle, kernel)
    operands = _operands(bundle, kernel)
    used = tuple(layouts.get(name) for name in dict.fromkeys(one.layout for one in operands) if name in layouts.LAYOUTS)
    fidelity = bundle.result.get("fidelity")
    findings = bundle.result.get("findings")
    return Report(
        plain_name(bundle.kernel), verdict, sentence, compared, arguments, operands, used, picture,
        _facts(bundle, kernel),
        fidelity if isinstance(fidelity, dict) else None,
        tuple(str(one) for one in findings) if isinstance(findings, list) else (),
        _command(bundle, path), diagnosis,
    )  # fmt: skip


def why(bundle: Bundle) -> dict[str, Any] | None:
    """The diagnosis of the first wrong output of a bundle, as plain values; None where there is none.

    Raises:
        DumpError: no problem, no object or no result in the bundle. What ``diagnose`` raises.
    """
    from asmlaunch.validate.diagnose import diagnose

    rig = restored(bundle)
    wrong = next((one for one in rig.problem.outputs if not one.compare().passed), None)
    if wrong is None:
        return None
    found = diagnose(rig.definition, rig.kernel, rig.case, wrong.result, output=wrong.name)
    answer: dict[str, Any] = plain_json(found.as_dict())
    return answer


def reasons(diagnosis: Mapping[str, Any]) -> tuple[str, list[tuple[str, str]]]:
    """A diagnosis in words: the likeliest reason, and what is to be known beside it, as (what, text)."""
    explanations = diagnosis.get("explanations") or []
    best = explanations[0] if explanations else None
    texts = ["; and ".join(one["text"] for one in each["mistakes"]) for each in explanations]
    subjects = [tuple((one["kind"], one["subject"]) for one in each["mistakes"]) for each in explanations]
    others = {
        subject: text for subject, text in zip(subjects[::-1], texts[::-1], strict=True) if subject != subjects[0]
    }
    rows = [("confidence", str(diagnosis.get("confidence", "")))]
    if best is not None:
        how = {"float64": "the reference on these inputs", "emulator": "this launch on the emulator"}
        rows += [
            ("evidence", f"{how.get(best['how'], best['how'])} gives {best['explained']:.1%} of the wrong elements"),
            ("right would be", "; ".join(one["fix"] for one in best["mistakes"] if one["fix"])),
            *(("as possible", text) for text in list(others.values())[::-1][:_OTHERS]),
        ]
    elif diagnosis.get("closest"):
        closest = diagnosis["closest"]
        text = "; and ".join(one["text"] for one in closest["mistakes"])
        rows.append(("closest", f"{text} ({closest['explained']:.1%} of the wrong elements)"))
    rows += [("note", str(note)) for note in diagnosis.get("notes") or []]
    first = texts[0] if texts else f"none of {diagnosis.get('tried', 0)} hypotheses explains it"
    return first, [(what, text) for what, text in rows if text]


def _compared(bundle: Bundle, kernel: KernelInfo | None) -> tuple[tuple[OutputReport, ...], int]:
    """The outputs, and how many elements were written outside of them."""
    tile = None
    if kernel is not None and bundle.family:
        tile = tile_of(get(bundle.family).parameters(kernel))
    found = []
    rig = restored(bundle)
    for output in rig.problem.outputs:
        comparison = output.compare(tile=tile if output.result.ndim == 2 else None)
        found.append(OutputReport(output.name, comparison, error_map(output, tile)))
    return tuple(found), rig.spilled()


def error_map(output: Output, tile: tuple[int, int] | None) -> ErrorMap | None:
    """Where the errors of an output are; None for an output without two dimensions, or an empty one."""
    if output.result.ndim != 2 or not output.result.size:
        return None
    rows, columns = output.result.shape
    sizes = (rows, columns)
    cell = tuple(_cell(size, tile[axis] if tile is not None else 0) for axis, size in enumerate(sizes))
    decode = output.decode or (lambda codes: codes)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        got, value = to_float64(decode(output.result)), np.asarray(output.reference().value, np.float64)
        lost = np.isnan(got) & ~np.isnan(value)
        difference = np.where(np.isnan(got) & np.isnan(value), 0.0, got - value)
        squares = [_sums(one * one, cell) for one in (np.where(lost, 0.0, difference), np.nan_to_num(value))]
        errors = np.sqrt(squares[0]) / np.where(squares[1] > 0, np.sqrt(squares[1]), 1.0)
    errors[_sums(lost.astype(float), cell) > 0] = math.nan
    return ErrorMap(cell, tile, errors, sizes)  # type: ignore[arg-type]


def _cell(size: int, tile: int) -> int:
    """Elements a cell has along one axis: a divisor of the tile, few enough cells."""
    least = max(1, -(-size // _CELLS))
    if not tile:
        return least
    divisors = [one for one in range(1, tile + 1) if tile % one == 0 and one >= least]
    return divisors[0] if divisors else tile * -(-least // tile)


def _sums(values: np.ndarray, cell: tuple[int, ...]) -> np.ndarray:
    down = np.add.reduceat(values, np.arange(0, values.shape[0], cell[0]), axis=0)
    return np.asarray(np.add.reduceat(down, np.arange(0, values.shape[1], cell[1]), axis=1))


def _verdict(bundle: Bundle, compared: tuple[OutputReport, ...], spilled: int, why: str) -> tuple[str, str]:
    error = bundle.result.get("error")
    if error is not None:
        return UNFINISHED, str(error)
    if not compared:
        return UNKNOWN, why
    wrong = [one for one in compared if not one.comparison.passed]
    if not wrong and not spilled:
        elements = sum(one.comparison.elements for one in compared)
        return RIGHT, f"all {elements:,} elements are within the bound of their float64 reference"
    texts = []
    for one in wrong:
        c = one.comparison
        where = f": {c.structure.where}" if c.structure is not None and c.structure.axes else ""
        texts.append(f"{c.beyond:,} of {c.elements:,} elements of {one.name} are beyond the bound{where}")
    if spilled:
        texts.append(f"{spilled:,} elements outside of the outputs were written")
    return WRONG, "; ".join(texts)


def _arguments(bundle: Bundle, kernel: KernelInfo | None) -> tuple[tuple[ArgumentReport, ...], KernargMap | None]:
    if kernel is None:
        return (), None
    family = family_of(kernel)
    schema = family.schema(kernel) if family else schema_from_metadata(kernel)
    try:
        values = schema.unpack(bundle.kernarg)
        picture: KernargMap | None = kernarg_map(schema, bundle.kernarg)
    except AsmlaunchError:
        return (), None
    found = []
    for name, value in values.items():
        entry = schema[name]
        meaning = " ".join(part for part in (entry.role, f"({entry.unit})" if entry.unit else "") if part)
        text = show(entry, value)
        found.append(ArgumentReport(entry.offset, name, text, meaning, entry.live, name in bundle.changed))
    return tuple(found), picture


def _operands(bundle: Bundle, kernel: KernelInfo | None) -> tuple[OperandReport, ...]:
    family = None if kernel is None else family_of(kernel)
    found = []
    for one in bundle.buffers:
        layout = ""
        if family is not None and kernel is not None:
            schema = family.schema(kernel)
            if one.name in schema:
                entry = schema[one.name]
                layout = entry.tiling or ("written by the kernel" if entry.role.startswith("output") else "")
        found.append(OperandReport(one.name, one.size, layout, one.name in bundle.changed))
    return tuple(found)


def _facts(bundle: Bundle, kernel: KernelInfo | None) -> tuple[tuple[str, str], ...]:
    result = bundle.result
    rows = [
        ("kernel", bundle.kernel),
        ("object", f"{bundle.file or 'unnamed'}, sha256 {bundle.image_hash[:16]}"),
        ("target", "" if kernel is None else str(kernel.target)),
        ("device", bundle.device),
        ("problem", f"{bundle.family}: {bundle.short or bundle.case}" if bundle.family else ""),
        ("changed", ", ".join(bundle.changed)),
        ("grid, block", f"{bundle.grid}, {bundle.block}"),
        ("options", ", ".join(f"{name}={value}" for name, value in bundle.options.items())),
        ("instructions", f"{n:,}" if isinstance(n := result.get("instructions"), int) else ""),
        ("seconds", f"{s:.3f}" if isinstance(s := result.get("seconds"), float) else ""),
        ("versions", ", ".join(f"{name} {value}" for name, value in bundle.versions.items())),
    ]
    return tuple((what, text) for what, text in rows if text)


def _command(bundle: Bundle, path: str) -> str:
    if path:
        return f"asmlaunch replay {path}"
    if bundle.family and not bundle.changed:
        kernel = bundle.file.removesuffix(".co")
        problem = (bundle.short or bundle.case).replace(" ", "")
        return f"asmlaunch verify {bundle.family} --kernel {kernel} --problem {problem} --no-check"
    return "asmlaunch replay FILE.asml"
