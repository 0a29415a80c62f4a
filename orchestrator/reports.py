"""What a gate found, as CI reads it: JUnit XML, Markdown and GitHub annotations. Pure: values in, text out.

Rules
- JUnit: one test suite a case, one test case a hash group, and one for repeatability. Its shape is that of
  Jenkins' xUnit schema (junit-10.xsd). Nothing has a time that was not measured.
- A group fails when its differences cost the level that was asked. Differences that the level forgives are
  listed in a test case that passes.
- Any text may come in, also one that XML or Markdown cannot hold: it is escaped, or its characters replaced.

Where the reports go is `commands.reporting`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

from orchestrator.render import (
    GROUP_TITLES,
    change_lines,
    costs,
    divergence_line,
    first_of,
    headline,
    remedy,
    repetition_line,
)
from orchestrator.verdict import level_reached

if TYPE_CHECKING:
    from orchestrator.models import Difference, GroupVerdict, Verdict
    from orchestrator.published import DrawVerdict
    from orchestrator.runner import Run

# What XML 1.0 cannot hold (production 2, `Char`), and the carriage return, which its parsers rewrite.
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# An underscore between letters or digits is plain text to GitHub and GitLab: field names stay readable.
_MARKDOWN = re.compile(r"[\\`*\[\]<|~&$]|(?<![^\W_])_|_(?![^\W_])")
_MARKS = {True: "✓", False: "✗"}


@dataclass(frozen=True)
class Problem:
    """Why a test case has not passed: bits that differ (`failure`), or no verdict at all (`error`)."""

    element: Literal["failure", "error"]
    kind: str
    message: str
    details: str = ""


@dataclass(frozen=True)
class Check:
    """One JUnit test case."""

    name: str
    problem: Problem | None = None
    output: str = ""


@dataclass(frozen=True)
class Report:
    """One case's outcome in each form. `name` is the suite's, `output` what it says beside its checks."""

    name: str
    checks: list[Check]
    markdown: str
    annotations: list[str]
    properties: dict[str, str] = field(default_factory=dict)
    output: str = ""
    duration_s: float | None = None


def verdict_report(name: str, verdict: Verdict, run: Run) -> Report:
    """The report of a verdict on a run."""
    line = headline(verdict)
    said = _said(verdict, run)
    failed = not verdict.qualified
    return Report(
        name=name,
        checks=[*(_group_check(verdict, group) for group in verdict.groups), _repeatability(verdict)],
        markdown=_verdict_markdown(name, verdict, said),
        annotations=[_annotation(name, f"{line}; {remedy(verdict, str(run.folder))}")] if failed else [],
        properties={
            "level_asked": verdict.level_asked,
            "level_reached": verdict.level_reached or "none",
            "frozen_record": verdict.expected,
            "run_folder": str(run.folder),
        },
        output="\n".join([line, *said]),
        duration_s=run.record.duration_s,
    )


def draws_report(name: str, verdicts: Sequence[DrawVerdict]) -> Report:
    """The report of a published table's draws: one test case a draw."""
    return Report(
        name=name,
        checks=[
            Check(
                f"draw {verdict.draw}",
                _failure("difference", verdict.differences, "published"),
                f"{verdict.compared} facts compared; {verdict.correct} of {verdict.total} queries correct",
            )
            for verdict in verdicts
        ],
        markdown=_draws_markdown(name, verdicts),
        annotations=[
            _annotation(name, f"draw {verdict.draw}: {_first(verdict.differences, 'published')}")
            for verdict in verdicts
            if not verdict.qualified
        ],
    )


def error_report(name: str, kind: str, line: str) -> Report:
    """The report of a gate that reached no verdict: one test case, with the line that it ended with."""
    return Report(
        name=name,
        checks=[Check("gate", Problem("error", kind, line))],
        markdown=f"{_heading(name, passed=False)}\n\nno verdict: {escape_markdown(line)}\n",
        annotations=[_annotation(name, f"no verdict: {line}")],
    )


# --- JUnit ----------------------------------------------------------------------------------------


def junit(reports: Sequence[Report]) -> bytes:
    """Reports as one JUnit file, in UTF-8."""
    root = ElementTree.Element("testsuites", _counts([check for item in reports for check in item.checks]))
    root.extend(_suite(report) for report in reports)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(report: Report) -> ElementTree.Element:
    attributes = {"name": xml_text(report.name), **_counts(report.checks)}
    if report.duration_s is not None:
        attributes["time"] = f"{report.duration_s:.3f}"
    suite = ElementTree.Element("testsuite", attributes)
    if report.properties:
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in report.properties.items():
            ElementTree.SubElement(properties, "property", name=name, value=xml_text(value))
    suite.extend(_test_case(report.name, check) for check in report.checks)
    _add_text(suite, "system-out", report.output)
    return suite


def _counts(checks: Sequence[Check]) -> dict[str, str]:
    problems = [check.problem.element for check in checks if check.problem is not None]
    return {
        "tests": str(len(checks)),
        "failures": str(problems.count("failure")),
        "errors": str(problems.count("error")),
    }


def _test_case(suite: str, check: Check) -> ElementTree.Element:
    names = {"classname": xml_text(f"qualgate.{suite}"), "name": xml_text(check.name)}
    case = ElementTree.Element("testcase", names)
    if check.problem is not None:
        problem = check.problem
        facts = {"type": xml_text(problem.kind), "message": xml_text(problem.message)}
        ElementTree.SubElement(case, problem.element, facts).text = xml_text(problem.details)
    _add_text(case, "system-out", check.output)
    return case


