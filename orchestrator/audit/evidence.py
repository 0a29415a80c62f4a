"""Audits a file, or a folder of evidence with its runs and frozen records at any depth.

Edge: finds and reads files. A file of a folder that cannot be read as a record is a finding of its own, and
the audit goes on to the others.
"""

from __future__ import annotations

from pathlib import Path

from orchestrator.audit.artefacts import RECORD, audit_artefacts, has_artefacts
from orchestrator.audit.findings import Findings
from orchestrator.audit.records import audit_record
from orchestrator.audit.trace_files import audit_frozen_trace_files
from orchestrator.audit.validation_report import audit_report_sources
from orchestrator.codec import decode, kind_of_model, read_bytes
from orchestrator.errors import EvidenceError, InputError
from orchestrator.hashing import file_sha256
from orchestrator.models import (
    AuditedFile,
    AuditReport,
    QualificationRecord,
    QualificationScores,
    QualificationVerdict,
    Retirement,
    RunRecord,
    Strict,
    StudyReport,
    ValidationReport,
)


def audit_path(path: Path) -> AuditReport:
    """Audit a record file or an evidence folder.

    Raises:
        InputError: when the path cannot be read, or a folder holds no record: no evidence is not sound
            evidence.
        EvidenceError: when a file that was named itself is no sound record.
    """
    if path.is_dir():
        files = [_audit_in_folder(file, path) for file in _record_files(path)]
        if not files:
            raise InputError("holds no record (.json)", where=str(path))
    else:
        record = decode(read_bytes(path), str(path))
        files = [_audit_file(record, path, path.name)]
    return AuditReport(
        kind="audit",
        schema_version=1,
        sound=not any(file.findings for file in files),
        files=files,
    )


def _record_files(folder: Path) -> list[Path]:
    """Every JSON file, but for those that are part of a run: they belong to the run's own record."""
    runs = {file.parent for file in folder.rglob(RECORD)}
    return [
        file
        for file in sorted(folder.rglob("*.json"))
        if file.name == RECORD or not runs & {file.parent, *file.parents}
    ]


def _audit_in_folder(file: Path, folder: Path) -> AuditedFile:
    name = file.relative_to(folder).as_posix()
    found = Findings()
    if not file.is_file():  # to read a pipe would be to wait for whoever writes to it
        found.require("file.readable", "$", False, "no regular file", "a sound record")
        return _audited(name, "unreadable", found, artefacts=None)
    try:
        record = decode(read_bytes(file), name)
    except (EvidenceError, InputError) as error:
        rule = "file.record" if isinstance(error, EvidenceError) else "file.readable"
        found.require(rule, "$", False, error.what, "a sound record")
        return _audited(name, "unreadable", found, artefacts=None)
    return _audit_file(record, file, name, run_folder=file.name == RECORD)


def _audit_file(record: Strict, file: Path, name: str, *, run_folder: bool = False) -> AuditedFile:
    """Audit a record; in a run folder with its artefacts, whether they are there or not."""
    found = audit_record(record)
    artefacts: int | None = None
    if isinstance(record, RunRecord) and (run_folder or has_artefacts(record, file.parent)):
        audit_artefacts(record, file.parent, "$", found)
        artefacts = len(record.artefact_sha256)
    if isinstance(record, QualificationRecord):
        _audit_superseded(record, file.parent, found)
        audit_frozen_trace_files(record, file.parent, "$", found)
    if isinstance(record, StudyReport):
        from orchestrator.audit.study_runs import audit_study_runs

        audit_study_runs(record, file.parent, "$", found)
    if isinstance(record, ValidationReport):
        audit_report_sources(record, file.parent, "$", found)
    if isinstance(record, Retirement):
        retired = file.parent / record.file
        held = file_sha256(retired) if retired.is_file() else "no such file"
        found.equal("retirement.record", "$.file_sha256", record.file_sha256, held)
    if isinstance(record, QualificationScores):
        before = file.parent / record.frozen_file
        _audit_chain("scores.frozen", "$.frozen_sha256", record.frozen_sha256, before, found)
    if isinstance(record, QualificationVerdict):
        before = file.parent / "scores.json"
        _audit_chain("accuracy.scores", "$.scores_sha256", record.scores_sha256, before, found)
    kind = kind_of_model(type(record))
    return _audited(name, f"{kind.name}.v{kind.version}", found, artefacts)


def _audit_superseded(record: QualificationRecord, folder: Path, found: Findings) -> None:
    """The record that this one replaces, where it still lies beside it."""
    old = record.supersedes
    if old is not None and (folder / old.file).is_file():
        found.equal(
            "qualification.supersedes",
            "$.supersedes.file_sha256",
            old.file_sha256,
            file_sha256(folder / old.file),
        )


def _audit_chain(rule: str, path: str, named: str, before: Path, found: Findings) -> None:
    """The file of the phase before this one, where it still lies beside it."""
    if before.is_file():
        found.equal(rule, path, named, file_sha256(before))


def _audited(name: str, kind: str, found: Findings, artefacts: int | None) -> AuditedFile:
    return AuditedFile(
        record_file=name,
        record_kind=kind,
        rules=len(found.rules),
        checks=found.checks,
        artefacts=artefacts,
        findings=found.found,
    )
