"""What `diff` says of two frozen records: pure, over a real record with one thing changed at a time."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.models import QualificationRecord
from orchestrator.qualification import FrozenFile, load_frozen, shipped_records
from orchestrator.record_diff import diff_records
from orchestrator.render_records import diff_headline, diff_markdown, diff_parts

OTHER = "f" * 64
(SHIPPED,) = shipped_records().glob("digits-native-cpu-*.json")


@pytest.fixture(scope="module")
def old() -> FrozenFile:
    return load_frozen(SHIPPED)


def steps(place: str) -> list[str | int]:
    """`cases/0/hashes` as the keys and indices that lead there."""
    return [int(step) if step.isdigit() else step for step in place.split("/")]


def changed(old: FrozenFile, *places: str, to: Any) -> FrozenFile:
    """The record with another value at some places (`cases/0/hashes/scores_sha256`), as its successor.

    It is never written: what a comparison says of it does not hang on its own hash.
    """
    document = old.record.model_dump()
    for place in places:
        at: Any = document
        *path, last = steps(place)
        for step in path:
            at = at[step]
        at[last] = to
    document |= {
        "reason": "because",
        "supersedes": {"file": old.path.name, "file_sha256": old.sha256},
    }
    record = QualificationRecord.model_validate(document)
    return FrozenFile(record, old.path.with_name("new.json"), OTHER)


def lines(old: FrozenFile, new: FrozenFile) -> list[str]:
    """What the Markdown lists below its tables."""
    text = diff_markdown(diff_records(old, new))
    return [line.removeprefix("- ") for line in text.splitlines() if line.startswith("- ")]


def test_a_record_has_the_bits_of_itself(old: FrozenFile) -> None:
    diff = diff_records(old, old)
    assert diff.same_bits
    assert not diff.succeeds
    assert diff_headline(diff) == f"same bits: {SHIPPED.name}, {SHIPPED.name}"


def test_a_refactor_keeps_the_bits_and_is_named(old: FrozenFile) -> None:
    new = changed(old, "source_sha256/task.py", to=OTHER)
    diff = diff_records(old, new)
    assert (diff.same_bits, diff.succeeds) == (True, True)
    frozen = old.record.source_sha256["task.py"][:12]
    assert lines(old, new) == [
        "new.json supersedes it: because",
        f"source task.py: {frozen}… → {OTHER[:12]}…",
    ]


@pytest.mark.parametrize(
    ("place", "to", "line"),
    [
        ("software/python", "3.14.0", "stack python: {old} → 3.14.0"),
        ("platform/cpu_model", "Another", "stack cpu_model: {old} → Another"),
        ("platform/kernel_probes/sum_128", OTHER, "vendor kernel sum_128: {old:.12}… → ffffffffffff…"),
        ("cases/0/settings/threads", 2, "setting digits: threads: {old} → 2"),
        ("cases/0/case/config/alpha", 0.25, "config.alpha: {old} → 0.25"),
        ("levels", ["bitwise"], "setting levels: {old} → ['bitwise']"),
    ],
)
def test_what_may_have_changed_the_bits_is_listed(old: FrozenFile, place: str, to: Any, line: str) -> None:
    *path, last = steps(place)
    at: Any = old.record.model_dump()
    for step in path:
        at = at[step]
    shown = [text.replace("\\", "") for text in lines(old, changed(old, place, to=to))]
    assert shown[1:] == [line.format(old=str(at[last]))]


def test_only_the_hashes_that_changed_are_counted(old: FrozenFile) -> None:
    groups = "cases/0/hashes"
    new = changed(
        old,
        f"{groups}/final_parameter_sha256/head.bias",
        f"{groups}/final_parameter_sha256/weights.1",
        f"{groups}/scores_sha256",
        to=OTHER,
    )
    diff = diff_records(old, new)
    assert not diff.same_bits
    assert diff_headline(diff).endswith("new.json: digits")
    assert {
        group.group: len(group.differences) for group in diff.verdicts[0].groups if group.differences
    } == {
        "final_parameter_sha256": 2,
        "scores_sha256": 1,
    }
    table = diff_markdown(diff)
    assert "| final parameters | 2 of 6 | weights.1: " in table
    assert "| predictions | 0 of 1 | equal |" in table


def test_cases_that_came_and_went_are_other_bits(old: FrozenFile) -> None:
    new = changed(old, "cases/0/case/name", to="digits-again")
    diff = diff_records(old, new)
    assert not diff.same_bits
    assert (diff.removed_cases, diff.added_cases) == (("digits",), ("digits-again",))
    assert lines(old, new)[1:] == ["case digits is gone", "case digits-again is new"]
    assert diff_parts(diff)


def test_each_case_of_a_record_is_compared_with_its_own(old: FrozenFile) -> None:
    """Cases belong together by name, in whatever order."""
    document = old.record.model_dump()
    second = {**document["cases"][0], "trace": None}
    second["case"] = {**second["case"], "name": "second"}
    both = [document["cases"][0], second]
    first = FrozenFile(
        QualificationRecord.model_validate(document | {"cases": both}), old.path.with_name("a.json"), "a" * 64
    )
    turned = changed(first, "cases", to=both[::-1])
    assert diff_records(first, turned).same_bits
    moved = changed(turned, "cases/0/hashes/scores_sha256", to=OTHER)
    assert diff_headline(diff_records(first, moved)).endswith(": second")


def test_a_reviewed_record_has_one_fact_a_line(old: FrozenFile) -> None:
    """A review shows changed lines: one changed hash must be one of them."""
    text = SHIPPED.read_text()
    digest = old.record.cases[0].hashes.scores_sha256
    pairs = zip(text.splitlines(), text.replace(digest, OTHER).splitlines(), strict=True)
    differing = [line.split() for line, other in pairs if line != other]
    assert differing
    assert all(len(words) == 2 for words in differing)
