"""Whether a run record may hold Nsight Compute's findings, and then what they are worth. Pure."""

from __future__ import annotations

from orchestrator.audit.findings import Findings
from orchestrator.models import NcuProfile, RunRecord, RunRecordV1


def audit_ncu(record: RunRecordV1 | RunRecord, path: str, found: Findings) -> None:
    """Only a profile has findings."""
    if not isinstance(record, RunRecord):
        return
    place = f"{path}.ncu"
    found.require(
        "ncu.mode", place, record.ncu is None or record.action == "profile", "findings", "none in this mode"
    )
    if isinstance(record.ncu, NcuProfile):
        # The reader of Nsight Compute's output has no part in other audits, and takes a while to load.
        from orchestrator.audit.ncu_profile import audit_ncu_profile

        audit_ncu_profile(record, record.ncu, place, found)
