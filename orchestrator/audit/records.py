"""Which rules a record of each kind has to keep. Pure: a record in, findings out."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.audit.command import audit_command, audit_mode
from orchestrator.audit.energy import audit_energy
from orchestrator.audit.environment import audit_environment, audit_platform
from orchestrator.audit.findings import Findings
from orchestrator.audit.hashes import audit_hashes
from orchestrator.audit.inventory import audit_inventory
from orchestrator.audit.memory import audit_cache_reference, audit_memory
from orchestrator.audit.ncu import audit_ncu
from orchestrator.audit.qualification import audit_qualification, audit_retirement
from orchestrator.audit.qualify import audit_plan, audit_qualification_verdict
from orchestrator.audit.run import audit_outcome
from orchestrator.audit.trace import audit_trace
from orchestrator.audit.validation import audit_validation
from orchestrator.audit.validation_report import audit_validation_report
from orchestrator.models import (
    FixtureResult,
    FixtureResultV1,
    QualificationPlan,
    QualificationRecord,
    QualificationVerdict,
    Retirement,
    RunRecord,
    RunRecordV1,
    Strict,
    StudyReport,
    ValidationReport,
)

# A new part of a result is one file of rules and one line here.
_RESULT_RULES: tuple[Callable[[FixtureResultV1 | FixtureResult, str, Findings], None], ...] = (
    audit_mode,
    audit_memory,
    audit_cache_reference,
    audit_inventory,
    audit_validation,
    audit_hashes,
    audit_energy,
    audit_platform,
    audit_trace,
)
_RUN_RULES: tuple[Callable[[RunRecordV1 | RunRecord, str, Findings], None], ...] = (
    audit_outcome,
    audit_command,
    audit_environment,
    audit_ncu,
)


def audit_record(record: Strict) -> Findings:
    """Apply every rule that a record's kind has; a kind without rules is checked by its schema alone.

    A failed run's record, which has no result, is sound evidence of a failure: what is there is audited.
    """
    found = Findings()
    match record:
        case RunRecordV1() | RunRecord():
            for audit_run in _RUN_RULES:
                audit_run(record, "$", found)
            if record.result is not None:
                _audit_result(record.result, "$.result", found)
        case FixtureResultV1() | FixtureResult():
            _audit_result(record, "$", found)
        case QualificationRecord():
            audit_qualification(record, "$", found)
        case StudyReport():
            # What derives ratios has no part in other audits.
            from orchestrator.audit.study import audit_study

            audit_study(record, "$", found)
        case ValidationReport():
            audit_validation_report(record, "$", found)
        case Retirement():
            audit_retirement(record, "$", found)
        case QualificationPlan():
            audit_plan(record, "$", found)
        case QualificationVerdict():
            audit_qualification_verdict(record, "$", found)
        case _:
            pass
    return found


def _audit_result(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    for audit in _RESULT_RULES:
        audit(result, path, found)
