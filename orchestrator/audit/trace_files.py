"""The sidecars of traces against the chain heads that their records hold. Edge: reads files."""

from __future__ import annotations

from pathlib import Path

from orchestrator.audit.findings import Findings
from orchestrator.errors import EvidenceError
from orchestrator.json_text import member
from orchestrator.models import FrozenTrace, QualificationRecord, RunRecord, TraceFacts
from orchestrator.trace_file import load_trace


def audit_trace_files(record: RunRecord, folder: Path, path: str, found: Findings) -> None:
    """The sidecar in a run folder has the chain that the record holds."""
    if record.result is not None and record.result.trace is not None:
        _audit_sidecar(record.result.trace, folder, f"{path}.result.trace", found)


def audit_frozen_trace_files(record: QualificationRecord, folder: Path, path: str, found: Findings) -> None:
    """The sidecars beside a frozen record have the chains that it holds; they may be missing."""
    for index, frozen in enumerate(record.cases):
        if frozen.trace is not None and (folder / frozen.trace.file).exists():
            _audit_sidecar(frozen.trace, folder, f"{path}.cases[{index}].trace", found)


def _audit_sidecar(trace: TraceFacts | FrozenTrace, folder: Path, path: str, found: Findings) -> None:
    at = member(path, "file")
    try:
        read = load_trace(folder, trace)
    except (EvidenceError, OSError) as error:
        found.require("trace.sidecar", at, False, error, "the trace of this record")
    else:
        is_there = read is not None and read.digests is not None
        found.require("trace.sidecar", at, is_there, "no such file", trace.file)
