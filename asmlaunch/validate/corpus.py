"""What a sweep found, as a page: a table with a row for each family, bounds, findings, and exceptions by name."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asmlaunch.validate.compare import Bound
from asmlaunch.validate.coverage import union
from asmlaunch.validate.problems.base import GAP
from asmlaunch.validate.sweep import Member, Plan, Record

HEAD = """# The corpus

Made by `asmlaunch sweep all --every-problem --report docs/corpus.md` from the objects of the amd-aiter wheel; do not
edit. *Executed*: its machine code ran to the end on every problem; *verified*: and every element of every result was
within its bound of a float64 reference, with nothing written outside of the results. Kernels of the same machine code
ran once. *Error*: the largest error of a run relative to the norm of its result; *equal*: the smallest fraction of
elements that equal the rounded reference in a run (of outputs whose bound asks for it). Seconds are those of one core,
compilation included.
"""

NO_PROBLEMS = "no problems are defined for this family yet"


@dataclass(frozen=True)
class Row:
    """What there is to say of a family.

    Attributes:
        family: its name; "" for kernels of no family.
        members: its kernels.
        records: the results of its tasks.
        missing: tasks without a result.
    """

    family: str
    members: tuple[Member, ...]
    records: tuple[Record, ...]
    missing: int

    @property
    def objects(self) -> int:
        """Kernels found."""
        return len(self.members)

    @property
    def verified(self) -> int:
        """Results within their bounds."""
        return self._count("verified")

    @property
    def failed(self) -> int:
        """Results outside of their bounds."""
        return self._count("failed")

    @property
    def not_run(self) -> int:
        """Tasks that did not come to their end, or were not run, and objects that could not be read."""
        return self._count("error") + self.missing + sum(bool(member.error) for member in self.members)

    def _count(self, status: str) -> int:
        return sum(record["status"] == status for record in self.records)


def summary(plan: Plan, records: Mapping[str, Record]) -> list[Row]:
    """A row for each family of the plan, those with tasks first, in order of their first kernels."""
    families: dict[str, list[Member]] = {}
    for member in plan.members:
        families.setdefault(member.family, []).append(member)
    rows = []
    for family, members in families.items():
        keys = dict.fromkeys(key for member in members for key in member.keys)
        found = tuple(records[key] for key in keys if key in records)
        rows.append(Row(family, tuple(members), found, len(keys) - len(found)))
    return sorted(rows, key=lambda row: not any(member.keys for member in row.members))


def render(plan: Plan, records: Mapping[str, Record]) -> str:
    """The page's text."""
    rows = summary(plan, records)
    lines = [
        HEAD,
        "| family | objects | executed | verified | runs | error | equal | wave-instructions | seconds | findings |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(row, records) for row in rows]
    total = [sum(_members(row, records, status) for row in rows) for status in ("run", "verified")]
    lines += ["", f"{sum(row.objects for row in rows)} objects, {total[0]} executed, {total[1]} verified.", ""]
    for row in rows:
        if row.records:
            lines += _section(row)
    lines += _instructions(rows)
    lines += ["## Exceptions", "", *(_exceptions(rows, records) or ["None."]), ""]
    return "\n".join(lines)


def _status(member: Member, records: Mapping[str, Record]) -> str:
    """The worst of a member's results: "verified", "failed", "error" or "missing"."""
    states = {records[key]["status"] if key in records else "missing" for key in member.keys} or {"missing"}
    return next(state for state in ("missing", "error", "failed", "verified") if state in states)


def _members(row: Row, records: Mapping[str, Record], status: str) -> int:
    wanted = ("verified", "failed") if status == "run" else (status,)
    return sum(_status(member, records) in wanted for member in row.members)


def _line(row: Row, records: Mapping[str, Record]) -> str:
    done = [record for record in row.records if record["status"] != "error"]
    outputs = [output for record in done for output in record["outputs"].values()]
    error = f"{max(output['norm_error'] for output in outputs):.1e}" if outputs else "-"
    equal = [output["equal_fraction"] for output in outputs if output["bound"]["equal_fraction"] > 0]
    least = f"{math.floor(min(equal) * 1e4) / 1e4:.2%}" if equal else "-"
    findings = sum(len(record["findings"]) for record in done)
    return (
        f"| {row.family or 'none'} | {row.objects} | {_members(row, records, 'run')} "
        f"| {_members(row, records, 'verified')} | {len(row.records)} | {error} | {least} "
        f"| {sum(record['instructions'] or 0 for record in done):,} "
        f"| {sum(record.get('wall_seconds', 0) for record in row.records):.1f} | {findings} |"
    )


def _section(row: Row) -> list[str]:
    done = [record for record in row.records if record["status"] != "error"]
    targets = Counter(member.target for member in row.members)
    counted = ", ".join(f"{count} for {target}" for target, count in sorted(targets.items()))
    lines = [f"## {row.family}", "", f"Objects: {counted}. Bounds:", ""]
    bounds: dict[str, dict[Bound, float]] = {}
    for record in done:
        for name, output in record["outputs"].items():
            if not name.startswith(GAP):
                found, error = bounds.setdefault(name, {}), output["norm_error"]
                bound = Bound(**output["bound"])
                found[bound] = max(found.get(bound, 0.0), error)
    for name, found in bounds.items():
        ordered = sorted(found, key=_looseness)
        shown = dict.fromkeys((ordered[0], ordered[-1]))
        lines.append(
            f"* {name}: {'; of another problem: '.join(map(str, shown))} (worst error {max(found.values()):.1e})"
        )
    kinds = Counter(_kind(finding) for record in done for finding in record["findings"])
    if kinds:
        lines += ["", "Findings:", "", *(f"* {kind} ({count}x)" for kind, count in kinds.most_common())]
    return [*lines, ""]


def _looseness(bound: Bound) -> tuple[float, ...]:
    return bound.absolute, bound.of_max, bound.cancellation, bound.relative, -bound.equal_fraction


def _kind(finding: str) -> str:
    """A finding without addresses, workgroups and lanes: what is common to many."""
    argument = re.search(r"past the end of (\w+)|before the start of (\w+)", finding)
    kind = finding.split(":", 1)[0]
    return f"{kind}, {argument[0]}" if argument else kind


def _instructions(rows: Sequence[Row]) -> list[str]:
    """Which instruction keys the runs executed."""
    executed, others = union(record for row in rows for record in row.records)
    if not executed:
        return []
    lines = [
        "## Instructions",
        "",
        f"The reachable code of the kernels that ran has {len(executed) + len(others)} instruction keys (a mnemonic "
        f"with what else changes its meaning); {len(executed)} of them were executed.",
        "",
    ]
    lines += [f"* not executed: `{key}`, in the kernels of {count} runs" for key, count in others.items()]
    return [*lines, ""] if others else lines


def _exceptions(rows: Sequence[Row], records: Mapping[str, Record]) -> list[str]:
    lines = []
    for row in rows:
        lines += [f"* `{member.file}`: {member.error}" for member in row.members if member.error]
        without = [member for member in row.members if not member.keys and not member.error]
        if without:
            reason = NO_PROBLEMS if row.family else "the kernel belongs to no declared family"
            lines.append(f"* {row.family or 'none'}, {len(without)} objects: {reason}.")
        for member in row.members:
            for key in member.keys:
                record = records.get(key)
                if record is None:
                    lines.append(f"* `{member.file}`: not run.")
                elif record["status"] == "error":
                    lines.append(f"* `{member.file}`, {record['case']}: {record['error']}")
                elif record["status"] == "failed":
                    output = record["outputs"][record["output"]]
                    spilled = record["spilled"][record["output"]]
                    lines.append(
                        f"* `{member.file}`, {record['case']}: {record['output']} has {output['beyond']} of "
                        f"{output['elements']} elements beyond the bound, {spilled} written outside of it."
                    )
    return lines
