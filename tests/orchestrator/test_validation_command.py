"""`qualgate validate`: a real process from a checkout, sound and with a planted fault; lies of its report."""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.codec import check_model, decode
from orchestrator.environment import build_environment, default_settings
from orchestrator.errors import EvidenceError
from orchestrator.models import ValidationReport
from orchestrator.render_validation import validation_line, validation_table
from orchestrator.validation_run import check_report
from tests import strategies as samples
from tests.orchestrator.checkout import Checkout, last_line

pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which a validation has passed; what it printed is in `stdout.txt`."""
    checkout = Checkout.copy(tmp_path_factory.mktemp("sound"))
    done = checkout.qualgate("validate", "--runs-dir", "runs")
    assert done.returncode == 0, done.stderr
    (checkout.folder / "stdout.txt").write_text(done.stdout)
    return checkout


def report_of(checkout: Checkout) -> ValidationReport:
    (path,) = (checkout.folder / "runs").glob("*/result.json")
    record = decode(path.read_bytes(), str(path))
    assert isinstance(record, ValidationReport)
    return record


def test_a_sound_task_is_validated_under_both_numerics_at_both_depths(sound: Checkout) -> None:
    report = report_of(sound)
    assert report.passed
    assert {(case.numerics, case.config.depth) for case in report.cases} == {
        ("native", 1), ("native", 2), ("portable", 1), ("portable", 2),
    }  # fmt: skip
    assert (report.train_count, report.test_count, report.cases[0].config.batch_size) == (19, 7, 8)
    printed = (sound.folder / "stdout.txt").read_text()
    count = sum(len(case.checks) for case in report.cases)
    assert printed.startswith(f"validated: cpu: {count:,} checks passed\n")
    assert printed.count("same bits") == 4


def test_the_folder_holds_sources_and_output(sound: Checkout) -> None:
    (folder,) = (sound.folder / "runs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"fixture", "result.json", "stdout.txt", "stderr.txt"}
    assert (
        (folder / "stdout.txt")
        .read_text()
        .startswith("native, depth 1, weight decay 0: 260 checks, 0 failed")
    )


def test_a_wrong_gradient_is_named_in_the_last_line(tmp_path: Path) -> None:
    checkout = Checkout.copy(tmp_path)
    checkout.edit(
        "fixture/numerics/native.py",
        "torch.mm(left_gradient.t(), active, out=weight_gradients[first]).mul_(alpha)",
        "torch.mm(left_gradient.t(), active, out=weight_gradients[first]).mul_(-alpha)",
    )
    done = checkout.qualgate("validate", "--json", "--runs-dir", "runs")
    assert done.returncode == 1
    assert "first native, depth 1, weight decay 0, epoch 0, step 0, gradients.weights.0: " in last_line(done)
    report = json.loads(done.stdout)
    failed = {case["numerics"] for case in report["cases"] for check in case["checks"] if not check["passed"]}
    assert failed == {"native"}


def test_a_process_that_leaves_no_report_is_a_failed_run(sound: Checkout) -> None:
    done = sound.qualgate("validate", "--runs-dir", "failing", "--python", "/bin/false")
    assert done.returncode == 4
    assert "the fixture ended with exit code 1" in last_line(done)


# --- what a report may not say --------------------------------------------------------------------

SETTINGS = default_settings(platform.machine())


def first_check(report: Any) -> Any:
    return report["cases"][0]["checks"][0]


def first_repetition(report: Any) -> Any:
    return next(check for check in report["cases"][0]["checks"] if check["kind"] == "repetition")


def leave_out_velocities(report: Any) -> None:
    checks = report["cases"][2]["checks"]
    checks[:] = [check for check in checks if check["kind"] != "velocities"]


# A change of a sound report, and what is said against it.
LIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "another device": (lambda r: r.update(device="cuda"), "at $.device: found cuda, expected cpu"),
    "other sources": (
        lambda r: r["source_sha256"].update({"task.py": samples.digest(1)}),
        "at $.source_sha256",
    ),
    "another environment": (
        lambda r: r["environment"].update(sha256=samples.digest(1)),
        "at $.environment",
    ),
    "a switch changed": (
        lambda r: r["environment"].update(changed_during_run=["MKL_CBWR"]),
        "at $.environment",
    ),
    "a numerics left out": (
        lambda r: r.update(cases=r["cases"][:4]),
        "at $.cases: no case of portable numerics at depth 1",
    ),
    "a kind left out": (leave_out_velocities, "at $.cases[2].checks: none of velocities"),
    "a wrong tensor passes": (
        lambda r: first_check(r).update(largest_ratio=1.5),
        "at $.cases[0].checks[0].passed: found true",
    ),
    "a NaN passes": (
        lambda r: first_check(r).update(largest_ratio=None),
        "at $.cases[0].checks[0].passed: found true",
    ),
    "other bits pass": (
        lambda r: first_repetition(r).update(largest_absolute_error=1e-9),
        "passed: found true",
    ),
    "a failure passes": (lambda r: first_check(r).update(passed=False), "at $.passed: found true"),
}


def checked(report: Any, sources: dict[str, str]) -> None:
    environment = build_environment(SETTINGS, inherited={}, machine=platform.machine())
    check_report(
        check_model(report, ValidationReport, "report"), SETTINGS, environment.sha256, sources, "result.json"
    )


@pytest.fixture
def as_started_here(sound: Checkout) -> Any:
    """The sound report as JSON, in an environment that this test can build."""
    report = report_of(sound).model_dump()
    environment = build_environment(SETTINGS, inherited={}, machine=platform.machine())
    report["environment"]["sha256"] = environment.sha256
    return report


def test_the_sound_report_is_believed(as_started_here: Any) -> None:
    checked(as_started_here, as_started_here["source_sha256"])


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_broken_evidence(name: str, as_started_here: Any) -> None:
    change, said = LIES[name]
    sources = dict(as_started_here["source_sha256"])
    lying = deepcopy(as_started_here)
    change(lying)
    with pytest.raises(EvidenceError) as caught:
        checked(lying, sources)
    assert said in str(caught.value)


# --- how a failure reads --------------------------------------------------------------------------


def failed_report() -> ValidationReport:
    return check_model(samples.validation(), ValidationReport, "sample")


def test_the_first_failure_is_the_line() -> None:
    assert validation_line(failed_report()) == (
        "not validated: cpu: 3 of 5 checks failed, first native, depth 2, weight decay 0, epoch 0, step 2, "
        "gradients.weights.3: largest error 1.2e-07, 12.5 times the tolerance against float64 autograd"
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [(2, "velocities.weights.3: NaN or infinite"), (4, "kept, velocity.0: the second run left other bits")],
)
def test_a_failure_without_a_ratio_says_what_it_is(number: int, said: str) -> None:
    report = failed_report()
    (case,) = report.cases
    one = case.model_copy(update={"checks": [case.checks[number]]})
    assert said in validation_line(report.model_copy(update={"cases": [one]}))


def test_the_table_shows_failures_before_larger_ratios_that_passed() -> None:
    printed = io.StringIO()
    Console(width=120, file=printed).print(validation_table(failed_report()))
    rows = {
        line.split()[2]: line.split()[3:] for line in printed.getvalue().splitlines() if "native   " in line
    }
    assert rows["forward"][:3] == ["1", "0", "0.25"]
    assert rows["gradients"][:3] == ["1", "1", "12"]
    assert rows["velocities"][:4] == ["1", "1", "not", "finite"]
    assert rows["repetition"][:4] == ["1", "1", "other", "bits"]
