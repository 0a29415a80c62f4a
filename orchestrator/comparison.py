"""Reads one side of a comparison from a file: a run record of any version, or a frozen record."""

from __future__ import annotations

from pathlib import Path

from orchestrator.codec import kind_of_model, load
from orchestrator.errors import InputError, UsageError
from orchestrator.models import QualificationRecord, RunRecord, RunRecordV1
from orchestrator.qualification import load_frozen
from orchestrator.verdict import Evidence, evidence_of_frozen, evidence_of_run


def load_evidence(path: Path) -> Evidence:
    """The evidence in a record file.

    Raises:
        InputError: when the file cannot be read or is a record of another kind.
        EvidenceError: when the record is broken, or its run failed.
        UsageError: when a frozen record holds several cases.
    """
    record = load(path)
    if isinstance(record, RunRecord | RunRecordV1):
        return evidence_of_run(record, _label(path))
    if isinstance(record, QualificationRecord):
        frozen = load_frozen(path).record
        if len(frozen.cases) != 1:
            names = ", ".join(item.case.name for item in frozen.cases)
            raise UsageError(f"holds several cases ({names}), expected one", where=str(path))
        return evidence_of_frozen(frozen, frozen.cases[0], path.name)
    kind = kind_of_model(type(record)).name
    raise InputError(f"found a {kind}, expected a run record or a frozen record", where=str(path))


def _label(path: Path) -> str:
    # A run's folder says more than `record.json` does.
    return path.parent.name if path.name == "record.json" else path.name
