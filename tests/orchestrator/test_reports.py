"""The reports of real verdicts: what JUnit, Markdown and GitHub's log are told; any text survives it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt  # comes with rich

from orchestrator.models import Difference, Level, RunRecord, Verdict
from orchestrator.published import DrawVerdict
from orchestrator.reports import (
    Check,
    Problem,
    Report,
    draws_report,
    error_report,
    escape_markdown,
    junit,
    verdict_report,
    xml_text,
)
from orchestrator.runner import Run
from orchestrator.verdict import Evidence, judge
from tests import strategies as samples
from tests.orchestrator.test_verdict import FIELDS, OTHER, with_fields
from tests.orchestrator.test_verdict import run as evidence

NAMES = [
    "inputs", "initial parameters", "epoch permutations", "final parameters", "velocities", "state vector",
    "scores", "predictions", "repeatability",
]  # fmt: skip
PREDICTIONS_DEMAND = {"inputs", "epoch permutations", "predictions"}
TITLES = dict(zip(dict.fromkeys(group for group, _ in FIELDS.values()), NAMES, strict=False))


def finished_run() -> Run:
    record = RunRecord.model_validate(samples.run_record())
    return Run(record=record, folder=Path("qualgate-runs/1-mnist-0"), record_sha256=samples.digest(1))


def report_of(verdict: Verdict) -> Report:
    return verdict_report("mnist-0.native", verdict, finished_run())


def changed(*fields: str, level: Level = "bitwise", again: Evidence | None = None) -> Verdict:
    """A verdict on evidence in which these fields differ; the same bits come back unless others are given."""
    found = with_fields(evidence(), dict.fromkeys(fields, OTHER))
    return judge(evidence(), found, level, repetition=again or found)


def parsed(data: bytes) -> ElementTree.Element:
    """A JUnit file, checked against the rules of Jenkins' xUnit schema (junit-10.xsd) that it can break."""
    root = ElementTree.fromstring(data)  # noqa: S314  our own text
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {"name", "tests", "failures", "errors"} <= set(suite.attrib)
        assert set(suite.attrib) <= {"name", "tests", "failures", "errors", "time"}
        assert re.fullmatch(r"\d+\.\d{3}", suite.get("time", "0.000"))
        tags = " ".join(child.tag for child in suite)
        assert re.fullmatch(r"(properties )?testcase( testcase)*( system-out)?", tags)
        for each in suite.iter("property"):
            assert set(each.attrib) == {"name", "value"} and not len(each)
        cases = suite.findall("testcase")
        for case in cases:
            assert set(case.attrib) == {"name", "classname"}
            assert re.fullmatch("(failure|error)?( ?system-out)?", " ".join(child.tag for child in case))
            for problem in case.findall("*[@message]"):
                assert set(problem.attrib) == {"type", "message"} and not len(problem)
        names = [case.get("name") for case in cases]
        assert len(set(names)) == len(names)
    for element in (root, *root):
        assert element.get("tests") == str(len(list(element.iter("testcase"))))
        assert element.get("failures") == str(len(list(element.iter("failure"))))
        assert element.get("errors") == str(len(list(element.iter("error"))))
    return root


def failures(report: Report) -> dict[str, str]:
    """The failed test cases of a report's JUnit file, with their messages."""
    cases = parsed(junit([report])).iter("testcase")
    return {
        case.attrib["name"]: failure.attrib["message"] for case in cases for failure in case.iter("failure")
    }


# --- JUnit ----------------------------------------------------------------------------------------


def test_a_qualified_verdict_has_a_passing_case_for_each_group_and_for_repeatability() -> None:
    root = parsed(junit([report_of(judge(evidence(), evidence(), "bitwise"))]))
    assert [case.get("name") for case in root.iter("testcase")] == NAMES
    assert {case.get("classname") for case in root.iter("testcase")} == {"qualgate.mnist-0.native"}
    assert (root.get("failures"), root.get("errors")) == ("0", "0")


def test_a_suite_has_the_time_costs_and_place_of_its_run() -> None:
    run = finished_run()
    (suite,) = parsed(junit([report_of(judge(evidence(), evidence(), "bitwise"))]))
    assert suite.get("time") == f"{run.record.duration_s:.3f}"
    said = suite.findtext("system-out", "")
    assert "ms (median)" in said
    assert str(run.folder) in said
    facts = {item.get("name"): item.get("value") for item in suite.iter("property")}
    assert facts["level_reached"] == "bitwise"


@pytest.mark.parametrize("level", ["bitwise", "predictions"])
@pytest.mark.parametrize("name", FIELDS)
def test_a_group_fails_exactly_where_the_level_demands_it(name: str, level: Level) -> None:
    group, _ = FIELDS[name]
    title = TITLES[group]
    failed = failures(report_of(changed(name, level=level)))
    if level == "predictions" and title not in PREDICTIONS_DEMAND:
        assert failed == {}
    else:
        frozen = evidence().groups[group][name]
        assert failed == {title: f"first difference in {name}: frozen {frozen}, found {OTHER}"}