def _add_text(parent: ElementTree.Element, tag: str, text: str) -> None:
    if text:
        ElementTree.SubElement(parent, tag).text = xml_text(text)


def xml_text(text: str) -> str:
    """Text that XML 1.0 can hold and gives back unchanged; every other character becomes U+FFFD."""
    return _NOT_XML.sub("\ufffd", text)


# --- what a verdict says --------------------------------------------------------------------------


def _group_check(verdict: Verdict, group: GroupVerdict) -> Check:
    name = GROUP_TITLES[group.group]
    if not group.differences:
        return Check(name, output=f"fields equal: {group.fields}")
    listed = _listed(group.differences, "frozen")
    if verdict.qualified or level_reached([group]) in ("bitwise", verdict.level_asked):
        return Check(name, output=f"not demanded at level {verdict.level_asked}:\n{listed}")
    return Check(name, _failure(verdict.difference_kind or "difference", group.differences, "frozen"))


def _repeatability(verdict: Verdict) -> Check:
    """Whether the bits came back: a failed gate can have all groups equal, and still this one fault."""
    name = "repeatability"
    repetition = verdict.repetition
    if verdict.difference_kind != "nondeterminism":
        return Check(name, output=repetition_line(repetition) if repetition is not None else "")
    if repetition is None or repetition.same_bits:
        moved = "the hashes moved between invocations of one process"
        return Check(name, Problem("failure", "nondeterminism", moved, "\n".join(verdict.notes)))
    details = _listed(repetition.differences, "first run")
    return Check(name, Problem("failure", "nondeterminism", repetition_line(repetition), details))


def _failure(kind: str, differences: Sequence[Difference], expected: str) -> Problem | None:
    if not differences:
        return None
    return Problem("failure", kind, _first(differences, expected), _listed(differences, expected))


def _first(differences: Sequence[Difference], expected: str) -> str:
    return f"first difference in {_listed(differences[:1], expected)}"


def _listed(differences: Sequence[Difference], expected: str) -> str:
    """Whole digests, one field a line."""
    return "\n".join(
        f"{item.field}: {expected} {item.expected}, found {item.found}"
        + (" (values equal)" if item.values_equal else "")
        for item in differences
    )


def _said(verdict: Verdict, run: Run) -> list[str]:
    """What a reader wants beside the groups, a line each: levels, what changed, costs, what to do."""
    lines = [f"level asked {verdict.level_asked}, reached {verdict.level_reached or 'none'}"]
    if verdict.first_divergence is not None:
        lines.append(divergence_line(verdict.first_divergence))
    if verdict.repetition is not None:
        lines.append(repetition_line(verdict.repetition))
    lines += change_lines(verdict)
    lines += [f"note: {note}" for note in verdict.notes]
    lines.append(costs(run.result, run.record))
    lines.append(remedy(verdict, str(run.folder)) if not verdict.qualified else f"evidence in {run.folder}")
    return lines


# --- Markdown -------------------------------------------------------------------------------------


def _verdict_markdown(name: str, verdict: Verdict, said: Sequence[str]) -> str:
    rows = [
        (GROUP_TITLES[group.group], str(group.fields), _MARKS[not group.differences], first_of(group))
        for group in verdict.groups
    ]
    table = markdown_table(("hash group", "fields", "equal", "first difference"), rows)
    first = verdict.first_difference
    whole = [] if first is None else [_first([first], "frozen")]
    items = "\n".join(f"- {escape_markdown(line)}" for line in [*whole, *said])
    heading = _heading(name, passed=verdict.qualified)
    return f"{heading}\n\n{escape_markdown(headline(verdict))}\n\n{table}\n\n{items}\n"


def _draws_markdown(name: str, verdicts: Sequence[DrawVerdict]) -> str:
    equal = sum(verdict.qualified for verdict in verdicts)
    rows = [
        (
            str(verdict.draw),
            str(verdict.compared),
            _MARKS[verdict.qualified],
            f"{verdict.correct} of {verdict.total}",
            _listed(verdict.differences[:1], "published"),
        )
        for verdict in verdicts
    ]
    table = markdown_table(("draw", "facts", "equal", "correct", "first difference"), rows)
    heading = _heading(name, passed=equal == len(verdicts))
    return f"{heading}\n\n{equal} of {len(verdicts)} published draws reproduced\n\n{table}\n"


def _heading(name: str, *, passed: bool) -> str:
    return f"### {_MARKS[passed]} qualgate: {escape_markdown(name)}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, every cell escaped."""
    lines = [columns, ["---"] * len(columns), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape_markdown(text: str) -> str:
    """Text for inside a line of Markdown or a cell of a table, where none of it is markup."""
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(xml_text(text).split()))


# --- GitHub ---------------------------------------------------------------------------------------


def _annotation(name: str, message: str) -> str:
    """A workflow command that marks the run with an error."""
    title = _escape_command(f"qualgate: {name}").replace(":", "%3A").replace(",", "%2C")
    return f"::error title={title}::{_escape_command(message)}"


def _escape_command(text: str) -> str:
    """As GitHub's own toolkit escapes data (`escapeData` in actions/toolkit)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
