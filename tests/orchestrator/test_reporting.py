"""Where reports go: refused before anything runs, never stale, right for a pass, a change and an error."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from orchestrator.commands.reporting import Reports, reporting
from orchestrator.errors import NoRecordError, StorageError, UsageError
from orchestrator.reports import error_report
from tests import strategies as samples
from tests.orchestrator.checkout import SHARED, Checkout, last_line

CASE = "synthetic-300-100"
GATE = ("gate", "--case", CASE, "--numerics", "portable", "--records", "frozen", "--repeats", "1")
REPORTS = ("--junit", "out/junit.xml", "--markdown", "out/gate.md", "--github")
STALE = "what an earlier gate left"
GITHUB = ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY")


@pytest.fixture(autouse=True)
def outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests say themselves what GitHub sets, also when they run there."""
    for name in GITHUB:
        monkeypatch.delenv(name, raising=False)


# --- the places -----------------------------------------------------------------------------------


def unwritable(tmp_path: Path, kind: str) -> Path:
    if kind == "folder":
        return tmp_path
    if kind == "below-a-file":
        (tmp_path / "file").touch()
        return tmp_path / "file" / "report"
    if kind == "pipe":
        os.mkfifo(tmp_path / "pipe")
        return tmp_path / "pipe"
    if kind == "loop":
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        return tmp_path / "loop"
    return tmp_path / ("x" * 300)


@pytest.mark.parametrize("option", ["junit", "markdown"])
@pytest.mark.parametrize("kind", ["folder", "below-a-file", "pipe", "loop", "too-long"])
def test_a_place_that_cannot_be_written_is_wrong_use_before_anything_runs(
    tmp_path: Path, option: str, kind: str
) -> None:
    places = {"junit": None, "markdown": None, option: unwritable(tmp_path, kind)}
    with pytest.raises(UsageError) as caught, reporting("name", github=False, **places):
        pytest.fail("the gate ran")
    assert str(tmp_path) in str(caught.value)


def test_a_summary_that_cannot_be_written_is_wrong_use_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    with (
        pytest.raises(UsageError, match="GITHUB_STEP_SUMMARY cannot be written"),
        reporting("name", junit=None, markdown=None, github=True),
    ):
        pytest.fail("the gate ran")


def test_two_reports_in_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with (
        pytest.raises(UsageError, match="another file"),
        reporting("name", junit=path, markdown=tmp_path / "." / "report", github=False),
    ):
        pytest.fail("the gate ran")
    assert not path.exists()


def test_folders_are_made_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "behind")
    with reporting("name", junit=tmp_path / "new" / "j.xml", markdown=tmp_path / "link", github=False):
        pass
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "behind").read_text() == (tmp_path / "link").read_text() != ""
    assert (tmp_path / "new" / "j.xml").exists()


# --- never stale ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [KeyboardInterrupt, RuntimeError])
def test_a_gate_that_never_finishes_leaves_no_stale_report(
    tmp_path: Path, fault: type[BaseException]
) -> None:
    junit, markdown = tmp_path / "j.xml", tmp_path / "gate.md"
    junit.write_text(STALE)
    markdown.write_text(STALE)
    with pytest.raises(fault), reporting("name", junit=junit, markdown=markdown, github=False):
        assert "has not finished" in junit.read_text()
        raise fault
    assert "has not finished" in junit.read_text()
    assert "has not finished" in markdown.read_text()


def test_an_error_reaches_every_report_and_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary"
    summary.write_text("an earlier command's\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(NoRecordError), reporting("name", junit=tmp_path / "j", markdown=None, github=True):
        raise NoRecordError("no record")
    assert 'type="NoRecordError" message="no record"' in (tmp_path / "j").read_text()
    assert summary.read_text().splitlines() == [
        "an earlier command's", "### ✗ qualgate: name", "", "no verdict: no record", "",
    ]  # fmt: skip
    assert capfd.readouterr().err == "::error title=qualgate%3A name::no verdict: no record\n"


def test_an_error_counts_more_than_that_it_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "j.xml"
    with pytest.raises(NoRecordError), reporting("name", junit=path, markdown=None, github=False):
        path.unlink()
        path.mkdir()
        raise NoRecordError("no record")


def test_a_verdict_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "j.xml"
    with pytest.raises(StorageError), reporting("name", junit=path, markdown=None, github=False) as reports:
        path.unlink()
        path.mkdir()
        reports.write(error_report("name", "RunError", "failed"))


@pytest.mark.parametrize("actions", [None, "false"])
def test_outside_github_nothing_is_annotated(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], actions: str | None
) -> None:
    if actions is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", actions)
    with reporting("name", junit=None, markdown=None, github=True) as reports:
        assert reports == Reports("name", junit=None, markdown=None, summary=None, annotate=False)
        reports.write(error_report("name", "RunError", "failed"))
    assert capfd.readouterr() == ("", "")


