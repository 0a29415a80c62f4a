"""A study against the run records in its folder: every row is made again from them. Edge: reads files."""

from __future__ import annotations

from pathlib import Path

from orchestrator.audit.findings import Findings
from orchestrator.codec import load
from orchestrator.environment import NumericSettings
from orchestrator.errors import EvidenceError, InputError
from orchestrator.hashing import file_sha256
from orchestrator.models import RunRecord, StudyReport, StudyRun
from orchestrator.study_rows import SettingRuns, study_rows

_DERIVED = ("bits", "memory", "ms_per_task", "idle_adjusted_mj_per_task")


def audit_study_runs(study: StudyReport, folder: Path, path: str, found: Findings) -> None:
    """Every named record, and then what follows from all of them; nothing where none of them is there."""
    named = [run for row in study.rows for run in row.records]
    if not any((folder / run.file).is_file() for run in named):
        return
    every = []
    complete = True
    for index, row in enumerate(study.rows):
        settings = NumericSettings(**row.settings.model_dump())
        runs = SettingRuns(row.setting, settings, files=list(row.records), failure=row.failure)
        for number, run in enumerate(row.records):
            record = _record(run, folder, f"{path}.rows[{index}].records[{number}]", found)
            complete = complete and record is not None
            if record is not None:
                _audit_run(study, record, row.settings, f"{path}.rows[{index}]", found)
            if record is not None and record.result is not None:
                runs.records.append(record)
        every.append(runs)
    if not complete or study.baseline not in [runs.setting for runs in every]:
        return
    for index, (row, derived) in enumerate(zip(study.rows, study_rows(every, study.baseline), strict=True)):
        for name in _DERIVED:
            found.equal(
                "study.row", f"{path}.rows[{index}].{name}", getattr(row, name), getattr(derived, name)
            )


def _record(run: StudyRun, folder: Path, path: str, found: Findings) -> RunRecord | None:
    file = folder / run.file
    held = file_sha256(file) if file.is_file() else "no such file"
    found.equal("study.record-hash", f"{path}.file_sha256", run.file_sha256, held)
    try:
        record = load(file) if file.is_file() else None
    except (EvidenceError, InputError):
        return None  # a finding of the record's own
    return record if isinstance(record, RunRecord) else None


def _audit_run(study: StudyReport, record: RunRecord, settings: object, path: str, found: Findings) -> None:
    found.equal("study.settings", f"{path}.settings", record.settings, settings)
    found.equal("study.case", f"{path}.records", record.case, study.case)
