"""A study and a validation: clean as they come from real runs, and one lie at a time in each."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.audit.evidence import audit_path
from orchestrator.cases import named_case
from orchestrator.environment import default_settings
from orchestrator.models import StudyReport, ValidationReport
from orchestrator.runner import RunOptions, new_run_folder
from orchestrator.study import Study, run_study
from orchestrator.study_plan import StudyPlan
from orchestrator.validation_run import run_validation
from tests.orchestrator.audit.lies import Json, Lie, audit_json, other_hash, planted, plus


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    usual = default_settings(platform.machine())
    plan = StudyPlan(
        settings={"first": usual, "second": replace(usual, mkl_cbwr="COMPATIBLE")},
        baseline="first",
        left_out={},
    )
    done = run_study(
        named_case("synthetic-300-100"),
        plan,
        RunOptions(repeats=2),
        processes=2,
        runs_dir=tmp_path_factory.mktemp("studies"),
        progress=lambda _: None,
    )
    assert done.failure is None
    return done


PURE_LIES = [
    Lie("baseline", "third", "study.baseline"),
    Lie("processes", 1, "study.processes", "rows[0].records"),
    Lie("rows[1].setting", "first", "study.settings-once", "rows"),
    Lie("rows[1].memory.peak_bytes", 1, "study.reduction", "rows[1].memory.peak_reduction"),
    Lie("rows[1].memory.live_reduction", 2.0, "study.reduction"),
    Lie("rows[0].ms_per_task.mean", plus(1e-6), "study.mean"),
    Lie("rows[1].ms_per_task.ratio.estimate", 0.1, "study.ratio"),
    Lie("rows[1].ms_per_task.ratio.lower_95", plus(0.001), "study.ratio"),
    Lie(
        "rows[1].ms_per_task.ratio.verdict",
        lambda verdict: "ambiguous" if verdict != "ambiguous" else "lower",
        "study.ratio",
    ),
]


def of(study: Study) -> Json:
    value: Json = json.loads((study.folder / "study.json").read_bytes())
    return value


def test_a_study_is_clean_with_its_runs(study: Study) -> None:
    report = audit_path(study.folder)
    assert report.sound, [file.findings for file in report.files]
    assert len(report.files) == 5


@pytest.mark.parametrize("lie", PURE_LIES, ids=str)
def test_a_lie_in_a_study_is_found_by_its_rule(study: Study, lie: Lie) -> None:
    findings = audit_json(planted(of(study), lie.path, lie.value), StudyReport)
    assert lie.found_in(findings), findings


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        ("rows[0].records[0].file_sha256", other_hash, "study.record-hash"),
        ("rows[0].records[1].file", "nowhere/record.json", "study.record-hash"),
        ("rows[1].bits.level_reached", None, "study.row"),
        ("rows[1].bits.differing_fields", plus(1), "study.row"),
        ("rows[0].ms_per_task.process_values[0]", plus(1.0), "study.row"),
        ("rows[1].settings.mkl_cbwr", "AVX2", "study.settings"),
        ("case.config.seed", 12, "study.case"),
    ],
)
def test_a_study_that_is_not_that_of_its_runs_is_found(
    study: Study, tmp_path: Path, path: str, value: Any, rule: str
) -> None:
    folder = tmp_path / "study"
    shutil.copytree(study.folder, folder)
    (folder / "study.json").write_text(json.dumps(planted(of(study), path, value), indent=2) + "\n")
    (report,) = (file for file in audit_path(folder).files if file.record_file == "study.json")
    assert rule in {finding.rule for finding in report.findings}


# --- validation -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = new_run_folder(tmp_path_factory.mktemp("validations"), "validate")
    run_validation(default_settings(platform.machine()), RunOptions(), folder)
    return folder


def file_of(folder: Path) -> Path:
    (path,) = folder.glob("*.json")
    return path


VALIDATION_LIES = [
    Lie("cases[0].checks[0].passed", False, "report.passed", "passed"),
    Lie("cases[0].checks[0].largest_ratio", 55.0, "report.check-passed", "cases[0].checks[0].passed"),
    Lie("passed", False, "report.passed"),
]


def test_a_validation_is_clean(validated: Path) -> None:
    report = audit_path(validated)
    assert report.sound, report.files[0].findings


@pytest.mark.parametrize("lie", VALIDATION_LIES, ids=str)
def test_a_lie_in_a_validation_is_found_by_its_rule(validated: Path, lie: Lie) -> None:
    record: Json = json.loads(file_of(validated).read_bytes())
    findings = audit_json(planted(record, lie.path, lie.value), ValidationReport)
    assert lie.found_in(findings), findings


def test_checks_of_a_kind_that_are_missing_or_double_are_found(validated: Path) -> None:
    record: Json = json.loads(file_of(validated).read_bytes())
    checks = record["cases"][0]["checks"]
    fewer = [check for check in checks if check["kind"] != "velocities"]
    twice = [*checks, checks[0]]
    for lie, rule in ((fewer, "report.kinds"), (twice, "report.checks-once")):
        findings = audit_json(planted(record, "cases[0].checks", lie), ValidationReport)
        assert rule in {finding.rule for finding in findings}


def test_another_source_beside_a_validation_is_found(validated: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(validated, folder)
    with (folder / "fixture" / "task.py").open("a") as file:
        file.write("# another\n")
    (report,) = audit_path(folder).files
    assert [finding.rule for finding in report.findings] == ["report.sources"]


# --- what is no file --------------------------------------------------------------------------------


def test_a_pipe_in_a_folder_is_a_finding_and_not_waited_for(tmp_path: Path) -> None:

    os.mkfifo(tmp_path / "record.json")
    (report,) = audit_path(tmp_path).files
    assert [finding.rule for finding in report.findings] == ["file.readable"]