def test_github_is_told_nothing_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with reporting("name", junit=None, markdown=None, github=False) as reports:
        reports.write(error_report("name", "RunError", "failed"))
    assert not (tmp_path / "summary").exists()


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A copy of the product whose reports are stale."""
    copy = Checkout.copy(tmp_path / "checkout")
    (copy.folder / "out").mkdir()
    for name in ("junit.xml", "gate.md"):
        (copy.folder / "out" / name).write_text(STALE)
    return copy


def freeze(checkout: Checkout) -> Path:
    done = checkout.qualgate(
        "freeze", "--case", CASE, "--numerics", "portable", "--records", "frozen", "--reason", "for the tests"
    )
    assert done.returncode == 0, done.stderr
    (record,) = (checkout.folder / "frozen").glob("*.json")
    return record


def gate_in_github(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> tuple[subprocess.CompletedProcess[str], ElementTree.Element, str]:
    """Run the gate as a step of a workflow: what it printed, its JUnit file, and its summary."""
    summary = checkout.folder / "summary.md"
    summary.unlink(missing_ok=True)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    done = checkout.qualgate(*GATE, *REPORTS)
    junit = ElementTree.parse(checkout.folder / "out" / "junit.xml").getroot()  # noqa: S314  our own
    assert (checkout.folder / "out" / "gate.md").read_text() + "\n" == summary.read_text()
    return done, junit, summary.read_text()


def test_reports_of_a_pass_a_changed_learner_and_a_broken_record(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = freeze(checkout)

    done, junit, summary = gate_in_github(checkout, monkeypatch)
    assert done.returncode == 0, done.stderr
    assert (junit.get("tests"), junit.get("failures"), junit.get("errors")) == ("9", "0", "0")
    assert summary.startswith(f"### ✓ qualgate: {CASE}.portable\n")
    assert "::error" not in done.stdout + done.stderr

    checkout.edit("fixture/inputs.py", "np.random.PCG64(seed)", "np.random.PCG64(seed + 1)")
    done, junit, summary = gate_in_github(checkout, monkeypatch)
    assert done.returncode == 1, done.stderr
    failed = [case.get("name") for case in junit.iter("testcase") if case.find("failure") is not None]
    assert failed[0] == "epoch permutations"
    assert "inputs" not in failed and "repeatability" not in failed
    assert "epoch_permutation_sha256.0" in summary
    assert "sources that differ: inputs.py" in summary
    annotation, line = done.stderr.strip().splitlines()[-2:]
    assert annotation.startswith(f"::error title=qualgate%3A {CASE}.portable::disqualified: {CASE}")
    assert line.startswith(f"qualgate: disqualified: {CASE}")

    record.write_text(record.read_text()[:-100])
    done, junit, summary = gate_in_github(checkout, monkeypatch)
    assert done.returncode == 5
    (error,) = junit.iter("error")
    assert (junit.get("tests"), error.get("type")) == ("1", "EvidenceError")
    assert f"qualgate: {error.get('message')}" == last_line(done)
    assert f"### ✗ qualgate: {CASE}.portable\n\nno verdict:" in summary


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        pytest.param(("--vector", "avx9000"), 2, "UsageError", id="wrong-use"),
        pytest.param(("--case", "synthetic-20-10"), 3, "NoRecordError", id="no-record"),
    ],
)
def test_an_error_before_a_verdict_replaces_the_stale_report(
    checkout: Checkout, arguments: tuple[str, ...], code: int, kind: str
) -> None:
    (checkout.folder / "frozen").mkdir()
    done = checkout.qualgate(*GATE, *REPORTS, *arguments)
    assert done.returncode == code, done.stderr
    (error,) = ElementTree.parse(checkout.folder / "out" / "junit.xml").getroot().iter("error")  # noqa: S314
    assert error.get("type") == kind
    assert f"qualgate: {error.get('message')}" == last_line(done)
    assert STALE not in (checkout.folder / "out" / "gate.md").read_text()


def test_a_fixture_that_fails_is_an_error_in_the_report(checkout: Checkout) -> None:
    freeze(checkout)
    done = checkout.qualgate(*GATE, *REPORTS, "--timeout", "0.3")
    assert done.returncode == 4
    (error,) = ElementTree.parse(checkout.folder / "out" / "junit.xml").getroot().iter("error")  # noqa: S314
    assert error.get("type") == "RunTimedOut"


def test_an_unwritable_report_is_exit_2_and_runs_nothing(checkout: Checkout) -> None:
    done = checkout.qualgate(*GATE, "--junit", "out")
    assert done.returncode == 2
    assert "--junit" in last_line(done)
    assert not (checkout.folder / "qualgate-runs").exists()


def test_a_published_draw_that_is_not_reproduced_is_a_failed_test_case(checkout: Checkout) -> None:
    if not (SHARED / "mnist").is_dir():
        pytest.skip("../shared/mnist is not there")
    table = samples.published_draws()
    table["draws"][0]["correct"] += 1
    (checkout.folder / "table.json").write_text(json.dumps(table))
    data = ("--idx-dir", str(SHARED / "mnist"), "--numerics", "native", "--repeats", "1")
    done = checkout.qualgate("gate", "--published", "table.json", "--draw", "0", *data, *REPORTS)
    assert done.returncode == 1, done.stderr
    (case,) = ElementTree.parse(checkout.folder / "out" / "junit.xml").getroot().iter("testcase")  # noqa: S314
    assert case.get("name") == "draw 0"
    (failure,) = case.iter("failure")
    assert failure.get("message") == "first difference in correct: published 8888, found 8887"
    assert "0 of 1 published draws reproduced" in (checkout.folder / "out" / "gate.md").read_text()
