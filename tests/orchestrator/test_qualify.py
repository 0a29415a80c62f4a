"""Qualification in phases: in order, resumable after any kill, labels opened last. Real processes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator import qualify as phases
from orchestrator.accuracy import judge_scores
from orchestrator.audit.evidence import audit_path
from orchestrator.codec import load_as
from orchestrator.errors import EvidenceError, FixtureFailed, UsageError
from orchestrator.hashing import file_sha256
from orchestrator.models import (
    QualificationRecord,
    QualificationScores,
    QualificationVerdict,
    RunRecord,
    Score,
    Unavailable,
    labels_closed,
)
from orchestrator.protocol import ProtocolFile, load_protocol
from orchestrator.qualification import load_frozen
from orchestrator.runner import RunOptions, load_inputs, load_query_labels
from tests.orchestrator.checkout import ROOT, Checkout, last_line

PROTOCOL = """\
kind = "protocol"
schema_version = 1
name = "small"
numerics = "portable"
device = "cpu"
workspace = ":16:8"
threads = 1
processes = 2
required_accuracy_percent = 40.0

[data]
kind = "synthetic"
seeds = [11, 12]
train_count = 300
query_count = 100

[config]
alpha = 0.5
batch_size = 128
momentum = 0.9
weight_decay = 0.0
seed = 11
depth = 2
epochs = 2
learning_rate = 0.1
"""
CASES = ("synthetic-300-100", "synthetic-300-100-12")


@dataclass(frozen=True)
class Place:
    """A protocol and an evidence folder, and the fixture's sources as they were when the test began."""

    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    @property
    def protocol(self) -> Path:
        return self.folder / "small.toml"

    def load(self) -> ProtocolFile:
        return load_protocol(str(self.protocol))

    def qualify(self) -> phases.Qualification:
        self.said.clear()
        options = RunOptions(repeats=1, trace=True, sources=self.folder / "fixture")
        return phases.qualify(self.load(), options, self.evidence, self.said.append)

    def kept(self) -> int:
        return sum(line.endswith(": kept") for line in self.said)


