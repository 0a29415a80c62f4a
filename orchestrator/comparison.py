"""Reads one side of a comparison from a file: a run record of any version, or a frozen record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.codec import kind_of_model, load
from orchestrator.errors import InputError, UsageError
from orchestrator.models import FixtureResult, FrozenCase, QualificationRecord, RunRecord, RunRecordV1
from orchestrator.qualification import load_frozen
from orchestrator.trace_file import load_trace
from orchestrator.verdict import Evidence, evidence_of_frozen, evidence_of_run


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its evidence, and the run record or the frozen case that it is from."""

    evidence: Evidence
    run: RunRecord | RunRecordV1 | None
    frozen: FrozenCase | None


def load_side(path: Path) -> Side:
    """One side of a comparison, from a record file.

    Raises:
        InputError: when the file cannot be read or is a record of another kind.
        EvidenceError: when the record is broken, or its run failed.
        UsageError: when a frozen record holds several cases.
    """
    record = load(path)
    if isinstance(record, RunRecord | RunRecordV1):
        facts = record.result.trace if isinstance(record.result, FixtureResult) else None
        return Side(evidence_of_run(record, _label(path), load_trace(path.parent, facts)), record, None)
    if isinstance(record, QualificationRecord):
        frozen = load_frozen(path).record
        if len(frozen.cases) != 1:
            names = ", ".join(item.case.name for item in frozen.cases)
            raise UsageError(f"holds several cases ({names}), expected one", where=str(path))
        case = frozen.cases[0]
        trace = load_trace(path.parent, case.trace)
        return Side(evidence_of_frozen(frozen, case, path.name, trace), None, case)
    kind = kind_of_model(type(record)).name
    raise InputError(f"found a {kind}, expected a run record or a frozen record", where=str(path))


def load_evidence(path: Path) -> Evidence:
    """The evidence of one side alone; raises what `load_side` raises."""
    return load_side(path).evidence


def _label(path: Path) -> str:
    # A run's folder says more than `record.json` does.
    return path.parent.name if path.name == "record.json" else path.name
