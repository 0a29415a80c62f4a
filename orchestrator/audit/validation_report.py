"""A validation report: its judgements from their own numbers, and its sources on disk."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from orchestrator.audit.findings import Findings
from orchestrator.audit.run import source_file
from orchestrator.hashing import file_sha256
from orchestrator.json_text import member
from orchestrator.models import TensorCheck, TensorKind, ValidationReport


def may_pass(check: TensorCheck) -> bool:
    """Whether a check's own numbers let it pass."""
    if check.kind == "repetition":
        return check.largest_absolute_error == 0
    return check.largest_ratio is not None and check.largest_ratio <= 1


def audit_validation_report(report: ValidationReport, path: str, found: Findings) -> None:
    """Every judgement follows from its numbers, and the whole from its parts."""
    for index, case in enumerate(report.cases):
        place = f"{path}.cases[{index}].checks"
        kinds = {check.kind for check in case.checks}
        found.equal("report.kinds", place, sorted(kinds), sorted(get_args(TensorKind)))
        names = [(check.name, check.kind, check.reference) for check in case.checks]
        found.equal("report.checks-once", place, len(names), len(set(names)))
        for number, check in enumerate(case.checks):
            at = f"{place}[{number}].passed"
            found.require("report.check-passed", at, not check.passed or may_pass(check), True, False)
    passed = all(check.passed for case in report.cases for check in case.checks)
    found.equal("report.passed", f"{path}.passed", report.passed, passed)


def audit_report_sources(report: ValidationReport, folder: Path, path: str, found: Findings) -> None:
    """The sources that lie beside a report are those that ran."""
    if not (folder / "fixture").is_dir():
        return
    for name, digest in report.source_sha256.items():
        file = folder / source_file(name)
        held = file_sha256(file) if file.is_file() else "no such file"
        found.equal("report.sources", member(f"{path}.source_sha256", name), digest, held)