def new_place(folder: Path, protocol: str = PROTOCOL) -> Place:
    shutil.copytree(ROOT / "fixture", folder / "fixture", ignore=shutil.ignore_patterns("__pycache__"))
    place = Place(folder)
    place.protocol.write_text(protocol)
    return place


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A finished qualification; tests must not change it."""
    place = new_place(tmp_path_factory.mktemp("finished"))
    place.qualify()
    return place


@pytest.fixture
def copy(finished: Place, tmp_path: Path) -> Place:
    """The same to be changed: its records hold the old paths, as in a folder that was moved."""
    shutil.copytree(finished.folder, tmp_path, dirs_exist_ok=True)
    return Place(tmp_path)


# --- the whole --------------------------------------------------------------------------------------


def test_every_file_names_the_hash_of_the_one_before(finished: Place) -> None:
    plan = json.loads((finished.evidence / "plan.json").read_bytes())
    (path,) = (finished.evidence / "frozen").glob("*.json")
    frozen = load_frozen(path)
    scores = load_as(finished.evidence / "scores.json", QualificationScores)
    verdict = load_as(finished.evidence / "verdict.json", QualificationVerdict)
    assert frozen.record.reason == f"qualification small, plan {plan['content_sha256']}"
    assert [case.case.name for case in frozen.record.cases] == list(CASES)
    for case in frozen.record.cases:
        records = [finished.evidence / "runs" / f"{case.case.name}-{n}" / "record.json" for n in (1, 2)]
        assert [run.record_sha256 for run in case.runs] == [file_sha256(item) for item in records]
        assert (finished.evidence / "frozen" / case.trace.file).is_file() if case.trace else False
    assert scores.frozen_file == f"frozen/{path.name}"
    assert scores.frozen_sha256 == frozen.sha256
    assert verdict.scores_sha256 == file_sha256(finished.evidence / "scores.json")
    assert (len(verdict.draws), verdict.score.total, verdict.passed) == (2, 200, True)
    assert not (finished.evidence / ".lock").exists()


def test_nothing_before_the_scores_holds_a_score(finished: Place) -> None:
    (path,) = (finished.evidence / "frozen").glob("*.json")
    assert [case.score for case in load_as(path, QualificationRecord).cases] == [labels_closed()] * 2
    for record in (finished.evidence / "runs").glob("*/record.json"):
        assert load_as(record, RunRecord).score == labels_closed()


def test_a_finished_qualification_is_checked_and_not_repeated(copy: Place) -> None:
    before = snapshot(copy.evidence)
    done = copy.qualify()
    assert done.verdict.passed
    assert copy.kept() == 4
    assert snapshot(copy.evidence) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_evidence_audits_clean(finished: Place) -> None:
    assert audit_path(finished.evidence).sound


@pytest.mark.parametrize(
    ("file", "old", "new", "found"),
    [
        ("verdict.json", '"passed": true', '"passed": false', ("accuracy.total", "$.passed")),
        ("verdict.json", '"reached": true', '"reached": false', ("accuracy.draw", "$.draws[0]")),
        ("verdict.json", '"scores_sha256": "', '"scores_sha256": "0', ("file.record", "$")),
        ("scores.json", '"correct": ', '"correct": 1', ("accuracy.scores", "$.scores_sha256")),
        ("plan.json", '"seed": 12', '"seed": 13', ("plan.cases", "$.cases[1]")),
        ("plan.json", '"threads": 1', '"threads": 2', ("plan.settings", "$.settings.threads")),
    ],
)
def test_a_touched_number_does_not_audit(
    copy: Place, file: str, old: str, new: str, found: tuple[str, str]
) -> None:
    edit(copy.evidence / file, old, new)
    findings = [item for audited in audit_path(copy.evidence).files for item in audited.findings]
    assert found in [(item.rule, item.path) for item in findings]


def test_query_labels_are_opened_only_after_the_record_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = new_place(tmp_path)
    frozen_before_opening = []

    def open_labels(*arguments: Any) -> Any:
        frozen_before_opening.append(len(list((place.evidence / "frozen").glob("*.json"))))
        assert not (place.evidence / "scores.json").exists()
        return load_query_labels(*arguments)

    def without_labels(*arguments: Any) -> Any:
        inputs = load_inputs(*arguments)
        assert not hasattr(inputs, "query_labels")
        return inputs

    monkeypatch.setattr(phases, "load_query_labels", open_labels)
    monkeypatch.setattr(phases, "load_inputs", without_labels)
    place.qualify()
    assert frozen_before_opening == [1, 1]


def test_a_label_source_that_fails_leaves_frozen_predictions(
    copy: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise FixtureFailed("planted")

    (copy.evidence / "scores.json").unlink()
    (copy.evidence / "verdict.json").unlink()
    before = snapshot(copy.evidence)
    with monkeypatch.context() as planted:
        planted.setattr(phases, "load_query_labels", fail)
        with pytest.raises(FixtureFailed, match="planted"):
            copy.qualify()
    assert snapshot(copy.evidence) == before
    assert copy.qualify().verdict.passed


# --- what a folder may not be -----------------------------------------------------------------------


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(
            lambda place: edit(place.protocol, "40.0", "30.0"),
            "protocol.required_accuracy_percent 40.0 -> 30.0, protocol_sha256",
            id="protocol",
        ),
        pytest.param(
            lambda place: edit(place.protocol, "threads = 1", "threads = 2"),
            "settings.threads 1 -> 2",
            id="settings",
        ),
        pytest.param(
            lambda place: edit(place.folder / "fixture" / "task.py", '"""', '"""Changed. '),
            "source_sha256.task.py",
            id="sources",
        ),
        pytest.param(
            lambda place: edit(place.protocol, "[data]", "# a comment\n[data]"),
            "protocol_sha256",
            id="comment",
        ),
    ],
)  # fmt: skip
def test_another_plan_is_refused_with_what_changed(
    copy: Place, change: Callable[[Place], None], said: str
) -> None:
    change(copy)
    with pytest.raises(UsageError, match="not what was planned") as refused:
        copy.qualify()
    assert said in str(refused.value)


def other_digit(path: Path, name: str) -> None:
    """Change the first digit of a hash."""
    text = path.read_text()
    changed = re.sub(rf'("{name}": ")(.)', lambda m: m[1] + ("0" if m[2] != "0" else "1"), text, count=1)
    assert changed != text
    path.write_text(changed)


def frozen_record(place: Place) -> Path:
    (path,) = (place.evidence / "frozen").glob("*.json")
    return path


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(
            lambda p: edit(p.evidence / "plan.json", '"seed": 12', '"seed": 13'), "plan.json", id="plan"
        ),
        pytest.param(lambda p: (p.evidence / "plan.json").unlink(), "out of turn", id="no-plan"),
        pytest.param(
            lambda p: (p.evidence / "runs" / "synthetic-300-100-1" / "stdout.txt").write_text("x"),
            "artefacts.hash", id="artefact",
        ),
        pytest.param(
            lambda p: shutil.rmtree(p.evidence / "runs" / "synthetic-300-100-12-2"),
            "out of turn", id="no-run",
        ),
        pytest.param(lambda p: other_digit(frozen_record(p), "scores_sha256"), "changed after", id="frozen"),
        pytest.param(lambda p: frozen_record(p).unlink(), "out of turn", id="no-frozen"),
        pytest.param(
            lambda p: next((p.evidence / "frozen").glob("*.trace")).write_bytes(b"x"), ".trace", id="trace"
        ),
        pytest.param(
            lambda p: other_digit(p.evidence / "scores.json", "frozen_sha256"), "not the scores", id="scores"
        ),
        pytest.param(lambda p: (p.evidence / "scores.json").unlink(), "out of turn", id="no-scores"),
        pytest.param(
            lambda p: edit(p.evidence / "scores.json", '"correct": ', '"correct": 1'),
            "not the verdict", id="score",
        ),
    ],
)  # fmt: skip
def test_a_damaged_or_missing_phase_is_broken_evidence(
    copy: Place, damage: Callable[[Place], None], said: str
) -> None:
    damage(copy)
    with pytest.raises(EvidenceError) as refused:
        copy.qualify()
    assert said in str(refused.value)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    place = new_place(tmp_path)
    place.evidence.mkdir()
    (place.evidence / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds files and no plan"):
        place.qualify()
    assert [path.name for path in place.evidence.iterdir()] == ["notes.txt"]


# --- the verdict ------------------------------------------------------------------------------------


def judged(required: float, *correct: int) -> QualificationVerdict:
    scores = {f"mnist-{draw}": Score(correct=count, total=10_000) for draw, count in enumerate(correct)}
    return judge_scores("mnist-medium", required, scores, "0" * 64)


def test_mean_and_sample_sd_of_the_published_draws() -> None:
    # Computed by hand: the mean of the six counts is 53625 / 6; squared deviations add up to 8917.5.
    verdict = judged(88.0, 8887, 8916, 8947, 8904, 8992, 8979)
    assert verdict.mean_accuracy_percent == 89.375
    assert verdict.sample_sd_percent == pytest.approx((8917.5 / 5) ** 0.5 / 100, rel=1e-12)
    assert verdict.passed


def test_every_draw_has_to_reach_the_required_accuracy() -> None:
    verdict = judged(88.0, 9500, 8799, 8800)
    assert [draw.reached for draw in verdict.draws] == [True, False, True]
    assert not verdict.passed


def test_the_required_accuracy_is_the_decimal_that_was_written() -> None:
    # 88.87 has no exact binary form; 8887 of 10,000 is exactly it.
    assert judged(88.87, 8887).passed
    assert not judged(88.8701, 8887).passed


def test_one_draw_has_no_spread() -> None:
    assert isinstance(judged(88.0, 8887).sample_sd_percent, Unavailable)


# --- the command, failures and kills ----------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout.copy(tmp_path)
    (tmp_path / "small.toml").write_text(PROTOCOL)
    return checkout


def command(folder: str) -> tuple[str, ...]:
    return ("qualify", "small.toml", "--out", folder)


def test_too_low_an_accuracy_is_exit_1_with_table_and_line(checkout: Checkout) -> None:
    edit(checkout.folder / "small.toml", "40.0", "99.5")
    done = checkout.qualgate(*command("evidence"))
    assert done.returncode == 1, done.stderr
    assert "failed: small: 2 of 2 draws below the required 99.5 %" in last_line(done)
    assert all(case in done.stdout for case in CASES)
    assert "[4/4] synthetic-300-100-12, process 2 of 2" in done.stderr
    again = checkout.qualgate(*command("evidence"), "--json")
    assert again.returncode == 1
    assert json.loads(again.stdout)["passed"] is False


def test_a_failing_case_stops_with_its_line_and_is_run_again(checkout: Checkout) -> None:
    marker = checkout.folder / "fail"
    checkout.edit(
        "fixture/measurement.py",
        "    before = prepared.metadata()\n",
        f"    if Path({str(marker)!r}).exists():\n"
        "        raise RuntimeError('planted')\n"
        "    before = prepared.metadata()\n",
    )
    marker.touch()
    failed = checkout.qualgate(*command("evidence"))
    assert failed.returncode == 4
    assert "planted" in last_line(failed)
    marker.unlink()
    done = checkout.qualgate(*command("evidence"))
    assert done.returncode == 0, done.stderr
    (aside,) = (checkout.folder / "evidence" / "failed").iterdir()
    assert load_as(aside / "record.json", RunRecord).failure is not None


def test_a_second_qualify_in_the_same_folder_is_refused(checkout: Checkout) -> None:
    with started(checkout, "evidence") as first:
        wait_for(lambda: (checkout.folder / "evidence" / "plan.json").exists(), first)
        second = checkout.qualgate(*command("evidence"))
        assert second.returncode == 2
        assert f"locked by process {first.pid} on " in last_line(second)


class started:  # noqa: N801  used like a function
    """A qualify process in a group of its own; the group is killed when the block ends."""

    def __init__(self, checkout: Checkout, folder: str) -> None:
        self.child = subprocess.Popen(
            checkout.command(*command(folder)),
            cwd=checkout.folder,
            env=checkout.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self.child

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def wait_for(condition: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    """Wait until a condition holds or the process has ended."""
    deadline = time.monotonic() + 120
    while child.poll() is None and not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


KILLS = 20
TIMES = re.compile(rb'"(frozen_at_utc|finished_at_utc|record_sha256|content_sha256)": "[^"]*"')


def frozen_bytes(folder: Path) -> dict[str, bytes]:
    """The frozen folder, times and the hashes of files that hold times aside."""
    found = {}
    for path in (folder / "frozen").iterdir():
        name = "record" if path.suffix == ".json" else path.name
        assert name not in found
        found[name] = TIMES.sub(rb'"\1": ""', path.read_bytes())
    return found


def kill_points() -> Iterator[tuple[int, float]]:
    """After how many new files, and how many seconds later, a process is killed."""
    generator = random.Random(20260914)
    while True:
        yield generator.choice((1, 2, 3, 5, 9, 20, 29, 31, 33)), generator.uniform(0, 0.2)


def test_twenty_kills_at_random_points_end_with_the_same_frozen_bytes(checkout: Checkout) -> None:
    undisturbed = checkout.folder / "undisturbed"
    done = checkout.qualgate(*command(undisturbed.name))
    assert done.returncode == 0, done.stderr
    expected = frozen_bytes(undisturbed)
    assert len(expected) == 3  # the record and two traces

    points = kill_points()
    kills, number = 0, 0
    while kills < KILLS:
        # A qualification that ends between two kills is compared, and the next one begun.
        number += 1
        folder = checkout.folder / f"killed-{number}"
        while kills < KILLS:
            files, seconds = next(points)
            with started(checkout, folder.name) as child:
                before = count_files(folder)
                wait_for(lambda: count_files(folder) >= before + files, child)  # noqa: B023  waits here
                time.sleep(seconds)
                ended = child.poll() is not None
            if ended:
                break
            kills += 1
        done = checkout.qualgate(*command(folder.name))
        assert done.returncode == 0, done.stderr
        assert frozen_bytes(folder) == expected
        assert not list(folder.rglob("*.tmp"))
        for name in ("plan.json", "verdict.json"):
            assert without_chain(folder / name) == without_chain(undisturbed / name)


def without_chain(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_bytes())
    return {key: item for key, item in value.items() if key != "scores_sha256"}


def count_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))