def test_a_forgiven_difference_is_listed_in_a_case_that_passes() -> None:
    root = parsed(junit([report_of(changed("scores_sha256", level="predictions"))]))
    (said,) = (
        case.findtext("system-out", "") for case in root.iter("testcase") if case.get("name") == "scores"
    )
    assert said.startswith("not demanded at level predictions")
    assert OTHER in said


def test_a_failure_names_its_first_field_and_lists_all_with_whole_digests() -> None:
    fields = list(evidence().groups["final_parameter_sha256"])
    root = parsed(junit([report_of(changed(*fields))]))
    (failure,) = root.iter("failure")
    assert failure.get("type") == "change"
    assert failure.attrib["message"].startswith(f"first difference in {fields[0]}: frozen ")
    assert [line.split(":")[0] for line in (failure.text or "").splitlines()] == fields


def test_other_bits_in_a_second_process_fail_repeatability_too() -> None:
    again = with_fields(evidence(), {"scores_sha256": samples.digest(77)})
    failed = failures(report_of(changed("scores_sha256", again=again)))
    assert set(failed) == {"scores", "repeatability"}
    assert "other bits in scores_sha256" in failed["repeatability"]


def test_bits_that_move_within_one_process_fail_repeatability_alone() -> None:
    found = replace(evidence(), unstable_groups=("scores_sha256",))
    failed = failures(report_of(judge(evidence(), found, "bitwise", repetition=found)))
    assert failed == {"repeatability": "the hashes moved between invocations of one process"}


@given(
    st.sets(st.sampled_from(sorted(FIELDS))),
    st.sets(st.sampled_from(sorted(FIELDS))),
    st.sampled_from(["bitwise", "predictions"]),
    st.booleans(),
)
def test_junit_fails_exactly_when_the_verdict_does(
    first: set[str], second: set[str], level: Level, unstable: bool
) -> None:
    found = with_fields(evidence(), dict.fromkeys(first, OTHER))
    found = replace(found, unstable_groups=("scores_sha256",) if unstable else ())
    again = with_fields(evidence(), dict.fromkeys(second, OTHER))
    verdict = judge(evidence(), found, level)
    if not verdict.qualified:
        verdict = judge(evidence(), found, level, repetition=again)
    report = report_of(verdict)
    assert bool(failures(report)) is not verdict.qualified
    assert bool(report.annotations) is not verdict.qualified


def test_an_error_is_one_test_case_with_its_line() -> None:
    (suite,) = parsed(junit([error_report("digits.native", "NoRecordError", "no record; freeze one")]))
    (error,) = suite.iter("error")
    assert error.attrib == {"type": "NoRecordError", "message": "no record; freeze one"}


def test_reports_of_several_cases_are_suites_of_one_file() -> None:
    good = report_of(judge(evidence(), evidence(), "bitwise"))
    root = parsed(junit([good, error_report("other", "RunError", "failed")]))
    assert [suite.get("errors") for suite in root] == ["0", "1"]


@given(st.text())
def test_any_text_comes_back_from_xml_or_is_replaced(text: str) -> None:
    kept = xml_text(text)
    assert len(kept) == len(text)
    assert all(new in (old, "\ufffd") for old, new in zip(text, kept, strict=True))
    report = Report(
        name=text,
        checks=[Check(text, Problem("failure", text, text, text), text)],
        markdown="",
        annotations=[],
        properties={"level_asked": text},
        output=text,
    )
    root = parsed(junit([report]))
    (failure,) = root.iter("failure")
    (case,) = root.iter("testcase")
    assert (failure.get("type"), failure.get("message")) == (kept, kept)
    assert (case.get("name"), case.get("classname")) == (kept, f"qualgate.{kept}")
    assert [item.text or "" for item in root.iter("system-out")] == [kept] * (2 if text else 0)
    assert (failure.text or "") == kept


@pytest.mark.parametrize(
    "character", ["\0", "\x1b", "\x7f", "\x85", "\ud800", "\ufffe", "\uffff", "\U0001f600"]
)
def test_the_characters_that_xml_forbids_are_replaced_and_no_others(character: str) -> None:
    forbidden = {"\0", "\x1b", "\ud800", "\ufffe", "\uffff"}
    assert xml_text(character) == ("\ufffd" if character in forbidden else character)


# --- Markdown -------------------------------------------------------------------------------------

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def cells(markdown: str) -> list[list[str]]:
    """The text of each cell of each row of the one table, as a renderer sees it; markup fails the test."""
    rows: list[list[str]] = []
    tokens = GFM.parse(markdown)
    assert [token.type for token in tokens].count("table_open") == 1
    inside = False
    for token in tokens:
        inside = token.type == "table_open" or (inside and token.type != "table_close")
        if token.type == "tr_open":
            rows.append([])
        if inside and token.type == "inline":
            assert {child.type for child in token.children or []} <= {"text"}
            rows[-1].append("".join(child.content for child in token.children or []))
    return rows


def test_markdown_of_a_failure_has_headline_table_digests_and_costs() -> None:
    verdict = changed("final_parameter_sha256.weights.0", "scores_sha256")
    text = report_of(verdict).markdown
    assert text.startswith(
        "### ✗ qualgate: mnist-0.native\n\ndisqualified: mnist-0: first difference in final_"
    )
    rows = cells(text)
    assert [row[0] for row in rows] == ["hash group", *NAMES[:-1]]
    assert [row[2] for row in rows[1:]] == ["✓", "✓", "✓", "✗", "✓", "✓", "✗", "✓"]
    assert OTHER in text
    assert "level asked bitwise, reached predictions" in text
    assert "the same bits came back" in text
    assert "ms (median)" in text


def test_markdown_of_a_pass_says_so_first() -> None:
    text = report_of(judge(evidence(), evidence(), "bitwise")).markdown
    assert text.startswith("### ✓ qualgate: mnist-0.native\n\nqualified: mnist-0: level bitwise reached")
    assert "✗" not in text


@pytest.mark.parametrize(
    ("place", "said"),
    [("source_changes", "sources that differ: a\\|b\\`c.py"), ("kernel_changes", "other bits: a\\|b\\`c.py")],
)
def test_markdown_names_what_changed(place: str, said: str) -> None:
    change: Any = {"what": "a|b`c.py", "frozen": None, "found": "1"}
    verdict = Verdict.model_validate({**changed("scores_sha256").model_dump(), place: [change]})
    assert said in report_of(verdict).markdown


def test_every_report_names_the_first_training_step_that_differs() -> None:
    step: Any = {"epoch": 1, "step": 7, "tensor": "head.bias", "expected": "a" * 32, "found": "b" * 32}
    verdict = changed("scores_sha256").model_dump()
    report = report_of(Verdict.model_validate({**verdict, "first_divergence": step}))
    assert "first training step that differs: " in report.markdown
    assert "first training step that differs: " in report.output


@given(st.text())
def test_any_text_is_plain_in_a_line_and_in_a_cell_of_markdown(text: str) -> None:
    shown = " ".join(xml_text(text).split())
    escaped = escape_markdown(text)
    assert "\n" not in escaped
    assert cells(f"| head |\n| --- |\n| said: {escaped} |")[1] == [f"said: {shown}".strip()]
    (inline,) = [token for token in GFM.parse(f"- said: {escaped}") if token.type == "inline"]
    assert [child.content for child in inline.children or []] == [f"said: {shown}".strip()]


@pytest.mark.parametrize(
    "text", ["*a*", "_a_", "`a`", "<b>", "[a](b)", "~~a~~", "a|b", "&lt;", "\\*", "__a__ _b"]
)
def test_markup_is_shown_and_not_obeyed(text: str) -> None:
    assert cells(f"| head |\n| --- |\n| {escape_markdown(text)} |")[1] == [text]


def test_field_names_stay_readable() -> None:
    assert escape_markdown("final_parameter_sha256.weights.0") == "final_parameter_sha256.weights.0"


# --- GitHub ---------------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_an_annotation_is_one_line_from_which_its_text_comes_back(name: str, line: str) -> None:
    (command,) = error_report(name, "RunError", line).annotations
    assert "\n" not in command and "\r" not in command
    title, _, message = command.removeprefix("::error title=").partition("::")
    assert not set(":,") & set(title)

    def unescape(text: str) -> str:
        for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code, character)
        return text

    assert unescape(title) == f"qualgate: {name}"
    assert unescape(message) == f"no verdict: {line}"


def test_a_failed_gate_is_annotated_with_its_headline_and_remedy() -> None:
    (command,) = report_of(changed("scores_sha256")).annotations
    assert command.startswith(
        "::error title=qualgate%3A mnist-0.native::disqualified: mnist-0: first difference"
    )
    assert "evidence in qualgate-runs/1-mnist-0" in command


# --- published draws ------------------------------------------------------------------------------


def draw(number: int, *differences: Difference) -> DrawVerdict:
    return DrawVerdict(draw=number, correct=9421, total=10000, compared=6, differences=list(differences))


def test_published_draws_are_a_test_case_each() -> None:
    wrong = Difference(field="correct", expected="9421", found="9420", values_equal=None)
    report = draws_report("published.native", [draw(0), draw(3, wrong)])
    root = parsed(junit([report]))
    assert [case.get("name") for case in root.iter("testcase")] == ["draw 0", "draw 3"]
    assert failures(report) == {"draw 3": "first difference in correct: published 9421, found 9420"}
    assert cells(report.markdown)[1:] == [
        ["0", "6", "✓", "9421 of 10000", ""],
        ["3", "6", "✗", "9421 of 10000", "correct: published 9421, found 9420"],
    ]
    assert "1 of 2 published draws reproduced" in report.markdown
    assert len(report.annotations) == 1
